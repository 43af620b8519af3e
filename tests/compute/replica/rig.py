"""A replica in this process, over collections in memory, whose controller is the test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.compute.collections.memory import MemoryCollections
from headrace.compute.collections.store import CollectionAppend, Collections
from headrace.compute.errors import ComputeError, error_class
from headrace.compute.frontier import END, Frontier
from headrace.compute.plans import identity_flow, schema_to_bytes, sinks_of, sources_of
from headrace.compute.protocol.commands import (
    AllowCompaction,
    CollectionImport,
    CollectionTarget,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    DataflowLimits,
    Epoch,
    Export,
    Finishing,
    Id,
    IndexExport,
    IndexImport,
    IndexTarget,
    InitializationComplete,
    InstanceConfig,
    Peek,
    PlanBytes,
    Schedule,
    SubscribeExport,
    TimelyConfig,
)
from headrace.compute.protocol.responses import (
    BatchResponse,
    CopyToResponse,
    DroppedAt,
    Frontiers,
    PeekResponse,
    Problem,
    Response,
    RowsResponse,
    Status,
    SubscribeResponse,
    Update,
)
from headrace.compute.replica.building import PlanDecoder
from headrace.compute.replica.in_process.runtime import InProcessRuntime
from headrace.compute.replica.replica import Replica
from headrace.compute.replica.work_watch import WorkWatch
from headrace.expr.types import Schema

CONFIG = InstanceConfig("memory:rig", introspection=0)
Bag = Counter[tuple[Any, ...]]


class KnownPlans(PlanDecoder):
    """Plans that are the flows themselves: what a plan is made of is tested elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.flows: dict[bytes, hr.Flow] = {}

    def plan(self, flow: hr.Flow) -> PlanBytes:
        for body, known in self.flows.items():
            if known is flow:
                return PlanBytes(body)
        body = f"flow {len(self.flows)}".encode()
        self.flows[body] = flow
        return PlanBytes(body)

    def flow(self, plan: PlanBytes) -> hr.Flow:
        return self.flows[plan.body] if plan.body in self.flows else super().flow(plan)


class Ticking:
    """A timer that counts how often it is looked at: slices are short, and always the same."""

    def __init__(self, each: float = 0.001) -> None:
        self.now, self.each = 0.0, each

    def __call__(self) -> float:
        self.now += self.each
        return self.now


