"""Dataflow in this process: an engine, its inputs, and its exports.

A dataflow first hydrates: the engine processes a snapshot of the inputs at the as-of. Then it processes the
inputs' changes, one time after another. Rows are fed in ticks of bounded size, a few milliseconds each; for
servable flows the engine guarantees that the division into ticks does not matter. The upper advances only
after the last tick of a time, so no reader sees a partial time. Times without changes cost nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from headrace.compute.errors import StoreUnavailable
from headrace.compute.frontier import Frontier, meet
from headrace.compute.protocol.commands import Dataflow, Id
from headrace.compute.protocol.responses import Counted
from headrace.compute.replica.durable_exports import CollectionWriter
from headrace.compute.replica.exports import ExportWriter, FailedExport, IndexWriter
from headrace.compute.replica.feeds import DataflowRun
from headrace.compute.replica.in_process.arrangement import TimedArrangement
from headrace.compute.replica.in_process.inlets import (
    NOTHING_SHARED,
    DataflowInlet,
    FromCollection,
    FromIndex,
    SharedArrangements,
)
from headrace.compute.replica.in_process.ticking import MOST, MakeTickExecutor, Ticking
from headrace.compute.replica.work_watch import PieceLimits, WorkWatch, name_of
from headrace.errors import WorkLimitExceeded
from headrace.expr.typing_rules import CodeBounds, bounded_code
from headrace.flow.flow import Flow

_MEASURED = 4096
"""Least number of rows in and out between two estimates of the state's size, some 0.1 ms per operator."""
SLICE = 0.004
"""Seconds that a dataflow works before others get their turn."""


class ArrangementWriter(IndexWriter):
    """Export to an arrangement."""

    index: TimedArrangement

    def __init__(self, id: Id, sink: str, index: TimedArrangement) -> None:
        super().__init__(id, sink, index)
        self.add = index.add  # called for all that happens

    def advance(self, upper: Frontier) -> None:
        self.index.advance(upper)

    def fail(self, failed: FailedExport) -> None:
        self.index.fail(failed)

    def clear(self) -> None:
        self.index.clear()


