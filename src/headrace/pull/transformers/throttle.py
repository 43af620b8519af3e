"""`throttle`: limit the rate of values."""

from __future__ import annotations

from collections import deque
from typing import Any

from headrace.errors import BadOption, SourceLocation
from headrace.pull.argument_checks import check_positive
from headrace.pull.edge import Edge
from headrace.pull.module_context import Module
from headrace.pull.modules import Transformer
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import AnswerTo, End, Read


def throttle(*, per_second: float | None = None, every: float | None = None) -> Transformer:
    """Space values at least `every` seconds apart, or 1 / `per_second`; give one of the two.

    Each ask immediately asks upstream; values wait here until they are due, and none is lost. The first value
    does not wait, and ends directly follow the last value. An abort or an error from downstream drops waiting
    values.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values("ab"), throttle(every=0.001), collect()).run()
    ['a', 'b']
    """
    if (per_second is None) == (every is None):
        raise BadOption(
            "throttle() takes one of two options",
            where=[SourceLocation.of_caller()],
            why="per_second= and every= say the same thing in two ways.",
            fix="throttle(per_second=10) or throttle(every=0.1)",
        )
    option, value = ("every", every) if every is not None else ("per_second", per_second)
    check_positive("throttle", option, value)
    seconds = every or 1 / (per_second or 1)
    return Transformer.of("throttle", lambda module, edge: _throttle(module, edge, seconds))


def _throttle(module: Module, edge: Edge, seconds: float) -> Read:
    asks: deque[AnswerTo] = deque()
    came: deque[tuple[End | None, Any]] = deque()
    timer: Cancellable | None = None  # time at which the next value may be passed on
    ended: End | None = None
    stopped = False

    def read(abort: End | None, answer: AnswerTo) -> None:
        nonlocal stopped
        if abort is None:
            asks.append(answer)
            edge(None, got)
            return
        stopped = True
        if isinstance(ended, Exception):
            asks[0](ended)  # so that downstream can distinguish it from a failure of closing
        asks.clear()
        came.clear()
        if timer is not None:
            timer.cancel()
        if ended is not None:
            answer(ended)
        else:
            edge(abort, answer)

    def got(end: End | None, value: Any = None, /) -> None:
        nonlocal ended
        if not stopped:
            ended = ended or end
            came.append((end, value))
            give()

    def give() -> None:
        nonlocal timer
        while came and (timer is None or came[0][0] is not None):
            end, value = came.popleft()
            asks.popleft()(end, value)
            if end is None:
                timer = module.later(seconds, in_time)

    def in_time() -> None:
        nonlocal timer
        timer = None
        give()

    return read
