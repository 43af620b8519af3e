"""Dataflow on Spark: consumes its inputs in ticks, each covering several times.

Times are distinguished within a tick, so peeks are correct at any time. After a kill, the next process
resumes from the last commit, and no tick is applied twice. Used by one thread at a time; state that other
threads read changes atomically.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headrace.compute.collections.opening import open_collections
from headrace.compute.collections.store import Collections
from headrace.compute.errors import StoreUnavailable
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.commands import (
    CollectionExport,
    CollectionImport,
    Dataflow,
    Id,
    IndexExport,
    IndexImport,
)
from headrace.compute.replica.building import DataflowBuild, RuntimeContext
from headrace.compute.replica.durable_exports import CollectionWriter
from headrace.compute.replica.exports import ExportWriter, FailedExport, IndexWriter
from headrace.compute.replica.feeds import CollectionFeed, DataflowRun, Feeds
from headrace.compute.replica.in_process.arrangement import Keying
from headrace.compute.replica.spark.inputs import (
    FromVersions,
    Inputs,
    SparkCollectionInput,
    SparkImport,
    VersionHold,
    Versions,
    group_by_time,
)
from headrace.compute.replica.spark.state import (
    LastTickChanges,
    PassthroughState,
    StoredState,
    passthrough_sources,
)
from headrace.errors import SparkProcessDied
from headrace.expr.types import Schema
from headrace.file_system import subfolder_for
from headrace.flow.flow import Flow
from headrace.spark.external_ticks import Session, TimedRows

MAX_TIMES = 4096
"""Limit on the times of one tick."""
_ATTEMPTS = 3
"""Number of times that Spark processes may die within one tick."""


class SparkDataflow(DataflowRun):
    """Dataflow that runs on Spark, tick by tick.

    folder:   the dataflow's own folder.
    versions: history of each sink, from which indexes are read and other exports get their changes.
    state:    None if the dataflow could not be built, and is about to fail.
    close_store: called when the dataflow is closed.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        folder: Path,
        inputs: Inputs,
        versions: Mapping[str, Versions],
        exports: Sequence[ExportWriter],
        state: StoredState | None,
        timer: Callable[[], float],
        close_store: Callable[[], None],
    ) -> None:
        super().__init__(dataflow, exports, timer)
        self.folder = folder
        self.versions = versions
        self._inputs = inputs
        self._state = state
        self._close_store = close_store
        self._written_upper: Frontier | None = None
        self._most_times = MAX_TIMES
        self._times = 0
        self._deaths = 0

    @property
    def _written(self) -> list[ExportWriter]:
        """Exports that receive changes, unlike indexes."""
        return [export for export in self.exports if not isinstance(export, IndexWriter)]

    @property
    def versions_wanted(self) -> bool:
        """Return whether readers may still need versions of the sinks."""
        return any(not versions.earliest_hold.ended for versions in self.versions.values())

    def reads(self, other: SparkDataflow) -> bool:
        """Return whether this dataflow reads an export of another."""
        made = list(other.versions.values())
        return any(isinstance(one, FromVersions) and one.versions in made for one in self._inputs.imports)

    def advance(self, store: Collections, spark: Session) -> bool:
        """Compute a tick. Returns whether there may be more to do at once.

        Raises `SparkProcessDied` if Spark itself has died, after which nothing can continue.
        """
        if not self.started or self.ended or self._state is None or self._timer() < self._retry_at:
            return False
        try:
            more = self._advance(self._state, store, spark)
            self._deaths = 0
            return more
        except StoreUnavailable:
            self._retry_later()
            return False
        except SparkProcessDied as error:
            self._state.close()
            self._deaths += 1
            if error.facts.get("process") in ("jvm", "context"):
                raise
            if self._deaths < _ATTEMPTS:
                return True
            self.fail(error)
            return False
        except MemoryError:
            raise
        except Exception as error:
            self._state.close()
            return self._narrow(error)

    def _advance(self, state: StoredState, store: Collections, spark: Session) -> bool:
        failure = self._inputs.failed
        if not self.hydrated:
            if failure is not None and failure.time <= self.as_of:
                self._pass_on(failure)
                return False
            if not self._inputs.ready(store, self.as_of):
                return False
        if not state.is_open:
            if not state.open(store, spark):
                return False
            if state.upper is not None:
                self.hydrated = True
                self._settle(max(state.upper, self.upper))
        if not self.hydrated:
            given: Iterable[TimedRows] = ()
            if not self.skips_snapshot:
                given = self._inputs.snapshot(store, self.as_of, state.append)
            self._run(state, spark, given, [self.as_of], Frontier(self.as_of + 1))
            self.hydrated = True
            written = self._written
            if written and not self.versions_wanted and all(export.once for export in written):
                self._end()
            return True
        return self._follow(state, store, spark, failure)

    def _follow(
        self, state: StoredState, store: Collections, spark: Session, failure: FailedExport | None
    ) -> bool:
        bound = self._bound(store, failure)
        if self.upper < bound:
            assert self.upper.time is not None
            bound, news = self._inputs.read_new_changes(store, self.upper.time, bound, self._most_times)
            if news:
                times = sorted({version.time for version in news})
                # Where it fails, it is at the first of these times, and not before.
                self._settle(Frontier(times[0]))
                self._inputs.record_consumed(news)
                self._run(state, spark, self._inputs.rows_of_tick(news, times, state.append), times, bound)
                self._most_times = min(MAX_TIMES, self._most_times * 2)
            else:
                self._settle(bound)
        if self.upper >= self.dataflow.until or self.upper.ended:
            self._finish()
            return False
        if failure is not None and self.upper >= Frontier(failure.time):
            self._pass_on(failure)
            return False
        return self.upper < self._bound(store, failure)

    def _bound(self, store: Collections, failure: FailedExport | None) -> Frontier:
        bound = min(self._inputs.earliest_upper(store), self.dataflow.until)
        return bound if failure is None else min(bound, Frontier(failure.time))

    def _run(
        self,
        state: StoredState,
        spark: Session,
        given: Iterable[TimedRows],
        times: Sequence[int],
        upper: Frontier,
    ) -> None:
        self._times = len(times)
        state.run(spark, given, times, upper)
        self._times = 0
        self._settle(upper)

    def _settle(self, upper: Frontier) -> None:
        """Record that everything before `upper` has been computed and stored."""
        self._write(upper)
        for versions in self.versions.values():
            versions.upper = upper
        self._inputs.release_before(upper)
        self.upper = upper

    def _write(self, upper: Frontier) -> None:
        begin, self._written_upper = self._written_upper, upper
        with self.exporting:
            for export in self._written:
                versions = self.versions[export.sink]
                if begin is None:
                    export.add(versions.scan(self.as_of), self.as_of)
                    export.advance(Frontier(self.as_of + 1))
                first = self.as_of + 1 if begin is None or begin.time is None else begin.time
                for version in group_by_time(export.sink, versions.changes(first, upper)):
                    export.add(version.changes, version.time)
                    export.advance(Frontier(version.time + 1))
                if Frontier(first) < upper:
                    export.advance(upper)

    def work_exports(self) -> bool:
        """Do a slice of the exports' own work, also after the end. Returns whether there is more.

        Raises what the store raises.
        """
        more = False
        with self.exporting:
            for export in self._written:
                if isinstance(export, CollectionWriter):
                    export.feed.refresh()
                export.flush()
                more |= export.work()
        return more

    def drop(self, export: ExportWriter) -> None:
        super().drop(export)
        with self.exporting:
            self.exports.remove(export)

    def _narrow(self, error: Exception) -> bool:
        """Retry a failed tick with fewer times, to find the failing one; return whether to continue."""
        times, self._times = self._times, 0
        if times > 1:
            self._most_times = max(1, times // 4)
            return True
        self.fail(error)
        return False

    def _fail_store(self, failure: FailedExport) -> None:
        for versions in self.versions.values():
            versions.fail(failure)

    def _end(self) -> None:
        self.ended = True
        self._inputs.close()
        if self._state is not None:
            self._state.close()

    def close(self, *, remove: bool) -> None:
        """End the dataflow. remove: whether to delete its folder."""
        self._end()
        if remove and self._state is not None:
            self._state.remove()
        self._close_store()


FORM = 1
"""Format version of a dataflow's folder."""


@dataclass(slots=True)
class SparkIndex:
    """Index stored in files. key: positions of its key columns. own: the controller's hold."""

    schema: Schema
    versions: Versions
    keying: Keying
    key: tuple[int, ...]
    since: Frontier
    own: VersionHold

    @property
    def key_width(self) -> int:
        """Number of key columns."""
        return self.keying.width

    @property
    def upper(self) -> Frontier:
        """Frontier before which all times are settled."""
        return self.versions.upper

    @property
    def failed(self) -> FailedExport | None:
        """Failure that replaces the contents from a time on, if any."""
        return self.versions.failed

    def hold(self, time: int) -> VersionHold:
        """Keep the index readable from `time` on."""
        return self.versions.hold(time)

    def allow_compaction(self, since: Frontier) -> None:
        """Merge times before `since`, unless a reader holds them."""
        self.since = max(self.since, since)
        move_hold(self.own, self.since)


class ResumableCollectionWriter(CollectionWriter):
    """Export to a collection that a later process resumes from the last compaction."""

    hold: VersionHold | None = None

    def allow_compaction(self, since: Frontier) -> None:
        if self.hold is not None:
            move_hold(self.hold, since)


def move_hold(hold: VersionHold, since: Frontier) -> None:
    """Move a hold to `since`."""
    if since.time is None:
        hold.release()
    else:
        hold.move(since.time)


class LazyStore:
    """Connection to the collections, opened at first use."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._opened = False

    @cached_property
    def feeds(self) -> Feeds:
        self._opened = True
        return Feeds(self._store)

    @cached_property
    def _store(self) -> Collections:
        return open_collections(self._uri)

    def close(self) -> None:
        if self._opened:
            self._store.close()


class SparkBuild(DataflowBuild[SparkIndex, SparkImport, SparkDataflow]):
    """Construction of a dataflow on Spark.

    folder: parent of the dataflows' folders. store: connection for the replica's thread.
    """

    def __init__(
        self, around: RuntimeContext[SparkIndex], dataflow: Dataflow, uri: str, folder: Path, store: LazyStore
    ) -> None:
        super().__init__(around, dataflow)
        # Its exports work in other threads.
        self._own_store = LazyStore(uri)
        self._uri = uri
        self._store = store
        self._folder = subfolder_for(folder, "+".join(sorted(dataflow.export_ids)))
        self._versions: dict[str, Versions] = {}

    def _schema(self, id: Id) -> Schema:
        # Not of a feed that is kept: another collection of this id may be there by now.
        self._store.feeds.forget_other_feeds(set())
        return self._store.feeds.feed(id).schema

    def _feed(self, id: Id) -> CollectionFeed:
        return self._own_store.feeds.feed(id)

    def _import_collection(self, each: CollectionImport) -> SparkImport:
        return SparkCollectionInput(each.source, self._schema(each.id), each.id)

    def _import_index(self, each: IndexImport, index: SparkIndex) -> SparkImport:
        return FromVersions(each.source, index.schema, index.versions, self.as_of)

    def _discard(self) -> None:
        super()._discard()
        self._versions.clear()

    def _versions_of(self, sink: str, key: tuple[int, ...] = ()) -> Versions:
        if sink not in self._versions:
            self._versions[sink] = Versions(subfolder_for(self._folder / "sinks", sink), key, self.as_of)
        return self._versions[sink]

    def _index(self, export: IndexExport, schema: Schema, key: Sequence[str]) -> IndexWriter:
        positions = tuple(schema.names.index(name) for name in key)
        versions = self._versions_of(export.sink, positions)
        hold = versions.hold(self.as_of)
        index = SparkIndex(schema, versions, Keying(schema, key), positions, self.dataflow.as_of, hold)
        return IndexWriter(export.id, export.sink, index)

    def _collection(self, export: CollectionExport) -> CollectionWriter:
        around = self.around
        return ResumableCollectionWriter(
            export.id,
            export.sink,
            self._feed(export.collection),
            self.as_of,
            timer=around.timer,
            report=around.report,
        )

    def _run(self, flow: Flow | None, exports: Sequence[ExportWriter]) -> SparkDataflow:
        inputs = Inputs(self.imports)
        for export in exports:
            # Last, as the first index of a sink decides by which key its versions are filed.
            made = self._versions_of(export.sink)
            if isinstance(export, ResumableCollectionWriter):
                export.hold = made.hold(self.as_of)
        versions, state = self._versions, None
        if flow is not None:
            kept = any(isinstance(export, IndexWriter | CollectionWriter) for export in exports)
            sources = None if kept else passthrough_sources(flow)
            if sources is not None:
                passed = {sink: LastTickChanges(self.as_of) for sink in versions}
                versions, state = passed, PassthroughState(flow, inputs, passed, sources, self.as_of)
            else:
                limits = self.dataflow.limits
                state = StoredState(
                    self._folder, self._identity(), flow, inputs, versions, self.as_of, limits
                )
        timer = self.around.timer
        close = self._own_store.close
        return SparkDataflow(self.dataflow, self._folder, inputs, versions, exports, state, timer, close)

    def _identity(self) -> dict[str, Any]:
        dataflow = self.dataflow
        return {
            "form": FORM,
            "plan": dataflow.plan.hash,
            "store": self._uri,
            "collections": [[i.source, i.id] for i in dataflow.collections],
            "indexes": [[i.source, i.id] for i in dataflow.indexes],
            "exports": [repr(export) for export in dataflow.exports],
            "until": dataflow.until.time,
        }
