"""A runtime under test, with a store of collections beside it, as a replica's shell would drive it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import headrace as hr
from headrace import col
from headrace.compute.collections.opening import open_collections
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.frontier import END, Frontier
from headrace.compute.plans import INPUT, OUTPUT, encode, identity_flow, schema_to_bytes
from headrace.compute.protocol.commands import (
    CollectionExport,
    CollectionImport,
    CollectionTarget,
    CopyToExport,
    Dataflow,
    Export,
    Finishing,
    Id,
    IndexExport,
    IndexImport,
    IndexTarget,
    InstanceConfig,
    Parameters,
    Peek,
    PlanBytes,
    SubscribeExport,
)
from headrace.compute.protocol.responses import (
    BatchResponse,
    Canceled,
    CopyToResponse,
    DroppedAt,
    PeekResponse,
    Problem,
    RowsResponse,
    Stashed,
    SubscribeResponse,
    Update,
)
from headrace.compute.replica.runtime import Answer, ReachedFrontiers, ReplicaRuntime
from headrace.expr.row_classes import schema_of

T = TypeVar("T")
PATIENCE = 120.0


class Bid(NamedTuple):
    auction: int
    price: int


class Best(NamedTuple):
    auction: int
    best: int


def best_flow() -> hr.Flow:
    """The highest price per auction."""
    flow = hr.Flow("best")
    bids = flow.table("bids", Bid)
    flow.sink("best", bids.group_by(col.auction).agg(best=hr.max(col.price)))
    return flow


BEST = encode(best_flow())
SAME = encode(identity_flow(schema_of(Best)))
Make = Callable[[InstanceConfig, Callable[[], None], Path], ReplicaRuntime]


class Stage:
    """uri: of the store. folder: of the replica. Times are given by the tests."""

    def __init__(self, make: Make, uri: str, folder: Path) -> None:
        self._make = make
        self.uri = uri
        self.folder = folder
        self.store = open_collections(uri)
        self._woken = threading.Event()
        self._uuids = count(1)
        self.told: list[Answer] = []
        self.runtime = self._started()

    def _started(self) -> ReplicaRuntime:
        return self._make(InstanceConfig(self.uri), self._woken.set, self.folder)

    def restart(self) -> None:
        """Another process takes the place of the replica."""
        self.runtime.close()
        self.told.clear()
        self.runtime = self._started()

    def close(self) -> None:
        self.runtime.close()
        self.store.close()

    # -- collections ----------------------------------------------------------------------------

    def collection(self, id: Id, rows: type = Bid, upper: int = 1) -> None:
        self.store.create(id, schema_to_bytes(schema_of(rows)))
        self.store.append([CollectionAppend(id, Frontier(0), Frontier(upper))])

    def write(self, id: Id, *updates: Update, upper: int | None = None) -> None:
        """Append updates; the upper is after the last of them, or the one that is given."""
        (bounds,) = self.store.bounds([id])
        end = Frontier(max(time for _, time, _ in updates) + 1 if upper is None else upper)
        self.store.append([CollectionAppend(id, bounds.upper, end, updates)])

    # -- dataflows ------------------------------------------------------------------------------

    def view(
        self,
        id: Id,
        collection: Id,
        as_of: int,
        *,
        plan: PlanBytes = BEST,
        key: Sequence[str] = ("auction",),
    ) -> None:
        imports = (CollectionImport("bids", collection),)
        self.create(Dataflow(plan, imports, (), (IndexExport(id, "best", tuple(key)),), Frontier(as_of)))

    def on_index(self, export: Export, index: Id, as_of: int, until: Frontier = END) -> None:
        """A dataflow that passes an index on as it is."""
        self.create(Dataflow(SAME, (), (IndexImport(INPUT, index),), (export,), Frontier(as_of), until))

    def create(self, dataflow: Dataflow) -> None:
        self.runtime.create_dataflow(dataflow)
        for id in sorted(dataflow.export_ids):
            self.runtime.schedule(id)

    # -- answers --------------------------------------------------------------------------------

    def until(self, found: Callable[[], T | None]) -> T:
        """Let the runtime work until there is something."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self._woken.clear()
            more = self.runtime.step(0.01)
            self.told += self.runtime.take_answers()
            result = found()
            if result is not None:
                return result
            if not more:
                self._woken.wait(0.05)
        raise AssertionError(f"nothing came: {self.told}, {self.runtime.frontiers()}")

    def ask(
        self,
        id: Id,
        at: int,
        *,
        keys: Sequence[tuple[Any, ...]] | None = None,
        finishing: Finishing | None = None,
        predicate: bytes | None = None,
        collection: bool = False,
    ) -> bytes:
        uuid = next(self._uuids).to_bytes(16, "big")
        target = CollectionTarget(id) if collection else IndexTarget(id)
        wanted = None if keys is None else tuple(keys)
        self.runtime.peek(Peek(uuid, target, at, wanted, predicate, finishing or Finishing()))
        return uuid

    def answer(self, uuid: bytes) -> RowsResponse | Stashed | Problem | Canceled:
        def found() -> RowsResponse | Stashed | Problem | Canceled | None:
            answers = [a.answer for a in self.told if isinstance(a, PeekResponse) and a.uuid == uuid]
            assert len(answers) < 2, "a peek was answered twice"
            return answers[0] if answers else None

        return self.until(found)

    def rows(self, id: Id, at: int, **wanted: Any) -> list[tuple[Any, ...]]:
        """The rows of a peek, sorted unless an order is asked for."""
        answer = self.answer(self.ask(id, at, **wanted))
        assert isinstance(answer, RowsResponse), answer
        rows = [row for row, times in answer.rows for _ in range(times)]
        return rows if wanted.get("finishing") else sorted(rows)

    def problem(self, id: Id, at: int, **wanted: Any) -> Problem:
        answer = self.answer(self.ask(id, at, **wanted))
        assert isinstance(answer, Problem), answer
        return answer

    def reached(self, id: Id, upper: Frontier) -> ReachedFrontiers:
        def found() -> ReachedFrontiers | None:
            reached = self.runtime.frontiers().get(id)
            return reached if reached is not None and reached.write >= upper else None

        return self.until(found)

    def batches(self, id: Id, upper: Frontier) -> list[BatchResponse]:
        """The batches of a subscription, which must follow each other, when they have come to an upper."""

        def found() -> list[BatchResponse] | None:
            events = [a.event for a in self.told if isinstance(a, SubscribeResponse) and a.id == id]
            batches = [event for event in events if isinstance(event, BatchResponse)]
            return batches if batches and batches[-1].upper >= upper else None

        batches = self.until(found)
        uppers = [Frontier(0), *(batch.upper for batch in batches)]
        assert [batch.lower for batch in batches] == uppers[:-1]
        return batches

    def updates(self, id: Id, upper: Frontier) -> list[Update]:
        """All updates of a subscription, sorted by time."""
        found: list[Update] = []
        for batch in self.batches(id, upper):
            assert not isinstance(batch.updates, Problem), batch
            assert all(batch.lower <= Frontier(time) < batch.upper for _, time, _ in batch.updates)
            found += batch.updates
        return sorted(found, key=lambda update: (update[1], update[0], update[2]))

    def said(self, kind: type[T]) -> list[T]:
        return [answer for answer in self.told if isinstance(answer, kind)]


def at_time(updates: Sequence[Update], time: int) -> Counter[tuple[Any, ...]]:
    """The rows that updates make at a time."""
    total: Counter[tuple[Any, ...]] = Counter()
    for row, at, weight in updates:
        if at <= time:
            total[row] += weight
    return Counter({row: count for row, count in total.items() if count})


__all__ = [
    "BEST",
    "END",
    "OUTPUT",
    "SAME",
    "Best",
    "Bid",
    "CollectionExport",
    "CopyToExport",
    "CopyToResponse",
    "DroppedAt",
    "Parameters",
    "Stage",
    "SubscribeExport",
    "at_time",
    "best_flow",
]
