"""Limits of a connection. Both sides enforce them with typed errors."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.compute.errors import MessageTooLarge
from headrace.compute.protocol.commands import Command, CreateDataflow, Peek
from headrace.compute.protocol.dataflow import Plan
from headrace.errors import SourceLocation

MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a connection.

    message: bytes of one message, in either direction.
    plan:    bytes of one dataflow's plan, including its source locations.
    batch:   bytes of one batch of a subscription, which is sent in parts.
    keys:    keys of one peek.
    peeks:   pending peeks of one connection; further ones are answered with a problem.
    connect: seconds for establishing a connection.
    idle:    seconds without a message before a keepalive ping is sent.
    silence: seconds without a reply to the ping before the connection is closed.
    """

    message: int = 64 * MEGABYTE
    plan: int = 2 * MEGABYTE
    batch: int = 1024 * MEGABYTE
    keys: int = 100_000
    peeks: int = 10_000
    connect: float = 5.0
    idle: float = 3.0
    silence: float = 5.0

    def check_plan(self, plan: Plan) -> None:
        """Raise `MessageTooLarge` for a plan above the limit, which every replica would refuse."""
        size = len(plan.body) + len(plan.places)
        if size > self.plan:
            raise _too_large(
                "plan", size, self.plan, "bytes", "split the flow, or raise the size limit of plans"
            )

    def check_message(self, what: str, size: int, fix: str) -> None:
        """Raise `MessageTooLarge` for a message above the limit, which the other side would refuse."""
        if size > self.message:
            raise _too_large(what, size, self.message, "bytes", fix, SourceLocation.of_caller())

    def check(self, command: Command) -> None:
        """Raise `MessageTooLarge` for a command that exceeds a limit."""
        match command:
            case CreateDataflow(dataflow):
                self.check_plan(dataflow.plan)
            case Peek(keys=tuple() as keys) if len(keys) > self.keys:
                raise _too_large("peek", len(keys), self.keys, "keys", "ask for fewer keys at a time")
            case _:
                pass


def _too_large(
    what: str, size: int, limit: int, unit: str, fix: str, *where: SourceLocation
) -> MessageTooLarge:
    return MessageTooLarge(
        f"a {what} of {size:,} {unit} is too large",
        where=where,
        why=f"The limit is {limit:,} {unit}.",
        fix=fix,
        size=size,
        limit=limit,
    )
