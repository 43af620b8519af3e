"""Desired state of all replicas: exports, the read holds on them, and the shared command history.

All changes pass through here, so that the history and the holds always agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headrace.compute.controller.holds import ReadHold, ReadHolds
from headrace.compute.frontier import END, START, Frontier, join, meet
from headrace.compute.history import CommandLog
from headrace.compute.hydration import may_be_scheduled
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    InitializationComplete,
    InstanceConfig,
    Parameters,
    Schedule,
    UpdateConfiguration,
)
from headrace.compute.protocol.dataflow import CollectionExport, Dataflow, Export, Id, is_transient


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

    # --- collections ----------------------------------------------------------------

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

    # --- exports --------------------------------------------------------------------

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
        """Return the last time at which all of `ids` are settled; START if none is yet, END without ids."""
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
