"""In-process runtime: all dataflows of a replica on one thread, a slice at a time."""

from __future__ import annotations

import gc
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir

from headrace.compute.collections.store import Collections
from headrace.compute.errors import StoreUnavailable
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.commands import InstanceConfig
from headrace.compute.protocol.dataflow import CollectionImport, Dataflow, Id, IndexExport, IndexImport
from headrace.compute.protocol.responses import Status
from headrace.compute.replica.building import DataflowBuild, PlanDecoder, RuntimeContext
from headrace.compute.replica.exports import ExportWriter
from headrace.compute.replica.feeds import CollectionFeed, Feeds, StoreWatcher
from headrace.compute.replica.in_process.arrangement import TimedArrangement
from headrace.compute.replica.in_process.dataflows import (
    ArrangementWriter,
    DataflowScheduler,
    RunningDataflow,
)
from headrace.compute.replica.in_process.inlets import (
    DataflowInlet,
    FromCollection,
    FromIndex,
    SharedArrangements,
)
from headrace.compute.replica.in_process.peeks import InProcessPeeks
from headrace.compute.replica.in_process.ticking import ChooseTicking, create_undivided_engine
from headrace.compute.replica.runtime import ReachedFrontiers
from headrace.compute.replica.runtime_core import RuntimeCore, wall_clock_milliseconds
from headrace.compute.replica.work_watch import WorkStopped, WorkWatch
from headrace.expr.types import Schema
from headrace.flow.flow import Flow

# --- garbage collection -------------------------------------------------------------

# By default, the collector repeatedly traverses all objects while an index grows, which takes a tenth of a
# second per million rows. Nearly all objects of a replica are freed by reference counting. So young objects
# are collected often, at little cost, but all objects only when the replica is idle and a view was dropped
# (its engine can be freed in no other way) or a long time has passed.


YOUNG = 20_000
"""Number of allocations before young objects are collected, which takes a millisecond or two."""
OLD = 300.0
"""Seconds between full collections, run when the replica is idle."""
SOON = 10.0
"""Seconds before a full collection after a view was dropped, since others may be dropped with it."""


