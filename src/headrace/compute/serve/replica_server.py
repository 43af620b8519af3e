"""Replica process: a replica with its runtime, and a server that passes commands in and responses out.

One event loop receives commands, steps the replica, and sends responses. A command that arrives while the
replica is idle is received, processed and answered by the task that read it, without switching to another.
While the replica is busy, one task works in time slices and yields between them, when arriving commands are
received.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import grpc

from headrace.compute import channels
from headrace.compute.channels import (
    ConnectionLimits,
    Greeting,
    Wakeup,
    Welcome,
    abort_call,
    check_version,
    metadata_mapping,
)
from headrace.compute.credentials import Security
from headrace.compute.errors import ConnectionBroken, ProtocolViolation, StaleEpoch, TooManyPeeks, problem_of
from headrace.compute.protocol import serialization
from headrace.compute.protocol.commands import CancelPeek, Command, CreateTimely, Epoch, Peek
from headrace.compute.protocol.generated import compute_pb2 as pb
from headrace.compute.protocol.responses import Counted, PeekResponse, Response
from headrace.compute.protocol.row_batch import encode
from headrace.compute.protocol.serialization import STASH_TOKEN
from headrace.compute.replica import make_runtime
from headrace.compute.replica.replica import Replica
from headrace.compute.replica.work_watch import DeathRecord, WorkWatch
from headrace.errors import HeadraceError
from headrace.file_system import local_path, make_private_folder

_grpc: Any = grpc
MAX_REFUSED = 100_000
"""Limit on refused peeks that are not cancelled yet: beyond it, the controller is ignoring the refusals."""


class Receiver(Protocol):
    """Receiver of the commands."""

    def receive(self, command: Command, /) -> None: ...


class ReplicaSession:
    """Stream of one controller. Used by one event loop.

    Writing blocks until gRPC accepts the message, and so until the other side reads. The replica is not
    stepped meanwhile, so at most the responses of one step are unsent.
    """

    def __init__(self, context: Any, greeting: Greeting, limits: ConnectionLimits) -> None:
        self.greeting = greeting
        self._context = context
        self._limits = limits
        self._task = asyncio.current_task()
        self._writing = asyncio.Lock()
        self._error: Exception | None = None
        self._pending: set[bytes] = set()
        self._refused: set[bytes] = set()
        self._own: list[Response] = []

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended."""
        return self._error is not None

    def end(self, error: Exception) -> None:
        """End the stream with an error; the controller gets the first one."""
        if self._error is None:
            self._error = error
            assert self._task is not None
            self._task.cancel()

    async def run(self, receiver: Receiver, received: Callable[[], Any], welcome: Welcome) -> None:
        """Welcome the controller, then pass its commands to `receiver` until the stream ends.

        `received` is called and awaited after each message. Any error ends the stream, and only the stream.
        """
        try:
            await self._context.send_initial_metadata(welcome.metadata())
            while (data := await self._context.read()) is not _grpc.aio.EOF:
                for command in serialization.commands_from_message(data, self._limits.message):
                    self._receive(receiver, command)
                await received()
        except asyncio.CancelledError:
            if self._error is None:
                raise
            # Cancelled by `end`, and handled here.
            assert self._task is not None
            self._task.uncancel()
        except Exception as error:
            self._error = self._error or error
        if self._error is not None:
            await abort_call(self._context, self._error)

    async def send(self, responses: Iterable[Response]) -> None:
        """Send responses, in the order of calls. Does nothing once the stream is over."""
        if self._own:
            responses, self._own = [*self._own, *responses], []
        if not responses or self.is_over:
            return
        try:
            for response in responses:
                if isinstance(response, PeekResponse):
                    self._pending.discard(response.uuid)
            async with self._writing:
                for message in serialization.responses_to_messages(responses, self._limits.message):
                    await self._context.write(message)
        except asyncio.CancelledError:
            raise
        except _BROKEN as error:
            broken = ConnectionBroken("the controller is gone", why=str(error))
            self.end(broken)
        except Exception as error:
            self.end(error)

    def _receive(self, receiver: Receiver, command: Command) -> None:
        self._limits.check(command)
        match command:
            case CreateTimely(epoch=epoch, nonce=nonce) if (epoch, nonce) != (
                self.greeting.epoch,
                self.greeting.nonce,
            ):
                raise ProtocolViolation(
                    "CreateTimely has another epoch or nonce than the stream",
                    stage="creation",
                    message="CreateTimely",
                )
            case Peek(uuid) if len(self._pending) >= self._limits.peeks:
                if len(self._refused) >= MAX_REFUSED:
                    raise self._too_many()
                self._refused.add(uuid)
                self._own.append(PeekResponse(uuid, problem_of(self._too_many())))
                return
            case Peek(uuid):
                self._pending.add(uuid)
            case CancelPeek(uuid) if uuid in self._refused:
                self._refused.remove(uuid)
                return
            case _:
                pass
        receiver.receive(command)

    def _too_many(self) -> TooManyPeeks:
        return TooManyPeeks(
            f"{self._limits.peeks:,} peeks wait for their answer already",
            fix="wait for some of them to finish, or raise the limit",
            limit=self._limits.peeks,
        )


