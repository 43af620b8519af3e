from penstock.pull.dataflow import Edge, Module, Sink, pull, values


def first(module: Module, upstream: Edge) -> None:
    module.when(upstream.ask(), module.done)


pull(values([1, 2]), Sink.of("first", first)).run()  # type: ignore[arg-type]
