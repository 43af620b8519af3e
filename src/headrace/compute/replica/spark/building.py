"""Construction of dataflows on Spark: their folders, and the indexes they read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headrace.atomic_files import subfolder_for
from headrace.compute.collections.opening import open_collections
from headrace.compute.collections.store import Collections
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.dataflow import (
    CollectionExport,
    CollectionImport,
    Dataflow,
    Id,
    IndexExport,
    IndexImport,
)
from headrace.compute.replica.building import DataflowBuild, RuntimeContext
from headrace.compute.replica.collection_writer import CollectionWriter
from headrace.compute.replica.exports import ExportWriter, Failed, IndexWriter
from headrace.compute.replica.feeds import Feed, Feeds
from headrace.compute.replica.in_process.arrangement import Keying
from headrace.compute.replica.spark.dataflow import SparkDataflow
from headrace.compute.replica.spark.inputs import FromCollection, FromVersions, Import, Inputs
from headrace.compute.replica.spark.state import (
    LastTickChanges,
    PassthroughState,
    StoredState,
    passthrough_sources,
)
from headrace.compute.replica.spark.versions import VersionHold, Versions
from headrace.expr.types import Schema
from headrace.flow.flow import Flow

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
    def failed(self) -> Failed | None:
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


class SparkBuild(DataflowBuild[SparkIndex, Import, SparkDataflow]):
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

    def _feed(self, id: Id) -> Feed:
        return self._own_store.feeds.feed(id)

    def _import_collection(self, each: CollectionImport) -> Import:
        return FromCollection(each.source, self._schema(each.id), each.id)

    def _import_index(self, each: IndexImport, index: SparkIndex) -> Import:
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
