"""throttle and timeout, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.pull import async_map, catch, collect, map, pull, tap, throttle, timeout, values
from headrace.pull.errors import NoAnswerInTime
from headrace.testing.pull import VirtualRuntime
from tests.pull.core.modules import Hand, Manual, delay


def times(*stages: Any, window: int | None = None) -> list[float]:
    """When each value has come through, from a source that has them all at once."""
    with VirtualRuntime() as runtime:
        found: list[float] = []
        look = tap(lambda _x: found.append(runtime.now()))
        pull(values(range(4)), *stages, look, collect()).start(runtime, window=window).result()
        return found


@pytest.mark.parametrize("window", [1, 3])
def test_values_are_so_far_apart(window: int) -> None:
    assert times(throttle(every=2), window=window) == [0, 2, 4, 6]
    assert times(throttle(per_second=4), window=window) == [0, 0.25, 0.5, 0.75]


def test_values_that_are_apart_already_are_not_delayed() -> None:
    assert times(delay(3), throttle(every=2), window=1) == [3, 6, 9, 12]


def test_a_throttle_lets_upstream_work_meanwhile() -> None:
    assert times(delay(3), throttle(every=3)) == [3, 6, 9, 12]


def test_the_end_does_not_wait() -> None:
    with VirtualRuntime(passing=False) as runtime:
        hand = Hand()
        pull(values([1]), throttle(every=5), hand.sink).start(runtime)
        hand.request("a")
        hand.request("b")
        assert hand.heard == [("a", 1), ("b", True)]


def test_an_abort_drops_what_waits_for_its_time() -> None:
    with VirtualRuntime(passing=False) as runtime:
        hand, stopped = Hand(), []
        pull(values([1, 2, 3], on_stop=stopped.append), throttle(every=5), hand.sink).start(runtime)
        for ask in "ab":
            hand.request(ask)
        runtime.advance(1)
        hand.request("abort", True)
        assert hand.heard == [("a", 1), ("b", True), ("abort", True)]
        assert stopped == [None]
        runtime.advance(60)
        assert len(hand.heard) == 3


def test_upstream_that_does_not_answer_in_time_is_failed_and_waited_for() -> None:
    with VirtualRuntime(passing=False) as runtime:
        manual, hand = Manual(), Hand()
        pull(manual.source, timeout(2), hand.sink).start(runtime)
        hand.request("ask")
        runtime.advance(1.9)
        assert manual.requests == [None]
        runtime.advance(0.1)
        assert isinstance(manual.requests[1], NoAnswerInTime)
        assert hand.heard == []
        manual.answer(1, manual.requests[1])
        assert hand.heard == [("ask", manual.requests[1])]


def test_the_error_names_the_module_and_the_time() -> None:
    with VirtualRuntime() as runtime:
        run = pull(values([1]), async_map(never), timeout(2), collect()).start(runtime)
    error = run.error
    assert isinstance(error, NoAnswerInTime)
    assert (error.facts["module"], error.facts["seconds"]) == ("async_map", 2)


async def never(_x: int) -> None:
    await asyncio.sleep(9)


@pytest.mark.parametrize("window", [1, 4])
def test_concurrent_asks_have_their_time_one_after_the_other(window: int) -> None:
    with VirtualRuntime() as runtime:
        run = pull(values(range(6)), delay(1.5), timeout(2), collect()).start(runtime, window=window)
        assert run.result() == [*range(6)]


def test_a_downstream_that_takes_its_time_uses_up_none() -> None:
    with VirtualRuntime(passing=False) as runtime:
        manual, hand = Manual(), Hand()
        pull(manual.source, timeout(2), hand.sink).start(runtime)
        hand.request("a")
        runtime.advance(1.5)
        manual.answer(0, None, 1)
        runtime.advance(100)
        hand.request("b")
        runtime.advance(1.9)
        manual.answer(1, None, 2)
        assert hand.heard == [("a", 1), ("b", 2)]


def test_the_time_of_an_abort_is_not_limited() -> None:
    with VirtualRuntime(passing=False) as runtime:
        manual, hand = Manual(), Hand()
        pull(manual.source, timeout(2), hand.sink).start(runtime, confirm_within=None)
        hand.request("ask")
        runtime.advance(1)
        hand.request("abort", True)
        runtime.advance(100)
        assert manual.requests == [None, True]
        manual.answer(1, True)
        assert hand.heard == [("ask", True), ("abort", True)]


def test_a_catch_behind_a_timeout_goes_on_without_upstream() -> None:
    with VirtualRuntime() as runtime:
        late = map(lambda x: x), delay(1), timeout(0.5), catch(lambda _error: "too late")
        assert pull(values([1, 2]), *late, collect()).start(runtime, confirm_within=None).result() == [
            "too late"
        ]
