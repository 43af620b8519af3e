"""Group commit: each write is done once, however often it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from headrace.compute.collections.memory import MemoryCollections
from headrace.compute.collections.store import CollectionAppend, CollectionBounds
from headrace.compute.errors import StoreUnavailable
from headrace.compute.protocol.commands import Id
from headrace.compute.serve.client_session import GroupCommit
from tests.compute.controller.world import World


class Unsteady(MemoryCollections):
    """A store that loses answers. blind: nothing is told of uppers either. broken: by a bug of its own."""

    lost = blind = broken = False

    def append(self, appends: Sequence[CollectionAppend]) -> None:
        if self.broken:
            raise ZeroDivisionError
        super().append(appends)
        if self.lost:
            raise StoreUnavailable("the answer was lost")

    def bounds(self, ids: Sequence[Id]) -> list[CollectionBounds]:
        if self.blind:
            raise StoreUnavailable("the disk is gone")
        return super().bounds(ids)


def prices(world: World) -> list[int]:
    id = world.controller.describe("bids").id
    (bounds,) = world.collections.bounds([id])
    assert bounds.upper.time is not None
    rows = [row for chunk in world.collections.snapshot(id, bounds.upper.time - 1) for row in chunk]
    return sorted(price for (_, price), count in rows for _ in range(count))


def with_writing(test: Callable[[World, GroupCommit, Unsteady], Awaitable[None]]) -> None:
    async def run() -> None:
        store = Unsteady()
        world = World(collections=store)
        world.view()
        writing = GroupCommit(world.controller, lambda: store, print)
        try:
            await test(world, writing, store)
        finally:
            await writing.close()

    asyncio.run(run())


def bid(price: int) -> dict[str, list[tuple[tuple[int, int], int]]]:
    return {"bids": [((1, price), 1)]}


def test_a_write_that_is_asked_for_again_is_done_once() -> None:
    async def test(world: World, writing: GroupCommit, _: Unsteady) -> None:
        first, again, other = (
            writing.write(bid(5), b"1"),
            writing.write(bid(5), b"1"),
            writing.write(bid(6), b"2"),
        )
        time = await first
        assert await again == time
        await other
        assert await writing.write(bid(5), b"1") == time
        assert prices(world) == [5, 6]

    with_writing(test)


def test_after_a_write_that_fails_in_an_unforeseen_way_others_go_on() -> None:
    async def test(world: World, writing: GroupCommit, store: Unsteady) -> None:
        store.broken = True
        with pytest.raises(ZeroDivisionError):
            await writing.write(bid(5), b"1")
        store.broken = False
        await writing.write(bid(6), b"2")
        await writing.write(bid(5), b"1")
        assert prices(world) == [5, 6]

    with_writing(test)


def test_a_write_whose_answer_the_store_lost_is_done() -> None:
    async def test(world: World, writing: GroupCommit, store: Unsteady) -> None:
        store.lost = True
        times = await asyncio.gather(*(writing.write(bid(n), bytes([n])) for n in range(3)))
        assert prices(world) == [0, 1, 2]
        assert len(set(times)) == 1

    with_writing(test)


def test_a_write_in_doubt_is_told_when_it_is_asked_for_again() -> None:
    async def test(world: World, writing: GroupCommit, store: Unsteady) -> None:
        store.lost = store.blind = True
        asked = [writing.write(bid(n), bytes([n])) for n in range(3)]
        for result in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(result, StoreUnavailable)
        store.lost = store.blind = False
        again = await asyncio.gather(*(writing.write(bid(n), bytes([n])) for n in range(3)))
        assert prices(world) == [0, 1, 2]
        assert len(set(again)) == 1

    with_writing(test)


def test_a_write_that_fails_may_be_asked_for_again() -> None:
    async def test(world: World, writing: GroupCommit, _: Unsteady) -> None:
        with pytest.raises(Exception, match="price"):
            await writing.write({"bids": [((1, "two"), 1)]}, b"1")  # type: ignore[dict-item]
        await writing.write(bid(5), b"1")
        assert prices(world) == [5]

    with_writing(test)
