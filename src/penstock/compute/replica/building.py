"""From the description of a dataflow to one that can run: its flow, what it reads, what it exports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatchmethod
from pathlib import Path

from penstock.compute.errors import BadPlan, UnknownName
from penstock.compute.plans import sources_of
from penstock.compute.protocol.commands import Parameters
from penstock.compute.protocol.dataflow import (
    CollectionExport,
    CopyToExport,
    Dataflow,
    Export,
    Id,
    IndexExport,
    SubscribeExport,
)
from penstock.compute.replica.arrangement import Arrangement
from penstock.compute.replica.copies import CopyOutlet
from penstock.compute.replica.dataflows import RunningDataflow
from penstock.compute.replica.export_writer import ExportWriter
from penstock.compute.replica.feeds import Feeds
from penstock.compute.replica.index_export import IndexOutlet
from penstock.compute.replica.inlets import FromCollection, FromIndex, Inlet
from penstock.compute.replica.missing import MissingCollection
from penstock.compute.replica.plans import Plans
from penstock.compute.replica.request_checks import exported
from penstock.compute.replica.runtime import Answer
from penstock.compute.replica.shared_arrangements import SharedArrangements
from penstock.compute.replica.subscriptions import SubscribeOutlet
from penstock.compute.replica.tick_executor import ChooseTicking, whole
from penstock.compute.replica.writing import CollectionOutlet
from penstock.errors import PenstockError
from penstock.expr.types import Schema
from penstock.flow.flow import Flow

_NO_SCHEMA = Schema(())


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds the dataflows of a replica. What it takes is what they share.

    choose_engine: what runs the flow of a dataflow; where it is left out, or says None, an engine whose joins
        read indexes in place.
    """

    plans: Plans
    feeds: Feeds
    indexes: Mapping[Id, Arrangement]
    copies: Path
    settings: Callable[[], Parameters]
    tell: Callable[[Answer], None]
    note: Callable[[Id, str], None]
    timer: Callable[[], float]
    choose_engine: ChooseTicking | None = None

    def build(self, dataflow: Dataflow) -> RunningDataflow:
        """It, not yet started; one that has failed where it cannot be built."""
        inlets: list[Inlet] = []
        try:
            flow = self.plans.flow(dataflow.plan)
            schemas = exported(flow, dataflow)
            self._read(dataflow, inlets)
            _check_inlets(flow, inlets)
            self._check_written(dataflow, schemas)
            outlets = [self._outlet(e, schemas[e.sink], dataflow) for e in dataflow.exports]
        except PenstockError as error:
            for inlet in inlets:
                inlet.close()
            return self._unbuilt(dataflow, error)
        if self.choose_engine is not None and (make := self.choose_engine(dataflow, flow)) is not None:
            return RunningDataflow(dataflow, flow, inlets, outlets, self.timer, make)
        sharing = SharedArrangements(flow, inlets)
        return RunningDataflow(dataflow, flow, inlets, outlets, self.timer, sharing.engine, sharing)

    def _unbuilt(self, dataflow: Dataflow, error: PenstockError) -> RunningDataflow:
        outlets = [self._stand_in(export, dataflow) for export in dataflow.exports]
        flow = Flow(dataflow.name or "unbuilt")
        running = RunningDataflow(dataflow, flow, (), outlets, self.timer, whole)
        running.fail(error)
        return running

    def _stand_in(self, export: Export, dataflow: Dataflow) -> ExportWriter:
        try:
            return self._outlet(export, _NO_SCHEMA, dataflow)
        except PenstockError:
            # Of what an export is made, only the collection that it writes may be missing.
            assert dataflow.as_of.time is not None
            return MissingCollection(export.id, export.sink, dataflow.as_of.time, self.note)

    def _read(self, dataflow: Dataflow, inlets: list[Inlet]) -> None:
        """What the sources of the flow read, added to `inlets` one by one."""
        assert dataflow.as_of.time is not None
        inlets.extend(FromCollection(i.source, self.feeds.feed(i.id)) for i in dataflow.collections)
        for i in dataflow.indexes:
            index = self.indexes.get(i.id)
            if index is None:
                raise UnknownName(f"the replica has no index {i.id}", name=i.id)
            inlets.append(FromIndex(i.source, i.id, index, dataflow.as_of.time))

    def _check_written(self, dataflow: Dataflow, schemas: Mapping[str, Schema]) -> None:
        """Raises `BadPlan` for rows that a collection does not have."""
        for export in dataflow.exports:
            if isinstance(export, CollectionExport):
                there, made = self.feeds.feed(export.collection).schema, schemas[export.sink]
                if there != made:
                    raise BadPlan(
                        f"{export.id} is to write {made} into {export.collection}, which has {there}",
                        part="exports",
                    )

    @singledispatchmethod
    def _outlet(self, export: Export, schema: Schema, dataflow: Dataflow) -> ExportWriter:
        raise AssertionError(f"no export: {export!r}")

    @_outlet.register
    def _(self, export: IndexExport, schema: Schema, dataflow: Dataflow) -> ExportWriter:
        assert dataflow.as_of.time is not None
        key = export.key if schema.fields else ()
        index = Arrangement(schema, key, dataflow.as_of.time)
        return IndexOutlet(export.id, export.sink, index)

    @_outlet.register
    def _(self, export: SubscribeExport, schema: Schema, dataflow: Dataflow) -> ExportWriter:
        return SubscribeOutlet(
            export.id,
            export.sink,
            skipped=None if export.snapshot else dataflow.as_of.time,
            limit=lambda: self.settings().max_result_size,
            tell=self.tell,
        )

    @_outlet.register
    def _(self, export: CopyToExport, schema: Schema, dataflow: Dataflow) -> ExportWriter:
        return CopyOutlet(export.id, export.sink, self.copies, export.file, schema, self.tell)

    @_outlet.register
    def _(self, export: CollectionExport, schema: Schema, dataflow: Dataflow) -> ExportWriter:
        assert dataflow.as_of.time is not None
        feed = self.feeds.feed(export.collection)
        note = self.note
        return CollectionOutlet(
            export.id, export.sink, feed, dataflow.as_of.time, timer=self.timer, tell=note
        )


def _check_inlets(flow: Flow, inlets: Sequence[Inlet]) -> None:
    """Raises `BadPlan` where they are not what the sources of the flow read, one for each."""
    schemas = {source.name: source.schema for source in sources_of(flow)}
    given = sorted(inlet.source for inlet in inlets)
    if given != sorted(schemas):
        raise BadPlan(
            f"the flow reads {sorted(schemas)}, and the dataflow gives it {given}",
            fix="import something for each source of the flow",
            part="imports",
        )
    for inlet in inlets:
        # What has failed may have no columns; who reads it fails with its error.
        if inlet.failed is None and inlet.schema != schemas[inlet.source]:
            raise BadPlan(
                f"the source {inlet.source!r} has {schemas[inlet.source]}, and what it is to read has "
                f"{inlet.schema}",
                part="imports",
            )
