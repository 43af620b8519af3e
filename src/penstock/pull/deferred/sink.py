"""A sink that is connected later."""

from __future__ import annotations

from penstock.errors import SourceLocation
from penstock.pull.deferred.later import Later
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.pieces import Sink, SinkPart, open_through
from penstock.pull.run import Run


class DeferredSink(Sink):
    """A sink, and the handle to say later which; see `defer`."""

    __slots__ = ("_later",)
    _later: Later[Sink]

    def __init__(self, location: SourceLocation) -> None:
        later = Later(Sink, location)

        def open(module: Module, edge: Edge) -> None:
            later.when(module, lambda piece: _become(module, edge, piece))

        super().__init__(SinkPart("defer", location, open))
        object.__setattr__(self, "_later", later)

    def resolve(self, sink: Sink) -> None:
        """This is the sink; its result is that of the pipeline."""
        self._later.resolve(sink)

    def abort(self, error: Exception | None = None) -> None:
        """There will be no sink: the stream is aborted (the result is None), or failed with `error`."""

        def open(module: Module, _edge: Edge) -> None:
            if error is None:
                module.done()
            else:
                module.fail(error)

        self.resolve(Sink.of("defer", open))


def _become(module: Module, edge: Edge, sink: Sink) -> None:
    """The waiting module is that of the sink from now on, under its name."""
    for pipeline in sink.beside:
        pipeline.open_in(module.run)
    module.inputs.pop(edge, None)
    end = open_through(module.run, edge, sink.before)
    module.connect(end)
    module.name, module.location = sink.part.name, sink.part.location
    sink.part.open(module, end)
    if sink.behind is not None:
        last = sink.behind.open_in(module.run)[-1]

        def hand_over(run: Run) -> None:
            if last in run.results:
                run.results[module] = run.results[last]

        module.run.when_finished(hand_over)
