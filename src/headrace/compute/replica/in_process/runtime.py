"""In-process runtime: all dataflows and peeks of a replica on one thread, a slice at a time.

A peek by key at a settled time is answered at once. All others take turns of a few milliseconds once their
times are settled.
"""

from __future__ import annotations

import gc
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from tempfile import gettempdir

from headrace.compute.collections.store import Collections
from headrace.compute.errors import StoreUnavailable
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.commands import (
    CollectionImport,
    Dataflow,
    Finishing,
    Id,
    IndexExport,
    IndexImport,
    InstanceConfig,
    Peek,
)
from headrace.compute.protocol.responses import Counted, PeekResponse, RowsResponse, Status
from headrace.compute.protocol.row_batch import rows_size
from headrace.compute.replica.building import (
    DataflowBuild,
    PlanDecoder,
    RuntimeContext,
    check_keys,
    check_since,
)
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
from headrace.compute.replica.in_process.ticking import ChooseTicking, create_undivided_engine
from headrace.compute.replica.peeks import (
    AcceptedPeek,
    PeekRun,
    PeekStash,
    PendingPeeks,
    check_not_failed,
    check_size,
    check_work,
    collection_parts,
    filter_rows,
)
from headrace.compute.replica.runtime import ReachedFrontiers
from headrace.compute.replica.runtime_core import RuntimeCore, wall_clock_milliseconds
from headrace.compute.replica.work_watch import PieceLimits, WorkStopped, WorkWatch
from headrace.expr.types import Schema
from headrace.flow.flow import Flow

AT_ONCE = 64
"""Maximum number of keys for a peek to be answered at once."""
KEYS = 64
"""Number of keys looked up at a time."""
_PLAIN = Finishing()
_NO_MORE = object()
_PIECE = PieceLimits("a part of a peek", seconds=2.0, memory=1 << 30)


@dataclass(slots=True, eq=False)
class _Pending(AcceptedPeek):
    """Pending peek. slices: the remaining work, once the peek's time is settled. worked: seconds so far."""

    target: TimedArrangement | CollectionFeed = None  # type: ignore[assignment]
    run: PeekRun | None = None
    slices: Iterator[None] | None = None
    worked: float = 0.0

    def settled(self) -> bool:
        target, time = self.target, self.peek.time
        lost = isinstance(target, CollectionFeed) and target.lost is not None
        return (
            lost
            or target.upper.has_passed(time)
            or (target.failed is not None and time >= target.failed.time)
        )

    def release(self) -> None:
        if self.run is not None:
            self.run.cancel()
        AcceptedPeek.release(self)


class InProcessPeeks(PendingPeeks[TimedArrangement, _Pending]):
    """Peeks at arrangements and at the feeds of collections."""

    def __init__(self, around: RuntimeContext[TimedArrangement], stash: PeekStash, feeds: Feeds) -> None:
        super().__init__(around, stash)
        self._feeds = feeds
        self._ready: deque[_Pending] = deque()
        self._waiting: dict[Id, list[_Pending]] = {}

    def drop_all(self) -> None:
        super().drop_all()
        self._ready.clear()
        self._waiting.clear()

    def slice(self, seconds: float) -> bool:
        """Work on one peek for about `seconds`. Returns whether there was work."""
        self._wake()
        while self._ready:
            pending = self._ready.popleft()
            if self._pending.get(pending.peek.uuid) is pending:
                self._work(pending, self._around.timer(), seconds)
                return True
        return False

    @property
    def collections(self) -> set[Id]:
        """Collections that pending peeks wait for."""
        return {p.peek.target.id for p in self._pending.values() if isinstance(p.target, CollectionFeed)}

    def _ask_index(self, peek: Peek, index: TimedArrangement) -> None:
        if index.upper.has_passed(peek.time) and peek.keys is not None and len(peek.keys) <= AT_ONCE:
            rows = self._read_now(peek, index)
            if rows is not None:
                self._around.respond(PeekResponse(peek.uuid, rows))
                return
        self._put_off(_Pending(peek, index.hold(peek.time), target=index))

    def _ask_collection(self, peek: Peek) -> None:
        feed = self._feeds.feed(peek.target.id)
        check_since(peek.target.id, peek.time, feed.since)
        check_keys(peek, len(feed.schema.fields))
        self._put_off(_Pending(peek, None, target=feed))

    def _put_off(self, pending: _Pending) -> None:
        peek = pending.peek
        self._pending[peek.uuid] = pending
        if not self._woken(pending):
            self._waiting.setdefault(peek.target.id, []).append(pending)

    def _read_now(self, peek: Peek, index: TimedArrangement) -> RowsResponse | None:
        """Answer a peek at once, unless that may take long or the result must be stashed."""
        assert peek.keys is not None
        rows: list[Counted] = []
        of_values = index.keying.of_values
        if len(peek.keys) == 1:
            rows += index.rows_at(of_values(peek.keys[0]), peek.time)
        else:
            for key in dict.fromkeys(map(of_values, peek.keys)):
                rows += index.rows_at(key, peek.time)
        if peek.finishing != _PLAIN or peek.predicate is not None or len(rows) > 1000:
            return None
        rows = list(filter_rows(None, rows))
        settings = self._around.settings()
        if settings.max_result_size is not None or settings.peek_stash_size is not None:
            size = rows_size(rows)
            check_size(size, settings)
            if settings.peek_stash_size is not None and size > settings.peek_stash_size:
                return None
        return RowsResponse(tuple(rows))

    def _wake(self) -> None:
        """Mark peeks at times that are now settled as ready."""
        for id, waiting in list(self._waiting.items()):
            still = [p for p in waiting if p.peek.uuid in self._pending and not self._woken(p)]
            if still:
                self._waiting[id] = still
            else:
                del self._waiting[id]

    def _woken(self, pending: _Pending) -> bool:
        if not pending.settled():
            return False
        pending.waiting = False
        self._ready.append(pending)
        return True

    def _work(self, pending: _Pending, began: float, seconds: float) -> None:
        try:
            run = pending.run = pending.run or self._begin(pending)
            slices = pending.slices = pending.slices or run.slices()
            while self._next(slices):
                now = self._around.timer()
                check_work(pending.worked + now - began)
                if now > began + seconds:
                    pending.worked += now - began
                    self._ready.append(pending)
                    return
        except Exception as error:
            # The peek only reads: what it took is given back, and everything else is as it was.
            self._around.watch.end()
            self._end(pending, error)
            return
        assert run.answer is not None
        self._end(pending, run.answer)

    def _next(self, slices: Iterator[None]) -> bool:
        """Do the next piece of work under the watchdog. Returns whether there was one."""
        watch = self._around.watch
        try:
            watch.begin(_PIECE)
            return next(slices, _NO_MORE) is None
        finally:
            watch.end()

    def _begin(self, pending: _Pending) -> PeekRun:
        peek, target = pending.peek, pending.target
        check_not_failed(target.failed, peek.time)
        parts = (
            index_parts(target, peek)
            if isinstance(target, TimedArrangement)
            else collection_parts(target.store, peek)
        )
        return self._run(peek, target.schema, parts)


def index_parts(index: TimedArrangement, peek: Peek) -> Iterator[Iterable[Counted]]:
    """Yield an index's candidate rows for a peek: rows with its keys, or all. Holds the index meanwhile."""
    if peek.keys is None:
        yield from index.scan(peek.time)
        return
    keys = list(dict.fromkeys(map(index.keying.of_values, peek.keys)))
    for at in range(0, len(keys), KEYS):
        for key in keys[at : at + KEYS]:
            yield index.rows_at(key, peek.time)


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
