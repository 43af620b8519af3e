"""A controller with everything around it that a test can turn: a clock, a store, replicas made of paper."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import headrace as hr
from headrace import col
from headrace.compute.collections.memory import MemoryCollections
from headrace.compute.collections.store import Collections
from headrace.compute.controller.controller import Controller
from headrace.compute.controller.durable_catalog import DurableCatalog
from headrace.compute.controller.replica_connection import ReplicaConnection
from headrace.compute.controller.status import ControllerSettings, ControllerStatus, ReplicaStatus, ViewStatus
from headrace.compute.errors import ComputeError, ConnectionBroken
from headrace.compute.frontier import Frontier
from headrace.compute.plans import encode
from headrace.compute.protocol.client_messages import PeekRequest
from headrace.compute.protocol.commands import (
    AllowCompaction,
    CancelPeek,
    Command,
    CreateDataflow,
    Dataflow,
    Parameters,
    Peek,
    PlanBytes,
    Schedule,
    TimelyConfig,
)
from headrace.compute.protocol.responses import (
    BatchResponse,
    Frontiers,
    PeekResponse,
    RowsResponse,
    SubscribeResponse,
)
from headrace.expr.row_classes import schema_of
from headrace.expr.types import Schema


class Bid(NamedTuple):
    auction: int
    price: int


class Top(NamedTuple):
    auction: int
    top: int


BIDS: Schema = schema_of(Bid)


def top_bids(source: str = "bids") -> PlanBytes:
    """The greatest price of each auction."""
    flow = hr.Flow("top")
    bids = flow.table(source, Bid)
    flow.sink("out", bids.group_by(col.auction).agg(top=hr.max(col.price)))
    return encode(flow)


def all_bids(source: str = "bids") -> PlanBytes:
    """The bids as they are."""
    flow = hr.Flow("all")
    flow.sink("out", flow.table(source, Bid).filter(col.price > 0))
    return encode(flow)


def shares(source: str = "bids") -> PlanBytes:
    """A number for each bid, but for those of price 0: it divides by the price."""
    flow = hr.Flow("shares")
    flow.sink("out", flow.table(source, Bid).select(auction=col.auction, price=60 // col.price))
    return encode(flow)


def appended_bids(source: str = "bids") -> PlanBytes:
    """The bids, from a source whose rows are only ever added."""
    flow = hr.Flow("appended")
    flow.sink("out", flow.source(source, Bid).filter(col.price > 0))
    return encode(flow)


def high_tops(source: str = "top") -> PlanBytes:
    """What is above 10, of a view."""
    flow = hr.Flow("high")
    flow.sink("out", flow.table(source, Top).filter(col.top > 10))
    return encode(flow)


def joined(left: str = "bids", right: str = "others") -> PlanBytes:
    """Two sources side by side."""
    flow = hr.Flow("joined")
    a, b = flow.table(left, Bid), flow.table(right, Bid)
    flow.sink("out", a.union(b))
    return encode(flow)


class PaperReplica:
    """A replica that writes down what it is told, and says what a test wants."""

    def __init__(self, connection: ReplicaConnection) -> None:
        self.connection = connection
        self.told: list[Command] = []
        self.hear()

    def hear(self) -> list[Command]:
        """Take all commands; those that are new."""
        new: list[Command] = []
        while commands := self.connection.take_commands():
            new += commands
        self.told += new
        return new

    def of(self, kind: type[Any]) -> list[Any]:
        self.hear()
        return [command for command in self.told if isinstance(command, kind)]

    def dataflow(self, export: str) -> Dataflow:
        return next(c.dataflow for c in self.of(CreateDataflow) if export in c.dataflow.export_ids)

    def compactions(self, export: str) -> list[Frontier]:
        return [c.frontier for c in self.of(AllowCompaction) if c.id == export]

    def scheduled(self) -> list[str]:
        return [c.id for c in self.of(Schedule)]

    def peeked(self) -> list[bytes]:
        return [c.uuid for c in self.of(Peek)]

    def cancelled(self) -> list[bytes]:
        return [c.uuid for c in self.of(CancelPeek)]

    def reports(self, export: str, upper: int | None, *kinds: str) -> None:
        """Its frontiers of an export are at `upper`, of all kinds or those named."""
        self.hear()
        frontier = Frontier(upper)
        told = dict.fromkeys(kinds or ("write", "input", "output"), frontier)
        self.connection.handle_response(Frontiers(export, **told))

    def answers(self, uuid: bytes, *rows: tuple[Any, ...]) -> None:
        self.hear()
        self.connection.handle_response(PeekResponse(uuid, RowsResponse(tuple((row, 1) for row in rows))))

    def tells(self, id: str, lower: int, upper: int | None, *updates: Any) -> None:
        self.hear()
        batch = BatchResponse(Frontier(lower), Frontier(upper), tuple(updates))
        self.connection.handle_response(SubscribeResponse(id, batch))

    def dies(self, error: ComputeError | None = None) -> None:
        self.connection.record_stream_end(error or ConnectionBroken("it is gone", address=""))


@dataclass
class World:
    """A controller, its state and its store in memory.

    Time stands still until somebody calls `passes`.
    """

    state: DurableCatalog = field(default_factory=lambda: DurableCatalog.open(":memory:"))
    now: int = 1_000
    collections: Collections = field(default_factory=MemoryCollections)
    settings: ControllerSettings = field(default_factory=ControllerSettings)
    parameters: Parameters = field(default_factory=Parameters)
    starts: int = 0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> Controller:
        """A (further) controller on the same state."""
        self.starts += 1
        self.controller = Controller(
            self.state,
            self.collections,
            clock=lambda: self.now,
            random=random.Random(self.starts),
            parameters=self.parameters,
            settings=self.settings,
        )
        return self.controller

    def passes(self, milliseconds: int) -> None:
        """Time goes by, and what is due is done."""
        self.now += milliseconds
        self.controller.maintain()
        self.controller.check()

    def write(self, collection: str, *rows: tuple[Any, ...], ids: Sequence[bytes] = ()) -> int:
        return self.change(collection, *((row, 1) for row in rows), ids=ids)

    def change(
        self, collection: str, *changes: tuple[tuple[Any, ...], int], ids: Sequence[bytes] = ()
    ) -> int:
        """Write, wait for the store, acknowledge. The time of the write."""
        write = self.controller.begin_write({collection: changes}, ids)
        self.collections.append(write.appends)
        self.controller.end_write(write)
        return write.time

    def replica(self, name: str, timely: TimelyConfig = TimelyConfig()) -> PaperReplica:
        """Add a replica, if it is not there, and connect it."""
        self.controller.add_replica(name, f"{name}:1", timely)
        return PaperReplica(self.controller.accept_connection(name))

    def view(self, name: str = "top", plan: PlanBytes | None = None, **options: Any) -> str:
        return self.controller.create_view(name, plan or top_bids(), **options)

    def peek(self, view: str = "top", **options: Any) -> tuple[bytes, list[Any]]:
        """The uuid, and where the answer will be."""
        answers: list[Any] = []
        return self.controller.peek(PeekRequest(view, **options), answers.append), answers

    def subscribe(self, view: str = "top", **options: Any) -> tuple[str, list[Any]]:
        """The id, and where the events will be."""
        events: list[Any] = []
        return self.controller.subscribe(view, events.append, **options), events

    def status(self) -> ControllerStatus:
        return self.controller.status()

    def view_status(self, name: str = "top") -> ViewStatus:
        return next(v for v in self.status().views if v.name == name)

    def replica_status(self, name: str) -> ReplicaStatus:
        return next(r for r in self.status().replicas if r.name == name)

    def problems(self) -> list[str]:
        return [problem.text for problem in self.status().problems]
