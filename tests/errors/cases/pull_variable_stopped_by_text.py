from headrace.pull.dataflow import DataflowEdge, DataflowSink, ModuleContext, pull, values


async def enough(module: ModuleContext, upstream: DataflowEdge) -> None:
    await upstream.ask()
    module.done(await upstream.stop("enough"))


pull(values([1, 2]), DataflowSink.of("enough", enough)).run()
