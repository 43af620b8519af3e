"""recent in time: lists end so long after their first value."""

from __future__ import annotations

from headrace.pull import collect, pull, recent, throttle, values
from headrace.testing.pull import VirtualRuntime
from tests.pull.core.modules import Hand, Manual


def test_a_list_ends_so_long_after_its_first_value_came() -> None:
    with VirtualRuntime() as runtime:
        # Values at 0, 1, 2, ... seconds.
        pipeline = pull(values(range(8)), throttle(every=1), recent(100, seconds=2.5), collect())
        run = pipeline.start(runtime)
    assert run.result() == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_a_full_list_does_not_wait() -> None:
    with VirtualRuntime() as runtime:
        pipeline = pull(values(range(5)), throttle(every=1), recent(2, seconds=9), collect())
        run = pipeline.start(runtime)
        assert run.result() == [[0, 1], [2, 3], [4]]
        assert runtime.now() < 9


def test_a_list_that_is_full_takes_its_time_limit_with_it() -> None:
    with VirtualRuntime(passing=False) as runtime:
        manual, hand = Manual(), Hand()
        pull(manual.source, recent(2, seconds=10), hand.sink).start(runtime)
        hand.request("a")
        manual.answer(0, None, 1)
        runtime.advance(6)
        manual.answer(1, None, 2)
        hand.request("b")
        manual.answer(2, None, 3)
        runtime.advance(6)
        assert hand.heard == [("a", [1, 2])]
        runtime.advance(4)
        assert hand.heard == [("a", [1, 2]), ("b", [3])]


def test_values_that_come_after_the_list_they_were_asked_for_begin_the_next() -> None:
    with VirtualRuntime(passing=False) as runtime:
        manual, hand = Manual(), Hand()
        pull(manual.source, recent(3, seconds=1), hand.sink).start(runtime)
        hand.request("a")
        manual.answer(0, None, "a1")
        runtime.advance(1)
        assert hand.heard == [("a", ["a1"])]
        manual.answer(1, None, "b1")  # asked for already, for the list that has ended
        runtime.advance(1)
        assert len(hand.heard) == 1
        hand.request("b")
        assert hand.heard[1:] == [("b", ["b1"])]


def test_an_abort_drops_the_list_and_its_time_limit() -> None:
    with VirtualRuntime(passing=False) as runtime:
        manual, hand = Manual(), Hand()
        pull(manual.source, recent(3, seconds=1), hand.sink).start(runtime)
        hand.request("ask")
        manual.answer(0, None, 1)
        hand.request("abort", True)
        manual.answer(2, True)
        runtime.advance(9)
        assert hand.heard == [("ask", True), ("abort", True)]
