"""Transformers that pace or stop a stream: `throttle`, `limit`, `timeout`, `abortable`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, overload

from headrace.errors import BadOption, SourceLocation, Step
from headrace.pull.argument_checks import IN_A_TASK, check_integer, check_positive, synchronous_check
from headrace.pull.ask_buffer import StopOnce
from headrace.pull.compose import pull
from headrace.pull.edge import NamedModule, PullEdge
from headrace.pull.elementwise import EndOnce, OnEnd
from headrace.pull.errors import NoAnswerInTime
from headrace.pull.module_context import AbortHandle, Module
from headrace.pull.modules import PullDuplex, PullTransformer, TransformerPart
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import AnswerTo, BatchRead, End, Read


def throttle(*, per_second: float | None = None, every: float | None = None) -> PullTransformer:
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
    return PullTransformer.of("throttle", lambda module, edge: _throttle(module, edge, seconds))


def _throttle(module: Module, edge: PullEdge, seconds: float) -> Read:
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


def timeout(seconds: float) -> PullTransformer:
    """Pass values through; fail with `NoAnswerInTime` if an ask is not answered within `seconds`.

    The time starts with an ask, and restarts with each answer while further asks wait, since concurrent asks
    are answered one after the other. Upstream is failed with the error, and once it has confirmed, downstream
    gets it. Time in which downstream does not ask is not counted. Done, errors and aborts are passed on; an
    abort has a time limit of its own (`confirm_within` of `run`).

    >>> from headrace.pull import collect, pull, values
    >>> pull(values("ab"), timeout(60), collect()).run()
    ['a', 'b']
    """
    check_positive("timeout", "seconds", seconds)
    return PullTransformer.of("timeout", lambda module, edge: _timeout(module, edge, seconds), batches=True)


def _timeout(module: Module, edge: PullEdge, seconds: float) -> BatchRead:
    # One timer at a time: when it fires, it checks whether the limit has moved since it was set.
    pending, limit, watching = 0, 0.0, False

    def read(abort: End | None, answer: AnswerTo, most: int) -> None:
        nonlocal pending, limit
        if abort is not None:
            pending = 0
            edge(abort, answer)
            return

        def got(end: End | None, value: Any = None, /) -> None:
            nonlocal pending, limit
            pending -= 1
            limit = module.now() + seconds
            answer(end, value)

        pending += 1
        if pending == 1:
            limit = module.now() + seconds
            if not watching:
                watch()
        edge(None, got, most)

    def watch() -> None:
        nonlocal watching
        watching = pending > 0 and edge.ended is None  # otherwise nobody waits, or the end is on its way
        if watching:
            module.later(limit - module.now(), look)

    def look() -> None:
        if pending and edge.ended is None and limit <= module.now():
            raise _no_answer(module, edge.upper, seconds)
        watch()

    return read


def _no_answer(module: Module, upper: NamedModule, seconds: float) -> NoAnswerInTime:
    return NoAnswerInTime(
        f"{upper.name!r} has not answered within {seconds:g} s",
        where=[
            Step(upper.location, "asked here"),
            Step(module.location, f"and waited for {seconds:g} s"),
        ],
        fix="raise the timeout, or handle it with a catch(...) after it",
        module=upper.name,
        seconds=seconds,
    )


@overload
def limit(inner: PullDuplex, count: int) -> PullDuplex: ...
@overload
def limit(inner: PullTransformer, count: int) -> PullTransformer: ...
def limit(inner: PullDuplex | PullTransformer, count: int) -> PullDuplex | PullTransformer:
    """Cap in-flight values at `count`: those that have entered a duplex or transformer and not left it.

    For modules that read ahead and emit one value per value. An ask of `inner` waits until there is room,
    which each emitted value makes. When no more values will be emitted (its source has ended or was stopped),
    the limit is lifted, so that the incoming stream can end. Ends, errors and aborts are passed on.

    >>> from headrace.pull import collect, eager, pull, tap, values
    >>> order = []
    >>> inner = pull(tap(lambda x: order.append(f"in{x}")), eager(9))
    >>> pull(values(range(3)), limit(inner, 1), tap(lambda x: order.append(f"out{x}")), collect()).run()
    [0, 1, 2]
    >>> print(*order)
    in0 out0 in1 out1 in2 out2
    """
    check_integer("limit", "count", count, least=1)
    owner = object()

    def entrance(module: Module, edge: PullEdge) -> BatchRead:
        return _Entrance(module, edge, module.shared(owner, lambda: _Gates(count)).of("entrance")).read

    def exit(module: Module, edge: PullEdge) -> BatchRead:
        return _Exit(edge, module.shared(owner, lambda: _Gates(count)).of("exit")).read

    into = PullTransformer.of("limit", entrance, batches=True)
    out = PullTransformer.of("limit", exit, batches=True)
    if isinstance(inner, PullTransformer):
        return pull(into, inner, out)
    return PullDuplex(pull(inner.source, out), pull(into, inner.sink), inner.name, inner.location)


class _Gates:
    """Gates of one run, which may use the module several times: an entrance and its exit share a gate."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._halves: set[str] = set()
        self._gate = _Gate(room)

    def of(self, half: str) -> _Gate:
        """Return the most recently opened gate, or a new one if that gate already has this half."""
        if half in self._halves:
            self._halves.clear()
            self._gate = _Gate(self._room)
        self._halves.add(half)
        return self._gate


