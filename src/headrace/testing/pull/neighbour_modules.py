"""Reference modules: a source, a transformer and a sink with parameters for all permitted behaviour.

The source emits 1, 2, 3, ... and an end. The transformer passes everything on, or stops the stream itself.
The sink asks, stops as its parameters say, and records every answer.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, Literal, TypeVar

from headrace.pull.ask_buffer import StopOnce
from headrace.pull.edge import PullEdge
from headrace.pull.module_context import Module
from headrace.pull.modules import PullSink, PullSource, PullTransformer
from headrace.pull.protocol import AnswerTo, End, Read
from headrace.pull.rules.checker import Profile

Pending = Literal["ends", "values", "left"]
"""Treatment of asks that are pending at a stop: answered with the end, still answered with their values,
or left to the edge."""


@dataclass(frozen=True, slots=True)
class SourceCase:
    """Parameters of a reference source.

    count:  number of values. end: the end after them.
    sync:    whether it answers immediately, or a second after being asked, one ask after another.
    pending: see `Pending`; for `sync=False`.
    confirms_done: whether it confirms an error by done instead of the same error.
    """

    count: int
    end: End = True
    sync: bool = True
    pending: Pending = "ends"
    confirms_done: bool = False

    def __str__(self) -> str:
        end = "done" if self.end is True else f"error({self.end})"
        how = "sync" if self.sync else f"async, pending asks: {self.pending}"
        return f"source({self.count} values, {end}, {how}{', confirms done' if self.confirms_done else ''})"


def reference_source(
    count: int,
    end: End = True,
    *,
    sync: bool = True,
    pending: Pending = "ends",
    confirms_done: bool = False,
) -> PullSource:
    """Create a source of 1 to `count`, then `end` forever. Parameters: see `SourceCase`.

    >>> from headrace.pull import collect, pull
    >>> pull(reference_source(3), collect()).run()
    [1, 2, 3]
    """
    return source_of(SourceCase(count, end, sync, pending, confirms_done))


def source_of(case: SourceCase) -> PullSource:
    """Create the reference source with these parameters."""
    return PullSource.of("reference source", lambda module: _ReferenceSource(module, case).read)


class _ReferenceSource:
    def __init__(self, module: Module, case: SourceCase) -> None:
        self._module = module
        self._case = case
        self._given = 0
        self._pending: deque[AnswerTo] = deque()

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is None:
            self._pending.append(answer)
            self._when_due(self._answer_oldest)
        else:
            pending, self._pending = self._pending, deque()
            self._when_due(self._stop, abort, answer, pending)

    def _when_due(self, call: object, *args: object) -> None:
        if self._case.sync:
            call(*args)  # type: ignore[operator]
        else:
            self._module.later(1.0, call, *args)  # type: ignore[arg-type]

    def _answer_oldest(self) -> None:
        if self._pending:  # otherwise it was stopped meanwhile
            self._answer(self._pending.popleft())

    def _answer(self, answer: AnswerTo) -> None:
        if self._given < self._case.count:
            self._given += 1
            answer(None, self._given)
        else:
            answer(self._case.end)

    def _stop(self, abort: End, answer: AnswerTo, pending: deque[AnswerTo]) -> None:
        confirmation: End = True if self._case.confirms_done else abort
        for asked in pending:
            if self._case.pending == "ends":
                asked(confirmation)
            elif self._case.pending == "values":
                self._answer(asked)
        answer(confirmation)


@dataclass(frozen=True, slots=True)
class TransformerCase:
    """Parameters of a reference transformer.

    stops_at: number of the ask (from 1) in place of which it stops upstream; None: never.
    by:       how it stops upstream: True aborts, an exception fails. Downstream gets the confirmation.
    indicates: whether it does not wait for a confirmation.
    sync:     whether it passes answers on immediately, or a second later.
    """

    stops_at: int | None = None
    by: End = True
    indicates: bool = False
    sync: bool = True


def reference_transformer(
    stops_at: int | None = None, by: End = True, *, indicates: bool = False, sync: bool = True
) -> PullTransformer:
    """Create a transformer that passes values on, or stops upstream. Parameters: see `TransformerCase`.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values("abc"), reference_transformer(stops_at=3), collect()).run()
    ['a', 'b']
    """
    return transformer_of(TransformerCase(stops_at, by, indicates, sync))


def transformer_of(case: TransformerCase) -> PullTransformer:
    """Create the reference transformer with these parameters."""

    def open(module: Module, edge: PullEdge) -> Read:
        asked = 0
        stop = StopOnce(edge)

        def delayed(answer: AnswerTo) -> AnswerTo:
            if case.sync:
                return answer
            return lambda end, value=None, /: module.later(1.0, answer, end, value)

        def read(abort: End | None, answer: AnswerTo) -> None:
            nonlocal asked
            asked += 1
            answer = delayed(answer)
            if abort is not None:
                stop(abort, answer)
            elif case.stops_at is None or asked < case.stops_at:
                edge(None, answer)
            elif case.indicates and asked == case.stops_at:
                edge(case.by)
                answer(case.by)
            else:
                stop(case.by, answer)

        return read

    return PullTransformer.of("reference transformer", open)


@dataclass(frozen=True, slots=True)
class SinkCase:
    """Parameters of a reference sink.

    stops_after: number of values after which it stops the stream; None: never.
    by:        how it stops: True aborts, an exception fails.
    indicates: whether it expects no confirmation.
    waits:     whether it stops after its asks are answered, or while one is pending.
    concurrency: number of pending asks.
    batch:     values per ask; more than 1 only with one pending ask.
    afterwards: request after the end: None asks, True aborts, an exception fails.
    """

    stops_after: int | None = None
    by: End = True
    indicates: bool = False
    waits: bool = True
    concurrency: int = 1
    afterwards: tuple[End | None, ...] = ()
    batch: int = 1

    def __str__(self) -> str:
        parts = [f"{self.concurrency} at once" if self.batch == 1 else f"{self.batch} in a batch"]
        if self.stops_after is not None:
            how = "abort" if self.by is True else f"error({self.by})"
            how += " indicated" if self.indicates else ""
            parts.append(
                f"{how} after {self.stops_after} values" + ("" if self.waits else ", an ask pending")
            )
        if self.afterwards:
            kinds = [
                "ask" if abort is None else "abort" if abort is True else "error" for abort in self.afterwards
            ]
            parts.append(f"{' and '.join(kinds)} after the end")
        return f"sink({', '.join(parts)})"


@dataclass(eq=False)
class Seen:
    """Everything that a reference sink received.

    values: in order of arrival. end: the first end, or None.
    answers: by number of the request, from 1. order: the requests in the order of their answers.
    """

    values: list[Any] = field(default_factory=list[Any])
    end: End | None = None
    answers: dict[int, list[tuple[End | None, Any]]] = field(
        default_factory=dict[int, list[tuple[End | None, Any]]]
    )
    order: list[int] = field(default_factory=list[int])
    stopped: bool = False
    """Whether the sink stopped the stream before it received an end."""


def reference_sink(case: SinkCase | None = None, seen: Seen | None = None) -> PullSink:
    """Create a sink with these parameters. Its result is a `Seen`, even if the stream fails.

    >>> from headrace.pull import pull, values
    >>> seen = pull(values("abc"), reference_sink(SinkCase(stops_after=2))).run()
    >>> seen.values, seen.end
    (['a', 'b'], True)
    """
    case = case or SinkCase()

    def open(module: Module, edge: PullEdge) -> None:
        _ReferenceSink(module, edge, case, seen or Seen()).start()

    return PullSink.of("reference sink", open)


class _ReferenceSink:
    def __init__(self, module: Module, edge: PullEdge, case: SinkCase, seen: Seen) -> None:
        self._module = module
        self._edge = edge
        self._case = case
        self._seen = seen
        self._requests = 0
        self._open = 0
        self._afterwards = deque(case.afterwards)

    def start(self) -> None:
        self._go_on()

    def _request(self, abort: End | None, most: int = 1) -> None:
        self._requests += 1
        self._open += 1
        self._seen.answers[self._requests] = []
        if most > 1:
            self._edge(None, partial(self._answered_batch, self._requests), most)
        else:
            self._edge(abort, partial(self._answered, self._requests))

    def _answered_batch(self, index: int, end: End | None, values: Any = None, /) -> None:
        if end is None:
            self._seen.values.extend(values[:-1])
        self._answered(index, end, None if end is not None else values[-1])

    def _answered(self, index: int, end: End | None, value: Any = None, /) -> None:
        seen = self._seen
        seen.answers[index].append((end, value))
        seen.order.append(index)
        self._open -= 1
        if end is None:
            seen.values.append(value)
        elif seen.end is None:
            seen.end = end
        self._go_on()

    def _go_on(self) -> None:
        if self._seen.end is not None:
            self._after_the_end()
        elif not self._seen.stopped:
            self._ask()

    def _ask(self) -> None:
        case, seen = self._case, self._seen
        # Without waiting, one more ask than values taken; with waiting, none.
        most = case.stops_after
        while self._open < case.concurrency and (most is None or len(seen.values) + self._open < most):
            self._request(None, case.batch if most is None else min(case.batch, most - len(seen.values)))
        if most is not None and len(seen.values) >= most:
            if not case.waits:
                self._request(None, case.batch)
            self._stop()

    def _stop(self) -> None:
        self._seen.stopped = True
        if not self._case.indicates:
            self._request(self._case.by)
            return
        self._requests += 1
        self._edge(self._case.by)
        if not self._open:
            self._module.done(self._seen)

    def _after_the_end(self) -> None:
        if self._afterwards:
            self._request(self._afterwards.popleft())
        elif not self._open:
            self._module.done(self._seen)


C = TypeVar("C")


class SourceError(Exception):
    """Failure of a reference source."""


class SinkError(Exception):
    """Failure of a stream by a reference sink."""


_AFTERWARDS: tuple[tuple[End | None, ...], ...] = ((), (None, None), (True, True))


def source_cases(*, all: bool) -> list[SourceCase]:
    """List sources of 0, 1 and 3 values. all: include each treatment of pending asks."""
    found: list[SourceCase] = []
    for count, fails in product((0, 1, 3), (False, True)):
        end: End = SourceError("the source failed") if fails else True
        found.append(SourceCase(count, end))
        found.append(SourceCase(count, end, sync=False))
        if all:
            found.append(SourceCase(count, end, confirms_done=True))
            found.append(SourceCase(count, end, sync=False, pending="values"))
            found.append(SourceCase(count, end, sync=False, pending="left", confirms_done=True))
    return found


def sink_cases(*, all: bool, endless: bool = False) -> list[SinkCase]:
    """List sinks that stop never or after 0, 1 and 3 values, in each way.

    all: the whole product; otherwise requests after the end only for some. endless: only sinks that stop.
    """
    found = list(_stopping(all))
    if not endless:
        found += [
            SinkCase(concurrency=concurrency, afterwards=afterwards)
            for concurrency, afterwards in product((1, 3), _AFTERWARDS)
        ]
    return found


def _stopping(all: bool) -> Iterator[SinkCase]:
    for after, fails, indicates, waits, concurrency, afterwards in product(
        (0, 1, 3), (False, True), (False, True), (True, False), (1, 3), _AFTERWARDS
    ):
        if all or not afterwards or (after == 1 and concurrency == 1):
            by: End = SinkError("the sink failed") if fails else True
            yield SinkCase(after, by, indicates, waits, concurrency, afterwards)


def batching_cases(*, endless: bool = False) -> list[SinkCase]:
    """List sinks that ask for two values at once. endless: only sinks that stop."""
    found = [] if endless else [SinkCase(batch=2)]
    for after, fails, waits in product((0, 1, 3), (False, True), (True, False)):
        by: End = SinkError("the sink failed") if fails else True
        found.append(SinkCase(after, by, waits=waits, batch=2))
    return found


def checkable_profiles(case: SinkCase, profiles: Collection[Profile]) -> list[Profile]:
    """List the profiles that can be checked for a module next to this sink.

    The documentation allows one request at a time, one stop that waits for its confirmation, and no requests
    after an end. It does not cover a stop that may cross the end.
    """
    kept = case.concurrency == 1 and case.waits and not case.indicates and not case.afterwards
    return [profile for profile in profiles if profile != "docs" or kept]


def shuffle_deterministically(cases: list[C]) -> list[C]:
    """Shuffle deterministically, so that a few seeds cover cases of all kinds."""
    random.Random(0).shuffle(cases)
    return cases
