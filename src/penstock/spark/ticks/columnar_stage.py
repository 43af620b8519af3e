"""Stage 0 on columns: rows that arrive in Arrow tables stay columns as far as operators have a columnar form.

Filters, projections, unions and partial aggregates run on Polars (`penstock.engine.columnar`). So a big tick
becomes Python values as one row per group, or not at all. A tick that Polars cannot decide runs row by row.
"""

from __future__ import annotations

import os
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.engine.columnar.columnar_option import Columnar
from penstock.engine.machine import Machine
from penstock.flow.operators.sink import Sink
from penstock.io.arrow import arrow_schema, table_to_rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    import pyarrow as pa

    from penstock.engine.columnar.columnar_flow import LargeTicks
    from penstock.engine.columnar.columns import Columns
    from penstock.engine.program import Program

Rows: TypeAlias = list[tuple[Any, ...]]


class ColumnarStage:
    """A stage without state over Arrow tables.

    unread: per source the columns that the flow does not read; they may be null.
    in_columns: sinks whose rows may stay columns.
    """

    def __init__(
        self, program: Program, unread: Mapping[str, AbstractSet[str]], in_columns: AbstractSet[str]
    ) -> None:
        self._program = program
        self._unread = unread
        self._in_columns = in_columns

    @cached_property
    def sources(self) -> frozenset[str]:
        """Sources whose readers all have a columnar form, one of which computes something."""
        nodes, readers = self._program.graph.nodes, self._program.graph.consumers()
        found: set[str] = set()
        for name, n in self._program.graph.sources.items():
            targets = {edge.target for edge in readers[n]}
            if self.columnar >= targets and any(not isinstance(nodes[t].operator, Sink) for t in targets):
                found.add(name)
        return frozenset(found)

    @cached_property
    def columnar(self) -> frozenset[int]:
        """Nodes that run on columns."""
        large = self._large
        if large is None:
            return frozenset()
        readers = self._program.graph.consumers()
        found: set[int] = set()
        for shape in large.shapes:
            found.update(shape.columnar)
            for feed in shape.feeds:
                if feed.reduction is not None:
                    found.update(edge.target for edge in readers[feed.source] if edge.target in shape.rest)
        return frozenset(found)

    def run(self, name: str, table: pa.Table) -> dict[str, Rows | pa.Table]:
        """Run the stage on rows of a source; return what its sinks get."""
        import pyarrow as pa

        from penstock.engine.columnar.columnar_intake import columns_of_frame

        graph, append = self._program.graph, self._program.source_append[name]
        schema = graph.nodes[graph.sources[name]].schema
        # Readers leave out what nobody reads.
        for field in arrow_schema(schema):
            if field.name not in table.column_names:
                table = table.append_column(field, pa.nulls(len(table), field.type))
        given: Any = columns_of_frame(schema, append, table, unread=self._unread.get(name, frozenset()))
        if not given:
            given = table_to_rows(table, schema, weighted=not append)
        made: dict[str, Any] = self._machine.tick({name: given})
        return {sink: self._leaving(sink, rows) for sink, rows in made.items()}

    def _leaving(self, sink: str, rows: Rows | Columns) -> Rows | pa.Table:
        if isinstance(rows, list):
            return rows
        if sink not in self._in_columns or not rows.append:
            return rows.rows()
        return rows.user_frame().to_arrow().cast(arrow_schema(rows.schema))

    @cached_property
    def _machine(self) -> Machine:
        return Machine(self._program, {}, Columnar(least=1))

    @property
    def _large(self) -> LargeTicks | None:
        # State has to be that of a cell; and the machine is kept from tick to tick.
        if self._program.slots or find_spec("polars") is None:
            return None
        # A Spark task has one core.
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
        return self._machine.large_ticks()
