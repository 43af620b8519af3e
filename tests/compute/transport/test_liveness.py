"""Who is gone without a word is noticed; who is only silent is left in peace; no message gets lost."""

from __future__ import annotations

import asyncio
import contextlib
import random

from headrace.compute.channels import ConnectionLimits
from headrace.compute.errors import ConnectionBroken, MessageTooLarge
from headrace.compute.protocol.commands import CancelPeek, IndexTarget, Peek
from headrace.compute.protocol.responses import PeekResponse
from headrace.compute.serve.replica_link import ReplicaLink
from tests.compute.transport.fakes import FakeController, answered, linked, run_link, served, until

BRISK = ConnectionLimits(idle=0.05, silence=0.1)


class Wire:
    """A way between two addresses that can be cut without either end being told."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.partition(":")
        self._port = int(port)
        self._cut = False
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Wire:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    def cut(self) -> None:
        self._cut = True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, self._port)
        self._writers += [writer, back]
        for source, sink in ((reader, back), (there, writer)):
            self._tasks.append(asyncio.create_task(self._carry(source, sink)))

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if not self._cut:
                    sink.write(data)
                    await sink.drain()


def test_a_side_that_is_gone_without_a_word_is_noticed_by_the_other() -> None:
    async def story() -> None:
        async with (
            served(limits=BRISK) as server,
            Wire(server.address) as wire,
            linked(wire.address, limits=BRISK) as (controller, link),
        ):
            await controller.peek()
            wire.cut()
            await until(lambda: bool(controller.failures))
            assert isinstance(link.error, ConnectionBroken)
            await until(lambda: "disconnected" in server.replica.events)
            await server.check_alive()

    asyncio.run(story())


def test_an_idle_connection_stays_and_its_signs_of_life_are_no_abuse() -> None:
    async def story() -> None:
        async with (
            served(limits=ConnectionLimits(idle=0.01)) as server,
            linked(server, limits=ConnectionLimits(idle=0.01)) as (controller, _),
        ):
            await controller.peek()
            for _ in range(30):  # some thirty of them on each side
                await asyncio.sleep(0.01)
            assert await controller.peek() == answered(2)
            assert controller.failures == []

    asyncio.run(story())


def test_the_first_error_is_the_reported_one() -> None:
    async def story() -> None:
        async with (
            served() as server,
            linked(server, limits=ConnectionLimits(message=5_000)) as (controller, link),
        ):
            await controller.peek()
            # The sending side fails first; then the call that it cancels, the receiving side, the server.
            controller.connections[0].send(Peek(b"p" * 16, IndexTarget("u1"), 1, (("x" * 9_000,),)))
            server.task.cancel()
            await until(lambda: bool(controller.failures))
            assert isinstance(link.error, MessageTooLarge | ConnectionBroken)
            first = link.error
            link._first(ConnectionBroken("later"))
            assert controller.failures == [first]
            assert link.error is first

    asyncio.run(story())


def test_no_message_is_lost_however_reading_and_writing_interrupt_each_other() -> None:
    async def story() -> None:
        dice = random.Random(7)
        async with served() as server, linked(server) as (controller, _):
            connection = controller.connections[0]
            asked: list[bytes] = []
            for n in range(600):
                uuid = n.to_bytes(16, "big")
                asked.append(uuid)
                connection.send(Peek(uuid, IndexTarget("u1" if dice.random() < 0.7 else "silent"), 1))
                if dice.random() < 0.5:
                    connection.wake()
                if dice.random() < 0.3:
                    server.replica.bell.ring()
                if dice.random() < 0.2:
                    await asyncio.sleep(0)
            got: list[bytes] = []
            await until(lambda: sum(isinstance(c, Peek) for c in server.replica.received) == len(asked))
            peeks = [c for c in server.replica.received if isinstance(c, Peek)]
            assert [peek.uuid for peek in peeks] == asked
            connection.send(*(CancelPeek(p.uuid) for p in peeks if p.target == IndexTarget("silent")))
            while len(got) < len(asked):
                response = await controller.answer()
                assert isinstance(response, PeekResponse)
                got.append(response.uuid)
            assert sorted(got) == asked

    asyncio.run(story())


def test_a_link_tries_once_and_the_next_one_stands_as_soon_as_the_replica_is_up() -> None:
    async def story() -> None:
        async with served() as server:
            address = server.address
        for _ in range(3):
            controller, link = await run_link(address)
            assert isinstance(link.error, ConnectionBroken)
            assert (controller.unreached, controller.connections) == ([link.error], [])
        async with served(address=address), linked(address) as (again, _):
            assert await again.peek() == answered(1)

    asyncio.run(story())


def test_a_link_that_is_cancelled_tells_the_controller_and_the_replica() -> None:
    async def story() -> None:
        async with served() as server:
            controller = FakeController()
            link = ReplicaLink(controller, "r1", server.address)
            task = asyncio.create_task(link.run())
            await until(lambda: len(server.replica.received) == 4)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
            assert controller.failures == [None]
            await until(lambda: "disconnected" in server.replica.events)
            await server.check_alive()

    asyncio.run(story())
