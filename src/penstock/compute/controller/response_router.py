"""What replicas say goes to those whom it concerns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.compute.controller.connection import ReplicaConnection
from penstock.compute.controller.copy_to import Copies
from penstock.compute.controller.instance import Instance
from penstock.compute.controller.peeks import Peeks
from penstock.compute.controller.subscriptions import Subscriptions
from penstock.compute.errors import ComputeError
from penstock.compute.frontier import Frontier
from penstock.compute.protocol.commands import CreateDataflow, Peek
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import CopyToResponse, PeekResponse, SubscribeResponse


@dataclass(frozen=True, slots=True)
class ResponseRouter:
    """The `ReplicaEventHandler` of all connections."""

    instance: Instance
    peeks: Peeks
    subscriptions: Subscriptions
    copies: Copies
    note: Callable[[str | None, str], None]
    lost: Callable[[ReplicaConnection, ComputeError | None], None]

    def advanced(self, replica: str, id: Id, write: Frontier) -> None:
        self.instance.reported(id, write)

    def stopped(self, id: Id) -> None:
        self.instance.stopped(id)

    def answered(self, replica: str, response: PeekResponse) -> None:
        self.peeks.answered(replica, response)

    def changed(self, replica: str, response: SubscribeResponse) -> None:
        self.subscriptions.changed(replica, response)

    def copied(self, replica: str, response: CopyToResponse) -> None:
        self.copies.copied(replica, response)

    def target_of(self, command: Peek | CreateDataflow) -> str | None:
        """The only replica that a command is for; None: it is for all."""
        if isinstance(command, Peek):
            return self.peeks.target_of(command.uuid)
        for export in command.dataflow.exports:
            running = self.instance.running.get(export.id)
            if running is not None:
                return running.target
        return None
