"""Connections of a controller to its replicas, one task each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from headrace.compute.controller.controller import Controller
from headrace.compute.controller.pending import StashedOnReplica
from headrace.compute.errors import ResultGone
from headrace.compute.transport.credentials import Security
from headrace.compute.transport.limits import Limits
from headrace.compute.transport.replica_link import ReplicaLink

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
