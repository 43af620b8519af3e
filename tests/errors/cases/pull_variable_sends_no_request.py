from headrace.pull.dataflow import Ask, DataflowEdge, DataflowSink, ModuleContext, pull, values


async def first(module: ModuleContext, upstream: DataflowEdge) -> None:
    upstream.send(Ask)


pull(values([1, 2]), DataflowSink.of("first", first)).run()
