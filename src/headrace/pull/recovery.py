"""`catch`, `reconnect`: continue a stream after an error of upstream."""

from __future__ import annotations

import inspect
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.pull.argument_checks import (
    IN_A_TASK,
    check_integer,
    check_positive,
    refuse_async,
    synchronous_check,
)
from headrace.pull.compose import require_one_kind
from headrace.pull.edge import PullEdge
from headrace.pull.module_context import Module
from headrace.pull.modules import PullSource, PullTransformer
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import AnswerTo, BatchRead, End, Read


def catch(handler: Callable[[Exception], Any] | None = None) -> PullTransformer:
    """Pass values through; when upstream fails, `handler(error)` decides how the stream ends.

    False          the error
    None or True   done: the stream is complete with the values so far. The default without a handler
    another value  this value, and then done

    Upstream has closed by then. An error of closing after an abort from downstream is handled, too, but the
    answer is then only the error or done, never a value. An error sent by downstream is passed on unhandled.
    If the handler raises, its exception is the error, with the original one as its cause.

    >>> from headrace.pull import collect, map, pull, values
    >>> pull(values("12x4"), map(int), catch(lambda error: -1), collect()).run()
    [1, 2, -1]
    """
    if handler is not None:
        handler = synchronous_check("catch", handler, fix=IN_A_TASK).calling(handler)
    return PullTransformer.of("catch", lambda _module, edge: _catch(edge, handler), batches=True)


Handler = Callable[[Exception], Any]


def _catch(edge: PullEdge, handler: Handler | None) -> BatchRead:
    ended: End | None = None
    stopped = False

    def read(abort: End | None, answer: AnswerTo, most: int) -> None:
        nonlocal stopped

        def got(end: End | None, value: Any = None, /) -> None:
            nonlocal ended
            if end is None:
                answer(None, value)
            elif not stopped:
                if ended is None:
                    ended, instead = (True, []) if end is True else _outcome(handler, end)
                    if instead:
                        answer(None, instead)
                        return
                answer(ended)

        def confirmed(end: End | None, _value: Any = None, /) -> None:
            if abort is True and isinstance(end, Exception):
                end = _outcome(handler, end)[0]
            answer(end)

        if ended is not None:
            answer(ended)
        elif abort is None:
            edge(None, got, most)
        else:
            stopped = True
            edge(abort, confirmed)

    return read


def _outcome(handler: Handler | None, error: Exception) -> tuple[End, list[Any]]:
    """Return the stream's end, and a value to emit before it, if any."""
    if handler is None:
        return True, []
    try:
        outcome = handler(error)
    except Exception as later:
        if later is error:
            raise
        raise later from error
    if outcome is False:
        return error, []
    return True, [] if outcome is None or outcome is True else [outcome]


Wait = Callable[[int], float]
"""Function from the number of consecutive failures, from 1, to the seconds until the next attempt."""


def back_off(first: float = 0.1, most: float = 30.0, *, jitter: Callable[[], float] = random.random) -> Wait:
    """Create backoff delays that double from `first` to `most` seconds, less a jitter of up to half.

    jitter: returns a number from 0 to below 1, random by default, so that many clients that lost the same
            peer do not reconnect at the same time.

    >>> wait = back_off(1.0, 5.0, jitter=lambda: 0.0)
    >>> [wait(failures) for failures in (1, 2, 3, 4)]
    [0.5, 1.0, 2.0, 2.5]
    """
    check_positive("back_off", "first", first)
    check_positive("back_off", "most", most)
    refuse_async("back_off", jitter, fix="give a function that returns the number")

    def wait(failures: int) -> float:
        longest = min(first * 2.0 ** min(failures - 1, 1000), most)
        return longest * (0.5 + 0.5 * jitter())

    return wait


