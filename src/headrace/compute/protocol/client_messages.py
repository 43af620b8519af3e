"""Messages between clients and a controller, as in `client.proto`, validated field by field on reading.

A client keeps one stream of requests, each with a number of its own. Answers carry the number of their
request. A subscription is a stream of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from headrace.compute.client.generated import client_pb2 as pb
from headrace.compute.protocol import rows
from headrace.compute.protocol.codec_derivation import FieldCodec, MessageCodec, MessageCodecs
from headrace.compute.protocol.commands import Finishing, PlanBytes
from headrace.compute.protocol.responses import Counted, Problem
from headrace.compute.protocol.serialization import problem_from_bytes, problem_to_bytes
from headrace.expr.types import Row, Schema


@dataclass(frozen=True, slots=True)
class DescribeRequest:
    """Request for the `Description` of a view or collection."""

    name: str


@dataclass(frozen=True, slots=True)
class GetPlan:
    """Request for the `PlanBytes` that a view was created with."""

    view: str


@dataclass(frozen=True, slots=True)
class CreateCollection:
    """Request to create a collection that clients write."""

    name: str
    schema: Schema
    append_only: bool


@dataclass(frozen=True, slots=True)
class CreateView:
    """Request to create a view.

    plan, places: parts of its `PlanBytes`.
    keep: milliseconds of the past that stay readable.
    into: collection that its changes are written to as well.
    tick_rows, rounds, state_bytes, tick_seconds: see `DataflowLimits`; None: its defaults.
    """

    name: str
    plan: bytes
    places: bytes
    key: tuple[str, ...]
    keep: int
    into: str | None
    tick_rows: int | None = None
    rounds: int | None = None
    state_bytes: int | None = None
    tick_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class DropRequest:
    """Request to drop a view or a collection."""

    name: str


@dataclass(frozen=True, slots=True)
class WritePart:
    """Changes of one collection.

    id:   id of the collection that the client knows; another one means that it knows other columns.
    come, go: rows to insert and to delete.
    """

    collection: str
    id: str
    come: tuple[Counted, ...]
    go: tuple[Counted, ...]


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """Request to change several collections atomically, at one time.

    id: 16 random bytes; done once, however often it is sent with the same id.
    """

    parts: tuple[WritePart, ...]
    id: bytes


AS_THEY_ARE = Finishing()
"""Finishing that returns complete rows, all of them and unordered."""


@dataclass(frozen=True, slots=True)
class PeekRequest:
    """Request to read a view or collection at one time.

    keys:      keys to look up, as rows of the key columns; None: all rows.
    at:        the time; None: that of the last acknowledged write (strict), unless `staleness` is given. A
        read at a future time waits until then.
    predicate: encoded expression over the row (`headrace.compute.plans`); None: all rows.
    replica:   the only replica allowed to answer; None: any.
    staleness: milliseconds by which the answer may be behind the present, to avoid waiting: the read is at
        the latest time that some connected replica has settled, if within the bound; otherwise it is strict.
        Excludes `at`.
    """

    view: str
    keys: Sequence[Row] | None = None
    at: int | None = None
    predicate: bytes | None = None
    finishing: Finishing = AS_THEY_ARE
    replica: str | None = None
    staleness: int | None = None


@dataclass(frozen=True, slots=True)
class PeekMessage:
    """Peek at the view with the given `id`, to be answered within `patience` milliseconds."""

    id: str
    request: PeekRequest
    patience: int | None = None


@dataclass(frozen=True, slots=True)
class CancelPeekRequest:
    """Request to cancel the peek with this number. It is not answered."""

    peek: int


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """Request to write the rows of a view to a file.

    patience: as that of a peek; but while a replica is at work, an empty `RowsPart` is sent each time.
    """

    view: str
    file: str
    patience: int | None = None


@dataclass(frozen=True, slots=True)
class AddReplica:
    """Request to add a replica. runtime: empty for in-process. workers: 0 for one."""

    name: str
    address: str
    runtime: str
    workers: int


@dataclass(frozen=True, slots=True)
class DropReplica:
    """Request to remove a replica."""

    name: str


@dataclass(frozen=True, slots=True)
class ReleaseReplica:
    """Request to end the quarantine of a replica, and to retry it at once."""

    name: str


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Request for the status of the controller."""


