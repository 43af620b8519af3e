"""from_queue and to_queue, with queues for threads and for tasks."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import BadOption
from headrace.pull import cat, collect, count, error, from_queue, pull, take, to_queue, values
from tests.pull.core.modules import Hand, Manual

END = object()


def filled(make: Callable[[], Any], *items: object) -> Any:
    made = make()
    for item in items:
        made.put_nowait(item)
    return made


KINDS = pytest.mark.parametrize("make", [queue.Queue, asyncio.Queue])


@KINDS
def test_items_come_in_order_to_the_end_mark(make: Callable[[], Any]) -> None:
    found = filled(make, 1, None, 2, END, 3)
    assert pull(from_queue(found, end=END), collect()).run() == [1, None, 2]
    assert found.qsize() == 1


@KINDS
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_an_item_is_taken_when_it_is_asked_for_and_counts_as_done_then(
    make: Callable[[], Any], batch: int
) -> None:
    found = filled(make, *range(10))
    assert pull(from_queue(found), take(3), collect(batch=batch)).run() == [0, 1, 2]
    assert found.qsize() == 7
    assert found._unfinished_tasks if make is asyncio.Queue else found.unfinished_tasks == 7


def test_priority_queues_give_what_comes_first_there() -> None:
    found = filled(queue.PriorityQueue, (3, "c"), (1, "a"), (2, "b"))
    assert pull(from_queue(found), take(2), collect()).run() == [(1, "a"), (2, "b")]


def test_the_end_mark_is_compared_by_identity() -> None:
    class Equal:
        def __eq__(self, _other: object) -> bool:
            raise AssertionError("compared by value")

        __hash__ = None  # type: ignore[assignment]

    end = Equal()
    assert len(pull(from_queue(filled(queue.Queue, Equal(), end), end=end), collect()).run()) == 1


def test_a_thread_brings_items_while_the_pipeline_waits() -> None:
    items: queue.Queue[Any] = queue.Queue(maxsize=2)

    def work() -> None:
        for number in range(200):
            items.put(number)
        items.put(END)

    thread = threading.Thread(target=work)
    thread.start()
    assert pull(from_queue(items, end=END), collect()).run() == list(range(200))
    thread.join()
    items.join()


def test_two_pipelines_share_a_queue_for_threads() -> None:
    items: queue.Queue[Any] = queue.Queue(maxsize=1)
    found: list[list[int]] = [[], []]

    def read(into: list[int]) -> None:
        into += pull(from_queue(items, end=END), collect()).run()

    threads = [threading.Thread(target=read, args=(into,)) for into in found]
    for thread in threads:
        thread.start()
    for number in range(300):
        items.put(number)
    items.put(END)
    items.put(END)
    for thread in threads:
        thread.join()
    assert sorted(found[0] + found[1]) == list(range(300))


def test_an_abort_while_it_waits_takes_nothing_and_wakes_others() -> None:
    """The thread that waits may have been woken in the place of another one, which must not sleep on."""

    async def main() -> None:
        items: queue.Queue[Any] = queue.Queue()
        hand = Hand()
        pull(from_queue(items), hand.sink).start()
        hand.request("one")
        await asyncio.sleep(0)
        got: list[Any] = []
        other = threading.Thread(target=lambda: got.append(items.get()))
        other.start()
        hand.request("stop", True)
        assert hand.heard == [("one", True), ("stop", True)]
        await _no_threads()
        items.put(1)
        await asyncio.to_thread(other.join)
        assert got == [1]

    asyncio.run(main())


async def _no_threads() -> None:
    """The threads that waited for a queue end by themselves."""
    for thread in threading.enumerate():
        if thread.name == "headrace-queue":
            await asyncio.to_thread(thread.join)


def test_tasks_bring_items_while_the_pipeline_waits() -> None:
    async def main() -> None:
        items: asyncio.Queue[Any] = asyncio.Queue(maxsize=2)

        async def work() -> None:
            for number in range(50):
                await items.put(number)
            await items.put(END)

        task = asyncio.create_task(work())
        assert await pull(from_queue(items, end=END), collect()) == list(range(50))
        await task
        await items.join()

    asyncio.run(main())


def test_an_abort_while_it_waits_for_a_task_takes_nothing() -> None:
    async def main() -> None:
        items: asyncio.Queue[Any] = asyncio.Queue()
        hand = Hand()
        pull(from_queue(items), hand.sink).start()
        hand.request("one")
        hand.request("two")
        await asyncio.sleep(0)
        hand.request("stop", True)
        assert hand.heard == [("one", True), ("two", True), ("stop", True)]
        items.put_nowait(1)
        await asyncio.sleep(0)
        assert items.qsize() == 1

    asyncio.run(main())


# -- to_queue -----------------------------------------------------------------------------------


@KINDS
def test_values_are_put_in_order_and_counted(make: Callable[[], Any]) -> None:
    items = make()
    assert pull(count(4), to_queue(items, end=END)).run() == 5
    assert [items.get_nowait() for _ in range(6)] == [0, 1, 2, 3, 4, END]


@KINDS
def test_without_an_end_mark_none_is_put(make: Callable[[], Any]) -> None:
    items = make()
    assert pull(values([]), to_queue(items)).run() == 0
    assert items.empty()


@KINDS
def test_the_end_mark_is_put_also_where_the_stream_failed(make: Callable[[], Any]) -> None:
    items = make()
    run = pull(cat([values([1]), error(OSError("torn"))]), to_queue(items, end=END)).start()
    assert run.partial == 1
    with pytest.raises(OSError, match="torn"):
        run.result()
    assert [items.get_nowait(), items.get_nowait()] == [1, END]


@KINDS
def test_a_full_queue_is_waited_for_and_nothing_is_asked_meanwhile(make: Callable[..., Any]) -> None:
    async def main() -> None:
        items, manual = make(maxsize=1), Manual()
        run = pull(manual.source, to_queue(items)).start()
        manual.answer(0, None, "a")
        assert manual.requests == [None, None]
        manual.answer(1, None, "b")
        assert manual.requests == [None, None]
        await asyncio.sleep(0)
        assert items.get_nowait() == "a"
        while len(manual.requests) < 3:
            await asyncio.sleep(0)
        assert items.get_nowait() == "b"
        manual.answer(2, True)
        assert await run == 2
        await _no_threads()

    asyncio.run(main())


@KINDS
def test_a_run_that_is_stopped_while_it_waits_for_room_ends(make: Callable[..., Any]) -> None:
    async def main() -> None:
        items = make(maxsize=1)
        run = pull(count(), to_queue(items)).start()
        await asyncio.sleep(0)
        run.stop()
        assert await run is None
        assert items.get_nowait() == 0
        assert items.empty()
        await _no_threads()

    asyncio.run(main())


@KINDS
def test_a_queue_joins_two_pipelines(make: Callable[..., Any]) -> None:
    async def main() -> None:
        items = make(maxsize=3)
        writing = asyncio.ensure_future(_awaited(pull(count(100), to_queue(items, end=END))))
        assert await pull(from_queue(items, end=END), collect()) == list(range(101))
        assert await writing == 101
        await _no_threads()

    asyncio.run(main())


async def _awaited(pipeline: Any) -> Any:
    return await pipeline


@pytest.mark.parametrize("wrong", [[], None, queue.SimpleQueue()])
def test_other_things_are_no_queues(wrong: Any) -> None:
    with pytest.raises(BadOption, match="from_queue"):
        from_queue(wrong)
    with pytest.raises(BadOption, match="to_queue"):
        to_queue(wrong)
