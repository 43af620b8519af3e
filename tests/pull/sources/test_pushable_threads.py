"""pushable with threads: every value arrives, in the order of its thread, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from headrace.pull import collect, pull, pushable, take, transformer
from headrace.pull.errors import NeverAnswered, WrongThread
from tests.pull.core.modules import Hand


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def test_threads_push_and_the_pipeline_waits_for_them() -> None:
    numbers = pushable(bound=3, thread_safe=True)
    left = [4]
    lock = threading.Lock()

    def work(start: int) -> None:
        for number in range(start, start + 500):
            assert numbers.put(number)
        with lock:
            left[0] -= 1
            if not left[0]:
                numbers.end()

    threads = [in_thread(lambda start=start: work(start)) for start in range(0, 4000, 1000)]
    found = pull(numbers, collect()).run()
    for thread in threads:
        thread.join()
    for start in range(0, 4000, 1000):
        assert [n for n in found if start <= n < start + 1000] == list(range(start, start + 500))


def test_threads_push_into_a_pipeline_of_an_event_loop() -> None:
    async def main() -> list[int]:
        numbers = pushable(bound=2, thread_safe=True)

        def work() -> None:
            for number in range(200):
                numbers.put(number)
            numbers.end()

        thread = in_thread(work)
        found = await pull(numbers, collect())
        thread.join()
        return found

    assert asyncio.run(main()) == list(range(200))


def test_a_thread_that_waits_for_room_is_told_that_the_stream_was_aborted() -> None:
    numbers = pushable(bound=1, thread_safe=True)
    taken: list[bool] = []

    def work() -> None:
        while numbers.put(1):
            taken.append(True)
        taken.append(numbers.push(1))

    thread = in_thread(work)
    assert pull(numbers, take(5), collect()).run() == [1] * 5
    thread.join()
    assert taken[-1] is False
    assert numbers.waiting == 0


def test_the_last_thread_may_end_it_with_an_error() -> None:
    numbers = pushable(thread_safe=True)

    def work() -> None:
        numbers.push(1)
        numbers.end(OSError("torn"))

    thread = in_thread(work)
    run = pull(numbers, collect()).start()
    with pytest.raises(OSError, match="torn"):
        run.wait()
    assert run.partial == [1]
    thread.join()


def test_another_thread_is_refused_where_it_was_not_announced() -> None:
    numbers = pushable()
    pull(numbers, Hand().sink).start()
    refused: list[WrongThread] = []

    def work() -> None:
        for call in (lambda: numbers.push(1), lambda: numbers.put(1), numbers.end):
            try:
                call()
            except WrongThread as error:
                refused.append(error)

    in_thread(work).join()
    assert len(refused) == 3
    assert "thread_safe=True" in str(refused[0])
    assert numbers.waiting == 0


def test_the_thread_of_the_pipeline_may_push_as_well() -> None:
    async def main() -> None:
        numbers = pushable(thread_safe=True)
        collecting = asyncio.ensure_future(_awaited(pull(numbers, collect())))
        await asyncio.sleep(0)
        numbers.push(1)
        await numbers.pushed(2)
        numbers.end()
        assert await collecting == [1, 2]

    asyncio.run(main())


async def _awaited(pipeline: object) -> object:
    return await pipeline  # type: ignore[misc]


def test_a_thread_that_waits_for_room_is_told_when_the_run_was_given_up() -> None:
    numbers, put = pushable(bound=1, thread_safe=True), list[bool]()
    numbers.push(1)
    thread = threading.Thread(target=lambda: put.append(numbers.put(2)), daemon=True)
    thread.start()
    silent = transformer(lambda _upstream: lambda _abort, _answer: None)
    with pytest.raises(NeverAnswered):
        pull(numbers, silent, collect()).run()
    thread.join(10)
    assert (thread.is_alive(), put) == (False, [False])
