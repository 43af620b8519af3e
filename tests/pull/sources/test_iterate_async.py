"""iterate of asynchronous iterators: one value at a time, closed before a stop is confirmed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from headrace.pull import collect, iterate, pull, take
from headrace.pull.errors import AlreadyUsed, CallCancelled, LoopRunsAlready
from tests.pull.core.modules import Hand
from tests.pull.virtual import Virtual


class Ticks:
    """Can be iterated again; each value takes a second; notes what happens."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.seen: list[str] = []

    async def __aiter__(self) -> AsyncIterator[int]:
        self.seen.append("begin")
        try:
            for tick in range(self.count):
                await asyncio.sleep(1)
                yield tick
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            await asyncio.sleep(5)  # what it has to do before it may end
            raise
        finally:
            self.seen.append("closed")


def test_values_come_in_order_and_each_run_begins_anew(virtual: Virtual) -> None:
    pipeline = pull(iterate(Ticks(3)), collect())
    for _ in range(2):
        assert pipeline.start(virtual()).result() == [0, 1, 2]


def test_an_abort_waits_for_the_step_that_it_cancels_and_closes_then(virtual: Virtual) -> None:
    ticks = Ticks(3)
    runtime = virtual(passing=False)
    hand = Hand()
    pull(iterate(ticks), hand.sink).start(runtime)
    hand.request("one")
    runtime.advance(1)
    assert hand.heard == [("one", 0)]
    hand.request("two")
    runtime.advance(0.5)
    hand.request("stop", True)
    runtime.advance(4)
    assert ticks.seen == ["begin", "cancelled"]
    assert hand.heard == [("one", 0)]
    runtime.advance(1)
    assert ticks.seen == ["begin", "cancelled", "closed"]
    assert hand.heard == [("one", 0), ("two", True), ("stop", True)]


def test_an_abort_between_two_values_closes_the_generator(virtual: Virtual) -> None:
    ticks = Ticks(3)
    run = pull(iterate(ticks), take(1), collect()).start(virtual())
    assert run.result() == [0]
    assert ticks.seen == ["begin", "closed"]


def test_an_abort_before_the_first_ask_begins_nothing_and_needs_no_event_loop() -> None:
    ticks = Ticks(3)
    run = pull(iterate(ticks), take(0), collect()).start()
    assert run.result() == []
    assert not run.runtime.has_loop
    assert ticks.seen == []


def test_one_value_is_worked_on_at_a_time(virtual: Virtual) -> None:
    runtime = virtual(passing=False)
    hand = Hand()
    pull(iterate(Ticks(3)), hand.sink).start(runtime)
    hand.request("one")
    hand.request("two")
    runtime.advance(1)
    assert hand.heard == [("one", 0)]
    runtime.advance(1)
    assert hand.heard == [("one", 0), ("two", 1)]
    hand.request("stop", True)
    runtime.advance(10)


def test_an_error_comes_after_the_values(virtual: Virtual) -> None:
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise OSError("torn")

    run = pull(iterate(broken()), collect()).start(virtual())
    assert run.partial == [1]
    with pytest.raises(OSError, match="torn"):
        run.result()


def test_what_fails_while_it_is_cancelled_is_the_answer_to_the_abort(virtual: Virtual) -> None:
    async def clings() -> AsyncIterator[int]:
        try:
            await asyncio.sleep(10)
            yield 1
        finally:
            raise OSError("does not close")

    runtime = virtual(passing=False)
    hand = Hand()
    pull(iterate(clings()), hand.sink).start(runtime)
    hand.request("one")
    runtime.advance(1)
    hand.request("stop", True)
    runtime.advance(1)
    assert [name for name, _ in hand.heard] == ["one", "stop"]
    assert all(isinstance(end, OSError) for _, end in hand.heard)


def test_a_generator_that_does_not_heed_its_cancelling_is_closed_nevertheless(virtual: Virtual) -> None:
    seen: list[str] = []

    async def stubborn() -> AsyncIterator[int]:
        try:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                seen.append("not now")
            yield 1
        finally:
            seen.append("closed")

    runtime = virtual(passing=False)
    hand = Hand()
    pull(iterate(stubborn()), hand.sink).start(runtime)
    hand.request("one")
    runtime.advance(1)
    hand.request("stop", True)
    runtime.advance(1)
    assert seen == ["not now", "closed"]
    assert hand.heard == [("one", True), ("stop", True)]


def test_an_iterator_that_cancels_itself_is_an_error_and_no_endless_wait() -> None:
    async def lost() -> AsyncIterator[int]:
        yield 1
        raise asyncio.CancelledError

    with pytest.raises(CallCancelled, match="was cancelled"):
        pull(iterate(lost()), collect()).run()


def test_an_asynchronous_iterator_gives_its_values_once(virtual: Virtual) -> None:
    pipeline = pull(iterate(aiter(Ticks(1))), collect())
    assert pipeline.start(virtual()).result() == [0]
    with pytest.raises(AlreadyUsed, match=r"iterate\(\) of 'async_generator'"):
        pipeline.start(virtual()).result()


def test_run_within_an_event_loop_says_what_to_do() -> None:
    async def main() -> None:
        with pytest.raises(LoopRunsAlready):
            pull(iterate(Ticks(1)), collect()).run()
        assert await pull(iterate(Ticks(0)), collect()) == []
        gc.collect()  # would warn of a coroutine that was never awaited

    asyncio.run(main())
