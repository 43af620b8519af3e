"""Controller process: the controller with its clock, timers, commits, and connections to replicas."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.compute.collections.opening import check_collections, open_collections
from headrace.compute.controller.controller import Controller
from headrace.compute.controller.durable_catalog import DurableCatalog
from headrace.compute.controller.pending import StashedOnReplica
from headrace.compute.controller.settings import ControllerSettings
from headrace.compute.errors import ResultGone, StaleEpoch
from headrace.compute.protocol.commands import InstanceConfig, Parameters, TimelyConfig
from headrace.compute.serve.client_service import ClientService
from headrace.compute.serve.group_commit import GroupCommit
from headrace.compute.transport import channels
from headrace.compute.transport.channels import MEGABYTE, Limits
from headrace.compute.transport.credentials import Security
from headrace.compute.transport.replica_link import ReplicaLink
from headrace.file_system import local_path, make_private_folder

# --- connections to replicas --------------------------------------------------------


log = logging.getLogger("headrace.controller")


class ReplicaLinks:
    """Connections to replicas, opened when due according to the controller.

    security: the controller's credentials, and those required of replicas.
    """

    def __init__(self, controller: Controller, security: Security, limits: Limits) -> None:
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
    limits: Limits = Limits()  # noqa: RUF009
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

    # --- Surroundings ---------------------------------------------------------------------

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