def reconnect(
    make: Callable[[], PullSource] | Callable[[Any], PullSource],
    *,
    attempts: int | None = 5,
    wait: Wait | float | None = None,
    position: Callable[[int, Any], Any] | None = None,
) -> PullSource:
    """Emit the values of the source that `make` returns, and reopen it whenever it fails.

    make:     opens the source. If it has a parameter, it receives the position to continue from; otherwise
              the new source starts where it likes, and values may be repeated or lost.
    position: maps the number of values so far and the last one (None if there is none) to the argument of
              `make`; by default that number.
    attempts: limit on consecutive attempts without a value; the last failure ends the stream, and mentions
              the first. None for unlimited.
    wait:     seconds until the source is reopened, or a function of the number of consecutive failures; by
              default `back_off()`.

    Done ends the stream. An exception of `make` counts as a failed attempt. Each ask goes to the current
    source; when that fails, its pending asks are repeated, in order, to the next one, and a source is only
    opened when a value is asked for. An abort goes to the open source; while waiting for the next attempt, it
    is confirmed immediately. An abort is always confirmed with its own end, never with a source's failure.

    >>> from headrace.pull import cat, collect, error, pull, take, values
    >>> def numbers(seen):
    ...     left = list(range(seen, 5))
    ...     return cat([values(left[:2]), error(ConnectionError("lost"))]) if left[2:] else values(left)
    >>> pull(reconnect(numbers, wait=0.001), collect()).run()
    [0, 1, 2, 3, 4]
    """
    if attempts is not None:
        check_integer("reconnect", "attempts", attempts, least=1)
    if wait is not None and not callable(wait):
        check_positive("reconnect", "wait", wait)
    for function in (make, wait, position):
        refuse_async("reconnect", function, fix="return at once: the source itself may wait")
    waits: Wait = back_off() if wait is None else wait if callable(wait) else _always(wait)
    opens = _opener(make, position)

    def open(module: Module) -> Read:
        return _Reconnect(module, opens, attempts, waits).read

    return PullSource.of("reconnect", open)


def _always(seconds: float) -> Wait:
    return lambda _failures: seconds


Opens = Callable[[int, Any], PullSource]
"""Function from the number of values so far, and the last of them, to the source that continues."""


def _opener(make: Callable[..., PullSource], position: Callable[[int, Any], Any] | None) -> Opens:
    if position is not None:
        return lambda count, last: make(position(count, last))
    return (lambda count, _last: make(count)) if _takes_position(make) else (lambda _count, _last: make())


def _takes_position(make: Callable[..., PullSource]) -> bool:
    """Whether a function must be called with an argument."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(
        parameter.kind in positional and parameter.default is inspect.Parameter.empty
        for parameter in parameters
    )


class _Reconnect:
    """Running `reconnect`. It holds the unanswered asks; the open source has the first `_asked` of them."""

    def __init__(self, module: Module, opens: Opens, attempts: int | None, wait: Wait) -> None:
        self._module = module
        self._opens = opens
        self._attempts = attempts
        self._wait = wait
        self._asks: deque[AnswerTo] = deque()
        self._asked = 0
        self._edge: PullEdge | None = None
        self._timer: Cancellable | None = None
        self._count = 0
        self._last: Any = None
        self._failures = 0  # failures since the last value
        self._first: Exception | None = None
        self._end: End | None = None

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is None:
            self._asks.append(answer)
            self._go_on()
            return
        self._asks.clear()
        if self._edge is None or self._edge.ended is not None:
            answer(abort)
        else:
            # A lost source does not fail the stream, because it would have been reopened.
            self._edge(abort, lambda _end, _value=None, /: answer(abort))

    def _go_on(self) -> None:
        if self._end is not None:
            while self._asks:
                self._asks.popleft()(self._end)
        if not self._asks or self._timer is not None:
            return
        if self._edge is None:
            self._open()
        edge = self._edge
        while edge is not None and self._asked < len(self._asks):
            self._asked += 1
            edge(None, partial(self._got, edge))

    def _open(self) -> None:
        try:
            source = self._opens(self._count, self._last)
        except Exception as error:
            self._failed(error)
        else:
            self._edge = self._module.open(*require_one_kind(PullSource, "reconnect", [source]))

    def _got(self, edge: PullEdge, end: End | None, value: Any = None, /) -> None:
        if edge is not self._edge or not self._asks:
            return  # of a source that has failed, or after an abort
        if end is None:
            self._asked -= 1
            self._failures = 0
            self._count += 1
            self._last = value
            self._asks.popleft()(None, value)
        elif isinstance(end, Exception):
            self._failed(end)
        else:
            self._end = end
            self._go_on()

    def _failed(self, error: Exception) -> None:
        self._edge, self._asked = None, 0
        self._failures += 1
        if self._failures == 1:
            self._first = error
        if self._attempts is not None and self._failures >= self._attempts:
            if error is not self._first:
                error.add_note(f"attempt {self._failures}; the first failed by {self._first!r}")
            self._end = error
            self._go_on()
        else:
            self._timer = self._module.later(self._wait(self._failures), self._again)

    def _again(self) -> None:
        self._timer = None
        self._go_on()
