"""for_each: calls that take time, several at once, and what becomes of them at each end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.errors import BadOption
from headrace.pull import for_each, map, pull, values
from headrace.pull.errors import CallCancelled
from headrace.testing import VirtualRuntime
from tests.pull.core.modules import Manual, delay


class Failure(Exception):
    pass


class Calls:
    """A coroutine function whose calls end when the test says so."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.over: list[Any] = []
        self._ends: dict[Any, asyncio.Future[None]] = {}

    async def __call__(self, value: Any) -> None:
        self.begun.append(value)
        self._ends[value] = asyncio.get_running_loop().create_future()
        try:
            await self._ends[value]
            self.over.append(value)
        except asyncio.CancelledError:
            self.over.append(f"{value} cancelled")
            raise

    async def end(self, value: Any, error: Exception | None = None) -> None:
        if error is None:
            self._ends[value].set_result(None)
        else:
            self._ends[value].set_exception(error)
        await settle()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_the_next_call_is_made_when_the_last_one_is_done() -> None:
    async def main() -> None:
        calls, drawn = Calls(), []
        run = pull(
            values([1, 2, 3]), map(lambda value: drawn.append(value) or value), for_each(calls)
        ).start()
        await settle()
        assert (calls.begun, drawn) == ([1], [1])
        await calls.end(1)
        assert (calls.begun, drawn) == ([1, 2], [1, 2])
        await calls.end(2)
        await calls.end(3)
        assert await run is None
        assert calls.over == [1, 2, 3]

    asyncio.run(main())


def test_calls_are_made_in_order_and_so_many_at_once() -> None:
    async def main() -> None:
        calls = Calls()
        run = pull(values(range(5)), for_each(calls, width=3)).start()
        await settle()
        assert calls.begun == [0, 1, 2]
        await calls.end(1)
        assert calls.begun == [0, 1, 2, 3]
        for value in (0, 2, 3, 4):
            await calls.end(value)
        await run
        assert calls.over == [1, 0, 2, 3, 4]

    asyncio.run(main())


def test_no_more_values_are_asked_for_than_keep_upstream_at_work() -> None:
    async def main() -> None:
        calls, source = Calls(), Manual()
        pull(source.source, delay(0), delay(0), for_each(calls)).start()
        await settle()
        assert len(source.requests) == 2
        for at in range(2):
            source.answer(at, None, at)
            await asyncio.sleep(0.01)
        assert (calls.begun, len(source.requests)) == ([0], 2)
        await calls.end(0)
        assert len(source.requests) == 3

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    pending = asyncio.all_tasks(loop)
    for task in pending:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
    loop.close()


def test_what_a_call_raises_fails_upstream_and_the_other_calls_are_awaited() -> None:
    async def main() -> None:
        calls, heard = Calls(), []
        run = pull(values(range(9), on_stop=heard.append), for_each(calls, width=2)).start()
        await settle()
        failure = Failure("one")
        await calls.end(0, failure)
        assert (heard, calls.begun, run.finished) == ([failure], [0, 1], False)
        await calls.end(1)
        with pytest.raises(Failure, match="one"):
            await run
        assert calls.over == [1]

    asyncio.run(main())


def test_what_a_second_call_raises_then_is_a_note() -> None:
    async def main() -> None:
        calls = Calls()
        run = pull(values(range(9)), for_each(calls, width=2)).start()
        await settle()
        await calls.end(0, Failure("one"))
        await calls.end(1, Failure("two"))
        with pytest.raises(Failure, match="one") as raised:
            await run
        assert raised.value.__notes__ == ["then, while closing: Failure: two"]

    asyncio.run(main())


def test_calls_are_cancelled_and_waited_for_where_that_is_said() -> None:
    async def main() -> None:
        calls = Calls()
        run = pull(values(range(9)), for_each(calls, width=3, cancel=True)).start()
        await settle()
        await calls.end(1, Failure("one"))
        with pytest.raises(Failure, match="one"):
            await run
        assert sorted(calls.over) == ["0 cancelled", "2 cancelled"]

    asyncio.run(main())


def test_values_that_wait_for_their_call_are_dropped_where_upstream_fails() -> None:
    async def main() -> None:
        calls, source = Calls(), Manual()
        run = pull(source.source, for_each(calls)).start(window=3)
        for at, value in enumerate("abc"):
            source.answer(at, None, value)
        await settle()
        await calls.end("a")
        source.answer(3, Failure("upstream"))
        await calls.end("b")
        with pytest.raises(Failure, match="upstream"):
            await run
        assert calls.over == ["a", "b"]

    asyncio.run(main())


def test_a_stopped_run_waits_for_the_calls_under_way() -> None:
    async def main() -> None:
        calls = Calls()
        task = asyncio.ensure_future(_awaiting(pull(values(range(9)), for_each(calls))))
        await settle()
        task.cancel()
        await settle()
        assert not task.done()
        await calls.end(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (calls.begun, calls.over) == ([0], [0])

    asyncio.run(main())


async def _awaiting(pipeline: Any) -> Any:
    return await pipeline


def test_a_call_that_somebody_else_cancels_is_an_error_with_the_line() -> None:
    async def cancels_itself(_value: Any) -> None:
        raise asyncio.CancelledError

    with pytest.raises(CallCancelled) as raised:
        pull(values([1]), for_each(cancels_itself)).run()
    assert "for_each(cancels_itself)" in raised.value.where[0].location.text


def test_functions_that_need_no_loop_get_none_and_no_stack() -> None:
    seen: list[int] = []
    runtime = VirtualRuntime()
    pull(values(range(10_000)), for_each(seen.append)).start(runtime).result()
    assert (len(seen), runtime.has_loop) == (10_000, False)


def test_some_calls_may_be_awaited_and_some_not() -> None:
    async def rest() -> None:
        await asyncio.sleep(0)

    pull(values(range(9)), for_each(lambda value: rest() if value % 2 else None, width=2)).run()


def test_width_is_a_number_of_calls() -> None:
    with pytest.raises(BadOption):
        for_each(print, width=0)
