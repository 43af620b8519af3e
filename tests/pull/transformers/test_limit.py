"""limit of a duplex: what is inside is bounded, and its ends pass on both sides."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from headrace.pull import (
    PullDuplex,
    PullSink,
    PullSource,
    PullTransformer,
    collect,
    eager,
    flat_map,
    limit,
    map,
    pull,
    source,
    take,
    tap,
    through,
    transformer,
    values,
)
from headrace.pull.edge import PullEdge
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End, Read
from headrace.pull.sinks import ReadLoop
from tests.pull.core.modules import Hand, Manual


class Room:
    """A duplex that takes in all that it gets, and gives it out again; `most` is how much it ever held."""

    def __init__(self, batch: int = 1) -> None:
        self.batch = batch
        self.held: deque[Any] = deque()
        self.asks: deque[AnswerTo] = deque()
        self.end: End | None = None
        self.into: Module | None = None
        self.stop: End | None = None
        self.most = 0
        self.duplex = PullDuplex(
            PullSource.of("out of the room", self._out), PullSink.of("into the room", self._into)
        )

    def _into(self, module: Module, edge: PullEdge) -> None:
        self.into = module

        def take(items: list[Any]) -> None:
            self.held.extend(items)
            self.most = max(self.most, len(self.held))
            self.give()

        def over(end: End) -> None:
            self.end = end
            self.give()
            module.done() if end is True else module.fail(end)

        ReadLoop(edge, take, over, batch=self.batch).start()

    def _out(self, _module: Module) -> Read:
        def read(abort: End | None, answer: AnswerTo) -> None:
            if abort is None:
                self.asks.append(answer)
                self.give()
                return
            answer(abort)
            assert self.into is not None
            self.into.enter(self.into.done)

        return read

    def give(self) -> None:
        while self.asks and self.held:
            self.asks.popleft()(None, self.held.popleft())
        if self.asks and self.end is not None:
            self.asks.popleft()(self.end)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("window", [1, 3])
def test_no_more_is_inside_of_a_duplex_than_the_limit_says(count: int, window: int) -> None:
    room = Room()
    inside = limit(room.duplex, count)
    assert pull(values(range(50)), inside, collect()).run(window=window) == [*range(50)]
    assert room.most <= count


def test_without_a_limit_it_would_hold_more() -> None:
    room = Room()
    assert pull(values(range(50)), room.duplex, take(50), collect()).run(window=1) == [*range(50)]
    assert room.most > 7


def test_an_abort_of_the_source_reaches_the_sink_of_the_duplex_though_the_limit_is_reached() -> None:
    room, stopped = Room(), []
    numbers = values(range(50), on_stop=stopped.append)
    assert pull(numbers, limit(room.duplex, 1), take(3), collect()).run() == [0, 1, 2]
    assert stopped == [None]


def test_an_error_passes_through_the_limit() -> None:
    own = ValueError("own")

    def fail(at: int) -> int:
        if at == 3:
            raise own
        return at

    room, passed = Room(), []
    run = pull(values(range(9)), map(fail), limit(room.duplex, 2), tap(passed.append), collect()).start()
    assert (run.error, passed) == (own, [0, 1, 2])


def test_a_limited_duplex_is_called_what_the_duplex_was() -> None:
    room = Room()
    assert limit(room.duplex, 1).name == room.duplex.name


@pytest.mark.parametrize("size", [1, 2, 10])
def test_values_asked_for_in_batches_are_counted_one_by_one(size: int) -> None:
    room = Room(size)
    inside = limit(room.duplex, 3)
    assert pull(values(range(50)), inside, collect(batch=size)).run() == [*range(50)]
    assert room.most <= 3


def entered_after_each_ask(upstream: PullTransformer, count: int) -> list[int]:
    """How many values more than were handed out have gone into a limit, asked for five at a time."""
    entered: list[int] = []
    more: list[int] = []
    taken = 0
    hand = Hand()
    inner = limit(pull(tap(entered.append), eager(20)), count)
    pull(values(range(1000)), upstream, inner, hand.sink).start()
    assert hand.edge is not None

    def got(_end: End | None, found: Any = None, /) -> None:
        nonlocal taken
        taken += len(found)

    for _ in range(10):
        hand.edge(None, got, 5)
        more.append(len(entered) - taken)
    return more


def test_values_that_leave_together_make_room_for_as_many() -> None:
    assert entered_after_each_ask(through(), 4) == [4] * 10


def test_room_for_values_that_did_not_come_is_given_back() -> None:
    one_at_a_time = transformer(lambda upstream: upstream)
    assert entered_after_each_ask(one_at_a_time, 4) == [4] * 10


class HalfOpen:
    """A duplex that takes in everything, whatever becomes of its source; that confirms an abort after it."""

    def __init__(self, *items: Any) -> None:
        self.taken: list[Any] = []
        self.over = False
        self.aborted: AnswerTo | None = None
        left = iter(items)

        def read(abort: End | None, answer: AnswerTo) -> None:
            if abort is not None and not self.over:
                self.aborted = answer
                return
            for item in left if abort is None else ():
                answer(None, item)
                return
            answer(abort or True)

        def open(module: Module, edge: PullEdge) -> None:
            def over(_end: End) -> None:
                self.over = True
                if self.aborted is not None:
                    module.enter(self.aborted, True)
                module.done()

            ReadLoop(edge, self.taken.extend, over).start()

        self.duplex = PullDuplex(source(read), PullSink.of("takes everything", open))


def test_a_duplex_whose_source_has_ended_takes_in_what_is_left() -> None:
    half = HalfOpen("hello")
    assert pull(values(range(9)), limit(half.duplex, 2), collect()).run() == ["hello"]
    assert half.taken == [*range(9)]


def test_a_duplex_whose_source_was_aborted_takes_in_what_is_left() -> None:
    half = HalfOpen(*"hello")
    assert pull(values(range(9)), limit(half.duplex, 2), take(1), collect()).run() == ["h"]
    assert half.taken == [*range(9)]


def test_an_ask_that_waits_gets_the_room_that_an_earlier_one_did_not_need() -> None:
    hand, manual, found = Hand(), Manual(), []
    inside = limit(PullDuplex(manual.source, hand.sink), 3)
    one_at_a_time = transformer(lambda upstream: upstream)
    pull(values(range(9)), one_at_a_time, inside, collect()).start()

    def ask_twice_at_once() -> None:
        for _ in range(2):
            assert hand.edge is not None
            hand.edge(None, lambda _end, values=None, /: found.append(values), 3)

    assert hand.module is not None
    hand.module.enter(ask_twice_at_once)
    assert found == [[0], [1]]


def test_each_place_of_a_limit_in_a_run_has_a_gate_of_its_own() -> None:
    order: list[str] = []
    inner = pull(tap(lambda x: order.append(f"in{x}")), eager(5))
    limited = pull(values([1, 2]), limit(inner, 1), tap(lambda x: order.append(f"out{x}")))
    assert pull(values("ab"), flat_map(lambda _: limited), collect()).run() == [1, 2, 1, 2]
    assert order == ["in1", "out1", "in2", "out2"] * 2
