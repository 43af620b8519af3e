"""Replica processes, and links that keep messages in order, delay them, and can be cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from headrace.compute.channels import MEGABYTE
from headrace.compute.controller.replica_connection import ReplicaConnection
from headrace.compute.errors import ComputeError, ConnectionBroken, FellBehind, StaleEpoch
from headrace.compute.protocol.commands import Command, Epoch
from headrace.compute.protocol.responses import Response
from headrace.compute.protocol.serialization import (
    ResponseReader,
    command_from_bytes,
    command_to_bytes,
    responses_to_messages,
)
from headrace.compute.protocol.stages import ControllerStages, ReplicaStages
from headrace.compute.replica.replica import Replica

IN_FLIGHT = 8
"""Capacity of a link in messages per direction, above which the sender has to wait."""


class Process:
    """Replica process. `link`: the connection that it serves, or None."""

    def __init__(self, name: str, make: Callable[[Process], Replica]) -> None:
        self.name = name
        self.link: Link | None = None
        self.ended: ComputeError | None = None
        self.replica = make(self)

    def accept(self, link: Link) -> None:
        """Handle a new connection as a replica's server does. Raises `StaleEpoch`."""
        greatest = self.replica.greatest_epoch
        if greatest is not None and link.connection.epoch <= greatest:
            raise StaleEpoch(
                f"epoch {link.connection.epoch} has been superseded",
                epoch=link.connection.epoch,
                current=greatest,
            )
        if self.link is not None:
            self.link.replica_side_open = False
        self.link = link
        self.replica.begin_connection(link.connection.nonce)


class Link:
    """Connection with the messages in flight in both directions, and the state of both ends."""

    def __init__(self, connection: ReplicaConnection, process: Process) -> None:
        self.connection = connection
        self.process = process
        self.down: deque[bytes] = deque()
        self.up: deque[bytes] = deque()
        self.controller_side_open = True
        self.replica_side_open = True
        # All messages are checked on both sides, in addition to the ends' own checks.
        self._said_by_controller = ControllerStages()
        self._said_by_replica = ReplicaStages()

    def __str__(self) -> str:
        return f"{self.process.name} at {self.epoch.controller}.{self.epoch.replica}"

    @property
    def epoch(self) -> Epoch:
        return self.connection.epoch

    def send_commands(self) -> list[Command]:
        """Send the controller's pending commands, up to the link's capacity."""
        if not self.controller_side_open or len(self.down) >= IN_FLIGHT:
            return []
        if self.connection.is_over:
            self.controller_side_open = False
            self.connection.record_stream_end(None)
            return []
        commands = self.connection.take_commands(IN_FLIGHT - len(self.down))
        for command in commands:
            self._said_by_controller.check_sent(command)
            self.down.append(command_to_bytes(command))
        return commands

    def deliver_command(self) -> Command | None:
        """Deliver the oldest command to the replica, if it still listens."""
        if not self.down or not self.replica_side_open:
            return None
        command = command_from_bytes(self.down.popleft())
        self._said_by_replica.check_command(command)
        self.process.replica.receive(command)
        return command

    def send_responses(self) -> list[Response]:
        """Send the replica's pending responses; drop them if this is no longer its connection."""
        if self.process.link is not self or not self.replica_side_open or len(self.up) >= IN_FLIGHT:
            return []
        try:
            responses = self.process.replica.responses()
        except FellBehind as error:
            self.tell_replica()
            self.tell_controller(error)
            return []
        for response in responses:
            self._said_by_replica.check_sent(response)
            self.up += responses_to_messages([response], MEGABYTE)
        return responses

    def deliver_response(self) -> Response | None:
        """Deliver the oldest response to the controller, if it still listens."""
        if not self.up or not self.controller_side_open or self.connection.is_over:
            return None
        (response,) = ResponseReader().read(self.up.popleft())
        self._said_by_controller.check_response(response)
        self.connection.handle_response(response)
        return response

    def tell_controller(self, error: ComputeError | None = None) -> None:
        """Let the controller notice that the link is cut, or was ended with an error."""
        if self.controller_side_open:
            self.controller_side_open = False
            self.up.clear()
            cut = ConnectionBroken("the link was cut", address=self.process.name)
            self.connection.record_stream_end(error or cut)

    def tell_replica(self) -> None:
        """Let the replica notice that the link is cut."""
        if self.replica_side_open:
            self.replica_side_open = False
            self.down.clear()
            if self.process.link is self:
                self.process.link = None
                self.process.replica.end_connection()
