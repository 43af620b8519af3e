"""Commands: messages from a controller to a replica, and the dataflows that they describe.

They are delivered in the order in which they were sent, and take effect eventually. A connection goes
through three stages. Creation: only `CreateTimely` and `CreateInstance`, and the replica is silent.
Initialization: any computation commands, then `InitializationComplete`. Computation: any computation
commands. A command comes after those that it depends on.

Each command documents when it may be sent, what the receiver owes, and how the `History` treats it.
Source: the compute protocol of Materialize, its commands and their history.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias

from headrace.compute.frontier import END, LAST_TIME, Frontier

# The type of such a field is `Annotated` with a constraint, which the codec checks when a message is read.


@dataclass(frozen=True, slots=True)
class Constraint:
    """Condition on values from the network. why: sentence for reporting violations."""

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
class PlanBytes:
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
    """Sink whose changes are sent to the controller as `BatchResponse`s.

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
    """Limits on what a dataflow may use of a replica. One that exceeds a limit fails; others continue.

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

    plan: PlanBytes
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


@dataclass(frozen=True, slots=True, order=True)
class Epoch:
    """Epoch of a connection, greater than those of all earlier connections.

    controller: counter in the controller's durable state, incremented at each start.
    replica:    counter of the controller's connections to the replica.
    """

    controller: int
    replica: int


RuntimeName = Literal["here", "spark"]
_MAX_WORKERS = 1_000
"""Limit on worker processes, so that no message can make a replica start billions of them."""
_WORKERS = Constraint(
    lambda count: 1 <= count <= _MAX_WORKERS, f"There is at least one, and at most {_MAX_WORKERS}."
)
_SOME = Constraint(bool, "There is at least one, where it is set.")


@dataclass(frozen=True, slots=True)
class TimelyConfig:
    """Configuration of a replica's runtime, fixed for the life of its process.

    runtime: "here", the in-process engine; or "spark".
    workers: number of workers among which the work is divided.
    """

    runtime: RuntimeName = "here"
    workers: Annotated[int, _WORKERS] = 1


@dataclass(frozen=True, slots=True)
class CreateTimely:
    """Start the runtime. Sent once, as a connection's first command.

    The replica starts the runtime, or keeps the existing one if `config` is equal; otherwise it exits, to be
    restarted. It refuses an epoch that is not greater than all earlier ones (`StaleEpoch`). Sent to all
    workers if there are several. History: at most one, kept first; the connection's epoch and nonce are
    filled in on sending.

    nonce: 16 random bytes of the connection. Responses made for another nonce are not sent.
    """

    config: TimelyConfig = TimelyConfig()
    epoch: Epoch = Epoch(0, 0)
    nonce: Key = b""


@dataclass(frozen=True, slots=True)
class InstanceConfig:
    """Configuration shared by all dataflows of a replica, fixed for the life of its process.

    collections:       URI of the store of durable collections (`headrace.compute.collections`).
    expiration_offset: milliseconds after which the process exits; None: never.
    introspection:     milliseconds between a replica's reports on itself (`Status`); 0: none.
    """

    collections: str
    expiration_offset: int | None = None
    introspection: int = 1000


@dataclass(frozen=True, slots=True)
class CreateInstance:
    """Create the dataflow instance and end the creation stage. Sent once, as a connection's second command.

    If the replica already has an instance, the configuration must be compatible with it: equal, except for a
    possibly sooner expiration. Otherwise the replica's process exits. History: at most one, kept second.
    """

    config: InstanceConfig


@dataclass(frozen=True, slots=True)
class Parameters:
    """Settings that can be changed at any time; None leaves a setting unchanged.

    max_result_size:        maximum bytes of rows in one peek or one batch.
    peek_stash_size:        bytes above which the rows of a peek are stashed in a file instead of being
        sent at once.
    maintenance_interval:   milliseconds between reports of frontiers.
    hydration_concurrency:  number of exports that hydrate at a time.
    """

    max_result_size: int | None = None
    peek_stash_size: int | None = None
    maintenance_interval: int | None = None
    hydration_concurrency: int | None = None

    def overridden_by(self, later: Parameters) -> Parameters:
        """Return these parameters overridden by `later`."""
        return Parameters(
            *(b if b is not None else a for a, b in zip(self._all(), later._all(), strict=True))
        )

    def _all(self) -> tuple[Any, ...]:
        return tuple(getattr(self, f.name) for f in fields(self))


@dataclass(frozen=True, slots=True)
class UpdateConfiguration:
    """Change settings. Allowed any number of times in the initialization and computation stages.

    The replica applies the settings immediately, also to existing dataflows and peeks, so a history may move
    the command to the front. Sent to all workers if there are several. History: merged into one, third;
    removed if it sets nothing.
    """

    parameters: Parameters


@dataclass(frozen=True, slots=True)
class InitializationComplete:
    """End the initialization stage. Sent once per connection.

    The replica reconciles its state with the commands, and owes responses from now on. History: kept last.
    """


@dataclass(frozen=True, slots=True)
class CreateDataflow:
    """Build a dataflow. Allowed in the initialization and computation stages.

    The imports must exist and be readable at the as-of, and the ids of the exports must be new. The replica
    owes `Frontiers` for indexes and collections, `SubscribeResponse`s for subscriptions, and one
    `CopyToResponse` for a copy. The dataflow does not run before each export is scheduled or dropped, and
    writes no collection before `AllowWrites`. History: kept in order, with the as-of to which the exports are
    compacted; removed once all exports are dropped.
    """

    dataflow: Dataflow


@dataclass(frozen=True, slots=True)
class Schedule:
    """Start computing an export. Sent once, between its `CreateDataflow` and its drop.

    A dataflow starts when all of its exports are scheduled or dropped. History: kept as long as its dataflow,
    before the compactions.
    """

    id: Id


@dataclass(frozen=True, slots=True)
class AllowWrites:
    """Allow a dataflow to write its collection, irrevocably. Sent after its `CreateDataflow`.

    Until then, a replica must not change the collection. History: kept as long as its dataflow, after the
    compactions.
    """

    id: Id


@dataclass(frozen=True, slots=True)
class AllowCompaction:
    """Allow an export to merge times before `frontier`; END drops it. Sent after its `CreateDataflow`.

    An export's frontiers only advance. The replica keeps the export readable from the frontier on, and
    protects its own readers itself. For a dropped export it owes one last response: END for each kind of
    frontier not yet reported as END (indexes, collections), `DroppedAt` (subscriptions that have not ended),
    or `Dropped` (copies that have not answered).
    History: the last one of each id counts, in the order of the exports, and is merged into the dataflow's
    as-of if all exports allow that.
    """

    id: Id
    frontier: Frontier


@dataclass(frozen=True, slots=True)
class IndexTarget:
    """Index of the replica, as the target of a peek."""

    id: Id


@dataclass(frozen=True, slots=True)
class CollectionTarget:
    """Durable collection, read from its store, as the target of a peek."""

    id: Id


@dataclass(frozen=True, slots=True)
class Finishing:
    """Order, limit, offset and projection of a peek's rows.

    order_by: positions of columns, each with whether it is descending; empty: unordered.
    limit:    maximum number of rows, counted with their multiplicity, after `offset` rows; None: all.
    project:  positions of the columns to send, in order; None: all.
    """

    order_by: tuple[tuple[int, bool], ...] = ()
    limit: int | None = None
    offset: int = 0
    project: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Peek:
    """Read an index or a collection at a time. Sent after the index's `CreateDataflow`.

    The replica owes exactly one `PeekResponse`, once the upper has passed `time`. A time before the since
    is answered with an error. Later compactions do not affect an accepted peek. History: kept until its
    `CancelPeek`.

    uuid:      16 bytes, unique.
    keys:      keys to look up, at least one, as rows of the index's key columns; None: all.
    predicate: encoded expression over the row; None: all rows.
    """

    uuid: Key
    target: IndexTarget | CollectionTarget
    time: Time
    keys: Annotated[tuple[tuple[Any, ...], ...], _SOME] | None = None
    predicate: bytes | None = None
    finishing: Finishing = Finishing()


@dataclass(frozen=True, slots=True)
class CancelPeek:
    """Cancel a peek. Sent after its `Peek`.

    A replica that has already answered does nothing; otherwise it answers `Canceled`, or with the result if
    that is complete. History: removed together with its `Peek`.
    """

    uuid: Key


Command: TypeAlias = (
    CreateTimely
    | CreateInstance
    | UpdateConfiguration
    | InitializationComplete
    | CreateDataflow
    | Schedule
    | AllowWrites
    | AllowCompaction
    | Peek
    | CancelPeek
)
