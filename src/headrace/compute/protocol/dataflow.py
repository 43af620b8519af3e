"""Descriptions of dataflows: their inputs, their plan, and their exports."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, TypeAlias

from headrace.compute.frontier import END, LAST_TIME, Frontier

# --- field types with constraints ---------------------------------------------------

# The type of such a field is `Annotated` with a constraint, which the codec checks when a message is read.


@dataclass(frozen=True, slots=True)
class Constraint:
    """Condition on values from the network. why: the sentence with which violations are reported."""

    holds: Callable[[Any], bool]
    why: str


KEY_BYTES = 16

NOT_EMPTY = Constraint(bool, "It is empty.")
Name: TypeAlias = Annotated[str, NOT_EMPTY]
Key: TypeAlias = Annotated[
    bytes, Constraint(lambda value: len(value) == KEY_BYTES, f"It does not have {KEY_BYTES} bytes.")
]
"""Random identifier: a uuid, nonce or token."""
Time: TypeAlias = Annotated[int, Constraint(lambda value: value <= LAST_TIME, "It is no time.")]


Id: TypeAlias = Name
"""Id of an object with frontiers: "s1" for a collection, "u1" for a view's index or materialization, "t1" for
a transient export (a subscription or copy). Ids are never reused within the life of a controller's state."""


def is_transient(id: Id) -> bool:
    """Return whether an id is transient ("t1"): used by one client request, and dropped with its connection.

    >>> is_transient("t1"), is_transient("u1")
    (True, False)
    """
    return id.startswith("t")


@dataclass(frozen=True)
class Plan:
    """Flow in portable form (`headrace.compute.plans`), not decoded.

    body:   operators, expressions, schemas, and their connections. Equal flows have equal bodies.
    places: source locations for errors, not part of the flow's identity.
    """

    body: bytes
    places: bytes = field(default=b"", compare=False)

    @cached_property
    def hash(self) -> str:
        """Identity of the plan: the SHA-256 of its body, in hexadecimal."""
        return hashlib.sha256(self.body).hexdigest()


@dataclass(frozen=True, slots=True)
class CollectionImport:
    """Source of the flow that reads a collection.

    source: name of the source in the plan.
    id:     id of the collection.
    upper:  the collection's upper when the message was created; a hint, refreshed before each replay.
    """

    source: str
    id: Id
    upper: Frontier = field(default=Frontier(0), compare=False)


@dataclass(frozen=True, slots=True)
class IndexImport:
    """Source of the flow that reads an index created earlier on the same replica.

    The arrangement is shared: it is read in place, not built again.
    """

    source: str
    id: Id


@dataclass(frozen=True, slots=True)
class IndexExport:
    """Sink kept in memory by key, for peeks and other dataflows.

    key: names of the key columns; empty: the whole row.
    """

    id: Id
    sink: str
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SubscribeExport:
    """Sink whose changes are sent to the controller as `Batch`es.

    snapshot: whether to start with the contents at the as-of, as changes at that time, rather than only with
        later changes.
    """

    id: Id
    sink: str
    snapshot: bool = True


@dataclass(frozen=True, slots=True)
class CollectionExport:
    """Sink written to a collection, at its inputs' times, once writes are allowed.

    collection: id of the collection ("s7"). All replicas write; only the first append of a change has an
        effect.
    """

    id: Id
    sink: str
    collection: Id


@dataclass(frozen=True, slots=True)
class CopyToExport:
    """Sink whose rows at the as-of are written once, to a file in the replica's copy folder.

    file: plain file name without folders. Its suffix selects the format: .jsonl or .parquet.
    """

    id: Id
    sink: str
    file: Name


Export: TypeAlias = IndexExport | SubscribeExport | CollectionExport | CopyToExport


@dataclass(frozen=True, slots=True)
class DataflowLimits:
    """Limits on what a dataflow may use of a replica. One that exceeds a limit fails, and others go on.

    tick_rows:    rows that a tick may make, in all operators together. A tick has up to 8,192 rows of input.
    rounds:       of a loop in a tick; the flow may have a lower limit.
    state_bytes:  memory of the state and the indexes, as estimated; and of one tick.
    tick_seconds: processor time of one tick.
    """

    tick_rows: int = 10_000_000
    rounds: int = 10_000
    state_bytes: int = 2 << 30
    tick_seconds: int = 20


@dataclass(frozen=True, slots=True)
class Dataflow:
    """Everything a replica must know to build and run a flow.

    name:    name shown to users.
    plan:    the flow; imports and exports match its sources and sinks by name.
    as_of:   first time at which the exports can be read. Every import must be readable then.
    until:   frontier from which times need not be computed.
    limits:  what it may use of a replica.

    Comparison ignores `name`.
    """

    plan: Plan
    collections: tuple[CollectionImport, ...]
    indexes: tuple[IndexImport, ...]
    exports: tuple[Export, ...]
    as_of: Frontier
    until: Frontier = END
    name: str = field(default="", compare=False)
    limits: DataflowLimits = DataflowLimits()

    @property
    def export_ids(self) -> frozenset[Id]:
        return frozenset(export.id for export in self.exports)

    @property
    def import_ids(self) -> frozenset[Id]:
        return frozenset(i.id for i in (*self.collections, *self.indexes))

    def at(self, as_of: Frontier) -> Dataflow:
        """Return a copy with another as-of."""
        return replace(self, as_of=as_of)
