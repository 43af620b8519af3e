"""pushable: what is pushed, when it is taken, and what becomes of it at each end."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

from headrace.errors import BadOption, QueueFull
from headrace.pull import aiter_values, collect, drain, pull, pushable, take, tap
from headrace.pull.errors import AlreadyUsed, NeverAnswered, WrongThread
from tests.pull.core.modules import Hand


def test_it_is_a_source_and_is_pushed_into_before_and_while_it_is_read() -> None:
    letters = pushable()
    assert letters.push("a")
    run = pull(letters, collect()).start()
    assert letters.push("b")
    letters.end()
    assert run.result() == ["a", "b"]


def test_a_value_goes_at_once_to_whoever_waits_for_it() -> None:
    numbers, hand = pushable(), Hand()
    pull(numbers, hand.sink).start()
    hand.request("one")
    hand.request("two")
    assert hand.heard == []
    numbers.push(1)
    assert hand.heard == [("one", 1)]
    numbers.push(2)
    assert hand.heard == [("one", 1), ("two", 2)]
    assert numbers.waiting == 0


def test_what_nobody_asks_for_waits_within_the_bound() -> None:
    numbers, hand = pushable(bound=2), Hand()
    pull(numbers, hand.sink).start()
    assert numbers.push(1)
    assert numbers.try_push(2)
    assert not numbers.try_push(3)
    with pytest.raises(QueueFull, match="2 values wait") as raised:
        numbers.push(3)
    assert raised.value.bound == 2
    assert numbers.waiting == 2
    assert not numbers.ended
    hand.request("one")
    assert numbers.try_push(4)
    assert numbers.waiting == 2


def test_without_a_bound_any_number_waits() -> None:
    numbers = pushable(bound=None)
    for number in range(5000):
        numbers.push(number)
    numbers.end()
    assert pull(numbers, collect(batch=100)).run() == list(range(5000))


@pytest.mark.parametrize("bound", [0, -1, 2.5, True])
def test_a_bound_is_a_number_of_values(bound: Any) -> None:
    with pytest.raises(BadOption):
        pushable(bound=bound)


@pytest.mark.parametrize("error", [None, OSError("x")])
def test_the_end_comes_after_what_was_pushed_before(error: Exception | None) -> None:
    numbers, hand = pushable(), Hand()
    pull(numbers, hand.sink).start()
    numbers.push(1)
    numbers.end(error)
    assert numbers.ended
    hand.request("one")
    hand.request("end")
    hand.request("after")
    assert hand.heard == [("one", 1), ("end", error or True), ("after", error or True)]


def test_after_the_end_nothing_is_taken() -> None:
    numbers = pushable()
    numbers.push(1)
    numbers.end()
    assert numbers.push(2) is False
    assert numbers.try_push(2) is False
    numbers.end(OSError("the first end counts"))
    assert pull(numbers, collect()).run() == [1]


def test_an_abort_closes_then_answers_the_read_then_is_confirmed() -> None:
    hand = Hand()
    numbers = pushable(on_close=lambda error: hand.heard.append(("closed", error)))
    pull(numbers, hand.sink).start()
    hand.request("read")
    hand.request("stop", True)
    assert hand.heard == [("closed", None), ("read", True), ("stop", True)]


def test_the_end_is_answered_when_on_close_has_returned() -> None:
    order: list[Any] = []
    numbers = pushable(on_close=lambda _error: order.append("closed"))
    read: Any = numbers.part.open(Mock())
    read(True, lambda end, _values=None: order.append(end), 1)
    assert order == ["closed", True]


def test_an_error_from_downstream_is_what_on_close_is_told() -> None:
    closed: list[Exception | None] = []
    hand, mine = Hand(), OSError("x")
    pull(pushable(on_close=closed.append), hand.sink).start()
    hand.request("stop", mine)
    assert closed == [mine]
    assert hand.heard == [("stop", mine)]


@pytest.mark.parametrize("error", [None, OSError("x")])
def test_on_close_is_called_once_when_the_end_is_answered(error: Exception | None) -> None:
    closed: list[Exception | None] = []
    numbers, hand = pushable(on_close=closed.append), Hand()
    pull(numbers, hand.sink).start()
    numbers.push(1)
    numbers.end(error)
    assert closed == []
    hand.request("one")
    assert closed == []
    hand.request("end")
    hand.request("stop", True)
    assert closed == [error]


def test_after_an_abort_nothing_waits_and_nothing_is_kept() -> None:
    numbers, hand = pushable(), Hand()
    pull(numbers, hand.sink).start()
    numbers.push(1)
    hand.request("stop", True)
    assert numbers.waiting == 0
    assert numbers.ended
    assert numbers.push(2) is False
    assert numbers.waiting == 0


def test_what_on_close_raises_is_what_the_abort_is_answered_by() -> None:
    def fail(_error: Exception | None) -> None:
        raise OSError("does not close")

    numbers = pushable(on_close=fail)
    numbers.push(1)
    with pytest.raises(OSError, match="does not close"):
        pull(numbers, take(1), collect()).run()
    assert numbers.push(2) is False


def test_take_closes_it_after_its_last_value() -> None:
    closed: list[Exception | None] = []
    numbers = pushable(on_close=closed.append)
    for number in range(5):
        numbers.push(number)
    assert pull(numbers, take(3), collect()).run() == [0, 1, 2]
    assert closed == [None]


def test_a_second_run_fails_and_the_first_is_not_disturbed() -> None:
    numbers = pushable()
    pipeline = pull(numbers, collect())
    run = pipeline.start()
    with pytest.raises(AlreadyUsed, match="second run"):
        pipeline.run()
    numbers.push(1)
    numbers.end()
    assert run.result() == [1]


def test_a_run_that_nobody_pushes_into_says_so() -> None:
    with pytest.raises(NeverAnswered, match="'pushable'"):
        pull(pushable(), collect()).run()


def test_a_function_of_the_pipeline_may_push() -> None:
    numbers = pushable()
    found: list[int] = []

    def feed_back(number: int) -> None:
        found.append(number)
        if number < 1000:
            numbers.push(number + 1)
        else:
            numbers.end()

    numbers.push(0)
    pull(numbers, tap(feed_back), drain()).run()
    assert found == list(range(1001))


# -- waiting for room ---------------------------------------------------------------------------


def test_pushed_waits_for_room_and_keeps_the_order() -> None:
    async def main() -> None:
        numbers = pushable(bound=2)
        most = 0

        async def producer(start: int) -> None:
            nonlocal most
            for number in range(start, start + 50):
                assert await numbers.pushed(number)
                most = max(most, numbers.waiting)

        async def produce() -> None:
            await asyncio.gather(producer(0), producer(1000))
            numbers.end()

        producing = asyncio.create_task(produce())
        found: list[int] = []
        async for number in aiter_values(numbers):
            found.append(number)
            await asyncio.sleep(0)
        await producing
        assert sorted(found) == [*range(50), *range(1000, 1050)]
        assert [n for n in found if n < 1000] == list(range(50))
        assert most == 2

    asyncio.run(main())


def test_who_waits_for_room_is_told_that_the_stream_was_aborted() -> None:
    async def main() -> None:
        numbers, hand = pushable(bound=1), Hand()
        pull(numbers, hand.sink).start()
        numbers.push(1)
        waiting = [asyncio.create_task(numbers.pushed(n)) for n in (2, 3)]
        await asyncio.sleep(0)
        hand.request("stop", True)
        assert await asyncio.gather(*waiting) == [False, False]
        assert numbers.waiting == 0

    asyncio.run(main())


def test_who_is_cancelled_while_it_waits_has_pushed_nothing() -> None:
    async def main() -> None:
        numbers, hand = pushable(bound=1), Hand()
        pull(numbers, hand.sink).start()
        numbers.push(1)
        two, three = (asyncio.create_task(numbers.pushed(n)) for n in (2, 3))
        await asyncio.sleep(0)
        two.cancel()
        await asyncio.wait([two])
        numbers.end()
        for name in ("one", "two", "three"):
            hand.request(name)
        assert hand.heard == [("one", 1), ("two", 3), ("three", True)]
        assert await three

    asyncio.run(main())


def test_those_that_wait_are_let_in_one_for_each_that_leaves() -> None:
    async def main() -> None:
        numbers, hand = pushable(bound=1), Hand()
        pull(numbers, hand.sink).start()
        numbers.push(1)
        waiting = [asyncio.create_task(numbers.pushed(n)) for n in (2, 3, 4)]
        await asyncio.sleep(0)
        hand.request("one")
        await asyncio.wait(waiting[:1])
        assert numbers.waiting == 1
        assert [task.done() for task in waiting] == [True, False, False]
        hand.request("stop", True)
        assert await asyncio.gather(*waiting) == [True, False, False]

    asyncio.run(main())


def test_nothing_overtakes_what_waits_for_room() -> None:
    async def main() -> None:
        numbers, hand = pushable(bound=1), Hand()
        pull(numbers, hand.sink).start()
        numbers.push(1)
        waiting = asyncio.create_task(numbers.pushed(2))
        await asyncio.sleep(0)
        hand.request("one")
        assert not numbers.try_push(3)
        hand.request("two")
        assert numbers.try_push(3)
        assert hand.heard == [("one", 1), ("two", 2)]
        assert await waiting

    asyncio.run(main())


def test_put_would_block_the_thread_of_its_own_pipeline() -> None:
    numbers = pushable(thread_safe=True)
    pull(numbers, Hand().sink).start()
    with pytest.raises(WrongThread, match="block"):
        numbers.put(1)
