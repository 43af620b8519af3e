"""Partial aggregation of DataFrame rows on Arrow columns, so that only groups become Python values.

Spark computes keys and arguments (`penstock.spark.placing.native`) and passes them on as Arrow batches, which
Arrow's hash tables aggregate in place. So a big tick reaches Python as one row per group. This takes neither
an additional shuffle nor a second read of a source, as a grouped DataFrame of one of several sources in a
micro-batch would.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, singledispatch
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.engine.machine import Machine
from penstock.engine.program import compile_program
from penstock.engine.steps.accumulator import (
    Accumulator,
    AppendExtreme,
    CountRows,
    CountValues,
    IntMean,
    IntSum,
    accumulator_for,
)
from penstock.errors import SourceLocation
from penstock.expr.tree import Column
from penstock.expr.types import DATE, INT32, INT64, TIMESTAMP, ListType, StructType
from penstock.flow.operators.sink import Sink
from penstock.flow.operators.source import Source
from penstock.graph.node import FlowGraph, Node
from penstock.io.source import WEIGHT

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engine.partial_operators import PartialAggregate
    from penstock.expr.types import Schema

Rows: TypeAlias = list[tuple[Any, ...]]

_COMPARED = (INT32, INT64, DATE, TIMESTAMP)
"""Types whose minimum and maximum Arrow computes as Penstock does."""

_NO_KEYS = (ListType, StructType)
"""Types that Arrow cannot group by."""


@dataclass(frozen=True, slots=True)
class Measure:
    """An Arrow aggregate. function: its name in Arrow. column: number of its argument column.

    It gives what the field of an accumulator is to get. counts: it is of the values that are there.
    """

    function: str
    column: str
    counts: bool = False


@singledispatch
def measures(accumulator: Accumulator, column: str) -> tuple[Measure, ...] | None:
    """Arrow aggregates for each part of an accumulator; None if Arrow cannot compute it."""
    return None


@measures.register
def _(accumulator: CountRows, column: str) -> tuple[Measure, ...]:
    return ()


@measures.register
def _(accumulator: CountValues, column: str) -> tuple[Measure, ...]:
    return (Measure("sum", column, counts=True),)


@measures.register(IntSum)
@measures.register(IntMean)
def _(accumulator: IntSum | IntMean, column: str) -> tuple[Measure, ...]:
    counted = (Measure("sum", column, counts=True),) if accumulator.types[0].nullable else ()
    return (Measure("sum", column), *counted)


@measures.register
def _(accumulator: AppendExtreme, column: str) -> tuple[Measure, ...] | None:
    if accumulator.types[0].type not in _COMPARED:
        return None
    return (Measure("min" if accumulator.sign == "<" else "max", column),)


def grouping_of(operator: PartialAggregate, rows: Schema, sent: Schema, *, append: bool) -> Grouping | None:
    """Compile a partial aggregate to Arrow columns; None if one of its parts has no Arrow form."""
    if any(isinstance(f.type, _NO_KEYS) for f in sent.fields[: len(operator.keys)]):
        return None
    found: list[Measure] = []
    for _, aggregation in operator.of.aggregations:
        argument = next(iter(aggregation.arguments()), None)
        column = argument.name if isinstance(argument, Column) else ""
        of = measures(accumulator_for(aggregation, rows, append), column)
        if of is None:
            return None
        found.extend(of)
    return Grouping(operator, rows, sent, append, tuple(found))


@dataclass(frozen=True)
class Grouping:
    """Compiled grouping of rows on Arrow columns.

    rows: the columns that come; with a weight behind them unless `append`. sent: those of a group.
    """

    operator: PartialAggregate
    rows: Schema
    sent: Schema
    append: bool
    measures: tuple[Measure, ...]

    def groups(self, table: pa.Table) -> Rows:
        """Aggregate the rows of a table to one row per group, in the partial aggregate's output schema."""
        if not table.num_rows:
            return []
        if not self._is_exact(table):
            return self._row_by_row(table)
        import pyarrow as pa

        keys = [name for name, _ in self.operator.keys]
        columns = [table.column(name) for name in keys]
        inputs = [self._weights(table), *(self._values(measure, table) for measure in self.measures)]
        functions = ["sum", *(measure.function for measure in self.measures)]
        labels = [f"measure {number}" for number in range(len(inputs))]
        grouped = pa.table([*columns, *inputs], names=[*keys, *labels]).group_by(keys, use_threads=False)
        made = grouped.aggregate(list(zip(labels, functions, strict=True)))
        names = [*keys, *(f"{label}_{f}" for label, f in zip(labels, functions, strict=True))]
        return list(
            zip(*(self._restored(at, made.column(name)) for at, name in enumerate(names)), strict=True)
        )

    def _is_exact(self, table: pa.Table) -> bool:
        """Return whether no sum over these rows can overflow int64, whatever the groups."""
        import pyarrow.compute as pc

        compute: Any = pc
        most = 1
        for name in {m.column for m in self.measures if m.function == "sum" and not m.counts}:
            ends = compute.min_max(table.column(name)).as_py()
            most = max(most, abs(ends["min"] or 0), abs(ends["max"] or 0))
        if not self.append:
            ends = compute.min_max(table.column(WEIGHT)).as_py()
            most *= max(abs(ends["min"]), abs(ends["max"]))
        return most * table.num_rows < 2**63

    def _weights(self, table: pa.Table) -> Any:
        import pyarrow as pa

        return pa.repeat(pa.scalar(1, pa.int64()), table.num_rows) if self.append else table.column(WEIGHT)

    def _values(self, measure: Measure, table: pa.Table) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        compute: Any = pc
        values: Any = table.column(measure.column)
        if measure.counts:
            return compute.if_else(compute.is_valid(values), self._weights(table), pa.scalar(0, pa.int64()))
        if measure.function != "sum" or self.append:
            return values
        return compute.multiply(values.cast(pa.int64()), table.column(WEIGHT))

    def _restored(self, at: int, column: Any) -> Any:
        from penstock.io.arrow import column_to_values

        keys = len(self.operator.keys)
        measure = self.measures[at - keys - 1] if at > keys else None
        if at < keys or (measure is not None and measure.function != "sum"):
            return column_to_values(column, self.sent.fields[at].type)
        # A sum of no values is 0 to an accumulator.
        return column.fill_null(0).to_pylist()

    def _row_by_row(self, table: pa.Table) -> Rows:
        from penstock.io.arrow import table_to_rows

        rows = table_to_rows(table, self.rows, weighted=not self.append)
        return Machine(self._program, {}).tick({"rows": rows}).get("groups", [])

    @cached_property
    def _program(self) -> Any:
        location = SourceLocation.of_caller()
        source = Source("rows", self.rows, append=self.append)
        nodes = (
            Node(0, "rows", source, (), self.rows, location),
            Node(1, "groups", self.operator, (0,), self.sent, location),
            Node(2, "sink", Sink("groups"), (1,), self.sent, location),
        )
        return compile_program(FlowGraph("groups", nodes, {"rows": 0}, {"groups": 2}, given_ticks=True))
