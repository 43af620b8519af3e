from penstock.pull.dataflow import Ask, Edge, Module, Sink, pull, values


async def first(module: Module, upstream: Edge) -> None:
    upstream.send(Ask)


pull(values([1, 2]), Sink.of("first", first)).run()
