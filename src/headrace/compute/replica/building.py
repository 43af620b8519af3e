"""Construction of a dataflow from its description: decode and check the plan, open inputs and exports.

All checks are made here, so that all runtimes refuse the same dataflows. A runtime supplies what depends on
its store: imports, indexes, and the running dataflow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, singledispatchmethod
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from headrace.compute.errors import BadMessage, BadPlan, SinceViolation, UnknownName
from headrace.compute.frontier import Frontier
from headrace.compute.plans import check_servable, decode, predicate_of, sinks_of, sources_of
from headrace.compute.protocol.commands import (
    CollectionExport,
    CollectionImport,
    CopyToExport,
    Dataflow,
    Export,
    Id,
    IndexExport,
    IndexImport,
    Parameters,
    Peek,
    PlanBytes,
    SubscribeExport,
)
from headrace.compute.protocol.responses import Status
from headrace.compute.replica.durable_exports import CollectionWriter, CopyWriter
from headrace.compute.replica.exports import (
    ExportWriter,
    FailedExport,
    Index,
    IndexWriter,
    MissingCollection,
    SubscribeWriter,
)
from headrace.compute.replica.feeds import CollectionFeed, DataflowRun
from headrace.compute.replica.runtime import Answer
from headrace.compute.replica.work_watch import WorkWatch
from headrace.errors import HeadraceError
from headrace.expr.types import Schema
from headrace.flow.flow import Flow
from headrace.operators.endpoints import SourceOperator

Predicate = Callable[[tuple[Any, ...]], bool | None]


class PlanDecoder:
    """Decoder of plans. allow_callables: whether this replica runs Python functions from clients."""

    def __init__(self, allow_callables: bool = False) -> None:
        self._allow_callables = allow_callables

    def flow(self, plan: PlanBytes) -> Flow:
        """Decode a plan to its flow.

        Raises `BadPlan`, `CallableRefused`, `NotServable`, `MessageTooLarge`.
        """
        flow = decode(plan, allow_callables=self._allow_callables)
        check_servable(flow)
        return flow

    def predicate(self, data: bytes, schema: Schema) -> Predicate:
        """Decode a predicate. Raises `BadPlan`, `MessageTooLarge`."""
        return _predicate(data, schema)


@lru_cache(maxsize=256)
def _predicate(data: bytes, schema: Schema) -> Predicate:
    # Many peeks ask the same; to read and compile a condition takes longer than to answer a peek.
    return predicate_of(data, schema)


class Import(Protocol):
    """Input of a source: a collection or an index. failed: its failure, if any."""

    source: str

    @property
    def schema(self) -> Schema: ...
    @property
    def failed(self) -> FailedExport | None: ...
    def close(self) -> None:
        """Release the read hold."""
        ...


def check_imports(flow: Flow, imports: Sequence[Import]) -> None:
    """Raise `BadPlan` unless each source of the flow has exactly one import with matching columns."""
    schemas = {source.name: source.schema for source in sources_of(flow)}
    given = sorted(each.source for each in imports)
    if given != sorted(schemas):
        raise BadPlan(
            f"the flow reads {sorted(schemas)}, and the dataflow gives it {given}",
            fix="import something for each source of the flow",
            part="imports",
        )
    for each in imports:
        # A failed index may have no columns; whoever reads it fails with its error.
        if each.failed is None and each.schema != schemas[each.source]:
            raise BadPlan(
                f"the source {each.source!r} has {schemas[each.source]}, and what it is to read has "
                f"{each.schema}",
                part="imports",
            )


def export_schemas(flow: Flow, dataflow: Dataflow) -> dict[str, Schema]:
    """Return the schemas of the flow's sinks. Raises `BadPlan` for exports that do not fit them."""
    schemas = {sink.name: sink.schema for sink in sinks_of(flow)}
    for export in dataflow.exports:
        if export.sink not in schemas:
            raise BadPlan(
                f"{export.id} is to export the sink {export.sink!r}, and the flow has {sorted(schemas)}",
                part="exports",
            )
        if isinstance(export, IndexExport) and not set(export.key) <= set(schemas[export.sink].names):
            raise BadPlan(
                f"{export.id} is to be arranged by {', '.join(export.key)}, and its rows have "
                f"{', '.join(schemas[export.sink].names)}",
                part="exports",
            )
    return schemas


def passes_through(flow: Flow) -> bool:
    """Return whether each sink of a flow passes on a source unchanged."""
    graph = flow.graph()
    above = [graph.nodes[node].inputs[0] for node in graph.sinks.values()]
    return all(isinstance(graph.nodes[node].operator, SourceOperator) for node in above)


def check_keys(peek: Peek, width: int) -> None:
    """Raise `BadMessage` for keys that do not have `width` columns."""
    for key in peek.keys or ():
        if len(key) != width:
            raise BadMessage(
                f"a key of {len(key)} values, and {peek.target.id} is read by {width}",
                fix="give a value for each key column",
                field="keys",
            )


def check_since(id: Id, time: int, since: Frontier) -> None:
    """Raise `SinceViolation` for a time that has been compacted."""
    if since > Frontier(time):
        raise SinceViolation(
            f"{id} cannot be read at time {time}: it has been compacted to {since}",
            why="changes before that time are compacted",
            fix="ask for a later time",
            id=id,
            time=time,
            since=since.time,
        )


IndexT = TypeVar("IndexT", bound=Index)
ImportT = TypeVar("ImportT", bound=Import)
RunT = TypeVar("RunT", bound=DataflowRun)
_NO_SCHEMA = Schema(())


