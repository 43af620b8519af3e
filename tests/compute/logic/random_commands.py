"""Random sessions of the compute protocol: commands as a right controller would send them.

Right means: ids are new, dependencies come first, what is imported can be read at the as-of, nothing is
compacted beyond what its readers and live peeks need, each peek is cancelled at most once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from headrace.compute.frontier import END, Frontier, meet
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    CollectionExport,
    CollectionImport,
    Command,
    CopyToExport,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    Export,
    Id,
    IndexExport,
    IndexImport,
    IndexTarget,
    InitializationComplete,
    InstanceConfig,
    Parameters,
    Peek,
    PlanBytes,
    Schedule,
    SubscribeExport,
    UpdateConfiguration,
)

COLLECTIONS = ("s1", "s2", "s3")
LAST = 20
"""Times of a session are at most so large."""
INSTANCE = CreateInstance(InstanceConfig("memory:"))


def random_commands(random: random.Random, steps: int = 30, *, several: float = 0.3) -> list[Command]:
    """The commands of one connection: creation, then about `steps` others, with the end of the
    initialization somewhere among them or not at all. several: see `RandomController`."""
    controller = RandomController(random, several=several)
    said: list[Command] = [CreateTimely(), INSTANCE]
    end = random.randrange(2 * steps)
    for step in range(steps):
        said += controller.step()
        if step == end:
            said.append(InitializationComplete())
    return said


def random_reconnection(
    random: random.Random, steps: int = 30, *, several: float = 0.3
) -> tuple[list[Command], list[Command]]:
    """What a replica was told, and what the next controller tells it: mostly the same, with some as-ofs
    selected anew, some dataflows changed, gone, or new. several: see `RandomController`."""
    controller = RandomController(random, several=several)
    installed: list[Command] = [CreateTimely(), INSTANCE]
    for _ in range(steps):
        installed += controller.step()
    asked = controller.come_back()
    for _ in range(random.randrange(steps)):
        asked += controller.step()
    return installed, [CreateTimely(), INSTANCE, *asked, InitializationComplete()]


@dataclass(slots=True)
class _Flow:
    """A dataflow that is alive. since: of each export that is not dropped. unscheduled, unwritten: exports
    that have yet to be."""

    dataflow: Dataflow
    since: dict[Id, Frontier]
    unscheduled: list[Id] = field(default_factory=list[Id])
    unwritten: list[Id] = field(default_factory=list[Id])


class RandomController:
    """Says random commands, and knows what they amount to.

    several: how likely a dataflow has two exports.
    collections: the since of each collection, as far as its readers have let go.
    """

    def __init__(self, random: random.Random, *, several: float = 0.3) -> None:
        self.random = random
        self._several = several
        self.collections: dict[Id, Frontier] = dict.fromkeys(COLLECTIONS, Frontier(0))
        self._flows: list[_Flow] = []
        self._peeks: dict[bytes, Peek] = {}
        self._made = 0

    def step(self) -> list[Command]:
        """One command, or a few that belong together, or none."""
        choices = (self._create, self._compact, self._compact, self._drop, self._peek, self._cancel)
        more = (self._schedule, self._schedule, self._allow_writes, self._configure, self._forget_collections)
        return self.random.choice((*choices, *more))()

    def come_back(self) -> list[Command]:
        """What a controller says that has lost all but its catalog: each dataflow from an as-of selected
        anew. What is transient and the peeks are gone."""
        self._peeks.clear()
        flows = [f for f in self._flows if not f.dataflow.exports[0].id.startswith("t")]
        self._flows = []
        said: list[Command] = []
        for flow in flows:
            dataflow = self._changed(flow)
            if all(i.id in self._readable() for i in dataflow.indexes) and self.random.random() < 0.9:
                said += self._start(dataflow.at(self._as_of(dataflow)))
        return said

    def _changed(self, flow: _Flow) -> Dataflow:
        """The dataflow with the exports that it has left, and now and then otherwise different."""
        dataflow = flow.dataflow
        dataflow = replace(dataflow, exports=tuple(e for e in dataflow.exports if e.id in flow.since))
        match self.random.randrange(12):
            case 0:
                return replace(dataflow, plan=PlanBytes(dataflow.plan.body + b"'"))
            case 1:
                return replace(dataflow, name="another name", exports=dataflow.exports[::-1])
            case 2:
                return replace(dataflow, until=self.random.choice((END, Frontier(LAST - 5))))
            case _:
                return dataflow

    def _as_of(self, dataflow: Dataflow) -> Frontier:
        """A time at which all imports can be read."""
        least = [self.collections[i.id] for i in dataflow.collections]
        least += [self._readable()[i.id] for i in dataflow.indexes]
        lower = max((f.time or 0 for f in least), default=0)
        return Frontier(min(lower + self.random.choice((0, 0, 1, 3)), LAST))

    def _create(self) -> list[Command]:
        self._made += 1
        transient = self.random.random() < 0.3
        ids = [f"{'t' if transient else 'u'}{self._made}"]
        if not transient and self.random.random() < self._several:
            ids.append(f"u{self._made}b")
        indexes = self.random.sample(
            sorted(self._readable()), k=min(len(self._readable()), self.random.randrange(3))
        )
        reads = self.random.sample(COLLECTIONS, k=self.random.randrange(3))
        dataflow = Dataflow(
            PlanBytes(f"plan {self._made}".encode()),
            tuple(CollectionImport(f"in {id}", id) for id in reads),
            tuple(IndexImport(f"in {id}", id) for id in indexes),
            tuple(self._export(id, transient) for id in ids),
            Frontier(0),
            Frontier(LAST - 2) if self.random.random() < 0.1 else END,
        )
        return self._start(dataflow.at(self._as_of(dataflow)))

    def _export(self, id: Id, transient: bool) -> Export:
        if transient:
            subscribe = self.random.random() < 0.7
            return (
                SubscribeExport(id, f"out {id}") if subscribe else CopyToExport(id, f"out {id}", "rows.jsonl")
            )
        if self.random.random() < 0.3:
            return CollectionExport(id, f"out {id}", f"s of {id}")
        return IndexExport(id, f"out {id}")

    def _start(self, dataflow: Dataflow) -> list[Command]:
        ids = [e.id for e in dataflow.exports]
        written = [e.id for e in dataflow.exports if isinstance(e, CollectionExport)]
        self._flows.append(_Flow(dataflow, dict.fromkeys(ids, dataflow.as_of), ids, written))
        return [CreateDataflow(dataflow)]

    def _readable(self) -> dict[Id, Frontier]:
        """Indexes that can be imported and peeked, with their sinces."""
        return {
            export.id: flow.since[export.id]
            for flow in self._flows
            for export in flow.dataflow.exports
            if isinstance(export, IndexExport) and export.id in flow.since
        }

    def _needed(self, id: Id) -> Frontier:
        """What the readers of an index or a collection still need of it."""
        readers = [s for f in self._flows if id in f.dataflow.import_ids for s in f.since.values()]
        return meet(
            [*readers, *(Frontier(p.time) for p in self._peeks.values() if p.target == IndexTarget(id))]
        )

    def _compact(self) -> list[Command]:
        alive = [(flow, id) for flow in self._flows for id in flow.since]
        if not alive:
            return []
        flow, id = self.random.choice(alive)
        wanted = Frontier(min((flow.since[id].time or 0) + self.random.randrange(4), LAST))
        frontier = max(flow.since[id], min(wanted, self._needed(id)))
        flow.since[id] = frontier
        return [AllowCompaction(id, frontier)]

    def _drop(self) -> list[Command]:
        alive = [(flow, id) for flow in self._flows for id in flow.since if self._needed(id) == END]
        if not alive:
            return []
        flow, id = self.random.choice(alive)
        del flow.since[id]
        flow.unscheduled = [i for i in flow.unscheduled if i != id]
        flow.unwritten = [i for i in flow.unwritten if i != id]
        self._flows = [f for f in self._flows if f.since]
        return [AllowCompaction(id, END)]

    def _peek(self) -> list[Command]:
        readable = self._readable()
        if not readable:
            return []
        id = self.random.choice(sorted(readable))
        self._made += 1
        time = min((readable[id].time or 0) + self.random.randrange(3), LAST)
        peek = Peek(self._made.to_bytes(16, "big"), IndexTarget(id), time)
        self._peeks[peek.uuid] = peek
        return [peek]

    def _cancel(self) -> list[Command]:
        if not self._peeks:
            return []
        uuid = self.random.choice(sorted(self._peeks))
        del self._peeks[uuid]
        return [CancelPeek(uuid)]

    def _schedule(self) -> list[Command]:
        return [Schedule(id) for id in self._take(lambda flow: flow.unscheduled)]

    def _allow_writes(self) -> list[Command]:
        return [AllowWrites(id) for id in self._take(lambda flow: flow.unwritten)]

    def _take(self, of: Callable[[_Flow], list[Id]]) -> Sequence[Id]:
        waiting = [flow for flow in self._flows if of(flow)]
        return [of(self.random.choice(waiting)).pop()] if waiting else []

    def _configure(self) -> list[Command]:
        name = self.random.choice(("max_result_size", "maintenance_interval"))
        value = self.random.choice((None, 1, 2, 3))
        return [UpdateConfiguration(Parameters(**{name: value}))]

    def _forget_collections(self) -> list[Command]:
        for id in COLLECTIONS:
            upto = min(self._needed(id), Frontier(self.random.randrange(LAST)))
            self.collections[id] = max(self.collections[id], upto)
        return []
