"""Pending reads of one controller: peeks, copies and subscriptions that await answers of replicas.

Plain data. `peeks` and `subscriptions` send the reads and deliver the answers; a connection looks here for
the replica that a read is meant for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from headrace.compute.controller.holds import ReadHold
from headrace.compute.frontier import START, Frontier
from headrace.compute.protocol.commands import Id, Peek
from headrace.compute.protocol.responses import (
    BatchResponse,
    Canceled,
    Dropped,
    DroppedAt,
    Problem,
    RowCount,
    RowsResponse,
    Stashed,
)


@dataclass(frozen=True, slots=True)
class StashedOnReplica(Stashed):
    """`Stashed` response with the name of the replica that holds the rows."""

    replica: str = ""


PeekAnswer: TypeAlias = RowsResponse | StashedOnReplica | Problem | Canceled
CopyAnswer: TypeAlias = RowCount | Problem | Dropped
Deliver: TypeAlias = Callable[[BatchResponse | DroppedAt], None]


@dataclass(slots=True, eq=False)
class PendingRead:
    """Read awaiting an answer, with the problems of replicas that cannot give one.

    view:     name used by the client.
    time:     time to read at; for a subscription, the first time.
    target:   the only replica allowed to answer, or None for any.
    asked_at: ms of the clock.
    """

    kind: ClassVar[str]

    view: str
    time: int
    target: str | None
    asked_at: int
    problems: dict[str, Problem] = field(default_factory=dict[str, Problem], init=False)

    @property
    def what(self) -> str:
        """Noun phrase for the read."""
        return f"{self.kind} {self.view!r}"

    def accepts(self, replica: str) -> bool:
        """Whether a replica may answer."""
        return self.target in (None, replica)


@dataclass(slots=True, eq=False)
class PendingPeek(PendingRead):
    """Peek awaiting its first answer."""

    kind: ClassVar[str] = "peek of"

    peek: Peek
    hold: ReadHold
    answer: Callable[[PeekAnswer], None]


@dataclass(slots=True, eq=False)
class PendingCopy(PendingRead):
    """Copy to a file on the replicas, awaiting its first answer."""

    kind: ClassVar[str] = "copy of"

    id: Id
    answer: Callable[[CopyAnswer], None]


@dataclass(slots=True, eq=False)
class PendingSubscription(PendingRead):
    """Subscription of one client, from its request to its last batch.

    reads: id of the view or collection. as_of: its first time.
    upper: frontier up to which all changes were delivered.
    """

    kind: ClassVar[str] = "subscription to"

    id: Id
    reads: Id
    as_of: Frontier
    deliver: Deliver
    upper: Frontier = START

    @property
    def position(self) -> Frontier:
        """Earliest time that must stay readable for the undelivered changes."""
        return max(self.as_of, self.upper.step_back())


@dataclass(slots=True)
class PendingReads:
    """Peeks by uuid; subscriptions and copies by the id of their export."""

    peeks: dict[bytes, PendingPeek] = field(default_factory=dict[bytes, PendingPeek])
    subscriptions: dict[Id, PendingSubscription] = field(default_factory=dict[Id, PendingSubscription])
    copies: dict[Id, PendingCopy] = field(default_factory=dict[Id, PendingCopy])

    def __iter__(self) -> Iterator[PendingPeek | PendingSubscription | PendingCopy]:
        """Iterate over a copy, so that reads may end meanwhile."""
        return iter([*self.peeks.values(), *self.subscriptions.values(), *self.copies.values()])
