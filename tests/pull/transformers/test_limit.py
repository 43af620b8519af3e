"""limit of a duplex: what is inside is bounded, and its ends pass on both sides."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from penstock.pull import Duplex, Sink, Source, collect, limit, map, pull, take, tap, values
from penstock.pull.asking import Asking
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.protocol import AnswerTo, End, Read


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
        self.duplex = Duplex(Source.of("out of the room", self._out), Sink.of("into the room", self._into))

    def _into(self, module: Module, edge: Edge) -> None:
        self.into = module

        def take(items: list[Any]) -> None:
            self.held.extend(items)
            self.most = max(self.most, len(self.held))
            self.give()

        def over(end: End) -> None:
            self.end = end
            self.give()
            module.done() if end is True else module.fail(end)

        Asking(edge, take, over, batch=self.batch).start()

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
    source = values(range(50), on_stop=stopped.append)
    assert pull(source, limit(room.duplex, 1), take(3), collect()).run() == [0, 1, 2]
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
