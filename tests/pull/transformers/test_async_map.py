"""async_map: several calls at once, in order or not; what becomes of calls that run when the stream stops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.pull import (
    PullSource,
    PullTransformer,
    Run,
    async_map,
    collect,
    map,
    pull,
    take,
    take_while,
    tap,
    throttle,
    values,
)
from headrace.pull.errors import CallCancelled
from headrace.testing.pull import VirtualRuntime
from tests.pull.core.modules import Hand


async def wait_a_second(x: Any) -> Any:
    await asyncio.sleep(1)
    return x


async def wait_so_long(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


def run_for(*pieces: Any, window: int | None = None) -> tuple[Run, float]:
    """The finished run, and the virtual seconds it took."""
    with VirtualRuntime() as runtime:
        run = pull(*pieces).start(runtime, window=window, confirm_within=None)
        assert run.finished
        return run, runtime.now()


def source_of(xs: Any, stopped: list[Any]) -> PullSource:
    return values(xs, on_stop=stopped.append)


@pytest.mark.parametrize("depth", [1, 2, 5, 10])
def test_a_chain_works_on_as_many_values_at_once_as_it_is_long(depth: int) -> None:
    chain = [async_map(wait_a_second) for _ in range(depth)]
    run, seconds = run_for(values(range(100)), *chain, collect())
    assert run.result() == [*range(100)]
    assert seconds == 100 + depth - 1
    _, alone = run_for(values(range(100)), *chain, collect(), window=1)
    assert alone == 100 * depth


@pytest.mark.parametrize(("width", "seconds"), [(1, 100), (4, 25), (7, 15), (200, 1)])
def test_calls_at_once_divide_the_time(width: int, seconds: float) -> None:
    run, took = run_for(values(range(100)), async_map(wait_a_second, width), collect())
    assert run.result() == [*range(100)]
    assert took == seconds


def test_widths_of_a_chain_add_up_to_the_requests_under_way() -> None:
    hand = Hand()
    chain = async_map(wait_a_second, 4), map(str), async_map(wait_a_second, 2), take(9)
    pull(values([1]), *chain, hand.sink).start()
    assert hand.edge is not None
    assert hand.edge.window == 6


def test_synchronous_neighbours_do_not_stand_in_the_way_of_calls_at_once() -> None:
    pieces = async_map(wait_a_second, 5), map(str), take(50), async_map(wait_a_second, 5)
    _, seconds = run_for(values(range(100)), *pieces, collect())
    assert seconds == 50 / 5 + 1


def test_results_come_in_the_order_of_the_values_or_as_they_are_ready() -> None:
    waits = [3, 1, 2]
    run, seconds = run_for(values(waits), async_map(wait_so_long, 3), collect())
    assert (run.result(), seconds) == ([3, 1, 2], 3)
    run, seconds = run_for(values(waits), async_map(wait_so_long, 3, ordered=False), collect())
    assert (run.result(), seconds) == ([1, 2, 3], 3)


def test_it_asks_upstream_no_more_often_than_it_is_asked() -> None:
    asked: list[int] = []
    run, _ = run_for(
        values(range(9)), map(lambda x: asked.append(x) or x), async_map(wait_a_second, 4), take(2), collect()
    )
    assert run.result() == [0, 1]
    assert asked == [0, 1]


class Failing:
    """Waits so long as the value says, then returns it or, for one value, raises."""

    def __init__(self, at: float) -> None:
        self.at = at
        self.error = ValueError(f"at {at}")
        self.log: list[str] = []

    async def __call__(self, seconds: float) -> float:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            await asyncio.sleep(5)
            self.log.append(f"cancelled {seconds}")
            raise
        if seconds == self.at:
            raise self.error
        self.log.append(f"done {seconds}")
        return seconds


def test_after_an_error_the_source_is_failed_and_the_calls_that_run_are_awaited() -> None:
    failing, stopped = Failing(1), []
    run, seconds = run_for(source_of([2, 1, 4, 9], stopped), async_map(failing, 3), collect())
    assert (run.error, run.partial, stopped) == (failing.error, [2], [failing.error])
    assert failing.log == ["done 2", "done 4"]  # and no call was begun after the error
    assert seconds == 4


def test_after_an_error_no_value_is_taken_and_no_call_begun() -> None:
    failing, taken = Failing(1), []
    with VirtualRuntime(passing=False) as runtime:
        hand = Hand()
        pipeline = pull(values([2, 1, 4, 9, 9]), tap(taken.append), async_map(failing, 2), hand.sink)
        pipeline.start(runtime, confirm_within=None)
        for ask in "abc":
            hand.request(ask)
        runtime.advance(1)
        hand.request("d")
        runtime.advance(99)
    assert hand.heard == [("a", 2), ("b", failing.error), ("c", failing.error), ("d", failing.error)]
    assert (taken, failing.log) == ([2, 1, 4], ["done 2"])


def test_an_error_that_waits_for_its_turn_is_attached_to_that_of_downstream() -> None:
    failing, own = Failing(1), KeyError("of downstream")
    with VirtualRuntime(passing=False) as runtime:
        hand = Hand()
        pull(values([3, 1]), async_map(failing, 2), hand.sink).start(runtime)
        hand.request("a")
        hand.request("b")
        runtime.advance(2)
        hand.request("error", own)
        runtime.advance(1)
    assert hand.heard == [("a", own), ("b", own), ("error", own)]
    assert own.__notes__ == ["then, while closing: ValueError: at 1"]


def test_after_an_error_the_calls_that_run_are_cancelled_where_that_is_wanted() -> None:
    failing, stopped = Failing(1), []
    run, seconds = run_for(source_of([2, 1, 4, 9], stopped), async_map(failing, 3, cancel=True), collect())
    assert (run.error, run.partial, stopped) == (failing.error, [2], [failing.error])
    assert failing.log == ["done 2", "cancelled 4"]
    assert not hasattr(failing.error, "__notes__")
    assert seconds == 2 + 5  # it is over when the cancelled call is


def test_out_of_order_an_error_does_not_wait_for_the_calls_before_it_to_give_results() -> None:
    failing, stopped = Failing(1), []
    run, _ = run_for(source_of([2, 1, 4], stopped), async_map(failing, 3, ordered=False), collect())
    assert (run.error, run.partial, stopped) == (failing.error, [], [failing.error])
    assert failing.log == ["done 2", "done 4"]


def test_what_else_fails_is_attached_to_the_first_error() -> None:
    first, second = ValueError("first"), ValueError("second")

    async def call(x: int) -> int:
        await asyncio.sleep(x)
        raise first if x == 1 else second

    run, _ = run_for(values([1, 2]), async_map(call, 2), collect())
    assert run.error is first
    assert first.__notes__ == ["then, while closing: ValueError: second"]


@pytest.mark.parametrize(("cancel", "seconds"), [(False, 4), (True, 1 + 5)])
def test_an_abort_is_confirmed_when_no_call_runs_any_more(cancel: bool, seconds: float) -> None:
    failing, stopped, hand = Failing(0), [], Hand()
    with VirtualRuntime(passing=False) as runtime:
        pull(source_of([4, 4], stopped), async_map(failing, 2, cancel=cancel), hand.sink).start(runtime)
        hand.request("ask")
        runtime.advance(1)
        hand.request("abort", True)
        assert stopped == [None]
        runtime.advance(seconds - 1 - 0.5)
        assert hand.heard == []
        runtime.advance(0.5)
        assert hand.heard == [("ask", True), ("abort", True)]
        assert failing.log == [f"{'cancelled' if cancel else 'done'} 4"]


@pytest.mark.parametrize("cancel", [False, True])
def test_a_call_that_is_cancelled_before_it_has_begun_does_not_begin(cancel: bool) -> None:
    called: list[int] = []

    async def call(x: int) -> None:
        called.append(x)

    hand = Hand()

    def abort_behind_the_value(_x: int) -> None:
        assert hand.module is not None
        hand.module.enter(hand.module.enter, hand.request, "abort", True)

    with VirtualRuntime() as runtime:
        chain = tap(abort_behind_the_value), async_map(call, cancel=cancel)
        pull(values([1]), *chain, hand.sink).start(runtime)
        hand.request("ask")
    assert hand.heard == [("ask", True), ("abort", True)]
    assert called == ([] if cancel else [1])


def test_an_error_of_a_value_that_is_not_wanted_any_more_is_dropped_like_the_value() -> None:
    failing, hand = Failing(4), Hand()
    with VirtualRuntime(passing=False) as runtime:
        pull(values([4]), async_map(failing), hand.sink).start(runtime)
        hand.request("ask")
        runtime.advance(1)
        hand.request("abort", True)
        runtime.advance(9)
    assert hand.heard == [("ask", True), ("abort", True)]


def test_an_end_follows_the_results_of_all_values_before_it() -> None:
    run, seconds = run_for(values([3, 2]), async_map(wait_so_long, 9), collect())
    assert (run.result(), seconds) == ([3, 2], 3)


def test_a_call_that_was_cancelled_by_somebody_else_fails_the_stream_by_name() -> None:
    async def cancelled(_x: int) -> None:
        raise asyncio.CancelledError

    run, _ = run_for(values([1]), async_map(cancelled), collect())
    assert isinstance(run.error, CallCancelled)
    assert "async_map" in str(run.error)


def test_what_cannot_be_awaited_fails_the_stream() -> None:
    run, _ = run_for(values([1]), async_map(lambda x: x), collect())
    assert isinstance(run.error, TypeError)


@pytest.mark.parametrize("piece", [async_map(wait_a_second, 5), throttle(every=1)])
@pytest.mark.parametrize("window", [1, 2, 5, 9])
def test_an_error_of_upstream_behind_what_downstream_wants_does_not_fail_it(
    piece: PullTransformer, window: int
) -> None:
    def fail_at_two(x: int) -> int:
        if x == 2:
            raise ValueError(x)
        return x

    chain = map(fail_at_two), piece, take_while(lambda x: x < 0, last=True)
    run, _ = run_for(values(range(9)), *chain, collect(), window=window)
    assert run.result() == [0]