@dataclass
class Rig:
    """A replica, what it has said, and the store that it reads."""

    config: InstanceConfig = CONFIG
    store: Collections = field(default_factory=MemoryCollections)
    folder: Path | None = None
    timer: Callable[[], float] = field(default_factory=Ticking)
    watch: WorkWatch = field(default_factory=WorkWatch)

    def __post_init__(self) -> None:
        self.plans = KnownPlans()
        self.named: dict[str, hr.Flow] = {}
        self.now = 1_000_000
        self.halted: ComputeError | None = None
        self.said: list[Response] = []
        self.runtimes: list[InProcessRuntime] = []
        self.created: list[Dataflow] = []
        self.epochs = count(1)
        self.uuids = count(1)
        self.replica = self.new_replica()

    def new_replica(self) -> Replica:
        return Replica(self._runtime, clock=lambda: self.now, wake=lambda: None, halt=self._halt)

    def _runtime(
        self, timely: TimelyConfig, instance: InstanceConfig, wake: Callable[[], None]
    ) -> InProcessRuntime:
        here = InProcessRuntime(
            instance,
            wake,
            collections=self.store,
            folder=self.folder,
            clock=lambda: self.now,
            timer=self.timer,
            plans=self.plans,
            watch=self.watch,
        )
        self.runtimes.append(here)
        return here

    def _halt(self, error: ComputeError) -> None:
        assert self.halted is None
        self.halted = error

    # -- connections ------------------------------------------------------------------

    def connect(self, commands: Iterable[Command] = (), *, complete: bool = True) -> Rig:
        """A new connection that says `commands` in its initialization stage."""
        epoch = next(self.epochs)
        nonce = epoch.to_bytes(16, "big")
        self.replica.begin_connection(nonce)
        self.replica.receive(CreateTimely(TimelyConfig(), Epoch(1, epoch), nonce))
        self.replica.receive(CreateInstance(self.config))
        self.tell(*commands)
        if complete:
            self.tell(InitializationComplete())
        return self

    def tell(self, *commands: Command) -> Rig:
        for command in commands:
            self.replica.receive(command)
        return self

    def run(self) -> list[Response]:
        """Work until there is nothing more to do; what was said meanwhile."""
        for _ in range(100_000):
            if not self.replica.step(0.005):
                break
        else:
            raise AssertionError("the replica is never done")
        self.replica.step(0.005)
        return self.hear()

    def step(self, seconds: float = 0.0) -> list[Response]:
        self.replica.step(seconds)
        return self.hear()

    def hear(self) -> list[Response]:
        said = self.replica.responses()
        self.said += said
        return said

    # -- collections ------------------------------------------------------------------

    def collection(self, id: Id, schema: Schema, *updates: Update, upper: int = 0) -> Rig:
        self.store.create(id, schema_to_bytes(schema))
        if updates or upper:
            self.write(id, *updates, upper=upper)
        return self

    def write(self, id: Id, *updates: Update, upper: int) -> Rig:
        """Append the updates; the upper is then `upper`."""
        (bounds,) = self.store.bounds([id])
        self.store.append([CollectionAppend(id, bounds.upper, Frontier(upper), updates)])
        return self

    # -- dataflows --------------------------------------------------------------------

    def dataflow(
        self,
        flow: hr.Flow,
        *exports: Export,
        as_of: int = 0,
        until: Frontier = END,
        indexes: Mapping[str, Id] | None = None,
        collections: Mapping[str, Id] | None = None,
        name: str = "",
        limits: DataflowLimits = DataflowLimits(),
    ) -> Dataflow:
        """A dataflow whose sources read the collections of their names, or what is said."""
        read, indexes = dict(collections or {}), dict(indexes or {})
        for source in sources_of(flow):
            if source.name not in indexes:
                read.setdefault(source.name, source.name)
        return Dataflow(
            self.plans.plan(flow),
            tuple(CollectionImport(source, id) for source, id in read.items()),
            tuple(IndexImport(source, id) for source, id in indexes.items()),
            exports,
            Frontier(as_of),
            until,
            name,
            limits,
        )

    def create(self, flow: hr.Flow, *exports: Export, schedule: bool = True, **options: Any) -> Dataflow:
        dataflow = self.dataflow(flow, *exports, **options)
        self.created.append(dataflow)
        self.tell(CreateDataflow(dataflow))
        if schedule:
            self.tell(*(Schedule(export.id) for export in exports))
        return dataflow

    def index(
        self, id: Id, flow: hr.Flow, key: Sequence[str] = (), sink: str | None = None, **options: Any
    ) -> Rig:
        self.create(flow, IndexExport(id, sink or sinks_of(flow)[0].name, tuple(key)), **options)
        return self

    def subscribe(
        self, id: Id, index: Id, schema: Schema, *, as_of: int, snapshot: bool = True, until: Frontier = END
    ) -> Rig:
        """A subscription to an index."""
        flow = identity_flow(schema)
        self.create(
            flow, SubscribeExport(id, "output", snapshot), as_of=as_of, until=until, indexes={"input": index}
        )
        return self

    def drop(self, *ids: Id) -> Rig:
        return self.tell(*(AllowCompaction(id, END) for id in ids))

    # -- peeks ------------------------------------------------------------------------

    def ask(
        self, id: Id, time: int, keys: Any = None, finishing: Finishing = Finishing(), **more: Any
    ) -> bytes:
        uuid = next(self.uuids).to_bytes(16, "big")
        target = CollectionTarget(id) if id.startswith("s") else IndexTarget(id)
        self.tell(Peek(uuid, target, time, keys, finishing=finishing, **more))
        return uuid

    def answer(self, uuid: bytes) -> Any:
        """The answer to a peek, if it was said."""
        found = [r.answer for r in self.said if isinstance(r, PeekResponse) and r.uuid == uuid]
        assert len(found) <= 1
        return found[0] if found else None

    def peek(
        self, id: Id, time: int, keys: Any = None, finishing: Finishing = Finishing(), **more: Any
    ) -> Any:
        """Ask, and work until there is an answer or nothing to do."""
        uuid = self.ask(id, time, keys, finishing, **more)
        self.run()
        return self.answer(uuid)

    def rows(self, id: Id, time: int, keys: Any = None, **more: Any) -> Bag:
        answer = self.peek(id, time, keys, **more)
        assert isinstance(answer, RowsResponse), answer
        return bag(answer.rows)

    # -- what was said ----------------------------------------------------------------

    def batches(self, id: Id) -> list[BatchResponse]:
        events = [r.event for r in self.said if isinstance(r, SubscribeResponse) and r.id == id]
        return [event for event in events if isinstance(event, BatchResponse)]

    def dropped_at(self, id: Id) -> list[Frontier]:
        events = [r.event for r in self.said if isinstance(r, SubscribeResponse) and r.id == id]
        return [event.frontier for event in events if isinstance(event, DroppedAt)]

    def frontiers(self, id: Id) -> list[Frontiers]:
        return [r for r in self.said if isinstance(r, Frontiers) and r.id == id]

    def write_frontier(self, id: Id) -> Frontier | None:
        return next((f.write for f in reversed(self.frontiers(id)) if f.write is not None), None)

    def copies(self, id: Id) -> list[Any]:
        return [r.result for r in self.said if isinstance(r, CopyToResponse) and r.id == id]

    def statuses(self, id: Id | None) -> list[Status]:
        return [r for r in self.said if isinstance(r, Status) and r.id == id]


def bag(rows: Iterable[tuple[tuple[Any, ...], int]]) -> Bag:
    found: Bag = Counter()
    for row, n in rows:
        found[row] += n
    return found


def problem(answer: Any, error: type[ComputeError]) -> Problem:
    """The problem that an answer is, which must be of a class."""
    assert isinstance(answer, Problem), answer
    assert issubclass(error_class(answer.code), error), answer
    return answer


def subscribed(batches: Iterable[BatchResponse], until: Frontier) -> dict[int, Bag]:
    """The changes by time of a subscription, whose batches must follow each other up to `until`."""
    changes: dict[int, Bag] = {}
    lower = Frontier(0)
    for batch in batches:
        assert batch.lower == lower < batch.upper
        assert isinstance(batch.updates, tuple), batch
        assert len({(row, time) for row, time, _ in batch.updates}) == len(batch.updates)
        for row, time, weight in batch.updates:
            assert not batch.lower.has_passed(time)
            assert batch.upper.has_passed(time)
            assert weight
            changes.setdefault(time, Counter())[row] += weight
        lower = batch.upper
    assert lower == until
    return changes
