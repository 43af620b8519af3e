"""Hydration in columns: rows at the as-of are insertions, and a flow without state may treat them as such.

Its sources are taken as append-only: nothing is then consolidated, and the engine passes columns on. What the
flow makes of insertions one by one is what it makes of them as changes of a table, but for how often equal
rows are told, which exports add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.compute.protocol.responses import Counted
from penstock.compute.protocol.row_batch import WEIGHT, NotColumnar, RowBatch, is_columnar
from penstock.compute.replica.building import passes_through
from penstock.engine.columnar.columnar_option import parse_columnar
from penstock.engine.machine import Machine
from penstock.engine.program import compile_program
from penstock.errors import PenstockError
from penstock.expr.dict_keys import with_representatives
from penstock.expr.types import Schema
from penstock.flow.flow import Flow
from penstock.flow.operators.source import Source
from penstock.graph.node import FlowGraph

if TYPE_CHECKING:
    from penstock.engine.columnar.columns import Columns

LEAST = 512
"""Number of rows below which they are cheaper one by one."""


class ColumnarHydration:
    """Machine of a flow without state, for insertions in columns. Create it by `of_flow`.

    machine: None where each sink gives the rows of a source.
    """

    def __init__(self, graph: FlowGraph, machine: Machine | None) -> None:
        self._machine = machine
        self._above = {name: graph.nodes[node].inputs[0] for name, node in graph.sinks.items()}
        self._nodes = dict(graph.sources)
        self._sources = {name: graph.nodes[node].schema for name, node in graph.sources.items()}
        self._sinks = {name: graph.nodes[node].schema for name, node in graph.sinks.items()}

    @classmethod
    def of_flow(cls, flow: Flow) -> ColumnarHydration | None:
        """Build the machine of a flow; None if the flow has state, or nothing in it runs on columns.

        Where it computes, its sources have no nested columns: the engine has no such frames.
        """
        graph = flow.graph()
        if not all(is_columnar(graph.nodes[node].schema) for node in graph.sources.values()):
            return None
        if passes_through(flow):
            return cls(graph, None)
        try:
            program = compile_program(_appending(graph))
        except PenstockError:
            return None
        if program.slots or program.transient or program.delayed or compile_program(graph).slots:
            return None
        machine = Machine(program, {}, parse_columnar("auto", 1, release=None))
        return cls(graph, machine) if machine.large_ticks() is not None else None

    def in_columns(self, source: str, rows: Sequence[Counted]) -> RowBatch | None:
        """Return rows of a source as a batch of insertions; None for rows that are to be fed one by one."""
        if isinstance(rows, RowBatch):
            batch = rows
        elif len(rows) < LEAST:
            return None
        else:
            try:
                batch = RowBatch.of_rows(self._sources[source], rows)
            except NotColumnar:
                return None
        return batch if len(batch) and (batch.frame[WEIGHT] > 0).all() else None

    def tick(self, source: str, batch: RowBatch) -> dict[str, Sequence[Counted]]:
        """Run one tick of insertions; return those of each sink."""
        import polars as pl

        from penstock.engine.columnar.columns import Columns

        if self._machine is None:
            return {sink: batch for sink, node in self._above.items() if node == self._nodes[source]}
        frame = batch.frame
        if (frame[WEIGHT] != 1).any():
            frame = frame.select(pl.all().repeat_by(WEIGHT).explode())
        columns = Columns(batch.schema, True, pl.DataFrame(frame.get_columns()[:-1]))
        made: dict[str, Any] = self._machine.tick({source: columns})  # type: ignore[dict-item]
        return {sink: self._counted(self._sinks[sink], rows) for sink, rows in made.items()}

    def _counted(self, schema: Schema, rows: list[tuple[Any, ...]] | Columns) -> Sequence[Counted]:
        if isinstance(rows, list):
            return [(tuple(row), 1) for row in with_representatives(rows, schema)]
        import polars as pl

        columns = [rows.frame[str(at)] for at in range(len(schema.fields))]
        # Equal rows are counted together, so there is one zero.
        columns = [column + 0.0 if column.dtype.is_float() else column for column in columns]
        ones = pl.Series(WEIGHT, [1], dtype=pl.Int64()).new_from_index(0, len(rows))
        return RowBatch(schema, pl.DataFrame([*columns, ones]))


def _appending(graph: FlowGraph) -> FlowGraph:
    """Return a flow whose sources are append-only."""
    nodes = tuple(
        replace(node, operator=replace(node.operator, append=True))
        if isinstance(node.operator, Source)
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)
