"""Desired state of all replicas: exports, the read holds on them, and the shared command history.

All changes pass through `Instance`, so that the history and the holds always agree. `Tracking` follows the
progress of one replica with each export, and holds the inputs that it still has to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.compute.controller.holds import ReadHold, ReadHolds
from headrace.compute.frontier import END, START, Frontier, join, meet
from headrace.compute.history import CommandLog
from headrace.compute.hydration import is_hydrated, may_be_scheduled
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CollectionExport,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    Export,
    Id,
    IndexExport,
    InitializationComplete,
    InstanceConfig,
    Parameters,
    Schedule,
    UpdateConfiguration,
    is_transient,
)
from headrace.compute.protocol.responses import Frontiers


@dataclass(slots=True, eq=False)
class ExportState:
    """State of an export that replicas have, or will have.

    implied: hold of the read policy; released when the export is dropped.
    warmup:  hold that follows the uppers of the inputs.
    write:   frontier up to which the contents are settled on some replica.
    target:  the only replica that has it; None: all.
    stopped: whether some replica has stopped reading its inputs, because it is complete or has failed.
    """

    export: Export
    dataflow: Dataflow
    implied: ReadHold
    warmup: ReadHold
    write: Frontier
    target: str | None = None
    scheduled: bool = False
    stopped: bool = False

    @property
    def id(self) -> Id:
        return self.export.id


class Instance:
    """Exports of one controller, and the collections that they read.

    log:         command log with the history and each connection's position.
    holds:       sinces of exports and collections.
    running:     exports that are not dropped, or are still held.
    uppers:      of the collections.
    compactions: new sinces of collections, not yet passed to the store.
    pushed:      called after a command is pushed.
    """

    def __init__(self, config: InstanceConfig, parameters: Parameters, most_behind: int) -> None:
        start = (CreateTimely(), CreateInstance(config), UpdateConfiguration(parameters))
        self.log = CommandLog(start, most_behind=most_behind)
        self.holds = ReadHolds(self._advanced)
        self.running: dict[Id, ExportState] = {}
        self.uppers: dict[Id, Frontier] = {}
        self.compactions: dict[Id, Frontier] = {}
        self.pushed: Callable[[], None] = _nothing
        self._unscheduled: dict[Id, ExportState] = {}

    def send(self, command: Command) -> None:
        """Send a command to all replicas, including those that connect later."""
        self.log.push(command)
        self.pushed()

    def complete_initialization(self) -> None:
        """Signal that the initial commands are complete."""
        self.send(InitializationComplete())

    def add_collection(self, id: Id, since: Frontier, upper: Frontier) -> ReadHold:
        """Add a collection that exports may read. Returns its implied hold."""
        self.uppers[id] = upper
        return self.holds.add_collection(id, since)

    def is_collection(self, id: Id) -> bool:
        return id in self.uppers

    def advance_upper(self, id: Id, upper: Frontier) -> None:
        """Advance the upper of a collection."""
        self.uppers[id] = max(self.uppers[id], upper)

    def forget_collection(self, id: Id) -> None:
        """Forget a collection that was dropped from the store."""
        self.uppers.pop(id, None)
        self.compactions.pop(id, None)

    def create(self, dataflow: Dataflow, target: str | None = None) -> None:
        """Create a dataflow. Its imports must exist and be readable at its as-of, which must not be END."""
        for export in dataflow.exports:
            inputs = [self.holds.acquire(id) for id in sorted(dataflow.import_ids)]
            implied = self.holds.add_collection(export.id, dataflow.as_of, inputs)
            warmup = self.holds.acquire(export.id)
            running = ExportState(export, dataflow, implied, warmup, dataflow.as_of, target)
            self.running[export.id] = self._unscheduled[export.id] = running
            if is_transient(export.id):
                warmup.release()
        self.send(CreateDataflow(dataflow))
        for export in dataflow.exports:
            if isinstance(export, CollectionExport):
                self.send(AllowWrites(export.id))
        self.schedule_exports()

    def drop(self, ids: Iterable[Id]) -> None:
        """Drop exports; each disappears with the last hold on it."""
        for id in ids:
            running = self.running.get(id)
            if running is not None:
                # It stays in `_unscheduled`, since it may still have to start for accepted peeks.
                running.warmup.release()
                running.implied.release()

    def since(self, dataflow: Dataflow) -> Frontier:
        """Return the earliest since of a dataflow's exports; END if all are dropped."""
        return meet(self.holds.since(export.id) for export in dataflow.exports)

    def readable_frontier(self, ids: Iterable[Id]) -> Frontier:
        """Return the earliest frontier at which all of `ids` can be read."""
        return join(self.holds.since(id) for id in ids)

    def upper(self, id: Id) -> Frontier:
        """Return the upper of a collection or an index, before which its contents are settled."""
        running = self.running.get(id)
        return running.write if running else self.uppers.get(id, START)

    def settled_frontier(self, ids: Iterable[Id]) -> Frontier:
        """Return the latest time at which all `ids` are settled; START if there is none, END without ids."""
        return meet(self.upper(id).step_back() for id in ids)

    def availability_by_export(self) -> dict[Id, Frontier]:
        """Map each export to the upper of the collections that it reads, directly or through indexes."""
        found: dict[Id, Frontier] = {}
        for id, running in self.running.items():  # inputs come before their readers
            collections = (self.uppers[i.id] for i in running.dataflow.collections)
            indexes = (found.get(i.id, END) for i in running.dataflow.indexes)
            found[id] = meet((*collections, *indexes))
        return found

    def depends_on(self, id: Id, on: Id) -> bool:
        """Whether `id` equals `on`, or reads it directly or through indexes."""
        running = self.running.get(id)
        return id == on or (
            running is not None and any(self.depends_on(i, on) for i in running.dataflow.import_ids)
        )

    def record_progress(self, id: Id, write: Frontier) -> None:
        """Record that some replica has settled an export up to `write`."""
        running = self.running.get(id)
        if running is not None and write > running.write:
            running.write = write
            if self._unscheduled:
                self.schedule_exports()

    def record_stopped(self, id: Id) -> None:
        """Record that some replica has stopped an export. Readers may start now, and will see its end."""
        running = self.running.get(id)
        if running is not None:
            running.stopped = True
            self.schedule_exports()

    def schedule_exports(self) -> None:
        """Schedule all exports whose inputs allow it."""
        for running in list(self._unscheduled.values()):
            if self._may_begin(running):
                running.scheduled = True
                del self._unscheduled[running.id]
                self.send(Schedule(running.id))

    def _may_begin(self, running: ExportState) -> bool:
        dataflow = running.dataflow
        indexes: Sequence[ExportState | None] = [self.running.get(i.id) for i in dataflow.indexes]
        return may_be_scheduled(
            running.id,
            dataflow.as_of,
            (
                END if id in self.running and self.running[id].stopped else self.upper(id)
                for id in dataflow.import_ids
            ),
            all(index is None or index.scheduled for index in indexes),
        )

    def advance_warm_up_holds(self) -> None:
        """Advance the warm-up holds to the uppers of the inputs, so that restarts are immediate."""
        for id, available in self.availability_by_export().items():
            if not is_transient(id) and id in self.running:
                self.running[id].warmup.advance(available.step_back())

    def check(self) -> None:
        """Assert the invariants."""
        self.holds.check()
        for id, running in self.running.items():
            assert running.dataflow.as_of <= self.holds.since(id)
            for read in running.dataflow.import_ids:
                assert self.holds.since(read) <= self.holds.since(id), f"{id} cannot read {read}"
        assert set(self._unscheduled) <= set(self.running)

    def _advanced(self, id: Id, since: Frontier) -> None:
        if id in self.uppers:
            self.compactions[id] = since
            return
        if since == END:
            self.running.pop(id, None)
            self._unscheduled.pop(id, None)
        self.send(AllowCompaction(id, since))


def _nothing() -> None:
    pass


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
        """Return how long reading has been behind the earliest time that is still useful.

        since: that time now. It is the next goal, once the present one is reached.
        """
        if not self.hydrated or self.input == END or self.input > self.goal:
            self.goal, self.goal_since = since, now
        return 0 if self.input > self.goal else now - self.goal_since

    def update_frontiers(self, report: Frontiers) -> list[str]:
        """Update the frontiers from a report. Returns messages about regressing ones, which are ignored."""
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
        """Release the holds on the inputs of an export. Returns their frontiers."""
        held = {hold.id: hold.frontier for hold in self._kept.get(id, ())}
        self.forget(id)
        return held

    def hold_again(self, id: Id, held: Mapping[Id, Frontier]) -> bool:
        """Restore released holds. Returns False, without effect, if an input has been compacted meanwhile."""
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
