"""Commands: messages from a controller to a replica.

They are delivered in the order in which they were sent, and take effect eventually. A connection goes
through three stages. Creation: only `CreateTimely` and `CreateInstance`, and the replica is
silent. Initialization: any computation commands, then `InitializationComplete`. Computation: any
computation commands. A command comes after those that it depends on.

Each command documents when it may be sent, what the receiver owes, and how the `History` treats it.
Source: the compute protocol of Materialize, its commands and their history.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeAlias

from headrace.compute.frontier import Frontier
from headrace.compute.protocol.dataflow import Constraint, Dataflow, Id, Key, Time


@dataclass(frozen=True, slots=True, order=True)
class Epoch:
    """Epoch of a connection, greater than those of all earlier connections.

    controller: counter in the controller's durable state, incremented at each start.
    replica:    counter of the controller's connections to the replica.
    """

    controller: int
    replica: int


RuntimeName = Literal["here", "spark"]
_MOST_WORKERS = 1_000
"""Limit on worker processes, so that no message can make a replica start billions of them."""
_WORKERS = Constraint(
    lambda count: 1 <= count <= _MOST_WORKERS, f"There is at least one, and at most {_MOST_WORKERS}."
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
