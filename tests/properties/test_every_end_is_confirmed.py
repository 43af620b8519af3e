"""Promise: `done`, `abort` or `error` reaches every source and sink of a run, and is confirmed, once.

Random flows between random sources and sinks, which end, have enough, fail, answer at
once or later; in an order of events that the same seed chooses.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest

import headrace as hr
from headrace.engine.progress import RunResult
from headrace.engine.run import RunOptions, StartedRun
from headrace.errors import UserFunctionFailed
from headrace.io import Batch, Feed, Reader, SinkRequest, SinkTarget, Writer, open_sink, open_source
from headrace.io.source import Source as IoSource
from headrace.pull import PullSource, Recorder, collect, drain, find, for_each, probe, pull, take
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End, Read
from headrace.pull.rules.checker import check
from headrace.pull.rules.trace import Answer, Request
from headrace.testing.pull import RandomRuntime


class Planned(Exception):
    """A failure that a trial has arranged."""


@dataclass(eq=False)
class Ended:
    """What an end of a run was told, and what it said: it must be over once."""

    stops: int = 0
    closed: int = 0
    said: list[End] = field(default_factory=list[End])


# --- ends of the protocol ------------------------------------------------------------


def source_for(numbers: random.Random, seen: Ended) -> PullSource:
    """A source of some numbers that ends, fails or goes on for ever, and answers now or later."""
    count = numbers.choice([0, 1, 3, 8, 10**9])
    failure = Planned("source") if numbers.random() < 0.3 else None
    slow, slow_stop = numbers.random() < 0.5, numbers.random() < 0.5

    def open(module: Module) -> Read:
        given = 0

        def answer_ask(answer: AnswerTo) -> None:
            nonlocal given
            if seen.stops:
                return
            given += 1
            if given <= count:
                answer(None, given)
            else:
                seen.said.append(failure or True)
                answer(failure or True)

        def stop(abort: End, answer: AnswerTo) -> None:
            seen.said.append(abort)
            answer(abort)

        def read(abort: End | None, answer: AnswerTo) -> None:
            if abort is not None:
                seen.stops += 1
                module.later(numbers.random(), stop, abort, answer) if slow_stop else stop(abort, answer)
            elif slow:
                module.later(numbers.random(), answer_ask, answer)
            else:
                answer_ask(answer)

        return read

    return PullSource.of("random source", open, linear=True)


def sink_for(numbers: random.Random) -> Any:
    """A sink that takes all, or some, or fails; now or later."""

    async def slowly(change: Any) -> None:
        import asyncio

        await asyncio.sleep(numbers.random())
        fails_sometimes(change)

    def fails_sometimes(_change: Any) -> None:
        if numbers.random() < chance:
            raise Planned("sink")

    chance = numbers.choice([0, 0, 0.2])
    return numbers.choice(
        [
            collect(),
            pull(take(numbers.randrange(6)), collect()),
            find(lambda change: change.row > 5),
            for_each(fails_sometimes),
            for_each(slowly, width=numbers.randrange(1, 4)),
            drain(lambda change: change.row < 4),
        ]
    )


# --- ends of headrace.io -------------------------------------------------------------------


@dataclass(frozen=True)
class Read3(IoSource):
    """Some numbers, by a reader."""

    seen: Ended
    numbers: random.Random


class _Reader3(Reader):
    look_again = 0.1

    def __init__(self, source: Read3) -> None:
        self._seen = source.seen
        self._numbers = source.numbers
        self._left = source.numbers.randrange(5)

    def read(self, limit: int | None) -> Batch | None:
        chosen = self._numbers.random()
        if chosen < 0.05:
            raise Planned("reader")
        if chosen < 0.3:
            return None
        self._left -= 1
        self.done = self._left < 0
        return None if self.done else Batch([(self._left,)])

    def close(self) -> None:
        super().close()
        self._seen.closed += 1


@open_source.register
def _(source: Read3, feed: Feed) -> Reader:
    return _Reader3(source)


@dataclass(frozen=True)
class Write3(SinkTarget):
    """A writer that fails now and then."""

    seen: Ended
    numbers: random.Random


class _Writer3(Writer):
    def __init__(self, sink: Write3) -> None:
        self._sink = sink
        self._prepared = 0

    def prepare(self, tick: int, rows: list[tuple[Any, ...]]) -> None:
        assert tick == self._prepared + 1, "each tick once, in order"
        if self._sink.numbers.random() < 0.05:
            raise Planned("writer")
        self._prepared = tick

    def publish(self, tick: int) -> None:
        assert tick == self._prepared

    def recover(self, tick: int) -> None: ...

    def close(self) -> None:
        self._sink.seen.closed += 1


@open_sink.register
def _(sink: Write3, drain: SinkRequest) -> Writer:
    return _Writer3(sink)


# --- a trial -------------------------------------------------------------------------------


def random_flow(numbers: random.Random, sources: list[str], sinks: list[str]) -> hr.Flow:
    flow = hr.Flow("random")
    bad = numbers.choice([0, 0, 0, 4])

    def inverse(n: int) -> int:
        if n == bad:
            raise Planned("function")
        return n

    streams = [flow.source(name, int) for name in sources]
    for name in sinks:
        read = numbers.sample(streams, numbers.randrange(1, len(streams) + 1))
        made = read[0] if len(read) == 1 else read[0].union(*read[1:])
        flow.sink(name, made.map(inverse, returns=int) if numbers.random() < 0.5 else made)
    for number, stream in enumerate(streams):
        flow.sink(f"unread {number}", stream)
    return flow


@dataclass(eq=False)
class Trial:
    ends: list[Ended]
    recorders: list[Recorder]
    run: Callable[[], RunResult]


def trial(seed: int, closing: ExitStack) -> Trial:
    numbers = random.Random(seed)
    found = Trial([], [], lambda: RunResult(0, 0, 0, 0, 0, None))
    names = [f"source {n}" for n in range(numbers.randrange(1, 4))]
    sink_names = [f"sink {n}" for n in range(numbers.randrange(0, 4))]
    sources: dict[str, Any] = {}
    sinks: dict[str, Any] = {}

    def watched() -> Any:
        found.recorders.append(Recorder())
        return probe(found.recorders[-1])

    for name in names:
        seen = Ended()
        found.ends.append(seen)
        if numbers.random() < 0.3:
            sources[name] = Read3(seen, numbers)
        else:
            sources[name] = pull(source_for(numbers, seen), watched())
    for name in sink_names:
        if numbers.random() < 0.3:
            seen = Ended()
            found.ends.append(seen)
            sinks[name] = Write3(seen, numbers)
        else:
            sinks[name] = pull(watched(), sink_for(numbers))
    ticks = 0

    def count(_progress: Any) -> None:
        nonlocal ticks
        ticks += 1
        if ticks == 30:
            raise Planned("long enough")

    options = RunOptions(numbers.randrange(1, 4), None, False, count, None, None, None)
    runtime = RandomRuntime(seed)
    closing.callback(runtime.close)
    flow = random_flow(numbers, names, sink_names)
    found.run = StartedRun(flow, sources, sinks, options, runtime, None, closing).wait
    return found


def assert_ended_once(recorder: Recorder) -> None:
    trace = recorder.trace()
    violations = check(trace)
    assert not violations, f"{violations[0]}\n{' '.join(trace.texts())}"
    asked = {e.index for e in trace.events if isinstance(e, Request) and e.kind == "ask"}
    stops = [e for e in trace.events if isinstance(e, Request) and e.kind != "ask"]
    over = [e for e in trace.events if isinstance(e, Answer) and e.kind != "value"]
    assert over, "no end was confirmed"
    assert sum(e.kind == "abort" for e in stops) <= 1
    confirmed = [e for e in over if e.index not in asked]
    assert len(confirmed) == len(stops)


@pytest.mark.seeds(400, together=40)
def test_every_end_is_told_once_and_confirms_once(seeds: range) -> None:
    for seed in seeds:
        with ExitStack() as closing:
            found = trial(seed, closing)
            try:
                found.run()
            except (Planned, UserFunctionFailed):
                pass
            except BaseException as error:
                raise AssertionError(f"seed {seed}") from error
        try:
            for recorder in found.recorders:
                assert_ended_once(recorder)
            for end in found.ends:
                assert end.stops <= 1
                assert max(len(end.said), end.closed) == 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