_BROKEN = (_grpc.aio.UsageError, _grpc.aio.InternalError, _grpc.aio.AioRpcError, asyncio.InvalidStateError)


SLICE = 0.005
"""Seconds of work before yielding to receive commands."""
IDLE = 0.05
"""Seconds after which an idle replica is stepped without a wakeup, for work that is due by its clock."""


class ServedReplica(Protocol):
    """Interface of the replica for the server, implemented by `headrace.compute.replica.replica.Replica`."""

    @property
    def greatest_epoch(self) -> Epoch | None: ...
    def begin_connection(self, nonce: bytes, /) -> None: ...
    def receive(self, command: Command, /) -> None: ...
    def step(self, seconds: float, /) -> bool: ...
    def responses(self) -> list[Response]: ...
    def end_connection(self) -> None: ...
    def fetch(self, token: bytes, /) -> Iterator[Sequence[Counted]]: ...
    def close(self) -> None: ...


async def serve_replica(
    replica: ServedReplica,
    address: str,
    security: Security = Security(),
    limits: ConnectionLimits = ConnectionLimits(),
    *,
    bell: Wakeup,
    name: str | None = None,
    ready: Callable[[str], object] | None = None,
) -> None:
    """Serve a replica until the task is cancelled. One controller at a time: a greater epoch takes over.

    bell:  wakeup whose `ring` and `halt` were passed to the replica as `wake` and `halt`.
    name:  of the replica; a controller that expects another name is refused. None: any name.
    ready: called with the address once it listens, with the actual port in place of port 0.

    Closes the replica. Raises `InsecureAddress`, `BadOption`, `ConnectionBroken` if it cannot listen, and
    the error that the replica halts with.
    """
    serving = _Serving(replica, security, limits, bell, name)
    server = channels.make_server(security, limits)
    server.add_generic_rpc_handlers((serving,))
    try:
        bound = channels.listen(server, address, security)
        await server.start()
        if ready is not None:
            ready(bound)
        await serving.work()
    finally:
        serving.end(ConnectionBroken("the replica stops", address=address))
        await server.stop(0.2)
        replica.close()