ClientRequest: TypeAlias = (
    DescribeRequest
    | GetPlan
    | CreateCollection
    | CreateView
    | DropRequest
    | WriteRequest
    | PeekMessage
    | CancelPeekRequest
    | CopyRequest
    | AddReplica
    | DropReplica
    | ReleaseReplica
    | StatusRequest
)


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """Request to subscribe to a view. patience: milliseconds until the first batch; None: no limit."""

    view: str
    as_of: int | None
    snapshot: bool
    replica: str | None
    patience: int | None = None


@dataclass(frozen=True, slots=True)
class DoneAnswer:
    """Answer to a request that was carried out.

    id: of what was created. time: of what was written. rows: number of copied ones.
    """

    id: str = ""
    time: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Description:
    """Description of a view or collection.

    id:          differs from those of others that have had the same name.
    view:        whether it is a view; otherwise a collection.
    key:         columns of its index; empty: the whole row.
    append_only: whether rows are never retracted.
    """

    id: str
    view: bool
    schema: Schema
    key: tuple[str, ...] = ()
    append_only: bool = False


@dataclass(frozen=True, slots=True)
class RowsPart:
    """Some of the rows of an answer: encoded, with counts. more: whether other parts follow."""

    rows: bytes = b""
    more: bool = False


@dataclass(frozen=True, slots=True)
class ConditionAnswer:
    """Status of the controller, as encoded plain data."""

    body: bytes


ClientAnswer: TypeAlias = DoneAnswer | Description | RowsPart | ConditionAnswer | Problem | PlanBytes


@dataclass(frozen=True, slots=True)
class BatchPart:
    """Part of a batch of a subscription. more: whether other parts of this batch follow.

    lower, upper: bounds of the whole batch; None: END.
    time: None: the updates have times of their own; otherwise they are rows in columns that change at it.
    """

    lower: int | None
    upper: int | None
    updates: bytes
    more: bool
    time: int | None = None


SubscriptionEvent: TypeAlias = Description | BatchPart | Problem


def _schema_to_bytes(schema: Schema) -> bytes:
    # Lazy, because many clients only insert and peek, and need no plans.
    from headrace.compute.plans import schema_to_bytes

    return schema_to_bytes(schema)


def _schema_from_bytes(data: bytes) -> Schema:
    from headrace.compute.plans import schema_from_bytes

    return schema_from_bytes(data)


def _decode_changes(data: bytes, field: str) -> tuple[Counted, ...]:
    return rows.decode_counted(data, field) if data else ()


_CODECS = MessageCodecs(
    by_type={
        Schema: FieldCodec(_schema_to_bytes, lambda _: _schema_from_bytes),
        tuple[Counted, ...]: FieldCodec(rows.encode, lambda field: partial(_decode_changes, field=field)),
        Sequence[Row]: FieldCodec(rows.encode, lambda field: partial(rows.decode_keys, field=field)),
        Problem: FieldCodec(problem_to_bytes, lambda _: problem_from_bytes),
    },
    flags={"Peek.keys": ("all", False), "Peek.project": ("projected", True)},
)
REQUEST: MessageCodec[ClientRequest, pb.Request] = _CODECS.derive(ClientRequest, pb.Request)
"""Codec of a request. Its number is set and read by the stream."""
ANSWER: MessageCodec[ClientAnswer, pb.Answer] = _CODECS.derive(ClientAnswer, pb.Answer)
SUBSCRIPTION: MessageCodec[SubscriptionRequest, pb.Subscription] = _CODECS.derive(
    SubscriptionRequest, pb.Subscription
)
EVENT: MessageCodec[SubscriptionEvent, pb.Event] = _CODECS.derive(SubscriptionEvent, pb.Event)