@dataclass(frozen=True, slots=True)
class RuntimeContext(Generic[IndexT]):
    """State of a runtime that its dataflows share.

    copies: folder for copies. respond: sends responses to the controller. timer: seconds.
    watch: watch over the work of the runtime's thread.
    """

    plans: PlanDecoder
    indexes: Mapping[Id, IndexT]
    copies: Path
    settings: Callable[[], Parameters]
    respond: Callable[[Answer], None]
    timer: Callable[[], float]
    watch: WorkWatch

    def report(self, id: Id, text: str) -> None:
        """Report the status of an export to users."""
        self.respond(Status(id, text))


class DataflowBuild(ABC, Generic[IndexT, ImportT, RunT]):
    """Construction of one dataflow. imports: imports built so far."""

    def __init__(self, around: RuntimeContext[IndexT], dataflow: Dataflow) -> None:
        assert dataflow.as_of.time is not None
        self.around = around
        self.dataflow = dataflow
        self.as_of = dataflow.as_of.time
        self.imports: list[ImportT] = []
        self._passes_through = False

    def build(self) -> RunT:
        """Build the dataflow without starting it; build a failed one if an error occurs."""
        dataflow = self.dataflow
        try:
            self.around.watch.deaths.check(dataflow)
            flow = self.around.plans.flow(dataflow.plan)
            schemas = export_schemas(flow, dataflow)
            self._passes_through = passes_through(flow)
            self._read()
            check_imports(flow, self.imports)
            self._check_written(schemas)
            exports = [self._export(export, schemas[export.sink]) for export in dataflow.exports]
            running = self._run(flow, exports)
            running.skips_snapshot = self._skips_snapshot()
            return running
        except HeadraceError as error:
            self._discard()
            running = self._run(None, [self._stand_in(export) for export in dataflow.exports])
            running.fail(error)
            return running

    def _skips_snapshot(self) -> bool:
        """Return whether all exports are subscriptions to unchanged sources, without a snapshot."""
        later = all(isinstance(e, SubscribeExport) and not e.snapshot for e in self.dataflow.exports)
        return later and self._passes_through

    def _discard(self) -> None:
        """Release the imports acquired so far."""
        for each in self.imports:
            each.close()
        self.imports = []

    def _read(self) -> None:
        self.imports += (self._import_collection(each) for each in self.dataflow.collections)
        for each in self.dataflow.indexes:
            index = self.around.indexes.get(each.id)
            if index is None:
                raise UnknownName(f"the replica has no index {each.id}", name=each.id)
            check_since(each.id, self.as_of, index.since)
            self.imports.append(self._import_index(each, index))

    def _check_written(self, schemas: Mapping[str, Schema]) -> None:
        """Raise `BadPlan` for rows that do not fit the collection they are written to."""
        for export in self.dataflow.exports:
            if isinstance(export, CollectionExport):
                there, made = self._feed(export.collection).schema, schemas[export.sink]
                if there != made:
                    raise BadPlan(
                        f"{export.id} is to write {made} into {export.collection}, which has {there}",
                        part="exports",
                    )

    def _stand_in(self, export: Export) -> ExportWriter:
        try:
            return self._export(export, _NO_SCHEMA)
        except HeadraceError:
            # Of what an export is made, only the collection that it writes may be missing.
            return MissingCollection(export.id, export.sink, self.as_of, self.around.report)

    @singledispatchmethod
    def _export(self, export: Export, schema: Schema) -> ExportWriter:
        raise AssertionError(f"no export: {export!r}")

    @_export.register
    def _(self, export: IndexExport, schema: Schema) -> ExportWriter:
        return self._index(export, schema, export.key if schema.fields else ())

    @_export.register
    def _(self, export: SubscribeExport, schema: Schema) -> ExportWriter:
        return SubscribeWriter(
            export.id,
            export.sink,
            skipped=None if export.snapshot else self.as_of,
            schema=schema,
            each_once=self._passes_through,
            limit=lambda: self.around.settings().max_result_size,
            respond=self.around.respond,
        )

    @_export.register
    def _(self, export: CopyToExport, schema: Schema) -> ExportWriter:
        around = self.around
        return CopyWriter(export.id, export.sink, around.copies, export.file, schema, around.respond)

    @_export.register
    def _(self, export: CollectionExport, schema: Schema) -> ExportWriter:
        return self._collection(export)

    def _collection(self, export: CollectionExport) -> CollectionWriter:
        return CollectionWriter(
            export.id,
            export.sink,
            self._feed(export.collection),
            self.as_of,
            timer=self.around.timer,
            report=self.around.report,
        )

    @abstractmethod
    def _feed(self, id: Id) -> CollectionFeed:
        """Open the feed of a collection to write. Raises the store's errors."""

    @abstractmethod
    def _import_collection(self, each: CollectionImport) -> ImportT:
        """Create an import that reads a collection. Raises the store's errors."""

    @abstractmethod
    def _import_index(self, each: IndexImport, index: IndexT) -> ImportT:
        """Create an import that reads an index from the as-of on, which is not before its since."""

    @abstractmethod
    def _index(self, export: IndexExport, schema: Schema, key: Sequence[str]) -> IndexWriter:
        """Create an index keyed by the columns of `key`, or by the whole row."""

    @abstractmethod
    def _run(self, flow: Flow | None, exports: Sequence[ExportWriter]) -> RunT:
        """Create the dataflow with its imports and exports; without a flow, one about to fail."""
