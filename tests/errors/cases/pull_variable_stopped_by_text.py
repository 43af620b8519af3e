from headrace.pull.dataflow import Edge, ModuleContext, Sink, pull, values


async def enough(module: ModuleContext, upstream: Edge) -> None:
    await upstream.ask()
    module.done(await upstream.stop("enough"))


pull(values([1, 2]), Sink.of("enough", enough)).run()
