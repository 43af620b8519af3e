from penstock.pull.dataflow import Edge, Module, Sink, pull, values


async def enough(module: Module, upstream: Edge) -> None:
    await upstream.ask()
    module.done(await upstream.stop("enough"))


pull(values([1, 2]), Sink.of("enough", enough)).run()
