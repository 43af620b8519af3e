"""Tracking of a replica's progress with each export, and of holds on the inputs it still has to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from headrace.compute.controller.holds import ReadHold, ReadHolds
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.hydration import is_hydrated
from headrace.compute.protocol.dataflow import CollectionExport, Dataflow, Id, IndexExport, is_transient
from headrace.compute.protocol.responses import Frontiers

Kept = dict[Id, list[ReadHold]]
"""Holds on the collections that a replica reads for an export, by export id."""


class ExportProgress:
    """Progress of one export on one connection.

    as_of:             the as-of it was created with.
    compacted:         frontier of the last `AllowCompaction` sent.
    write, input, output: see `Frontiers`; initially the as-of.
    reports:           whether it reports `Frontiers`; otherwise it is a subscription or a copy.
    scheduled:         whether `Schedule` was sent.
    done:              whether no more responses are expected.
    goal, goal_since:  frontier that reading must get beyond, and since when, in ms of the clock.
    """

    __slots__ = (
        "as_of",
        "compacted",
        "done",
        "goal",
        "goal_since",
        "id",
        "input",
        "output",
        "reports",
        "scheduled",
        "write",
    )

    def __init__(self, id: Id, as_of: Frontier, reports: bool) -> None:
        self.id = id
        self.as_of = self.compacted = self.write = self.input = self.output = as_of
        self.reports = reports
        self.scheduled = self.done = False
        self.goal, self.goal_since = START, 0

    @property
    def hydrated(self) -> bool:
        """Whether the contents at the as-of have been computed."""
        return is_hydrated(self.as_of, self.output)

    @property
    def is_building(self) -> bool:
        """Whether it is scheduled, but neither hydrated nor failed (a failed one has input frontier END)."""
        return self.scheduled and not self.hydrated and self.input != END and not is_transient(self.id)

    def measure_lag(self, since: Frontier, now: int) -> int:
        """Return for how long reading has been behind the earliest time that is still of use.

        since: that time now. It is the next goal, once the present one is reached.
        """
        if not self.hydrated or self.input == END or self.input > self.goal:
            self.goal, self.goal_since = since, now
        return 0 if self.input > self.goal else now - self.goal_since

    def update_frontiers(self, report: Frontiers) -> list[str]:
        """Update the frontiers from a report. Returns complaints about regressing ones, which are ignored."""
        wrong: list[str] = []
        for kind in ("write", "input", "output"):
            reported: Frontier | None = getattr(report, kind)
            known: Frontier = getattr(self, kind)
            if reported is None:
                continue
            if reported < known:
                wrong.append(f"{kind} of {self.id} went back from {known} to {reported}")
            else:
                setattr(self, kind, reported)
        return wrong


class Tracking:
    """Progress of all exports of one connection.

    kept: holds that outlive connections, because a replica continues to read while disconnected.
    """

    def __init__(self, holds: ReadHolds, kept: Kept, note: Callable[[str], None]) -> None:
        self.exports: dict[Id, ExportProgress] = {}
        self._holds = holds
        self._kept = kept
        self._note = note
        self._initialized = False

    def create(self, dataflow: Dataflow) -> None:
        """Track a dataflow whose `CreateDataflow` is being sent."""
        for export in dataflow.exports:
            reports = isinstance(export, IndexExport | CollectionExport)
            self.exports[export.id] = ExportProgress(export.id, dataflow.as_of, reports)
            self._keep_inputs(export.id, dataflow)

    def finish_initialization(self) -> None:
        """Release inputs of exports that no longer exist, once `InitializationComplete` is sent."""
        self._initialized = True
        for id in [id for id in self._kept if id not in self.exports]:
            self.forget(id)

    def record_scheduled(self, id: Id) -> None:
        self.exports[id].scheduled = True

    def record_compaction(self, id: Id, frontier: Frontier) -> bool:
        """Record an allowed compaction. Returns whether to send it to the replica."""
        tracked = self.exports.get(id)
        if tracked is None or frontier <= tracked.compacted:
            return False
        tracked.compacted = frontier
        if frontier == END and not tracked.reports:
            self.forget(id)
        self._remove_if_over(tracked)
        return True

    def handle_report(self, report: Frontiers) -> bool:
        """Handle a report. Returns whether it is about an export of this connection."""
        tracked = self.exports.get(report.id)
        if tracked is None or not tracked.reports:
            self._note(f"unexpected frontiers of {report.id}")
            return False
        for wrong in tracked.update_frontiers(report):
            self._note(wrong)
        # Changes from `input` on are read next; reading them needs the time before it to be readable. Until
        # it is reported, a replica that goes on from an earlier connection may be before the as-of.
        if report.input is not None:
            for hold in self._kept.get(report.id, ()):
                hold.advance(tracked.input.step_back())
        if tracked.write == tracked.input == tracked.output == END:
            self.record_complete(report.id)
        return True

    def lagging_exports(self, now: int, most: int) -> list[Id]:
        """List the exports that have been behind the readable past of their view for `most` ms.

        That of the replica furthest ahead is never among them, because it determines where that past begins.
        """
        live = [t for t in self.exports.values() if t.reports and t.compacted != END and t.id in self._kept]
        return [t.id for t in live if t.measure_lag(self._holds.since(t.id), now) >= most]

    def release_inputs(self, id: Id) -> dict[Id, Frontier]:
        """Release the holds on the inputs of an export. Returns where they were."""
        held = {hold.id: hold.frontier for hold in self._kept.get(id, ())}
        self.forget(id)
        return held

    def hold_again(self, id: Id, held: Mapping[Id, Frontier]) -> bool:
        """Restore released holds. Returns False, doing nothing, if an input has been given up meanwhile."""
        if any(self._holds.since(read) > frontier for read, frontier in held.items()):
            return False
        self._kept[id] = [self._holds.acquire(read) for read in held]
        for hold in self._kept[id]:
            hold.advance(held[hold.id])
        return True

    def record_complete(self, id: Id) -> None:
        """Record that no more responses are expected for an export."""
        tracked = self.exports[id]
        tracked.done = True
        self._remove_if_over(tracked)

    def forget(self, id: Id) -> None:
        """Release the holds on the inputs of an export."""
        for hold in self._kept.pop(id, ()):
            hold.release()

    def building(self) -> tuple[Id, ...]:
        """List the scheduled exports that are not hydrated yet."""
        return tuple(id for id, tracked in self.exports.items() if tracked.is_building)

    def lasting_exports(self) -> Iterator[ExportProgress]:
        """Iterate over the exports that are not dropped, and did not fail before being hydrated."""
        exports = (t for t in self.exports.values() if t.reports and t.compacted != END)
        return (t for t in exports if t.hydrated or t.input != END)

    def output_frontier(self, id: Id) -> Frontier:
        """Return the output frontier of an export; START for an unknown id."""
        tracked = self.exports.get(id)
        return tracked.output if tracked else START

    def _remove_if_over(self, tracked: ExportProgress) -> None:
        if tracked.done and tracked.compacted == END:
            self.forget(tracked.id)
            del self.exports[tracked.id]

    def _keep_inputs(self, id: Id, dataflow: Dataflow) -> None:
        """Hold the inputs from the as-of on, or from an earlier frontier of a replica that runs the export.

        If this controller does not know that frontier yet, everything readable stays readable until the
        replica reports it.
        """
        before = {hold.id: hold.frontier for hold in self._kept.get(id, ())}
        unknown = END if self._initialized or not self.exports[id].reports else START
        holds = [self._holds.acquire(i.id) for i in dataflow.collections if i.id in self._holds]
        for hold in holds:
            hold.advance(min(dataflow.as_of, before.get(hold.id, unknown)))
        self.forget(id)
        self._kept[id] = holds


def release_all(kept: Kept) -> None:
    """Release all holds of a replica."""
    for holds in kept.values():
        for hold in holds:
            hold.release()
    kept.clear()
