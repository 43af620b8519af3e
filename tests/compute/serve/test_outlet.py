"""Subscriptions of clients that read slowly: what waits for them is bounded, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.compute.errors import SinceViolation
from headrace.compute.frontier import END
from headrace.compute.protocol.responses import BatchResponse, DroppedAt, Problem
from headrace.compute.serve import controller_process
from headrace.compute.serve.controller_process import SubscriptionBuffer
from headrace.expr.row_classes import schema_of
from tests.compute.serve.paper_controller import PaperController


def controller(rows: int = 0) -> PaperController:
    made = PaperController()
    made._define("numbers", schema_of(int), view=True)
    if rows:
        write(made, *range(rows))
    return made


def write(to: PaperController, *numbers: int) -> None:
    to.end_write(to.begin_write({"numbers": [((number,), 1) for number in numbers]}))


def outlet(of: PaperController, **asked: Any) -> SubscriptionBuffer:
    return SubscriptionBuffer(of, "numbers", **{"as_of": None, "snapshot": True, "replica": None} | asked)  # type: ignore


async def read_all(found: SubscriptionBuffer, upper: int) -> list[BatchResponse]:
    """The batches until they cover all before a time; each must begin where the last one has ended."""
    batches: list[BatchResponse] = []
    while not batches or (batches[-1].upper.time or 0) < upper:
        event = await found.next()
        assert isinstance(event, BatchResponse)
        assert not batches or event.lower == batches[-1].upper
        batches.append(event)
    return batches


def numbers(batches: list[BatchResponse]) -> list[int]:
    assert all(isinstance(batch.updates, tuple) for batch in batches)
    return [row[0] for batch in batches for row, _, _ in batch.updates]  # type: ignore


def test_a_slow_reader_sees_everything_once_and_little_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_process, "MAX_UPDATES", 20)

    async def test() -> None:
        source = controller()
        slow = outlet(source)
        for number in range(500):
            write(source, number)
            await asyncio.sleep(0)  # what was put off to the next turn of the loop happens
        assert slow.waiting < 25
        assert not source.subscribers
        assert numbers(await read_all(slow, 501)) == list(range(500))
        assert source.subscriptions == 2

    asyncio.run(test())


def test_many_small_batches_are_too_many_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_process, "MAX_BATCHES", 10)

    async def test() -> None:
        source = controller()
        slow = outlet(source)
        for _ in range(100):
            write(source)
            await asyncio.sleep(0)
        assert slow.waiting <= 11
        await read_all(slow, 101)

    asyncio.run(test())


def test_one_large_batch_alone_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_process, "MAX_UPDATES", 20)

    async def test() -> None:
        source = controller(rows=100)
        found = outlet(source)
        await asyncio.sleep(0)
        assert len(await read_all(found, 2)) == 1
        assert list(source.subscribers) == ["t1"]

    asyncio.run(test())


def test_a_reader_that_stays_away_for_longer_than_is_kept_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_process, "MAX_UPDATES", 3)

    async def test() -> None:
        source = controller()
        slow = outlet(source)
        for number in range(10):
            write(source, number)
            await asyncio.sleep(0)
        source.since = 9
        with pytest.raises(SinceViolation):
            await read_all(slow, 11)

    asyncio.run(test())


def test_a_view_that_is_sealed_ends_with_its_last_batch() -> None:
    async def test() -> None:
        source = controller()
        found = outlet(source)
        write(source, 1)
        source.seal("numbers")
        assert numbers(await read_all(found, 2)) == [1]
        last = await found.next()
        assert isinstance(last, BatchResponse)
        assert last.upper == END
        assert await found.next() is None

    asyncio.run(test())


def test_a_view_that_is_dropped_ends_after_what_came_before() -> None:
    async def test() -> None:
        source = controller()
        found = outlet(source)
        write(source, 1)
        source.drop("numbers")
        assert numbers(await read_all(found, 2)) == [1]
        assert isinstance(await found.next(), DroppedAt)
        assert await found.next() is None

    asyncio.run(test())


def test_a_closed_outlet_has_no_subscription() -> None:
    async def test() -> None:
        source = controller()
        found = outlet(source)
        found.close()
        assert not source.subscribers

    asyncio.run(test())


def test_a_problem_without_any_times_is_told() -> None:
    """As where the only replica that may tell it is lost: the client would wait for ever."""

    async def test() -> None:
        for seen in (False, True):
            source = controller(2)
            reader = outlet(source)
            if seen:
                await read_all(reader, 2)
            (subscriber,) = source.subscribers.values()
            problem = Problem("P734", "replica 'r1' is not connected")
            subscriber.deliver(BatchResponse(subscriber.upper, subscriber.upper, problem))
            events = [event async for event in all_of(reader)]
            assert isinstance(events[-1], BatchResponse)
            assert events[-1].updates == problem

    asyncio.run(test())


async def all_of(reader: SubscriptionBuffer) -> AsyncIterator[BatchResponse | DroppedAt]:
    while (event := await reader.next()) is not None:
        yield event
