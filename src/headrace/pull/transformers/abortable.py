"""`abortable`: a transformer with a handle that stops its pipeline."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import IN_A_TASK, synchronous_check
from headrace.pull.ask_buffer import StopOnce
from headrace.pull.edge import Edge
from headrace.pull.module_context import Module
from headrace.pull.modules import Transformer, TransformerPart
from headrace.pull.protocol import AnswerTo, BatchRead, End
from headrace.pull.running_modules import AbortHandle
from headrace.pull.transformers.through import EndOnce, OnEnd


@dataclass(frozen=True, eq=False, slots=True)
class Abortable(Transformer):
    """Transformer with a handle to stop it; see `abortable`."""

    handle: AbortHandle = field(default_factory=AbortHandle)

    def abort(self, error: Exception | None = None) -> None:
        """Stop upstream in all runs of this transformer, including those that start later.

        Pending asks of downstream are answered once upstream has confirmed: with done, or with the error.
        Later calls, and calls after the end, have no effect. Call it in the thread of the pipeline.
        """
        self.handle.abort(error)


def abortable(on_end: OnEnd | None = None) -> Abortable:
    """Pass values through until `abort()` of the transformer is called, also before it runs.

    on_end: called once when the stream ends, before downstream is notified: with None after done or an
            abort, otherwise with the error.

    Each ask asks upstream once. An abort from downstream goes upstream, and its confirmation comes back (the
    original forgets it); upstream is stopped once, however often and from whichever side. Asks pending at an
    abort are answered after upstream has closed (before, in the original), with any error of closing.

    >>> from headrace.pull import collect, pull, tap, values
    >>> stop = abortable()
    >>> enough = tap(lambda x: x == 2 and stop.abort())
    >>> pull(values([1, 2, 3, 4]), stop, enough, collect()).run()
    [1, 2]
    """
    handle = AbortHandle()
    if on_end is not None:
        on_end = synchronous_check("abortable", on_end, fix=IN_A_TASK).calling(on_end)

    def open(module: Module, edge: Edge) -> BatchRead:
        over, stop = EndOnce(on_end), StopOnce(edge)
        entry = handle.at_work.add(module, lambda cause: module.enter(abort_now, cause))

        def read(abort: End | None, answer: AnswerTo, most: int) -> None:
            def passed(end: End | None, value: Any = None, /) -> None:
                answer(end if end is None else ended(end), value)

            if abort is not None or stop.called:
                stop(abort or True, passed)
            else:
                edge(None, passed, most)

        def abort_now(cause: End) -> None:
            if edge.ended is None:
                stop(cause, lambda end, _value=None, /: ended(end or True))

        def ended(end: End) -> End:
            entry.cancel()
            return over(end)

        if handle.cause is not None:
            module.enter(abort_now, handle.cause)
        return read

    part = TransformerPart("abortable", SourceLocation.of_caller(), open, batches=True)
    return Abortable((part,), handle=handle)
