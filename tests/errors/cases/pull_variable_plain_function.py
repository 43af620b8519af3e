from headrace.pull.dataflow import Edge, ModuleContext, Sink, pull, values


def first(module: ModuleContext, upstream: Edge) -> None:
    module.when(upstream.ask(), module.done)


pull(values([1, 2]), Sink.of("first", first)).run()  # type: ignore[arg-type]
