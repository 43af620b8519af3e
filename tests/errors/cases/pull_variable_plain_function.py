from headrace.pull.dataflow import DataflowEdge, DataflowSink, ModuleContext, pull, values


def first(module: ModuleContext, upstream: DataflowEdge) -> None:
    module.when(upstream.ask(), module.done)


pull(values([1, 2]), DataflowSink.of("first", first)).run()  # type: ignore[arg-type]
