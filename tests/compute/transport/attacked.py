"""A real replica at a socket, with an index that a good controller reads after each attack."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from headrace.compute.channels import STREAM, ConnectionLimits, Greeting, Wakeup
from headrace.compute.collections.memory import MemoryCollections
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.credentials import Security
from headrace.compute.frontier import START, Frontier
from headrace.compute.plans import INPUT, OUTPUT, encode, identity_flow, schema_to_bytes
from headrace.compute.protocol import serialization
from headrace.compute.protocol.commands import (
    CollectionImport,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    Epoch,
    IndexExport,
    IndexTarget,
    InitializationComplete,
    InstanceConfig,
    Peek,
    Schedule,
    TimelyConfig,
)
from headrace.compute.protocol.responses import PeekResponse, RowsResponse
from headrace.compute.replica import make_runtime
from headrace.compute.replica.replica import Replica
from headrace.compute.serve.replica_link import ReplicaLink
from headrace.compute.serve.replica_server import serve_replica
from headrace.expr.row_classes import schema_of
from tests.compute.transport.fakes import PATIENCE, FakeController

_grpc: Any = grpc
STORE = "memory:fuzzed"


class Bid(NamedTuple):
    auction: int
    price: int


VIEW = Dataflow(
    encode(identity_flow(schema_of(Bid))),
    (CollectionImport(INPUT, "s1"),),
    (),
    (IndexExport("u1", OUTPUT, ("auction",)),),
    Frontier(1),
)
PEEK = Peek(b"good" * 4, IndexTarget("u1"), 1, ((7,),))


class Attacked:
    """A replica in a process of its own loop, which runs whenever the test does something with it."""

    def __init__(self, folder: Path) -> None:
        self.runner = asyncio.Runner()
        self.epoch = 0
        self.address = self.runner.run(self._start(folder))

    async def _start(self, folder: Path) -> str:
        store = MemoryCollections.named("fuzzed")
        store.create("s1", schema_to_bytes(schema_of(Bid)))
        store.append([CollectionAppend("s1", START, Frontier(5), [((7, 30), 1, 2), ((8, 40), 1, 1)])])
        bell = Wakeup()
        replica = Replica(
            partial(make_runtime, state=folder, collections=STORE),
            clock=lambda: 1_000,
            wake=bell.ring,
            halt=bell.end_process,
        )
        where: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(
            serve_replica(
                replica,
                "127.0.0.1:0",
                Security(),
                ConnectionLimits(peeks=100),
                bell=bell,
                ready=where.set_result,
            )
        )
        return await where

    def close(self) -> None:
        async def stop() -> None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

        self.runner.run(stop())
        self.runner.close()

    # --- attacks ---------------------------------------------------------------------

    def send_raw(self, pieces: Sequence[bytes]) -> None:
        """Bytes on the socket."""

        async def attack() -> None:
            host, _, port = self.address.partition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                if writer.can_write_eof():
                    writer.write_eof()
                async with asyncio.timeout(0.05):
                    await reader.read()
            except (OSError, TimeoutError):
                pass
            finally:
                writer.transport.abort()
                await asyncio.sleep(0)

        self.runner.run(asyncio.wait_for(attack(), PATIENCE))

    def send_messages(self, sent: Sequence[bytes], method: str = STREAM) -> str:
        """Messages of gRPC on a stream of a greater epoch; the status that it ends with."""
        self.epoch += 1
        greeting = Greeting(Epoch(self.epoch, 1), b"a" * 16)

        async def attack() -> str:
            async with _grpc.aio.insecure_channel(self.address) as channel:
                call = channel.stream_stream(method)(metadata=greeting.metadata())
                try:
                    for message in sent:
                        await call.write(message)
                    await call.done_writing()
                    while await call.read() is not _grpc.aio.EOF:
                        pass
                except (_grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    pass
                return (await call.code()).name

        return self.runner.run(asyncio.wait_for(attack(), PATIENCE))

    def begin(self) -> list[bytes]:
        """What a controller says first, for the stream that `send_messages` opens next."""
        return list(serialization.commands_to_messages(begin(Epoch(self.epoch + 1, 1), b"a" * 16), 10**6))

    def check_alive(self) -> None:
        """A good controller is served, and gets the right answer."""
        self.epoch += 1

        async def check() -> None:
            controller = FakeController(self.epoch)
            first = begin(Epoch(self.epoch, 1), b"A" * 16)
            controller.prepared = [
                *first,
                CreateDataflow(VIEW),
                Schedule("u1"),
                InitializationComplete(),
                PEEK,
            ]
            task = asyncio.create_task(ReplicaLink(controller, "r1", self.address).run())
            try:
                while True:
                    response = await controller.answer()
                    if isinstance(response, PeekResponse):
                        assert response.answer == RowsResponse((((7, 30), 2),))
                        return
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        self.runner.run(asyncio.wait_for(check(), PATIENCE))
        assert not self.task.done()


def begin(epoch: Epoch, nonce: bytes) -> list[Command]:
    return [CreateTimely(TimelyConfig(), epoch, nonce), CreateInstance(InstanceConfig(STORE))]
