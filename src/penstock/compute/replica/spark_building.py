"""From the description of a dataflow to one that can run on Spark: what it reads, keeps, and tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.compute.collections.opening import open_collections
from penstock.compute.collections.store import Collections
from penstock.compute.errors import BadPlan, UnknownName
from penstock.compute.frontier import Frontier
from penstock.compute.plans import sources_of
from penstock.compute.protocol.commands import InstanceConfig, Parameters
from penstock.compute.protocol.dataflow import (
    CollectionExport,
    CopyToExport,
    Dataflow,
    Id,
    IndexExport,
    SubscribeExport,
)
from penstock.compute.protocol.responses import Status
from penstock.compute.replica.copies import CopyOutlet
from penstock.compute.replica.export_writer import ExportWriter
from penstock.compute.replica.feeds import Feeds
from penstock.compute.replica.peek_run import below_since
from penstock.compute.replica.plans import Plans
from penstock.compute.replica.request_checks import exported
from penstock.compute.replica.runtime import Answer
from penstock.compute.replica.spark_dataflow import SparkDataflow
from penstock.compute.replica.spark_imports import FromCollection, FromVersions, Import
from penstock.compute.replica.spark_inputs import Inputs
from penstock.compute.replica.spark_passthrough import PassedOn, PassthroughState, passed_on
from penstock.compute.replica.spark_state import State
from penstock.compute.replica.spark_versions import Hold, Versions
from penstock.compute.replica.subscriptions import SubscribeOutlet
from penstock.compute.replica.writing import CollectionOutlet
from penstock.errors import PenstockError
from penstock.expr.types import Schema
from penstock.flow.flow import Flow
from penstock.io.delivery.publish import folder_called

FORM = 1
"""Of what is in the folder of a dataflow."""


@dataclass(slots=True)
class SparkIndex:
    """An index export, as others find it. since: nobody may ask for times before it."""

    id: Id
    schema: Schema
    versions: Versions
    key: tuple[int, ...]
    since: Frontier
    own: Hold
    dropped: bool = False

    def allow_compaction(self, since: Frontier) -> None:
        """Nobody else will ask for times before `since`."""
        self.since = max(self.since, since)
        if self.since.time is None:
            self.own.release()
        else:
            self.own.move(self.since.time)


@dataclass(frozen=True, slots=True)
class Built:
    """A dataflow with its exports: each id is an index or an outlet. store: for its outlets, to be closed."""

    running: SparkDataflow
    folder: Path
    indexes: Mapping[Id, SparkIndex]
    outlets: Mapping[Id, ExportWriter]
    holds: Mapping[Id, Hold]
    store: OutletStore


class OutletStore:
    """The connection to the collections for the outlets of one dataflow, opened when it is first wanted."""

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


@dataclass(frozen=True, slots=True)
class SparkBuilder:
    """Builds the dataflows of a replica. folder: where each has one of its own."""

    config: InstanceConfig
    folder: Path
    copies: Path
    plans: Plans
    indexes: Mapping[Id, SparkIndex]
    settings: Callable[[], Parameters]
    tell: Callable[[Answer], None]
    timer: Callable[[], float]

    def build(self, dataflow: Dataflow) -> Built:
        """It, not yet started; one that has failed where it cannot be built."""
        parts = _Parts(self, dataflow)
        try:
            flow = self.plans.flow(dataflow.plan)
            parts.schemas = exported(flow, dataflow)
            parts.read({source.name for source in sources_of(flow)})
            parts.export()
        except PenstockError as error:
            for one in parts.imports:
                one.close()
            parts = _Parts(self, dataflow)
            parts.export(only_names=True)
            built = parts.built(None)
            built.running.fail(error)
            return built
        return parts.built(flow)


@dataclass(slots=True)
class _Parts:
    """A dataflow that is being built."""

    builder: SparkBuilder
    dataflow: Dataflow
    schemas: dict[str, Schema] = field(default_factory=dict[str, Schema])
    imports: list[Import] = field(default_factory=list[Import])
    versions: dict[str, Versions] = field(default_factory=dict[str, Versions])
    indexes: dict[Id, SparkIndex] = field(default_factory=dict[Id, SparkIndex])
    outlets: dict[Id, ExportWriter] = field(default_factory=dict[Id, ExportWriter])
    holds: dict[Id, Hold] = field(default_factory=dict[Id, Hold])
    store: OutletStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = OutletStore(self.builder.config.collections)

    @property
    def as_of(self) -> int:
        assert self.dataflow.as_of.time is not None
        return self.dataflow.as_of.time

    @property
    def folder(self) -> Path:
        return folder_called(self.builder.folder, "+".join(sorted(self.dataflow.export_ids)))

    def read(self, sources: set[str]) -> None:
        """What the sources of the flow read."""
        self.imports += (FromCollection(i.source, i.id) for i in self.dataflow.collections)
        for i in self.dataflow.indexes:
            index = self.builder.indexes.get(i.id)
            if index is None:
                raise UnknownName(f"the replica has no index {i.id}", name=i.id)
            if index.since > self.dataflow.as_of:
                raise below_since(i.id, self.as_of, index.since)
            self.imports.append(FromVersions(i.source, index.versions, self.as_of))
        read = {one.source for one in self.imports}
        if read != sources:
            raise BadPlan(
                f"the flow reads {sorted(sources)}, and the dataflow gives it {sorted(read)}",
                fix="import something for each source of the flow",
                part="imports",
            )

    def export(self, *, only_names: bool = False) -> None:
        """What becomes of its sinks. only_names: of a flow that cannot be built, whose sinks are unknown."""
        indexes = [e for e in self.dataflow.exports if isinstance(e, IndexExport)]
        keys = {} if only_names else {e.sink: self._positions(e) for e in reversed(indexes)}
        for sink in {export.sink for export in self.dataflow.exports}:
            folder = folder_called(self.folder / "sinks", sink)
            self.versions[sink] = Versions(folder, keys.get(sink, ()), self.as_of)
        for export in self.dataflow.exports:
            versions = self.versions[export.sink]
            match export:
                case IndexExport():
                    schema = self.schemas.get(export.sink, Schema(()))
                    key = () if only_names else self._positions(export)
                    hold = versions.hold(self.as_of)
                    self.indexes[export.id] = SparkIndex(
                        export.id, schema, versions, key, self.dataflow.as_of, hold
                    )
                case SubscribeExport():
                    self.outlets[export.id] = self._subscription(export)
                case CopyToExport():
                    schema = self.schemas.get(export.sink, Schema(()))
                    self.outlets[export.id] = CopyOutlet(
                        export.id, export.sink, self.builder.copies, export.file, schema, self.builder.tell
                    )
                case CollectionExport():
                    # A later process goes on from the time that was allowed last.
                    self.holds[export.id] = versions.hold(self.as_of)
                    self.outlets[export.id] = CollectionOutlet(
                        export.id,
                        export.sink,
                        self.store.feeds.feed(export.collection),
                        self.as_of,
                        timer=self.builder.timer,
                        tell=lambda id, text: self.builder.tell(Status(id, text)),
                    )

    def _positions(self, export: IndexExport) -> tuple[int, ...]:
        names = self.schemas[export.sink].names
        return tuple(names.index(name) for name in export.key)

    def _subscription(self, export: SubscribeExport) -> SubscribeOutlet:
        return SubscribeOutlet(
            export.id,
            export.sink,
            skipped=None if export.snapshot else self.as_of,
            limit=lambda: self.builder.settings().max_result_size,
            tell=self.builder.tell,
        )

    def built(self, flow: Flow | None) -> Built:
        inputs = Inputs(self.imports)
        state, versions = self._kept(flow, inputs)
        outlets = list(self.outlets.values())
        running = SparkDataflow(self.dataflow, inputs, versions, outlets, state, self.builder.timer)
        return Built(running, self.folder, self.indexes, self.outlets, self.holds, self.store)

    def _kept(self, flow: Flow | None, inputs: Inputs) -> tuple[State | None, Mapping[str, Versions]]:
        if flow is None:
            return None, self.versions
        sources = passed_on(flow)
        if sources is not None and not self.indexes and not self.holds:
            passed = {sink: PassedOn(self.as_of) for sink in self.versions}
            return PassthroughState(flow, inputs, passed, sources, self.as_of), passed
        state = State(self.folder, self._identity(), flow, inputs, self.versions, self.as_of)
        return state, self.versions

    def _identity(self) -> dict[str, Any]:
        dataflow = self.dataflow
        return {
            "form": FORM,
            "plan": dataflow.plan.hash,
            "store": self.builder.config.collections,
            "collections": [[i.source, i.id] for i in dataflow.collections],
            "indexes": [[i.source, i.id] for i in dataflow.indexes],
            "exports": [repr(export) for export in dataflow.exports],
            "until": dataflow.until.time,
        }