class _Serving(_grpc.GenericRpcHandler):
    """Replica with its working task, and the stream of its current controller, if any."""

    def __init__(
        self,
        replica: ServedReplica,
        security: Security,
        limits: ConnectionLimits,
        bell: Wakeup,
        name: str | None,
    ) -> None:
        self._replica = replica
        self._security = security
        self._limits = limits
        self._bell = bell
        self._name = name
        self._boot = uuid.uuid4().hex
        self._runtime = ""
        self._epoch: Epoch | None = None
        self._session: ReplicaSession | None = None
        self._busy = False

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a method, or None. Messages are passed on as bytes."""
        match handler_call_details.method:
            case channels.STREAM:
                return _grpc.stream_stream_rpc_method_handler(self._stream)
            case channels.FETCH:
                # As a stream of one message, so that an unauthorized caller is refused before it is read.
                return _grpc.stream_stream_rpc_method_handler(self._fetch)
            case _:
                return None

    async def work(self) -> None:
        """Step the replica whenever it has work. Raises the error that halts it."""
        self._bell.attach_to_loop()
        while True:
            await self._bell.wait_for_ring(IDLE)
            self._busy = True
            while self._step():
                await self._send()
                await asyncio.sleep(0)
            await self._send()
            self._busy = False

    def end(self, error: Exception) -> None:
        """End the current stream, if any."""
        if self._session is not None:
            self._session.end(error)

    def receive(self, command: Command) -> None:
        if isinstance(command, CreateTimely):
            self._runtime = command.config.runtime
        try:
            self._replica.receive(command)
        except HeadraceError:
            raise
        except Exception as error:
            # A bug in the middle of a command leaves a state that cannot be relied on.
            self._bell.end_process(error)
            raise

    def _step(self) -> bool:
        more = self._replica.step(SLICE)
        if self._bell.error is not None:
            self.end(self._bell.error)
            raise self._bell.error
        return more

    async def _send(self) -> None:
        try:
            responses = self._replica.responses()
        except HeadraceError as error:
            self.end(error)  # a protocol error ends only the connection
            return
        if self._session is not None:
            await self._session.send(responses)

    async def _received(self) -> None:
        if self._busy:
            return
        try:
            more = self._step()
        except Exception as error:
            # The replica has failed, not the stream that woke it.
            self._bell.end_process(error)
            raise
        await self._send()
        if more:
            self._bell.ring()

    async def _stream(self, _requests: Any, context: Any) -> None:
        try:
            greeting = self._greeted(context)
        except Exception as error:
            await abort_call(context, error)
        welcome = Welcome(self._boot, self._runtime, self._greatest_epoch())
        session = self._take_over(context, greeting)
        try:
            await session.run(self, self._received, welcome)
        finally:
            if self._session is session:
                self._session = None
                self._replica.end_connection()

    def _greeted(self, context: Any) -> Greeting:
        """Read and check the greeting of a call. Raises the error that refuses the call."""
        metadata = self._admitted(context)
        greeting = Greeting.read(metadata)
        greeting.check_name(self._name)
        greatest = self._greatest_epoch()
        if greatest is not None and greeting.epoch <= greatest:
            raise _stale(greeting.epoch, greatest)
        return greeting

    def _admitted(self, context: Any) -> dict[str, str | bytes]:
        metadata = metadata_mapping(context.invocation_metadata())
        self._security.admit(metadata, channels.names_of_peer(context))
        check_version(metadata)
        return metadata

    def _greatest_epoch(self) -> Epoch | None:
        known = [epoch for epoch in (self._epoch, self._replica.greatest_epoch) if epoch is not None]
        return max(known, default=None)

    def _take_over(self, context: Any, greeting: Greeting) -> ReplicaSession:
        session = ReplicaSession(context, greeting, self._limits)
        if self._session is not None:
            self._session.end(_stale(self._session.greeting.epoch, greeting.epoch))
        self._session, self._epoch = session, greeting.epoch
        self._replica.begin_connection(greeting.nonce)
        return session

    async def _fetch(self, _requests: Any, context: Any) -> None:
        try:
            self._admitted(context)
            asked = await context.read()
            data = b"" if asked is _grpc.aio.EOF else asked
            token = STASH_TOKEN.from_bytes(data).token
            for part in self._replica.fetch(token):
                for data in encode(part):
                    await context.write(pb.RowsChunk(rows=data).SerializeToString())
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await abort_call(context, error)


def _stale(epoch: Epoch, current: Epoch) -> StaleEpoch:
    older, newer = (f"{e.controller}.{e.replica}" for e in (epoch, current))
    return StaleEpoch(
        f"connection {older} is superseded by {newer}",
        why="A replica follows the latest controller, and of that the latest connection.",
        fix="nothing, if another controller has taken over; else connect with a greater epoch",
        epoch=(epoch.controller, epoch.replica),
        current=(current.controller, current.replica),
    )


@dataclass(frozen=True)
class ReplicaOptions:
    """Options of a replica process.

    listen:      HOST:PORT for its controller; port 0: any free one.
    state:       folder for this replica alone: copies, large results, checkpoints.
    name:        name of the replica; a controller that connects to another name is refused. None: any name.
    collections: URI of the store of rows, instead of the controller's.
    security:    the replica's credentials, and those required of the controller: a token that clients do not
        have, or names in its certificate.
    """

    listen: str
    state: Path
    name: str | None = None
    collections: str | None = None
    security: Security = Security()  # noqa: RUF009
    limits: ConnectionLimits = ConnectionLimits()  # noqa: RUF009
    allow_callables: bool = False


async def run_replica(options: ReplicaOptions, ready: Callable[[str], object]) -> None:
    """Run a replica until the task is cancelled.

    ready: called with the address once it listens. Raises the error that the replica halts with
    (`IncompatibleInstance`, `ReplicaExpired`, ...), the errors of `serve` if it cannot listen, and
    `BadOption` for an expired certificate, or credentials that do not tell a controller from a client.
    """
    local_path(options.state, "state of the replica")
    options.security.check_certificate()
    options.security.check_names_controllers()
    make_private_folder(options.state)
    bell = Wakeup()
    watch = WorkWatch(deaths=DeathRecord(options.state))
    runtime = partial(
        make_runtime,
        state=options.state,
        collections=options.collections,
        allow_callables=options.allow_callables,
        watch=watch,
    )
    replica = Replica(
        runtime, clock=lambda: time.time_ns() // 1_000_000, wake=bell.ring, halt=bell.end_process
    )
    with watch.installed():
        await serve_replica(
            replica,
            options.listen,
            options.security,
            options.limits,
            bell=bell,
            name=options.name,
            ready=ready,
        )
