"""How far one replica has come with each export, and what of its inputs it still has to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.compute.controller.holds import ReadHold, ReadHolds
from penstock.compute.frontier import END, START, Frontier
from penstock.compute.hydration import is_hydrated
from penstock.compute.protocol.dataflow import CollectionExport, Dataflow, Id, IndexExport, is_transient
from penstock.compute.protocol.responses import Frontiers

Kept = dict[Id, list[ReadHold]]
"""By export, the holds on the collections that a replica reads for it."""


class Tracked:
    """One export on one replica, since the present connection was told of it.

    as_of:             from where on it was asked for.
    told:              up to where it was told that it may compact.
    write, input, output: see `Frontiers`; at first the as-of.
    reports:           whether it owes `Frontiers`; else it is a subscription or a copy.
    scheduled:         whether it was told to begin.
    done:              whether it owes nothing more.
    """

    __slots__ = ("as_of", "done", "id", "input", "output", "reports", "scheduled", "told", "write")

    def __init__(self, id: Id, as_of: Frontier, reports: bool) -> None:
        self.id = id
        self.as_of = self.told = self.write = self.input = self.output = as_of
        self.reports = reports
        self.scheduled = self.done = False

    @property
    def hydrated(self) -> bool:
        """Whether what was there at the as-of has been computed."""
        return is_hydrated(self.as_of, self.output)

    @property
    def building(self) -> bool:
        """Whether it was told to begin, is not hydrated, and has not failed: then it would read no more."""
        return self.scheduled and not self.hydrated and self.input != END and not is_transient(self.id)

    def absorb(self, report: Frontiers) -> list[str]:
        """Take a report; what in it goes back is passed over, and said."""
        wrong: list[str] = []
        for kind in ("write", "input", "output"):
            told: Frontier | None = getattr(report, kind)
            known: Frontier = getattr(self, kind)
            if told is None:
                continue
            if told < known:
                wrong.append(f"{kind} of {self.id} went back from {known} to {told}")
            else:
                setattr(self, kind, told)
        return wrong


class Tracking:
    """All exports of one connection.

    kept: outlives connections: the replica goes on reading while it is not connected.
    """

    def __init__(self, holds: ReadHolds, kept: Kept, note: Callable[[str], None]) -> None:
        self.exports: dict[Id, Tracked] = {}
        self._holds = holds
        self._kept = kept
        self._note = note
        self._initialized = False

    def create(self, dataflow: Dataflow) -> None:
        """The replica is told of a dataflow."""
        for export in dataflow.exports:
            reports = isinstance(export, IndexExport | CollectionExport)
            self.exports[export.id] = Tracked(export.id, dataflow.as_of, reports)
            self._keep_inputs(export.id, dataflow)

    def initialized(self) -> None:
        """The replica was told of all that is wanted: what it had beyond that, it will drop."""
        self._initialized = True
        for id in [id for id in self._kept if id not in self.exports]:
            self.forget(id)

    def scheduled(self, id: Id) -> None:
        self.exports[id].scheduled = True

    def compacts(self, id: Id, frontier: Frontier) -> bool:
        """Whether it is to be told that an export may be compacted: not where that is nothing new to it."""
        tracked = self.exports.get(id)
        if tracked is None or frontier <= tracked.told:
            return False
        tracked.told = frontier
        if frontier == END and not tracked.reports:
            self.forget(id)
        self._remove_if_over(tracked)
        return True

    def absorb(self, report: Frontiers) -> bool:
        """Take a report; whether it is about something that this replica was told of."""
        tracked = self.exports.get(report.id)
        if tracked is None or not tracked.reports:
            self._note(f"it reports frontiers of {report.id}, which it was not asked for")
            return False
        for wrong in tracked.absorb(report):
            self._note(wrong)
        # The changes from `input` on are read next, and are there as long as the time before is.
        for hold in self._kept.get(report.id, ()):
            hold.advance(tracked.input.step_back())
        if tracked.write == tracked.input == tracked.output == END:
            self.done(report.id)
        return True

    def done(self, id: Id) -> None:
        """The replica owes nothing more about an export."""
        tracked = self.exports[id]
        tracked.done = True
        self._remove_if_over(tracked)

    def forget(self, id: Id) -> None:
        """The replica reads no inputs for it any more."""
        for hold in self._kept.pop(id, ()):
            hold.release()

    def building(self) -> tuple[Id, ...]:
        """What it was told to begin and is not hydrated."""
        return tuple(id for id, tracked in self.exports.items() if tracked.building)

    def lasting(self) -> Iterator[Tracked]:
        """The exports that go on: neither dropped, nor failed before they were hydrated."""
        exports = (t for t in self.exports.values() if t.reports and t.told != END)
        return (t for t in exports if t.hydrated or t.input != END)

    def output(self, id: Id) -> Frontier:
        """How far it has computed an export; START where it has none of that id."""
        tracked = self.exports.get(id)
        return tracked.output if tracked else START

    def _remove_if_over(self, tracked: Tracked) -> None:
        if tracked.done and tracked.told == END:
            self.forget(tracked.id)
            del self.exports[tracked.id]

    def _keep_inputs(self, id: Id, dataflow: Dataflow) -> None:
        """The replica may read from the as-of on; or go on where it was, if it still runs, maybe earlier.

        Where that was nobody knows if no connection of this controller has heard of it: until the replica
        says how far it is, all stays that is there.
        """
        before = {hold.id: hold.frontier for hold in self._kept.get(id, ())}
        unknown = END if self._initialized or not self.exports[id].reports else START
        holds = [self._holds.acquire(i.id) for i in dataflow.collections if i.id in self._holds]
        for hold in holds:
            hold.advance(min(dataflow.as_of, before.get(hold.id, unknown)))
        self.forget(id)
        self._kept[id] = holds


def release_all(kept: Kept) -> None:
    """Give up what is kept for a replica."""
    for holds in kept.values():
        for hold in holds:
            hold.release()
    kept.clear()
