"""Runs with async sources: what they bring, how far ahead, and how they end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.engine.run import Progress
from headrace.engine.run_module import RunModule
from headrace.errors import BadInput, BadRow
from headrace.io import JsonFiles


def numbers(*names: str, bounded: str = "") -> hr.Flow:
    flow = hr.Flow("numbers")
    for name in names or ("n",):
        flow.sink(f"{name}_out", flow.source(name, int, bounded=name == bounded))
    return flow


async def count_to(last: int) -> AsyncIterator[int]:
    for n in range(last):
        yield n


def rows(changes: list[Any]) -> list[Any]:
    return [change.row for change in changes]


def test_a_run_drives_async_iterators_to_their_end() -> None:
    seen: list[Any] = []
    result = hr.run(numbers(), {"n": count_to(7)}, {"n_out": seen}, tick_rows=3)
    assert rows(seen) == list(range(7))
    assert (result.rows_in, result.stopped_by) == (7, None)


def test_the_function_that_makes_an_async_iterator_is_a_source_too() -> None:
    async def three() -> AsyncIterator[int]:
        for n in (1, 2, 3):
            yield n

    seen: list[Any] = []
    hr.run(numbers(), {"n": three}, {"n_out": seen})
    assert rows(seen) == [1, 2, 3]


def test_async_sources_and_others_run_side_by_side() -> None:
    first: list[Any] = []
    second: list[Any] = []
    hr.run(
        numbers("a", "b"),
        {"a": count_to(4), "b": [7, 8]},
        {"a_out": first, "b_out": second},
        tick_rows={"b": 1},
    )
    assert (rows(first), rows(second)) == ([0, 1, 2, 3], [7, 8])


def test_a_run_may_be_a_task_among_others() -> None:
    queue: asyncio.Queue[int | None] = asyncio.Queue()

    async def queued() -> AsyncIterator[int]:
        while (n := await queue.get()) is not None:
            yield n

    async def session() -> list[Any]:
        seen: list[Any] = []
        answered = asyncio.Event()

        def answer(tick: int, changes: Any) -> None:
            seen.extend(changes)
            answered.set()

        running = asyncio.create_task(hr.arun(numbers(), {"n": queued}, {"n_out": answer}))
        for n in range(3):
            answered.clear()
            queue.put_nowait(n)
            await answered.wait()  # each row is answered before the next one is there
        queue.put_nowait(None)
        result = await running
        assert result.ticks == 3
        return rows(seen)

    assert asyncio.run(session()) == [0, 1, 2]


def test_a_source_is_read_no_further_ahead_than_a_tick_takes() -> None:
    brought = 0
    ahead: list[int] = []

    async def eager() -> AsyncIterator[int]:
        nonlocal brought
        for n in range(50):
            brought = n
            yield n

    taken = 0

    def note(progress: Progress) -> None:
        nonlocal taken
        taken += progress.rows_in
        ahead.append(brought + 1 - taken)

    hr.run(numbers(), {"n": eager}, tick_rows=4, on_tick=note)
    assert taken == 50
    assert max(ahead) <= 4 + 1, "one tick's rows, and the one that found no room"


def test_a_bounded_async_source_is_whole_in_the_first_tick() -> None:
    async def slowly() -> AsyncIterator[int]:
        async for n in count_to(20):
            await asyncio.sleep(0)
            yield n

    seen: list[Progress] = []
    flow = numbers("a", "b", bounded="a")
    hr.run(flow, {"a": slowly, "b": count_to(3)}, tick_rows=2, on_tick=seen.append)
    assert seen[0].rows_in == 22
    assert sum(p.rows_in for p in seen) == 23


def test_what_an_async_source_raises_reaches_the_caller_after_the_rows_before_it() -> None:
    async def breaking() -> AsyncIterator[int]:
        yield 1
        yield 2
        raise ConnectionError("gone")

    seen: list[Any] = []
    with pytest.raises(ConnectionError, match="gone"):
        hr.run(numbers(), {"n": breaking}, {"n_out": seen})
    assert rows(seen) == [1, 2]


def test_a_bad_row_of_an_async_source_is_named() -> None:
    async def wrong() -> AsyncIterator[Any]:
        yield 1
        yield "x"

    with pytest.raises(BadRow, match="source 'n'"):
        hr.run(numbers(), {"n": wrong}, tick_rows=1)


def test_a_failing_run_closes_its_async_sources() -> None:
    closed: list[str] = []

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 0
        finally:
            closed.append("endless")

    flow = hr.Flow("failing")
    flow.sink("out", flow.source("n", int).map(lambda n: 1 // n, returns=int))
    with pytest.raises(hr.HeadraceError):
        hr.run(flow, {"n": endless})
    assert closed == ["endless"]


def test_a_cancelled_run_ends_between_ticks_with_everything_closed(tmp_path: Path) -> None:
    closed: list[str] = []

    async def slow() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.append("slow")

    async def session() -> None:
        told = asyncio.Event()
        running = asyncio.create_task(
            hr.arun(numbers(), {"n": slow}, checkpoint=tmp_path / "c", on_tick=lambda _: told.set())
        )
        await told.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(session())
    assert closed == ["slow"]
    again: list[Any] = []
    result = hr.run(numbers(), {"n": count_to(3)}, {"n_out": again}, checkpoint=tmp_path / "c")
    assert rows(again) == [1, 2], "one row was taken, and the checkpoint is free"
    assert result.last_tick == 2


def test_a_run_goes_on_where_its_checkpoint_ends(tmp_path: Path) -> None:
    for last, wanted in ((4, [0, 1, 2, 3]), (6, [4, 5]), (6, [])):
        seen: list[Any] = []
        hr.run(numbers(), {"n": count_to(last)}, {"n_out": seen}, checkpoint=tmp_path / "c", tick_rows=3)
        assert rows(seen) == wanted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_that_waits_for_rows(number: signal.Signals) -> None:
    async def once() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    def stop(progress: Progress) -> None:
        os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    result = hr.run(numbers(), {"n": once}, on_tick=stop)
    assert (result.ticks, result.stopped_by) == (1, number)
    assert signal.getsignal(number) is before


def test_a_signal_wakes_a_run_that_waits() -> None:
    async def interrupting() -> AsyncIterator[int]:
        yield 1
        for _ in range(20):  # until the run has answered, and waits itself
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    result = hr.run(numbers(), {"n": interrupting})
    assert result.stopped_by == signal.SIGINT


def test_a_signal_wakes_a_run_that_waits_for_a_bounded_source() -> None:
    async def interrupting() -> AsyncIterator[int]:
        yield 1
        for _ in range(20):
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    result = hr.run(numbers(bounded="n"), {"n": interrupting})
    assert (result.ticks, result.stopped_by) == (0, signal.SIGINT)


def test_a_signal_is_heard_once_however_long_a_source_takes_to_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[RunModule] = []
    stop = RunModule.stop
    monkeypatch.setattr(RunModule, "stop", lambda running: (heard.append(running), stop(running)))

    async def closing_slowly() -> AsyncIterator[int]:
        try:
            yield 1
            for _ in range(20):
                await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            for _ in range(100):
                await asyncio.sleep(0)

    assert hr.run(numbers(), {"n": closing_slowly}).stopped_by == signal.SIGINT
    assert len(heard) == 1


def test_files_are_followed_beside_an_async_source(tmp_path: Path) -> None:
    async def writes() -> AsyncIterator[int]:
        (tmp_path / "1.json").write_text('{"value": 7}\n')
        yield 1
        await asyncio.Event().wait()

    class Seen(Exception):
        pass

    def stop(tick: int, changes: Any) -> None:
        raise Seen

    with pytest.raises(Seen):
        hr.run(
            numbers("a", "b"),
            {"a": writes, "b": JsonFiles(tmp_path)},
            {"b_out": stop},
            follow=True,
        )


def test_within_an_event_loop_run_says_what_to_call_instead() -> None:
    async def session() -> None:
        hr.run(numbers(), {"n": count_to(1)})

    with pytest.raises(BadInput, match="arun"):
        asyncio.run(session())


def test_limits_by_source_leave_the_others_as_they_are() -> None:
    seen: list[Progress] = []
    hr.run(numbers("a", "b"), {"a": range(3), "b": range(3)}, tick_rows={"a": 1}, on_tick=seen.append)
    assert [p.rows_in for p in seen] == [4, 1, 1]
    with pytest.raises(BadInput, match="tick_rows names 'c'"):
        hr.run(numbers(), {"n": []}, tick_rows={"c": 1})


def test_the_bound_of_a_run_holds_for_all_loops() -> None:
    flow = hr.Flow("up")
    seed = flow.source("n", int)
    flow.sink("out", flow.fixpoint(lambda n: n.map(lambda v: v + 1, returns=int), seed))
    with pytest.raises(hr.HeadraceError, match="after 5 rounds"):
        hr.run(flow, {"n": [1]}, max_iterations=5)
