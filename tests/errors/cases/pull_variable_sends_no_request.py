from headrace.pull.dataflow import Ask, Edge, ModuleContext, Sink, pull, values


async def first(module: ModuleContext, upstream: Edge) -> None:
    upstream.send(Ask)


pull(values([1, 2]), Sink.of("first", first)).run()
