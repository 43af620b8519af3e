"""One stream between a controller and a replica: order, ends, who comes later."""

from __future__ import annotations

import asyncio

from headrace.compute.errors import ConnectionBroken, StaleEpoch
from headrace.compute.protocol.commands import CreateTimely, Epoch, IndexTarget, Peek
from headrace.compute.protocol.responses import PeekResponse
from tests.compute.transport.fakes import answered, linked, run_link, served, until


def test_commands_arrive_in_order_and_are_answered() -> None:
    async def story() -> None:
        async with served() as server, linked(server) as (controller, _):
            uuids = [bytes([n]) * 16 for n in range(250)]
            controller.connections[0].send(*(Peek(uuid, IndexTarget("u1"), 1) for uuid in uuids))
            answers = [await controller.answer() for _ in uuids]
            assert [a.uuid for a in answers if isinstance(a, PeekResponse)] == uuids
            assert isinstance(server.replica.received[0], CreateTimely)
            assert len(server.replica.received) == 254

    asyncio.run(story())


def test_a_controller_that_ends_its_connection_leaves_the_replica_running() -> None:
    async def story() -> None:
        async with served() as server:
            async with linked(server) as (controller, link):
                await controller.peek()
                controller.connections[0].end()
                await until(lambda: bool(controller.failures))
                assert controller.failures == [None]
                assert link.error is None
            await until(lambda: "disconnected" in server.replica.events)
            await server.check_alive()

    asyncio.run(story())


def test_a_replica_that_stops_is_a_failure_for_the_controller() -> None:
    async def story() -> None:
        async with served() as server, linked(server) as (controller, link):
            await controller.peek()
            server.task.cancel()
            await until(lambda: bool(controller.failures))
            assert isinstance(link.error, ConnectionBroken)
            assert controller.failures == [link.error]
            assert server.replica.events[-2:] == ["disconnected", "closed"]

    asyncio.run(story())


def test_a_greater_epoch_takes_over_and_the_old_stream_learns_it() -> None:
    async def story() -> None:
        async with served() as server, linked(server) as (old, old_link):
            await old.peek()
            async with linked(server, controller_epoch=2) as (new, _):
                await new.peek()
                await until(lambda: bool(old.failures))
                assert isinstance(old_link.error, StaleEpoch)
                assert server.replica.greatest_epoch == Epoch(2, 1)
                assert await new.peek() == answered(2)

    asyncio.run(story())


def test_an_epoch_that_is_not_greater_is_refused_before_any_command() -> None:
    async def story() -> None:
        async with served() as server, linked(server, controller_epoch=5) as (controller, _):
            await controller.peek()
            seen = len(server.replica.received)
            for epoch in (4, 5):
                late, link = await run_link(server, controller_epoch=epoch)
                assert isinstance(link.error, StaleEpoch)
                assert link.error.facts["current"] == (5, 1)
                assert late.failures == [link.error]
            assert len(server.replica.received) == seen
            assert await controller.peek() == answered(2)

    asyncio.run(story())
