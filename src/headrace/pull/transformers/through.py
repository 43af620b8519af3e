"""`through`: observe values and the end as they pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.pull.argument_checks import IN_A_TASK, refuse_async, synchronous_check
from headrace.pull.compose import pull
from headrace.pull.edge import Edge
from headrace.pull.module_context import Module
from headrace.pull.modules import Transformer
from headrace.pull.protocol import AnswerTo, BatchRead, End, attach_close_error
from headrace.pull.transformers.elementwise import AWAIT_AND_RETURN, tap

OnEnd = Callable[[Exception | None], object]
"""Callback for the end of a stream: with None after done or an abort, otherwise with the error."""


def through(on_value: Callable[[Any], object] | None = None, on_end: OnEnd | None = None) -> Transformer:
    """Call `on_value(value)` for each value, and `on_end(error)` once before the end is passed on.

    on_end gets None for a normal end and for a confirmed abort, otherwise the error: of upstream, of
    downstream, of `on_value`, or of closing. Its own exception fails the stream, or is attached to the error.

    >>> from headrace.pull import collect, pull, take, values
    >>> ended = []
    >>> pull(values("abc"), through(on_end=ended.append), take(1), collect()).run(), ended
    (['a'], [None])
    """
    parts: list[Transformer] = []
    if on_value is not None:
        refuse_async("through", on_value, fix=AWAIT_AND_RETURN)
        parts.append(tap(on_value))
    if on_end is not None:
        parts.append(_at_end(synchronous_check("through", on_end, fix=IN_A_TASK).calling(on_end)))
    return pull(Transformer(()), *parts)


def _at_end(on_end: OnEnd) -> Transformer:
    def open(_module: Module, edge: Edge) -> BatchRead:
        over = EndOnce(on_end)

        def read(abort: End | None, answer: AnswerTo, most: int) -> None:
            def passed(end: End | None, value: Any = None, /) -> None:
                answer(end if end is None else over(end), value)

            if abort is None:
                edge(None, passed, most)
            else:
                edge(abort, passed)

        return read

    return Transformer.of("through", open, batches=True)


class EndOnce:
    """Function that passes an end to the user's function, only once, and returns the end to pass on."""

    def __init__(self, on_end: OnEnd | None) -> None:
        self._on_end = on_end
        self._end: End | None = None

    def __call__(self, end: End) -> End:
        if self._end is None:
            self._end = end
            if self._on_end is not None:
                self._end = _call(self._on_end, end)
        return self._end


def _call(on_end: OnEnd, end: End) -> End:
    try:
        on_end(end if isinstance(end, Exception) else None)
    except Exception as error:
        return attach_close_error(end, error) if isinstance(end, Exception) else error
    return end
