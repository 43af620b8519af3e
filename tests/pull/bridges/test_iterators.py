"""iter_values and aiter_values: a source as an iterator that asks when a value is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from typing import Any

import pytest

from headrace.errors import BadOption
from headrace.pull import (
    aiter_values,
    async_map,
    cat,
    count,
    error,
    iter_values,
    iterate,
    pull,
    pushable,
    values,
)
from headrace.pull.errors import LoopRunsAlready, NeverAnswered


class Drawn:
    """Numbers that note how many were drawn, and when they were closed."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def __iter__(self) -> Iterator[int]:
        try:
            for number in range(100):
                self.seen.append(number)
                yield number
        finally:
            self.seen.append("closed")


async def slowly(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


# -- for ----------------------------------------------------------------------------------------


def test_a_loop_sees_all_values() -> None:
    assert list(iter_values(count(3))) == [0, 1, 2, 3]
    assert list(iter_values(count(9), batch=4)) == list(range(10))


def test_nothing_runs_before_the_first_value_is_wanted_and_one_is_drawn_for_each() -> None:
    drawn = Drawn()
    found = iter_values(iterate(drawn))
    assert drawn.seen == []
    assert next(found) == 0
    assert drawn.seen == [0]
    assert next(found) == 1
    assert drawn.seen == [0, 1]
    found.close()
    assert drawn.seen == [0, 1, "closed"]


def test_an_iterator_that_was_never_asked_runs_nothing() -> None:
    drawn = Drawn()
    iter_values(iterate(drawn)).close()
    assert drawn.seen == []


def test_leaving_the_loop_aborts_and_waits_for_the_confirmation() -> None:
    drawn = Drawn()
    with closing(iter_values(iterate(drawn))) as found:
        for number in found:
            if number == 2:
                break
        assert drawn.seen == [0, 1, 2]
    assert drawn.seen == [0, 1, 2, "closed"]


def test_an_error_comes_after_the_values() -> None:
    found = iter_values(cat([values([1]), error(OSError("torn"))]))
    assert next(found) == 1
    with pytest.raises(OSError, match="torn"):
        next(found)
    assert list(found) == []


def test_what_closing_fails_with_is_raised() -> None:
    def clings() -> Iterator[int]:
        try:
            yield 1
        finally:
            raise OSError("does not close")

    found = iter_values(iterate(clings()))
    assert next(found) == 1
    with pytest.raises(OSError, match="does not close"):
        found.close()


def test_modules_that_wait_run_in_an_event_loop_of_its_own() -> None:
    assert list(iter_values(pull(count(20), async_map(slowly)))) == list(range(21))


def test_leaving_early_waits_for_an_asynchronous_source() -> None:
    seen: list[str] = []

    async def ticks() -> AsyncIterator[int]:
        try:
            while True:
                yield len(seen)
        finally:
            await asyncio.sleep(0)
            seen.append("closed")

    with closing(iter_values(iterate(ticks()))) as found:
        assert next(found) == 0
    assert seen == ["closed"]


def test_a_window_asks_ahead_so_far_and_no_farther() -> None:
    drawn = Drawn()
    with closing(iter_values(iterate(drawn), window=3)) as found:
        assert next(found) == 0
        assert drawn.seen == [0, 1, 2]
        assert next(found) == 1
        assert drawn.seen == [0, 1, 2, 3]


def test_a_batch_is_asked_for_at_once() -> None:
    drawn = Drawn()
    with closing(iter_values(iterate(drawn), batch=3)) as found:
        assert [next(found) for _ in range(3)] == [0, 1, 2]
        assert drawn.seen == [0, 1, 2]
        assert next(found) == 3
        assert drawn.seen == [0, 1, 2, 3, 4, 5]


def test_a_source_that_nothing_will_answer_for_says_so() -> None:
    letters = pushable()
    letters.push("a")
    found = iter_values(letters)
    assert next(found) == "a"
    with pytest.raises(NeverAnswered, match="'pushable'"):
        next(found)
    assert letters.ended


def test_a_source_that_nothing_will_answer_for_says_so_in_an_event_loop_too() -> None:
    letters = pushable()
    letters.push("a")
    found = iter_values(pull(letters, async_map(slowly)))
    assert next(found) == "a"
    with pytest.raises(NeverAnswered, match="'pushable'"):
        next(found)
    assert letters.ended


def test_within_an_event_loop_a_waiting_source_says_what_to_do() -> None:
    async def main() -> None:
        assert list(iter_values(count(2))) == [0, 1, 2]
        with pytest.raises(LoopRunsAlready):
            list(iter_values(pull(count(2), async_map(slowly))))

    asyncio.run(main())


@pytest.mark.parametrize("make", [iter_values, aiter_values])
def test_a_batch_has_a_size(make: object) -> None:
    with pytest.raises(BadOption, match="batch"):
        make(count(), batch=0)  # type: ignore[operator]


def test_a_million_values_take_no_stack() -> None:
    assert sum(iter_values(count(1_000_000), batch=100)) == 500_000_500_000


# -- async for ----------------------------------------------------------------------------------


def test_an_asynchronous_loop_sees_all_values() -> None:
    async def main() -> None:
        assert [n async for n in aiter_values(count(3))] == [0, 1, 2, 3]
        assert [n async for n in aiter_values(pull(count(20), async_map(slowly)), batch=3)] == list(range(21))

    asyncio.run(main())


def test_aclose_aborts_and_waits() -> None:
    drawn = Drawn()

    async def main() -> None:
        async with aclosing(aiter_values(iterate(drawn))) as found:
            async for number in found:
                if number == 2:
                    break
        assert drawn.seen == [0, 1, 2, "closed"]

    asyncio.run(main())


def test_an_asynchronous_loop_raises_the_error_after_the_values() -> None:
    async def main() -> list[int]:
        found = aiter_values(cat([values([1]), error(OSError("torn"))]))
        assert await anext(found) == 1
        with pytest.raises(OSError, match="torn"):
            await anext(found)
        return [number async for number in found]

    assert asyncio.run(main()) == []


def test_cancelled_while_it_waits_it_aborts_and_waits_for_the_confirmation() -> None:
    async def main() -> None:
        closed: list[Exception | None] = []
        letters = pushable(on_close=closed.append)
        letters.push("a")
        found: list[str] = []

        async def consume() -> None:
            async with aclosing(aiter_values(letters)) as values_:
                async for letter in values_:
                    found.append(letter)

        task = asyncio.create_task(consume())
        while not found:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert found == ["a"]
        assert closed == [None]

    asyncio.run(main())


def test_requests_of_the_window_go_on_while_the_task_does_something_else() -> None:
    async def main() -> None:
        begun: list[int] = []

        async def work(number: int) -> int:
            begun.append(number)
            await asyncio.sleep(0)
            return number

        async with aclosing(aiter_values(pull(count(50), async_map(work)), window=4)) as found:
            assert await anext(found) == 0
            for _ in range(50):
                await asyncio.sleep(0)
            assert begun == [0, 1, 2, 3]
            assert [await anext(found) for _ in range(3)] == [1, 2, 3]

    asyncio.run(main())


def test_the_bridges_are_inverses() -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(5):
            yield number

    assert list(iter_values(iterate(iter_values(count(4))))) == list(range(5))
    assert list(iter_values(iterate(numbers()))) == list(range(5))

    async def main() -> list[int]:
        return [n async for n in aiter_values(iterate(aiter_values(iterate(numbers()))))]

    assert asyncio.run(main()) == list(range(5))
