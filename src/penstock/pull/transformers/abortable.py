"""abortable: a handle that stops a pipeline from beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import SourceLocation
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.pieces import Transformer, TransformerPart
from penstock.pull.protocol import AnswerTo, BatchRead, End
from penstock.pull.stop_once import StopOnce
from penstock.pull.synchronous import IN_A_TASK, synchronous
from penstock.pull.transformers.through import OnEnd, Over


@dataclass(frozen=True, eq=False, slots=True)
class Abortable(Transformer):
    """See `abortable`."""

    handle: _Handle = field(default_factory=lambda: _Handle())

    def abort(self, error: Exception | None = None) -> None:
        """Stop upstream in all runs of this transformer, and in those that start later.

        What downstream waits for is answered when upstream has confirmed: with done, or with the
        error. Later calls, and one after the end, change nothing. To be called in the thread
        that the pipeline runs in.
        """
        self.handle.abort(True if error is None else error)


def abortable(on_end: OnEnd | None = None) -> Abortable:
    """Values as they come, until somebody calls `abort()` of the transformer, also before it runs.

    on_end: called once when the stream is over, before downstream learns of it: with None after
            done or an abort, else with the error.

    Each ask asks upstream once. An abort from downstream goes upstream, and its confirmation comes
    back (the original forgets it); upstream is stopped once, however often and from where it is
    told to. Asks that pend in an abort are answered after upstream has closed (in the original
    before); what closing fails with is their answer.

    >>> from penstock.pull import collect, pull, tap, values
    >>> stop = abortable()
    >>> enough = tap(lambda x: x == 2 and stop.abort())
    >>> pull(values([1, 2, 3, 4]), stop, enough, collect()).run()
    [1, 2]
    """
    handle = _Handle()
    if on_end is not None:
        on_end = synchronous("abortable", on_end, fix=IN_A_TASK).calling(on_end)

    def open(module: Module, edge: Edge) -> BatchRead:
        return _Abortable(module, edge, handle, Over(on_end)).read

    part = TransformerPart("abortable", SourceLocation.of_caller(), open, batches=True)
    return Abortable((part,), handle=handle)


class _Handle:
    """cause: why it was aborted. running: what to tell in the runs that have not ended."""

    def __init__(self) -> None:
        self.cause: End | None = None
        self.running: dict[_Abortable, Callable[[End], object]] = {}

    def abort(self, cause: End) -> None:
        if self.cause is None:
            self.cause = cause
            for tell in tuple(self.running.values()):
                tell(cause)


class _Abortable:
    def __init__(self, module: Module, edge: Edge, handle: _Handle, over: Over) -> None:
        self._edge = edge
        self._handle = handle
        self._over = over
        self._stop = StopOnce(edge)
        handle.running[self] = lambda cause: module.enter(self._abort, cause)
        module.hold(self)
        if handle.cause is not None:
            module.enter(self._abort, handle.cause)

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        def passed(end: End | None, value: Any = None, /) -> None:
            answer(end if end is None else self._ended(end), value)

        if abort is not None or self._stop.called:
            self._stop(abort or True, passed)
        else:
            self._edge.batch(most, passed)

    def _abort(self, cause: End) -> None:
        if self._edge.ended is None:
            self._stop(cause, lambda end, _value=None, /: self._ended(end or True))

    def _ended(self, end: End) -> End:
        self.cancel()
        return self._over(end)

    def cancel(self) -> None:
        """The module has ended, or its run was given up."""
        self._handle.running.pop(self, None)
