"""Commands: messages from a controller to a replica.

They are delivered in the order in which they were sent, and take effect eventually. A connection goes
through three stages. Creation: `CreateTimely`, `CreateInstance`, nothing else, and the replica is
silent. Initialization: any computation commands, then `InitializationComplete`. Computation: any
computation commands. A command comes after those that it depends on.

Of each: when it may be sent, what the receiver owes, what becomes of it in the `History`.
Source: the compute protocol of Materialize, its commands and their history.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeAlias

from penstock.compute.frontier import Frontier
from penstock.compute.protocol.dataflow import Dataflow, Id
from penstock.compute.protocol.field_types import Constraint, Key, Time


@dataclass(frozen=True, slots=True, order=True)
class Epoch:
    """Epoch of a connection, greater than those of all earlier connections.

    controller: from the durable state of the controller, one more at each of its starts.
    replica:    one more at each connection of that controller to the replica.
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
    workers: parts that the work is divided into.
    """

    runtime: RuntimeName = "here"
    workers: Annotated[int, _WORKERS] = 1


@dataclass(frozen=True, slots=True)
class CreateTimely:
    """Start the runtime. Sent once, as a connection's first command.

    The replica starts the runtime, or goes on with the one it has if `config` is equal; where it is not, it
    ends its process, to be started afresh. It refuses an epoch that is not above all it has seen
    (`StaleEpoch`). With several workers it is sent to all. History: at most one, kept, first; the epoch
    and the nonce are those of the connection, put in when it is sent.

    nonce: 16 random bytes of the connection. Responses made for another nonce are not sent.
    """

    config: TimelyConfig = TimelyConfig()
    epoch: Epoch = Epoch(0, 0)
    nonce: Key = b""


@dataclass(frozen=True, slots=True)
class InstanceConfig:
    """Configuration shared by all dataflows of a replica, fixed for the life of its process.

    collections:       where the durable collections are, a URI of `penstock.compute.collections`.
    expiration_offset: milliseconds after which the process ends itself; None: never.
    introspection:     milliseconds between two looks of a replica at itself (`Status`); 0: none.
    """

    collections: str
    expiration_offset: int | None = None
    introspection: int = 1000


@dataclass(frozen=True, slots=True)
class CreateInstance:
    """Create the dataflow instance and end the creation stage. Sent once, as a connection's second command.

    On a replica that has an instance, the configuration must be compatible with the one that runs: all
    equal, but the expiration may come sooner. Where it is not, the replica ends its process. History: at
    most one, kept, second.
    """

    config: InstanceConfig


@dataclass(frozen=True, slots=True)
class Parameters:
    """Settings that can be changed at any time; None leaves a setting unchanged.

    max_result_size:        bytes of rows that one peek or one batch may have.
    peek_stash_size:        bytes above which the rows of a peek are stashed in a file instead of being
        sent at once.
    maintenance_interval:   milliseconds between two reports of frontiers.
    hydration_concurrency:  how many exports hydrate at a time.
    """

    max_result_size: int | None = None
    peek_stash_size: int | None = None
    maintenance_interval: int | None = None
    hydration_concurrency: int | None = None

    def updated(self, later: Parameters) -> Parameters:
        """Return these parameters overridden by `later`."""
        return Parameters(
            *(b if b is not None else a for a, b in zip(self._all(), later._all(), strict=True))
        )

    def _all(self) -> tuple[Any, ...]:
        return tuple(getattr(self, f.name) for f in fields(self))


@dataclass(frozen=True, slots=True)
class UpdateConfiguration:
    """Change settings. Allowed any number of times in the initialization and computation stages.

    The replica applies it at once to everything, also to dataflows and peeks that it has. That is why it
    may be moved to the front of a history. With several workers it is sent to all. History: merged into
    one, third; gone if it sets nothing.
    """

    parameters: Parameters


@dataclass(frozen=True, slots=True)
class InitializationComplete:
    """End the initialization stage. Sent once per connection.

    The replica reconciles its state with the commands, and from now on
    owes the responses. History: kept, last.
    """


@dataclass(frozen=True, slots=True)
class CreateDataflow:
    """Build a dataflow. Allowed in the initialization and computation stages.

    Its imports exist and can be read at its as-of; the ids of its exports are new. The replica owes
    `Frontiers` for indexes and collections, `SubscribeResponse`s for subscriptions, one `CopyToResponse`
    for a copy. It does not run before each export has been scheduled or dropped, and writes no collection
    before `AllowWrites`. History: kept in order, from the time to which its exports have been compacted;
    gone once all of them are dropped.
    """

    dataflow: Dataflow


@dataclass(frozen=True, slots=True)
class Schedule:
    """Start computing an export. Sent once, between its `CreateDataflow` and its drop.

    A dataflow begins when all of its exports are scheduled; one that is dropped is not waited for, whichever
    of the two comes first. History: kept while its dataflow is, before the compactions.
    """

    id: Id


@dataclass(frozen=True, slots=True)
class AllowWrites:
    """Allow a dataflow to write its collection, irrevocably. Sent after its `CreateDataflow`.

    A replica may not change collections before it. History: kept while its dataflow is, after the
    compactions.
    """

    id: Id


@dataclass(frozen=True, slots=True)
class AllowCompaction:
    """Allow an export to merge times before `frontier`; END drops it. Sent after its `CreateDataflow`.

    Frontiers of one export only rise. The replica keeps the export right at times from the frontier on,
    and protects its own readers itself. Dropped: it owes END for each kind of frontier not yet reported as
    END (indexes, collections), or `DroppedAt` (subscriptions that have not ended), or `Dropped` (copies
    that have not answered), once, and nothing later.
    History: of each id the last counts, in the order of the exports; it moves into the dataflow's as-of
    where all its exports allow it.
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

    order_by: positions of columns, each with whether it goes down; empty: in no order.
    limit:    how many rows at most, None: all; counted with their multiplicity, after `offset` rows.
    project:  positions of the columns to send, in order; None: all.
    """

    order_by: tuple[tuple[int, bool], ...] = ()
    limit: int | None = None
    offset: int = 0
    project: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Peek:
    """Read an index or a collection at a time. Sent after the index's `CreateDataflow`.

    The replica owes exactly one `PeekResponse`: when the upper has passed `time`. A time before the since
    is answered with an error. What it may be compacted to later does not matter to a peek that was
    accepted. History: kept until its `CancelPeek`.

    uuid:      16 bytes, unique.
    keys:      rows of the index's key columns that are wanted, at least one; None: all.
    predicate: an encoded expression over the row, None: all rows.
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

    A replica that has answered does nothing; one that has not answers `Canceled`, or at last what it has
    found: one answer in all. History: takes its `Peek` away, and goes with it.
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
ComputationCommand: TypeAlias = (
    UpdateConfiguration | CreateDataflow | Schedule | AllowWrites | AllowCompaction | Peek | CancelPeek
)
