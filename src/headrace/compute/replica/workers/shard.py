"""Division of dataflows over a replica's workers: on all, each with its share, or on one.

A dataflow is divided if it is correct without exchanging rows between workers: a flow without state
over collections or divided indexes, or a flow over collections that needs one partitioning by keys. A
dataflow that writes a collection or a file runs on one worker, so that there is one writer. A dataflow on one
worker finds the indexes that it reads on that worker; an index that is divided or on another worker is built
there a second time, for this reader alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.compute.protocol.commands import (
    CollectionExport,
    CopyToExport,
    Dataflow,
    Id,
    IndexExport,
    IndexImport,
)
from headrace.compute.replica.in_process.ticking import EngineRows
from headrace.engine.machine import Machine
from headrace.engine.program import compile_program
from headrace.errors import HeadraceError
from headrace.expr.tree import Column
from headrace.expr.types import Schema
from headrace.flow.flow import Flow
from headrace.graph.node import FlowGraph
from headrace.spark.placing.row_placement import ByKey, Divide, row_divider
from headrace.spark.placing.stages import Exchange, cut_stages


@dataclass(frozen=True, slots=True)
class FlowDivision:
    """Division of a flow among workers.

    graphs:    parts that each worker runs: the whole of a stateless flow, or the parts before and after the
        exchanges.
    exchanges: exchanges of rows from the first part to the second.
    """

    workers: int
    graphs: tuple[FlowGraph, ...]
    exchanges: tuple[Exchange, ...] = ()

    @property
    def is_stateless(self) -> bool:
        """Return whether the flow is stateless and so runs on any part of the rows."""
        return len(self.graphs) == 1


def divide_flow(flow: Flow, workers: int) -> FlowDivision | None:
    """Divide a flow among workers; None if it cannot be divided."""
    try:
        graph = flow.graph()
        program = compile_program(graph)
        if not program.slots and not program.transient:
            return FlowDivision(workers, (graph,))
        plan = cut_stages(graph, workers)
    except HeadraceError:
        return None
    if plan.depth != 2:
        return None
    return FlowDivision(workers, tuple(stage.graph for stage in plan.stages), plan.exchanges)


@dataclass(frozen=True, slots=True)
class _Borders:
    source_append: Mapping[str, bool]
    sink_append: Mapping[str, bool]


class WorkerShard:
    """Engine for worker `number`'s share of a dataflow.

    given: sources that supply only this worker's rows; the others supply all rows. Empty if the division
        needs all rows.
    """

    def __init__(self, division: FlowDivision, number: int, given: frozenset[str] = frozenset()) -> None:
        self._number = number
        first, *rest = (_Part(graph, owns_unkeyed=number == 0) for graph in division.graphs)
        self._first, self._second = first, (rest[0] if rest else None)
        self.program = _Borders(
            {name: first.source_append[name] for name in division.graphs[0].sources},
            {name: append for part in (first, *rest) for name, append in part.sink_append.items()},
        )
        self._crossing = {
            e.name: row_divider(e.route, e.schema, division.workers, weighted=not e.append)
            for e in division.exchanges
        }
        # One graph takes its own rows only; of two, the first sees all rows, and gives away its own only.
        graph = division.graphs[0]
        borders, append = (
            (graph.sources, first.source_append) if not rest else (graph.sinks, first.sink_append)
        )
        self._own = {
            name: _by_row(graph.nodes[node].schema, division.workers, append[name])
            for name, node in borders.items()
            if name not in given and name not in self._crossing
        }

    def tick_rows(self, inputs: Mapping[str, EngineRows]) -> Mapping[str, EngineRows]:
        """Run one tick of the rows of each source; return the rows of each sink."""
        if self._second is None:
            return self._first.tick({name: self._mine(name, rows) for name, rows in inputs.items()})
        made = self._first.tick(inputs)
        arrived = {name: self._arriving(name, rows) for name, rows in made.items() if name in self._crossing}
        direct = {name: self._mine(name, rows) for name, rows in made.items() if name in self._own}
        return {**direct, **self._second.tick(arrived)}

    def state_bytes(self) -> int:
        """Estimate the memory of this share of the state."""
        parts = [self._first, *([] if self._second is None else [self._second])]
        return sum(part.machine.state_bytes() for part in parts)

    def _mine(self, name: str, rows: EngineRows) -> EngineRows:
        divide = self._own.get(name)
        return rows if divide is None else divide(rows).get(self._number, [])

    def _arriving(self, exchange: str, rows: EngineRows) -> EngineRows:
        return self._crossing[exchange](rows).get(self._number, [])


class _Part:
    """Part of the flow, with its state."""

    def __init__(self, graph: FlowGraph, *, owns_unkeyed: bool) -> None:
        program = compile_program(graph)
        self.source_append = program.source_append
        self.sink_append = program.sink_append
        self.machine = Machine(program, {slot.name: {} for slot in program.slots}, owns_unkeyed=owns_unkeyed)
        self._owns_unkeyed = owns_unkeyed

    def tick(self, inputs: Mapping[str, EngineRows]) -> dict[str, EngineRows]:
        # Parts that run without input, such as a fold of no rows, run on the first worker only.
        if not self._owns_unkeyed and not any(inputs.values()):
            return {}
        made = self.machine.tick(inputs)
        self.machine.context.tick += 1
        return made


def _by_row(schema: Schema, workers: int, append: bool) -> Divide:
    keys = tuple(Column(field.name) for field in schema.fields)
    return row_divider(ByKey(keys), schema, workers, weighted=not append)


@dataclass(frozen=True, slots=True)
class HostedDataflow:
    """Dataflow with the workers that run it.

    dataflow: dataflow as requested. built: dataflow as its workers build it, with the ids of copies it reads.
    workers:  their numbers; all workers if it is `divided`.
    copies:   dataflows that are built for it, and before it, on its worker.
    """

    dataflow: Dataflow
    built: Dataflow
    workers: tuple[int, ...]
    divided: bool = False
    copies: tuple[Dataflow, ...] = ()

    @property
    def copied_ids(self) -> tuple[Id, ...]:
        return tuple(export.id for copy in self.copies for export in copy.exports)


def choose_workers(
    dataflow: Dataflow, flow: Flow | None, workers: int, known: Mapping[Id, HostedDataflow]
) -> HostedDataflow:
    """Choose the workers of a dataflow.

    flow:  flow of its plan, or None if the plan is unreadable.
    known: dataflows that are already hosted, by their exports.
    """
    imported = [known[i.id] for i in dataflow.indexes if i.id in known]
    if (
        flow is not None
        and len(imported) == len(dataflow.indexes)
        and _divides(dataflow, flow, workers, imported)
    ):
        return HostedDataflow(dataflow, dataflow, tuple(range(workers)), divided=True)
    on = next((h.workers[0] for h in imported if not h.divided), _spread(dataflow, workers))
    copies: list[Dataflow] = []
    built = _on_one(dataflow, dataflow, on, known, copies)
    return HostedDataflow(dataflow, built, (on,), copies=tuple(copies))


def _divides(dataflow: Dataflow, flow: Flow, workers: int, imported: list[HostedDataflow]) -> bool:
    if any(isinstance(e, CollectionExport | CopyToExport) for e in dataflow.exports):
        return False
    if not all(h.divided for h in imported):
        return False
    division = divide_flow(flow, workers)
    return division is not None and (division.is_stateless or not imported)


def _spread(dataflow: Dataflow, workers: int) -> int:
    """Choose the worker for a dataflow that could run on any."""
    return zlib.crc32(" ".join(sorted(dataflow.export_ids)).encode()) % workers


def _on_one(
    dataflow: Dataflow,
    reader: Dataflow,
    worker: int,
    known: Mapping[Id, HostedDataflow],
    copies: list[Dataflow],
) -> Dataflow:
    """Rewrite a dataflow for one worker, adding to `copies` the dataflows to build there first."""
    indexes = tuple(_there(i, reader, worker, known, copies) for i in dataflow.indexes)
    return replace(dataflow, indexes=indexes)


def _there(
    read: IndexImport,
    reader: Dataflow,
    worker: int,
    known: Mapping[Id, HostedDataflow],
    copies: list[Dataflow],
) -> IndexImport:
    hosted = known.get(read.id)
    if hosted is None or (not hosted.divided and hosted.workers == (worker,)):
        return read
    id = f"{read.id} for {min(reader.export_ids)}"
    if not any(id in copy.export_ids for copy in copies):
        export = next(e for e in hosted.dataflow.exports if isinstance(e, IndexExport) and e.id == read.id)
        alone = replace(hosted.dataflow, exports=(replace(export, id=id),), as_of=reader.as_of)
        copies.append(_on_one(alone, reader, worker, known, copies))
    return replace(read, id=id)