class RunningDataflow(DataflowRun):
    """Dataflow on the in-process engine. alive: whether it has not been closed yet."""

    def __init__(
        self,
        dataflow: Dataflow,
        flow: Flow,
        inlets: Sequence[DataflowInlet],
        exports: Sequence[ExportWriter],
        timer: Callable[[], float],
        watch: WorkWatch,
        make_engine: MakeTickExecutor,
        sharing: SharedArrangements = NOTHING_SHARED,
    ) -> None:
        super().__init__(dataflow, exports, timer)
        self.alive = True
        self._flow = flow
        self._inlets = tuple(inlets)
        self._make_engine = make_engine
        self._sharing = sharing
        self._ticking: Ticking | None = None
        self._slices: Iterator[None] | None = None
        self._watch = watch
        limits = dataflow.limits
        self._piece = PieceLimits("a tick", limits.tick_seconds, limits.state_bytes, name_of(dataflow))
        self._rows = 0
        self._measured_at = float(_MEASURED)

    @property
    def retry_at(self) -> float:
        """Time of the next retry."""
        return max(self._retry_at, *(export.retry_at for export in self.exports))

    @property
    def used_collections(self) -> tuple[Id, ...]:
        """Collections that the dataflow reads or writes, each once."""
        written = (e.feed.id for e in self.exports if isinstance(e, CollectionWriter))
        read = (i.feed.id for i in self._inlets if isinstance(i, FromCollection))
        return tuple(dict.fromkeys((*written, *read)))

    @property
    def indexes_read(self) -> list[TimedArrangement]:
        """Indexes that the dataflow reads."""
        return [inlet.index for inlet in self._inlets if isinstance(inlet, FromIndex)]

    @property
    def maintained_indexes(self) -> list[TimedArrangement]:
        """Indexes that the dataflow maintains."""
        return [export.index for export in self.exports if isinstance(export, ArrangementWriter)]

    @property
    def broken(self) -> bool:
        """Return whether the dataflow has failed or will fail, although a rebuilt one may succeed."""
        return self.fell_behind or super().broken

    @property
    def fell_behind(self) -> bool:
        gone = not self.ended and any(inlet.is_compacted(self.as_of) for inlet in self._inlets)
        return gone or super().fell_behind

    def slice(self) -> bool:
        """Work for a few milliseconds. Returns whether there was work."""
        worked = False
        for export in self.exports:
            worked |= export.work()
        if self._slices is None:
            self._slices = self._next_slices()
        if self._slices is None:
            return worked
        try:
            next(self._slices)
        except StopIteration:
            self._slices = None
        except StoreUnavailable:
            self._start_again()
        except MemoryError:
            raise
        except Exception as error:
            self._watch.end()  # even if it was interrupted at the very end of the tick
            self._slices = None
            self.fail(error)
        if self.failed is None:
            for inlet in self._inlets:
                inlet.release_before(self.upper)
        for export in self.exports:
            export.flush()
        return True

    def close(self) -> None:
        """Release inputs and exports."""
        self.alive = False
        self._end()

    def _end(self) -> None:
        self.ended = True
        self._slices = self._ticking = None
        for inlet in self._inlets:
            inlet.close()

    def _start_again(self) -> None:
        self._slices = None
        self._retry_later()
        if not self.hydrated:
            self._ticking = None
            for export in self.exports:
                export.clear()

    def _next_slices(self) -> Iterator[None] | None:
        if not self.started or self.ended or self._timer() < self._retry_at:
            return None
        failure = self._failed_input()
        if not self.hydrated:
            if failure is not None and failure.time <= self.as_of:
                return self._passing_on(failure)
            return self._hydrate() if all(inlet.ready(self.as_of) for inlet in self._inlets) else None
        if failure is not None and self.upper >= Frontier(failure.time):
            return self._passing_on(failure)
        return self._follow() if self._has_news() else None

    def _failed_input(self) -> FailedExport | None:
        failures = [inlet.failed for inlet in self._inlets if inlet.failed is not None]
        return min(failures, key=lambda failure: failure.time, default=None)

    def _passing_on(self, failure: FailedExport) -> Iterator[None]:
        self._pass_on(failure)
        yield

    def _has_news(self) -> bool:
        return self.upper < self._bound() or self._behind() is not None

    def _behind(self) -> DataflowInlet | None:
        """Return the slowest input, which holds up the others, if it can be read now."""
        slowest = min(self._inlets, key=lambda inlet: inlet.known_frontier, default=None)
        return slowest if slowest is not None and slowest.known_frontier < slowest.upper else None

    def _bound(self) -> Frontier:
        """Return the frontier up to which the dataflow can be computed from its known input."""
        bound = min(meet(inlet.known_frontier for inlet in self._inlets), self.dataflow.until)
        failure = self._failed_input()
        return bound if failure is None else min(bound, Frontier(failure.time))

    def _hydrate(self) -> Iterator[None]:
        limits = self.dataflow.limits
        with bounded_code(CodeBounds(limits.tick_rows, limits.rounds)):
            engine = self._make_engine(self.dataflow, self._flow)
        wanted = frozenset(export.sink for export in self.exports)
        self._ticking = ticking = Ticking(engine, self._flow, self._timer, wanted)
        began = False
        for inlet in self._inlets:
            rows = inlet.snapshot(self.as_of)
            if self.skips_snapshot or inlet.source in self._sharing.filled:
                continue
            for part in rows:
                for changes in ticking.split(inlet.source, part):
                    self._tick({inlet.source: changes}, self.as_of)
                    began = True
                    yield
        if not began:
            self._tick({}, self.as_of)
        self.hydrated = True
        self._advance(Frontier(self.as_of + 1))
        if all(export.once for export in self.exports):
            self._end()

    def _follow(self) -> Iterator[None]:
        until = self._timer() + SLICE
        while True:
            bound = self._bound()
            time = min((t for t in (i.next_time for i in self._inlets) if t is not None), default=None)
            if time is not None and bound.has_passed(time):
                yield from self._compute(time)
            else:
                behind = self._behind()
                if behind is None:
                    break
                behind.read()
            if self._timer() > until:
                yield
                until = self._timer() + SLICE
        if self.upper < bound:
            self._advance(bound)
        if self.upper >= self.dataflow.until or self.upper.ended:
            self._finish()

    def _compute(self, time: int) -> Iterator[None]:
        # Where it fails, it is at this time, and not at an earlier one at which nothing happened.
        self._advance(Frontier(time))
        inputs = {i.source: i.take().changes for i in self._inlets if i.next_time == time}
        assert self._ticking is not None
        if self._ticking.is_small(inputs):
            self._tick(inputs, time)
        else:
            for source, changes in inputs.items():
                for part in self._ticking.split(source, changes):
                    self._tick({source: part}, time)
                    yield
        self._advance(Frontier(time + 1))

    def _advance(self, upper: Frontier) -> None:
        self.upper = upper
        if self.hydrated:
            self._watch.deaths.forget_before(self._piece.dataflow, upper)
        self._sharing.advance(upper)
        for export in self.exports:
            export.advance(upper)

    def _tick(self, inputs: dict[str, Sequence[Counted]], time: int) -> None:
        """Run a tick under the watchdog, and add its changes to the exports."""
        assert self._ticking is not None
        try:
            self._watch.begin(self._piece, time)
            made = self._ticking.tick(inputs)
            for export in self.exports:
                rows = made.get(export.sink, ())
                for at in range(0, len(rows), MOST):
                    # Half a merge would leave an export that cannot be read.
                    with self._watch.finishing():
                        export.add(rows[at : at + MOST], time)
            self._measure(sum(map(len, inputs.values())) + sum(map(len, made.values())))
        finally:
            self._watch.end()

    def _measure(self, rows: int) -> None:
        """Raise `WorkLimitExceeded` if the state, estimated occasionally, exceeds its limit."""
        self._rows += rows
        if self._rows < self._measured_at:
            return
        self._measured_at = self._rows * 1.02 + _MEASURED
        limit = self.dataflow.limits.state_bytes
        assert self._ticking is not None
        size = self._ticking.engine.state_bytes() + sum(
            index.estimated_bytes() for index in self.maintained_indexes
        )
        if size > limit:
            raise WorkLimitExceeded(
                f"the state takes about {size / 1e6:,.0f} MB, and {limit / 1e6:,.0f} MB is the limit",
                fix="keep fewer rows, or give the view higher limits",
                reached=size,
                limit=limit,
            )


