"""A service for clients around a controller of paper, in this event loop, on a port of its own."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from headrace.compute import channels
from headrace.compute.channels import ConnectionLimits
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.controller.pending import StashedOnReplica
from headrace.compute.credentials import Security
from headrace.compute.errors import ResultGone, StaleEpoch
from headrace.compute.protocol.rows import encode
from headrace.compute.serve.client_session import GroupCommit
from headrace.compute.serve.controller_process import ClientService
from tests.compute.serve.paper_controller import PaperController


class PaperStore:
    """Takes appends; what is durable is the controller's to say."""

    def __init__(self) -> None:
        self.refuse: Exception | None = None
        self.may_append = threading.Event()
        self.may_append.set()

    def append(self, appends: Sequence[CollectionAppend]) -> None:
        self.may_append.wait()
        if self.refuse is not None:
            raise self.refuse

    def close(self) -> None:
        pass


class Around:
    """What the process would be."""

    def __init__(self, controller: PaperController) -> None:
        self.controller: Any = controller
        self.store = PaperStore()
        self.fences: list[StaleEpoch] = []
        self.writing = GroupCommit(self.controller, lambda: self.store, self.end_fenced)  # type: ignore

    async def fetch(self, stash: StashedOnReplica) -> AsyncIterator[bytes]:
        rows = self.controller.stashed.pop(stash.token, None)
        if rows is None:
            raise ResultGone("the rows are gone")
        for start in range(0, len(rows), 3):
            yield encode(rows[start : start + 3])

    def check_due_work(self) -> None:
        pass

    def end_fenced(self, error: StaleEpoch) -> None:
        self.fences.append(error)


class Service:
    """A service that can be stopped and started again at its address, as a killed process is."""

    def __init__(self, controller: PaperController) -> None:
        self.controller = controller
        self.around = Around(controller)
        self.address = "127.0.0.1:0"
        self._server: Any = None

    async def start(self) -> None:
        self._server = channels.make_server(Security(), ConnectionLimits())
        self._server.add_generic_rpc_handlers((ClientService(self.around).handlers(),))
        self.address = channels.listen(self._server, self.address, Security())
        await self._server.start()

    async def kill(self) -> None:
        await self._server.stop(None)


@asynccontextmanager
async def service(controller: PaperController) -> AsyncIterator[Service]:
    made = Service(controller)
    await made.start()
    try:
        yield made
    finally:
        await made.kill()
        await made.around.writing.close()