class GcPolicy:
    """Garbage-collection policy of this process until closed. timer: seconds."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._was_enabled = gc.isenabled()
        self._due = timer() + OLD
        gc.disable()

    def slice(self, busy: bool) -> None:
        """Collect young objects, or all if due and idle."""
        if gc.get_count()[0] > YOUNG:
            gc.collect(1)
        if not busy and self._timer() > self._due:
            gc.collect()
            self._due = self._timer() + OLD

    def schedule_collection(self) -> None:
        """Schedule a full collection soon, because a view was dropped."""
        self._due = min(self._due, self._timer() + SOON)

    def close(self) -> None:
        """Restore the collector."""
        if self._was_enabled:
            gc.enable()


# --- periodic metrics and states ----------------------------------------------------


SAMPLES = 1000
"""Number of recent cancelled peeks that are sampled."""


class Introspection:
    """Reports on a replica's dataflows every `interval` milliseconds; 0 disables them.

    clock: milliseconds. memory: returns the process's memory in bytes, if it should be reported.
    """

    def __init__(self, interval: int, clock: Callable[[], int], memory: Callable[[], int] | None) -> None:
        self._memory = memory
        self._interval = interval
        self._clock = clock
        self._due = clock()
        self._reported: dict[RunningDataflow, str] = {}
        self._cancels: deque[float] = deque(maxlen=SAMPLES)

    def record_cancellation(self, seconds: float) -> None:
        """Record how long a cancellation may have waited."""
        self._cancels.append(seconds * 1000)

    def look(self, dataflows: Iterable[RunningDataflow], peeks: int) -> list[Status]:
        """Return the statuses to report, if they are due."""
        if not self._interval or self._clock() < self._due:
            return []
        self._due = self._clock() + self._interval
        running = list(dict.fromkeys(dataflows))
        return [*self._news(running), Status(None, "replica", self._values(running, peeks))]

    def _news(self, running: list[RunningDataflow]) -> list[Status]:
        """Return the new state of each dataflow whose state has changed."""
        found: list[Status] = []
        for each in running:
            text = _state(each)
            if text != self._reported.get(each):
                found += [Status(id, text) for id in sorted(each.wanted)]
        self._reported = {each: _state(each) for each in running}
        return found

    def _values(self, running: list[RunningDataflow], peeks: int) -> tuple[tuple[str, float], ...]:
        indexes = [index for each in running for index in each.maintained_indexes]
        values: dict[str, float] = {
            "rows": sum(index.weight for index in indexes),
            "changes": sum(index.distinguished_times for index in indexes),
            "dataflows": len(running),
            "peeks": peeks,
        }
        if self._memory is not None:
            values["memory"] = self._memory()
        if self._cancels:
            ordered = sorted(self._cancels)
            values |= {
                "cancel_ms": ordered[len(ordered) // 2],
                "cancel_ms_p99": ordered[len(ordered) * 99 // 100],
                "cancel_ms_max": ordered[-1],
            }
        return tuple(values.items())


def _state(running: RunningDataflow) -> str:
    if running.failed is not None:
        return running.failed.error.what
    return "hydrated" if running.hydrated else "hydrating"


PEEK_SLICE = 0.002
"""Seconds that a peek works before the dataflows have their turn."""


class _Build(DataflowBuild[TimedArrangement, DataflowInlet, RunningDataflow]):
    """Construction of a dataflow over arrangements. choose_engine: see `InProcessRuntime`."""

    def __init__(
        self,
        around: RuntimeContext[TimedArrangement],
        dataflow: Dataflow,
        feeds: Feeds,
        choose_engine: ChooseTicking | None,
    ) -> None:
        super().__init__(around, dataflow)
        self._feeds = feeds
        self._choose_engine = choose_engine

    def _feed(self, id: Id) -> CollectionFeed:
        return self._feeds.feed(id)

    def _import_collection(self, each: CollectionImport) -> DataflowInlet:
        return FromCollection(each.source, self._feeds.feed(each.id))

    def _import_index(self, each: IndexImport, index: TimedArrangement) -> DataflowInlet:
        return FromIndex(each.source, index, self.as_of)

    def _index(self, export: IndexExport, schema: Schema, key: Sequence[str]) -> ArrangementWriter:
        return ArrangementWriter(export.id, export.sink, TimedArrangement(schema, key, self.as_of))

    def _run(self, flow: Flow | None, exports: Sequence[ExportWriter]) -> RunningDataflow:
        dataflow, timer, watch = self.dataflow, self.around.timer, self.around.watch
        if flow is None:
            return RunningDataflow(
                dataflow, Flow(dataflow.name or "unbuilt"), (), exports, timer, watch, create_undivided_engine
            )
        make = None if self._choose_engine is None else self._choose_engine(dataflow, flow)
        if make is not None:
            return RunningDataflow(dataflow, flow, self.imports, exports, timer, watch, make)
        sharing = SharedArrangements(flow, self.imports)
        return RunningDataflow(dataflow, flow, self.imports, exports, timer, watch, sharing.engine, sharing)


class InProcessRuntime(RuntimeCore[TimedArrangement, RunningDataflow]):
    """Runtime on the in-process engine.

    collections: store that dataflows read and write; used by this thread only.
    folder:  folder for copies (`copies/`) and large results (`stash/`); by default a temporary one,
        created when needed.
    watched: whether `noticed` is called when collections may have changed; otherwise every step polls.
    clock:   milliseconds. timer: seconds, by which work is divided into slices.
    memory:  returns the process's memory in bytes, if it should be reported.
    choose_engine: chooses the engine for a dataflow's flow; if omitted, or for None, an engine whose joins
        read indexes in place.
    watch:   watch over the thread's work; by default one that interrupts nothing.
    """

    def __init__(
        self,
        config: InstanceConfig,
        wake: Callable[[], None],
        *,
        collections: Collections,
        folder: Path | None = None,
        copies: Path | None = None,
        clock: Callable[[], int] = wall_clock_milliseconds,
        timer: Callable[[], float] = time.perf_counter,
        plans: PlanDecoder | None = None,
        watched: bool = False,
        memory: Callable[[], int] | None = None,
        choose_engine: ChooseTicking | None = None,
        watch: WorkWatch | None = None,
    ) -> None:
        self._watch = watch or WorkWatch()
        self._temporary = Path(gettempdir()) / f"headrace-replica-{token_hex(8)}" if folder is None else None
        folder = folder or self._temporary
        assert folder is not None
        super().__init__(config, wake, folder, copies, plans or PlanDecoder(), clock, timer, self._watch)
        self._store = collections
        self._timer = timer
        self._feeds = Feeds(collections)
        self._peeks = self._sliced_peeks = InProcessPeeks(self._around, self._stash, self._feeds)
        self._choose_engine = choose_engine
        self._turns = DataflowScheduler(timer)
        self._watched = watched
        self._watcher: StoreWatcher | None = None
        self._gc: GcPolicy | None = None
        self._news = True
        self._introspection = Introspection(config.introspection, clock, memory)
        self._last_step = 0.0

    # -- commands -------------------------------------------------------------------------------

    def _build(self, dataflow: Dataflow) -> RunningDataflow:
        running = _Build(self._around, dataflow, self._feeds, self._choose_engine).build()
        self._turns.add(running)
        self._turns.moved = True
        return running

    def _advance_soon(self, running: RunningDataflow) -> None:
        self._turns.schedule_turn(running)

    def allow_compaction(self, id: Id, frontier: Frontier) -> None:
        super().allow_compaction(id, frontier)
        if frontier.ended:
            self._turns.moved = True
        elif id in self._indexes:
            self._turns.queue_compaction(self._indexes[id])

    def _end(self, running: RunningDataflow) -> None:
        self._turns.end_if_unused(running)
        if self._gc is not None and running.maintained_indexes:
            self._gc.schedule_collection()

    def cancel_peek(self, uuid: bytes) -> None:
        if self._peeks.cancel(uuid):
            # While a step works, nobody can cancel anything.
            self._introspection.record_cancellation(self._last_step)

    # -- work -----------------------------------------------------------------------------------

    def attach_watcher(self, watcher: StoreWatcher) -> None:
        """Take over a watcher whose thread calls `noticed`; closing the runtime stops it."""
        self._watcher = watcher

    def collect(self, policy: GcPolicy) -> None:
        """Apply a garbage-collection policy to the process, until the runtime is closed."""
        self._gc = policy

    def noticed(self) -> None:
        """Report that collections may have changed. Callable from any thread."""
        self._news = True
        self.wake()

    def frontiers_moved(self) -> bool:
        return self._turns.moved

    def step(self, seconds: float) -> bool:
        if self._watch.stopping:
            return False
        try:
            with self._watch.looking():
                return self._step(seconds)
        except WorkStopped:
            return False

    def _step(self, seconds: float) -> bool:
        began = self._timer()
        until = began + seconds
        self._stash.expire()
        if self._news or not self._watched:
            self._look()
        while True:
            worked = self._sliced_peeks.slice(PEEK_SLICE)
            worked |= self._turns.slice()
            worked |= self._turns.compact_slice()
            if self._gc is not None:
                self._gc.slice(worked)
            now = self._timer()
            if not worked or now > until:
                break
        self._last_step = now - began
        self._responses += self._introspection.look((r for r, _ in self._exports.values()), len(self._peeks))
        return worked

    def _look(self) -> None:
        self._feeds.forget_other_feeds(self._turns.collections | self._sliced_peeks.collections)
        self._news = False
        try:
            self._turns.schedule_readers(self._feeds.update_uppers())
        except StoreUnavailable:
            self._news = True

    def frontiers(self) -> Mapping[Id, ReachedFrontiers]:
        self._turns.moved = False
        return super().frontiers()

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.stop()
        if self._gc is not None:
            self._gc.close()
        self._peeks.drop_all()
        self._stash.close()
        self._store.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def broken_exports(self) -> Mapping[Id, bool]:
        if self._news or not self._watched:
            self._look()
        return super().broken_exports()