class _Gate:
    """Gate that counts the values that may still enter, and notifies waiting entrances of free room."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.lifted = False
        self.waiter: _Entrance | None = None

    def leave(self, count: int) -> None:
        self.room += count
        self._tell()

    def lift(self) -> None:
        self.lifted = True
        self._tell()

    def _tell(self) -> None:
        if self.waiter is not None:
            self.waiter.module.enter(self.waiter.go_on)


class _Entrance:
    def __init__(self, module: Module, edge: PullEdge, gate: _Gate) -> None:
        self.module = module
        self._edge = edge
        self._gate = gate
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        gate.waiter = self

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._asks.clear()
            self._edge(abort, answer)
        else:
            self._asks.append((answer, most))
            self.go_on()

    def go_on(self) -> None:
        """Pass on waiting asks while there is room."""
        gate = self._gate
        while self._asks and (gate.room > 0 or gate.lifted):
            answer, most = self._asks.popleft()
            self._ask(answer, most if gate.lifted else min(most, gate.room))

    def _ask(self, answer: AnswerTo, most: int) -> None:
        def got(end: End | None, values: Any = None, /) -> None:
            answer(end, values)
            if end is None and len(values) < most:
                self._gate.room += most - len(values)
                self.go_on()

        self._gate.room -= most
        self._edge(None, got, most)


class _Exit:
    def __init__(self, edge: PullEdge, gate: _Gate) -> None:
        self._edge = edge
        self._gate = gate

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        def got(end: End | None, values: Any = None, /) -> None:
            answer(end, values)
            if end is None:
                self._gate.leave(len(values))
            else:
                self._gate.lift()

        if abort is not None:
            self._gate.lift()
            self._edge(abort, got)
        else:
            self._edge(None, got, most)


@dataclass(frozen=True, eq=False, slots=True)
class Abortable(PullTransformer):
    """Transformer with a handle to stop it; see `abortable`."""

    handle: AbortHandle = field(default_factory=AbortHandle)

    def abort(self, error: Exception | None = None) -> None:
        """Stop upstream in all runs of this transformer, including those that start later.

        Pending asks of downstream are answered once upstream has confirmed: with done, or with the error.
        Later calls, and calls after the end, have no effect. Call it in the thread of the pipeline.
        """
        self.handle.abort(error)


def abortable(on_end: OnEnd | None = None) -> Abortable:
    """Pass values through until `abort()` of the transformer is called, even if called before it runs.

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

    def open(module: Module, edge: PullEdge) -> BatchRead:
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
