"""Controller process: the controller with its clock, timers, commits, and connections to replicas.

The gRPC service for clients has a `ClientSession` per stream of requests, and a buffer per subscription.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from headrace.compute import channels
from headrace.compute.channels import (
    END_OF_CALL,
    MEGABYTE,
    ConnectionLimits,
    abort_call,
    check_version,
    metadata_mapping,
    names_of_peer,
)
from headrace.compute.client.conversation import SERVICE
from headrace.compute.collections.opening import check_collections, open_collections
from headrace.compute.controller.controller import Controller
from headrace.compute.controller.durable_catalog import DurableCatalog
from headrace.compute.controller.pending import StashedOnReplica
from headrace.compute.controller.status import ControllerSettings
from headrace.compute.credentials import Security
from headrace.compute.errors import (
    ComputeError,
    ResultGone,
    StaleEpoch,
    UnknownName,
    problem_of,
    problem_of_any,
)
from headrace.compute.frontier import START
from headrace.compute.protocol.client_messages import (
    ANSWER,
    EVENT,
    REQUEST,
    SUBSCRIPTION,
    BatchPart,
    SubscriptionEvent,
    SubscriptionRequest,
)
from headrace.compute.protocol.commands import Id, InstanceConfig, Parameters, TimelyConfig
from headrace.compute.protocol.responses import BatchResponse, DroppedAt, EncodedUpdates, Problem
from headrace.compute.protocol.rows import encode_chunks
from headrace.compute.serve.client_session import ClientSession, GroupCommit, SessionHost
from headrace.compute.serve.replica_link import ReplicaLink
from headrace.file_system import local_path, make_private_folder

# When a client reads more slowly than its view changes, the buffer fills up. The subscription is then
# dropped, and resumed from the last buffered time once the client has read everything buffered; nothing is
# kept in between. This works as long as the view still keeps that time; a client that takes longer gets an
# error.


MAX_UPDATES = 20_000
"""Limit on buffered updates before the subscription is dropped; a single batch may have more."""
MAX_BATCHES = 1_000
_ENCODED_BYTES = 64


class SubscriptionBuffer:
    """Buffered subscription of one client.

    patience: milliseconds within which it must begin; None: no limit.

    Every method may raise the errors of `Controller.subscribe`.
    """

    def __init__(
        self,
        controller: Controller,
        view: str,
        *,
        as_of: int | None,
        snapshot: bool,
        replica: str | None,
        patience: int | None = None,
    ) -> None:
        self._controller = controller
        self._view = view
        self._replica = replica
        self._waiting: deque[BatchResponse | DroppedAt] = deque()
        self._updates = 0
        self._upper = START
        self._arrived = asyncio.Event()
        self._ended = False
        self._id: Id | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._subscribe(as_of, snapshot)
        if patience is not None and not self._waiting:
            self._timer = asyncio.get_running_loop().call_later(patience / 1000, self._not_begun)

    def _subscribe(self, as_of: int | None, snapshot: bool) -> None:
        deliver = self._deliverer()
        self._id = self._controller.subscribe(
            self._view, deliver, as_of=as_of, snapshot=snapshot, replica=self._replica
        )

    def _deliverer(self) -> Callable[[BatchResponse | DroppedAt], None]:
        def deliver(event: BatchResponse | DroppedAt) -> None:
            if current is self._current:
                self._take(event)

        # Ignore late events of an earlier subscription.
        current = self._current = object()
        return deliver

    def _take(self, event: BatchResponse | DroppedAt) -> None:
        if isinstance(event, DroppedAt):
            self._ended = True
        else:
            if self._upper.has_passed(0):
                event = BatchResponse(max(event.lower, self._upper), event.upper, event.updates)
            if event.lower >= event.upper and not isinstance(event.updates, Problem):
                return
            self._upper = event.upper
            self._updates += _count(event)
            self._ended = event.upper.ended or isinstance(event.updates, Problem)
        self._waiting.append(event)
        self._arrived.set()
        self._stop_timer()
        # A single batch is already complete in memory, so dropping it would save nothing.
        full = len(self._waiting) > 1 and (self._updates > MAX_UPDATES or len(self._waiting) > MAX_BATCHES)
        if full and not self._ended:
            # Later, since the controller is in the middle of delivering.
            asyncio.get_running_loop().call_soon(self._give_up)

    def _not_begun(self) -> None:
        if self._id is not None:
            self._controller.time_out_subscription(self._id)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if self._id is not None and not self._ended:
            id, self._id, self._current = self._id, None, object()
            self._controller.unsubscribe(id)

    async def next(self) -> BatchResponse | DroppedAt | None:
        """Wait for the next event; None after the last."""
        while not self._waiting:
            if self._ended:
                return None
            if self._id is None:
                assert self._upper.time is not None
                self._subscribe(self._upper.time - 1, snapshot=False)
                continue  # events may have arrived within the call
            self._arrived.clear()
            await self._arrived.wait()
        event = self._waiting.popleft()
        if isinstance(event, BatchResponse):
            self._updates -= _count(event)
        return event

    def close(self) -> None:
        """End the subscription, because the client is gone."""
        self._stop_timer()
        self._give_up()
        self._ended = True

    @property
    def waiting(self) -> int:
        """Number of buffered events."""
        return len(self._waiting)


def _count(batch: BatchResponse) -> int:
    """Return the number of updates in a batch, estimated if they are encoded."""
    match batch.updates:
        case Problem():
            return 0
        case EncodedUpdates() as encoded:
            return encoded.size // _ENCODED_BYTES
        case updates:
            return len(updates)


_grpc: Any = grpc


class ClientService:
    """Service of a controller for its clients."""

    def __init__(self, around: SessionHost) -> None:
        self._around = around
        self._calls: set[asyncio.Task[Any]] = set()
        self._security = Security()

    def handlers(self, security: Security = Security()) -> Any:
        """Return the handlers for a `grpc.aio` server. security: the credentials required of clients."""
        self._security = security
        return _grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Converse": _grpc.stream_stream_rpc_method_handler(
                    self.converse, REQUEST.parse, ANSWER.serialize
                ),
                "Subscribe": _grpc.unary_stream_rpc_method_handler(
                    self.subscribe, SUBSCRIPTION.parse, EVENT.serialize
                ),
            },
        )

    async def converse(self, requests: object, call: Any) -> None:
        """Serve one client's requests."""
        operator = await self._admit(call)
        # Tells the client at once that it is admitted.
        await call.send_initial_metadata(())
        talk = ClientSession(self._around, operator=operator)
        writing = asyncio.create_task(talk.send_answers(call))
        with self._remembered():
            try:
                await talk.read(call, END_OF_CALL)
            finally:
                talk.end()
                writing.cancel()
                await asyncio.wait([writing])

    async def subscribe(self, message: Any, call: Any) -> None:
        """Serve one client's subscription; gRPC blocks while the client does not read."""
        await self._admit(call)
        with self._remembered():
            try:
                asked = SUBSCRIPTION.from_message(message)
                async with contextlib.aclosing(self._events(asked)) as events:
                    async for event in events:
                        await call.write(EVENT.to_message(event))
            except Exception as error:
                if isinstance(error, StaleEpoch):
                    self._around.end_fenced(error)
                await call.write(EVENT.to_message(problem_of_any(error)))

    async def _events(self, asked: SubscriptionRequest) -> AsyncGenerator[SubscriptionEvent, None]:
        controller = self._around.controller
        yield controller.describe(asked.view)
        outlet = SubscriptionBuffer(
            controller,
            asked.view,
            as_of=asked.as_of,
            snapshot=asked.snapshot,
            replica=asked.replica,
            patience=asked.patience,
        )
        try:
            while (event := await outlet.next()) is not None:
                match event:
                    case BatchResponse(updates=Problem() as problem):
                        yield problem
                    case BatchResponse():
                        for part in _parts(event):
                            yield part
                    case DroppedAt():
                        dropped = UnknownName(
                            f"the view {asked.view!r} was dropped",
                            fix="create it again, and subscribe with a snapshot",
                            name=asked.view,
                        )
                        yield problem_of(dropped)
        finally:
            outlet.close()

    async def _admit(self, call: Any) -> bool:
        """Refuse a call with wrong credentials or another version. Returns whether an operator made it."""
        try:
            metadata = metadata_mapping(call.invocation_metadata())
            operator = self._security.admit(metadata, names_of_peer(call))
            check_version(metadata)
            return operator
        except ComputeError as error:
            await abort_call(call, error)

    def end(self) -> None:
        """End all streams with an error, because the process is ending."""
        for task in self._calls:
            task.cancel()

    @contextlib.contextmanager
    def _remembered(self) -> Generator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            yield
        finally:
            self._calls.discard(task)