# A dataflow has work when it is started, when a collection that it reads or writes has advanced, and when an
# index that it reads has advanced. Idle dataflows cost nothing.


class DataflowScheduler:
    """Dataflows of a replica, with their dependencies. timer: seconds.

    moved: whether any dataflow has advanced since this was set to False.

    Dataflows that wait for the same input get their turns in order of creation, so equal commands give equal
    schedules; a set would order them by address.
    """

    def __init__(self, timer: Callable[[], float]) -> None:
        self.moved = True
        self._timer = timer
        self._turns: deque[RunningDataflow] = deque()
        self._has_turn: set[RunningDataflow] = set()
        self._later: list[RunningDataflow] = []
        self._readers: dict[Id, dict[RunningDataflow, None]] = {}
        self._index_readers: dict[TimedArrangement, dict[RunningDataflow, None]] = {}
        self._dying: list[RunningDataflow] = []
        self._untidy: dict[TimedArrangement, None] = {}
        self._graves: list[TimedArrangement] = []

    def add(self, running: RunningDataflow) -> None:
        """Add a dataflow without scheduling it yet."""
        for id in running.used_collections:
            self._readers.setdefault(id, {})[running] = None
        for index in running.indexes_read:
            self._index_readers.setdefault(index, {})[running] = None

    def schedule_turn(self, running: RunningDataflow) -> None:
        """Schedule a turn for a dataflow that may have work."""
        if running.alive and running not in self._has_turn:
            self._has_turn.add(running)
            self._turns.append(running)

    def schedule_readers(self, collections: Iterable[Id]) -> None:
        """Schedule the readers of collections whose uppers have risen."""
        for id in collections:
            self.moved = True  # it may be a written one, whose frontier is reported
            for running in self._readers.get(id, ()):
                self.schedule_turn(running)

    @property
    def collections(self) -> set[Id]:
        """Collections that dataflows read or write."""
        return set(self._readers)

    def slice(self) -> bool:
        """Let the next dataflow work for a few milliseconds. Returns whether there was one."""
        if self._later:
            self._try_again()
        if not self._turns:
            return False
        running = self._turns.popleft()
        self._has_turn.discard(running)
        if not running.alive:
            return True
        upper, now = running.upper, self._timer()
        if running.slice():
            self.moved = True
            self.schedule_turn(running)
        elif running.retry_at > now:
            self._later.append(running)
        if running.upper != upper:
            self._has_come_farther(running)
        return True

    def queue_compaction(self, index: TimedArrangement) -> None:
        """Queue an index for compaction."""
        self._untidy[index] = None

    def compact_slice(self) -> bool:
        """Compact some of the queued indexes. Returns whether there may be more."""
        if self._dying:
            dying, self._dying = self._dying, []
            for running in dying:
                self.end_if_unused(running)
        if self._graves:
            if not self._graves[-1].free_memory():
                self._graves.pop()
            return True
        if self._untidy:
            index = next(iter(self._untidy))
            del self._untidy[index]
            if index.compact():
                self._untidy[index] = None
                return True
            return bool(self._untidy)
        return False

    def end_if_unused(self, running: RunningDataflow) -> None:
        """End a dataflow with no exports or readers left, and likewise its inputs."""
        if not running.alive:
            return
        if any(index.held for index in running.maintained_indexes):
            self._dying.append(running)
            return
        running.close()
        for id in running.used_collections:
            self._readers[id].pop(running, None)
            if not self._readers[id]:
                del self._readers[id]
        for index in running.indexes_read:
            readers = self._index_readers.get(index)
            if readers is not None:  # else it was gone before: this one was done with it
                readers.pop(running, None)
                self.queue_compaction(index)
        for index in running.maintained_indexes:
            self._index_readers.pop(index, None)
            self._untidy.pop(index, None)
            self._graves.append(index)

    def _has_come_farther(self, running: RunningDataflow) -> None:
        for index in running.maintained_indexes:
            for reader in self._index_readers.get(index, ()):
                self.schedule_turn(reader)
            self.queue_compaction(index)
        for index in running.indexes_read:
            self.queue_compaction(index)

    def _try_again(self) -> None:
        now = self._timer()
        due = [running for running in self._later if running.retry_at <= now]
        if due:
            self._later = [running for running in self._later if running.retry_at > now]
            for running in due:
                self.schedule_turn(running)
