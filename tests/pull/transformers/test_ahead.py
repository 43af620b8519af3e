"""eager, high_watermark: how far ahead they read, and what becomes of it at the ends."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.pull import PullTransformer, collect, eager, high_watermark, map, pull, tap, values
from headrace.testing.pull import VirtualRuntime
from tests.pull.core.modules import Hand, Manual, delay


class Opened:
    """A pipeline of the values 0, 1, 2, ... that is read by hand; `entered` holds what was fetched."""

    def __init__(self, transformer: PullTransformer, count: int = 1000) -> None:
        self.entered: list[int] = []
        self.hand = Hand()
        pull(values(range(count)), tap(self.entered.append), transformer, self.hand.sink).start()

    def ask(self) -> Any:
        self.hand.request("ask")
        return self.hand.heard[-1][1]


def test_eager_waits_for_the_first_ask_and_stays_so_far_ahead() -> None:
    opened = Opened(eager(3))
    assert opened.entered == []
    for taken in range(20):
        assert opened.ask() == taken
        assert len(opened.entered) == taken + 1 + 3


def test_a_high_watermark_is_filled_from_the_start() -> None:
    opened = Opened(high_watermark(4, 3))
    for taken in range(20):
        assert len(opened.entered) == 4 + taken
        assert opened.ask() == taken


def test_a_high_watermark_is_filled_again_when_the_low_one_is_reached() -> None:
    opened = Opened(high_watermark(5, 1))
    fetched = [len(opened.entered)]
    for _ in range(9):
        opened.ask()
        fetched.append(len(opened.entered))
    assert fetched == [5, 5, 5, 5, 9, 9, 9, 9, 13, 13]


def test_half_is_the_low_watermark_by_default() -> None:
    opened = Opened(high_watermark(6))
    fetched = [len(opened.entered)]
    for _ in range(4):
        opened.ask()
        fetched.append(len(opened.entered))
    assert fetched == [6, 6, 6, 9, 9]


@pytest.mark.parametrize("ahead", [eager(3), high_watermark(3)])
def test_values_that_came_before_an_error_are_given_before_it(ahead: PullTransformer) -> None:
    run = pull(values("12x"), map(int), ahead, collect()).start()
    assert isinstance(run.error, ValueError)
    assert run.partial == [1, 2]


@pytest.mark.parametrize("ahead", [eager(3), high_watermark(3)])
def test_an_abort_drops_what_waits_and_stops_upstream_once(ahead: PullTransformer) -> None:
    manual, hand = Manual(), Hand()
    pull(manual.source, ahead, hand.sink).start()
    hand.request("ask")
    manual.answer(0, None, 1)
    hand.request("abort", True)
    hand.request("again", True)
    assert manual.requests.count(True) == 1
    manual.answer(len(manual.requests) - 1, True)
    assert hand.heard == [("ask", 1), ("abort", True), ("again", True)]


@pytest.mark.parametrize("ahead", [eager(3), high_watermark(3)])
def test_an_end_that_came_ahead_is_the_answer_of_an_abort(ahead: PullTransformer) -> None:
    opened = Opened(ahead, count=2)
    opened.ask()
    opened.hand.request("abort", True)
    assert opened.hand.heard[-1] == ("abort", True)


def test_what_stands_before_it_works_while_downstream_does() -> None:
    def seconds(*between: PullTransformer) -> float:
        with VirtualRuntime() as runtime:
            stages = delay(1), *between, delay(1)
            assert pull(values(range(10)), *stages, collect()).start(runtime, window=1).result() == [
                *range(10)
            ]
            return runtime.now()

    assert seconds() == 20
    assert seconds(eager(1)) == 11


def test_values_ahead_are_fetched_by_as_many_asks_as_upstream_can_use() -> None:
    with VirtualRuntime() as runtime:
        chain = [delay(1) for _ in range(5)]
        run = pull(values(range(20)), *chain, eager(10), collect()).start(runtime)
        assert run.result() == [*range(20)]
        assert runtime.now() == 24


def test_values_ahead_are_counted_beyond_those_that_are_asked_for() -> None:
    manual, hand = Manual(width=100), Hand()
    pull(manual.source, eager(2), hand.sink).start()
    for asks in range(1, 9):
        hand.request("ask")
        assert len(manual.requests) == asks + 2