def _parts(batch: BatchResponse) -> Iterator[BatchPart]:
    updates, lower, upper = batch.updates, batch.lower.time, batch.upper.time
    assert not isinstance(updates, Problem)
    if isinstance(updates, EncodedUpdates):
        for left, chunk in zip(range(len(updates.chunks) - 1, -1, -1), updates.chunks, strict=True):
            yield BatchPart(lower, upper, chunk, left > 0, updates.time)
        return
    for chunk, more in encode_chunks(updates):
        yield BatchPart(lower, upper, chunk, more)


log = logging.getLogger("headrace.controller")


class ReplicaLinks:
    """Connections to replicas, opened when due according to the controller.

    security: the controller's credentials, and those required of replicas.
    """

    def __init__(self, controller: Controller, security: Security, limits: ConnectionLimits) -> None:
        self._controller = controller
        self._security = security
        self._limits = limits
        self._links: dict[str, tuple[ReplicaLink, asyncio.Task[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def open_due_connections(self) -> None:
        """Open all due connections."""
        if self._closed:
            return
        for name, address in self._controller.replicas_to_connect():
            if name not in self._links:
                link = ReplicaLink(self._controller, name, address, self._security, self._limits)
                self._links[name] = link, asyncio.create_task(self._run(link))

    async def _run(self, link: ReplicaLink) -> None:
        try:
            error = await link.run()
            log.info("replica %s: %s", link.name, error.what if error is not None else "disconnected")
        finally:
            del self._links[link.name]
            wait = None if self._closed else self._controller.next_retry_delay(link.name)
            if wait is not None:
                asyncio.get_running_loop().call_later(wait / 1000, self.open_due_connections)

    async def fetch_stashed(self, stash: StashedOnReplica) -> AsyncIterator[bytes]:
        """Fetch stashed rows from a replica, in encoded chunks. Raises `ResultGone`, `ConnectionBroken`."""
        found = self._links.get(stash.replica)
        if found is None:
            raise ResultGone(
                f"replica {stash.replica!r} is gone, with the rows of the answer",
                fix="send the peek again",
                replica=stash.replica,
            )
        async for chunk in found[0].fetch(stash.token):
            yield chunk

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        tasks = [task for _, task in self._links.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


GRACE = 0.5
"""Seconds that clients get to receive their last answers when the process ends."""

PARAMETERS = Parameters(max_result_size=1024 * MEGABYTE, peek_stash_size=4 * MEGABYTE)
"""Default parameters of replicas."""


@dataclass(frozen=True)
class Options:
    """Options of a controller process.

    listen:      HOST:PORT for clients; port 0: any free one.
    state:       folder for the durable state.
    collections: URI of the store of rows; None: SQLite in the folder.
    replicas:    addresses by name, in addition to those in the durable state.
    clients:     credentials toward clients. links: credentials toward replicas, with another token.
    settings:    times and counts of the controller.
    """

    listen: str
    state: Path
    collections: str | None = None
    replicas: Mapping[str, str] = field(default_factory=dict[str, str])
    timely: TimelyConfig = TimelyConfig()  # noqa: RUF009
    clients: Security = Security()  # noqa: RUF009
    links: Security = Security()  # noqa: RUF009
    limits: ConnectionLimits = ConnectionLimits()  # noqa: RUF009
    parameters: Parameters = PARAMETERS
    settings: ControllerSettings = ControllerSettings()  # noqa: RUF009
    allow_callables: bool = False

    @property
    def store(self) -> str:
        """URI of the store."""
        return self.collections or f"sqlite:{self.state.resolve() / 'collections.db'}"


async def run_controller(options: Options, ready: Callable[[str], object]) -> None:
    """Run a controller until the task is cancelled.

    ready: called with the address once it listens.
    Raises `StaleEpoch` when a later controller starts on the same state; `StoreDamaged`,
    `StoreUnavailable`; and before touching the state, `ConnectionBroken` if the address is taken,
    `InsecureAddress`, and `BadOption` for an invalid address, an expired certificate, or one token
    for clients and replicas.
    """
    local_path(options.state, "state of the controller")
    check_collections(options.store)
    options.clients.check_certificate()
    options.clients.check_differs(options.links)
    server = channels.make_server(options.clients, options.limits)
    # Before the state is opened: a process that cannot listen must not supersede the one that does.
    address = channels.listen(server, options.listen, options.clients)
    try:
        await _serve(options, server, lambda: ready(address))
    finally:
        await server.stop(GRACE)


async def _serve(options: Options, server: Any, ready: Callable[[], object]) -> None:
    make_private_folder(options.state)
    store = open_collections(options.store)
    try:
        await asyncio.to_thread(store.check)
        state = DurableCatalog.open(options.state / "controller.db")
        try:
            process = _Process(options, state, store)
            await process.run(server, ready)
        finally:
            state.close()
    finally:
        store.close()


class _Process:
    """Running controller with its service, connections and commits; implements `SessionHost`."""

    def __init__(self, options: Options, state: DurableCatalog, store: object) -> None:
        self._options = options
        self.controller = Controller(
            state,
            store,  # type: ignore
            clock=lambda: time.time_ns() // 1_000_000,
            random=random.Random(),
            parameters=options.parameters,
            instance=InstanceConfig(options.store),
            settings=options.settings,
            allow_callables=options.allow_callables,
        )
        self.writing = GroupCommit(self.controller, lambda: open_collections(options.store), self.end_fenced)
        self._links = ReplicaLinks(self.controller, options.links, options.limits)
        self._front = ClientService(self)
        self._due = asyncio.Event()
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, server: Any, ready: Callable[[], object]) -> None:
        options = self._options
        for name, address in options.replicas.items():
            self.controller.add_replica(name, address, options.timely)
        server.add_generic_rpc_handlers((self._front.handlers(options.clients),))
        maintaining = asyncio.create_task(self._maintain())
        maintaining.add_done_callback(self._failed)
        try:
            await server.start()
            ready()
            await self._end
        finally:
            maintaining.cancel()
            self._front.end()
            await server.stop(GRACE)
            await self.writing.close()
            await self._links.close()

    async def _maintain(self) -> None:
        while True:
            self._due.clear()
            wait = self.controller.maintain()
            self._links.open_due_connections()
            timer = asyncio.get_running_loop().call_later(wait / 1000, self._due.set)
            await self._due.wait()
            timer.cancel()

    def _failed(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._end.done():
            self._end.set_exception(error)

    def check_due_work(self) -> None:
        """Check for due work."""
        self._due.set()

    def end_fenced(self, error: StaleEpoch) -> None:
        """End the process: a later controller has started."""
        if not self._end.done():
            self._end.set_exception(error)

    def fetch(self, stash: StashedOnReplica) -> AsyncIterator[bytes]:
        """Fetch stashed rows from a replica."""
        return self._links.fetch_stashed(stash)
