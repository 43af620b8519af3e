"""A small replica and a small controller: what the transport needs of them, and what they saw."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc

from headrace.compute.channels import STREAM, ConnectionLimits, Wakeup
from headrace.compute.credentials import Security
from headrace.compute.errors import ComputeError, ResultGone
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.commands import (
    CancelPeek,
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
    PlanBytes,
    TimelyConfig,
)
from headrace.compute.protocol.responses import Canceled, Counted, PeekResponse, Response, RowsResponse
from headrace.compute.serve.replica_link import ReplicaLink
from headrace.compute.serve.replica_server import serve_replica

DATAFLOW = Dataflow(
    PlanBytes(b"plan"), (), (), (IndexExport("u1", "out"), IndexExport("silent", "out")), Frontier(0)
)
PATIENCE = 20.0
"""Seconds after which a test has failed: never waited for by one that passes."""


class FakeReplica:
    """Answers each peek with its keys, counted once; one of an index called "silent" only when cancelled."""

    def __init__(self, bell: Wakeup) -> None:
        self.bell = bell
        self.greatest_epoch: Epoch | None = None
        self.received: list[Command] = []
        self.events: list[str] = []
        self.refuses: dict[type[Command], Exception] = {}
        self.work: list[Callable[[], bool]] = []
        self.stashes: dict[bytes, list[list[Counted]]] = {}
        self._answers: list[Response] = []

    def begin_connection(self, nonce: bytes) -> None:
        self.events.append(f"connected {nonce[:1].decode()}")
        self._answers = []

    def end_connection(self) -> None:
        self.events.append("disconnected")

    def receive(self, command: Command) -> None:
        if type(command) in self.refuses:
            raise self.refuses[type(command)]
        self.received.append(command)
        match command:
            case CreateTimely(epoch=epoch):
                self.greatest_epoch = epoch
            case Peek(uuid, IndexTarget("silent")):
                pass
            case Peek(uuid, keys=keys):
                self.say(PeekResponse(uuid, RowsResponse(tuple((key, 1) for key in keys or ()))))
            case CancelPeek(uuid):
                self.say(PeekResponse(uuid, Canceled()))
            case _:
                pass

    def say(self, response: Response) -> None:
        self._answers.append(response)

    def step(self, seconds: float) -> bool:
        if self.work and not self.work[0]():
            self.work.pop(0)
        return bool(self.work)

    def responses(self) -> list[Response]:
        answers, self._answers = self._answers, []
        return answers

    def fetch(self, token: bytes) -> Iterator[list[Counted]]:
        if token not in self.stashes:
            raise ResultGone("these rows are gone", fix="send the peek again")
        yield from self.stashes.pop(token)

    def close(self) -> None:
        self.events.append("closed")


class FakeConnection:
    """Sends what a test puts into it."""

    def __init__(self, controller: FakeController, epoch: Epoch, nonce: bytes) -> None:
        self.wake: Callable[[], None] = lambda: None
        self.epoch = epoch
        self.nonce = nonce
        self.is_over = False
        self.commands: list[Command] = [
            CreateTimely(TimelyConfig(), epoch, nonce),
            CreateInstance(InstanceConfig("memory:")),
            InitializationComplete(),
            CreateDataflow(DATAFLOW),
        ]
        self._controller = controller

    def send(self, *commands: Command) -> None:
        self.commands += commands
        self.wake()

    def end(self) -> None:
        self.is_over = True
        self.wake()

    def take_commands(self, most: int = 100) -> list[Command]:
        taken, self.commands = self.commands[:most], self.commands[most:]
        return taken

    def handle_response(self, response: Response) -> None:
        self._controller.absorbed.put_nowait(response)

    def record_stream_end(self, error: ComputeError | None) -> None:
        self._controller.failures.append(error)
        self._controller.ended.set()


class FakeController:
    def __init__(self, controller_epoch: int = 1) -> None:
        self.controller_epoch = controller_epoch
        self.connections: list[FakeConnection] = []
        self.standing = asyncio.Event()
        self.absorbed: asyncio.Queue[Response] = asyncio.Queue()
        self.ended = asyncio.Event()
        self.failures: list[ComputeError | None] = []
        self.unreached: list[ComputeError] = []
        self.asked = 0
        self.prepared: list[Command] | None = None

    def accept_connection(self, name: str) -> FakeConnection:
        epoch = Epoch(self.controller_epoch, len(self.connections) + 1)
        nonce = bytes([64 + len(self.connections) + 1]) * 16
        connection = FakeConnection(self, epoch, nonce)
        if self.prepared is not None:
            connection.commands = self.prepared
        self.connections.append(connection)
        self.standing.set()
        return connection

    def record_unreachable(self, name: str, error: ComputeError) -> None:
        self.unreached.append(error)
        self.ended.set()

    async def answer(self) -> Response:
        """What is absorbed next. Fails where the connection ends instead."""
        getting = asyncio.ensure_future(self.absorbed.get())
        ended = asyncio.ensure_future(self.ended.wait())
        try:
            await asyncio.wait([getting, ended], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                raise AssertionError(f"no answer, but {[*self.unreached, *self.failures]}")
            return getting.result()
        finally:
            getting.cancel()
            ended.cancel()

    async def peek(self, index: str = "u1") -> Response:
        """Ask, and wait for what comes next."""
        self.asked += 1
        uuid = self.asked.to_bytes(16, "big")
        self.connections[-1].send(Peek(uuid, IndexTarget(index), 1, (("key", self.asked),)))
        return await self.answer()


def answered(number: int) -> PeekResponse:
    """What a peek of a controller is answered with."""
    return PeekResponse(number.to_bytes(16, "big"), RowsResponse(((("key", number), 1),)))


class Served:
    """A replica that is served, and its address."""

    def __init__(self, replica: FakeReplica, address: str, task: asyncio.Task[None]) -> None:
        self.replica = replica
        self.address = address
        self.task = task

    async def check_alive(self, security: Security = Security(), controller_epoch: int = 10**6) -> None:
        """A good controller connects and is served."""
        async with linked(self, security, controller_epoch=controller_epoch) as (controller, _):
            assert await controller.peek() == answered(1)


@contextlib.asynccontextmanager
async def served(
    security: Security = Security(),
    limits: ConnectionLimits = ConnectionLimits(),
    name: str | None = None,
    address: str = "127.0.0.1:0",
) -> AsyncIterator[Served]:
    bell = Wakeup()
    replica = FakeReplica(bell)
    where: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve_replica(replica, address, security, limits, bell=bell, name=name, ready=where.set_result)
    )
    try:
        await asyncio.wait([task, where], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield Served(replica, where.result(), task)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def linked(
    server: Served | str,
    security: Security = Security(),
    limits: ConnectionLimits = ConnectionLimits(),
    *,
    name: str = "r1",
    controller_epoch: int = 1,
) -> AsyncIterator[tuple[FakeController, ReplicaLink]]:
    """A controller with a link that stands."""
    controller = FakeController(controller_epoch)
    address = server if isinstance(server, str) else server.address
    link = ReplicaLink(controller, name, address, security, limits)
    task = asyncio.create_task(link.run())
    standing = asyncio.create_task(controller.standing.wait())
    try:
        await asyncio.wait([task, standing], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        assert controller.connections, link.error
        yield controller, link
    finally:
        task.cancel()
        standing.cancel()
        await asyncio.gather(task, standing, return_exceptions=True)


async def run_link(
    server: Served | str,
    security: Security = Security(),
    limits: ConnectionLimits = ConnectionLimits(),
    **named: Any,
) -> tuple[FakeController, ReplicaLink]:
    """A controller with a link that is over."""
    controller = FakeController(named.pop("controller_epoch", 1))
    controller.prepared = named.pop("commands", None)
    address = server if isinstance(server, str) else server.address
    link = ReplicaLink(controller, named.pop("name", "r1"), address, security, limits)
    await asyncio.wait_for(link.run(), PATIENCE)
    return controller, link


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""

    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(wait(), PATIENCE)


@contextlib.asynccontextmanager
async def raw_stream(server: Served, metadata: Any) -> AsyncIterator[Any]:
    """A stream that a test writes bytes into."""
    _grpc: Any = grpc
    async with _grpc.aio.insecure_channel(server.address) as channel:
        call = channel.stream_stream(STREAM)(metadata=metadata)
        try:
            yield call
        finally:
            call.cancel()
