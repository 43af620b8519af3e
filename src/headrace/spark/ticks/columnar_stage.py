"""Stage 0 on columns: rows that arrive in Arrow tables stay columnar while operators have a columnar form.

Filters, projections, unions and partial aggregates run on Polars (`headrace.engine.columnar`). So a big tick
becomes Python values as one row per group, or not at all. Rows that Polars cannot decide on, and few rows,
run one by one.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.analysis import analyse
from headrace.engine.columnar.columnar_option import Columnar
from headrace.engine.flow_parts import live_consumers
from headrace.engine.machine import Machine
from headrace.engine.partial_aggregation import PartialAggregate
from headrace.expr.tree import Column
from headrace.expr.types import Rows
from headrace.io.arrow import arrow_schema, table_to_rows, with_all_columns
from headrace.lowering.forms import has_columnar_form
from headrace.operators.endpoints import SinkOperator
from headrace.operators.rows import Select

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    import pyarrow as pa

    from headrace.columns.columns import Columns
    from headrace.engine.program import Program
    from headrace.graph.node import Operator


_LEAST = 1_000
"""With fewer rows, building the plan of a tick costs more than the rows do."""


class ColumnarStage:
    """A stage without state over Arrow tables.

    inputs: sources whose rows may come in columns, each with its columns that the flow does not read; these
            may be null.
    in_columns: sinks whose rows may stay columns.
    """

    def __init__(
        self, program: Program, inputs: Mapping[str, AbstractSet[str]], in_columns: AbstractSet[str]
    ) -> None:
        self._program = program
        self._inputs = inputs
        self._in_columns = in_columns

    @cached_property
    def sources(self) -> frozenset[str]:
        """Inputs whose readers all have a columnar form, if columnar nodes after them change their rows."""
        graph = self._program.graph
        readers, found = graph.consumers(), set[str]()
        changes = {node.id for node in graph.nodes if _changes_rows(node.operator)}
        for name in self._inputs if changes else ():
            targets = {edge.target for edge in readers[graph.sources[name]]}
            if self._columnar >= targets and changes & self._reached(name):
                found.add(name)
        return frozenset(found)

    @property
    def nodes(self) -> frozenset[int]:
        """Nodes that compute something, and do so on columns if their source's rows arrive in columns."""
        nodes = self._program.graph.nodes
        reached = frozenset(n for name in self.sources for n in self._reached(name))
        return frozenset(n for n in reached if _computes(nodes[n].operator))

    def _reached(self, name: str) -> set[int]:
        """Return the columnar nodes that a source reaches through columnar nodes."""
        readers, found = self._program.graph.consumers(), set[int]()
        reached = [self._program.graph.sources[name]]
        while reached:
            following = {e.target for e in readers[reached.pop()]} & self._columnar - found
            found.update(following)
            reached.extend(following)
        return found

    @cached_property
    def _columnar(self) -> frozenset[int]:
        program = self._program
        # State has to be that of a cell; and the machine is kept from tick to tick.
        if program.slots:
            return frozenset()
        from headrace.engine.columnar.columnar_plan import plan_columnar

        graph, analysis = program.graph, analyse(program.graph)
        consumers, found = live_consumers(graph), set[int]()
        for part in program.parts:
            plan = plan_columnar(graph, analysis, consumers, part)
            reduced = {feed.source for feed in plan.feeds if feed.reduction is not None}
            found.update(plan.columnar)
            found.update(n for n in plan.rest if reduced.intersection(graph.nodes[n].inputs))
        return frozenset(found)

    def run(self, name: str, table: pa.Table, *, checked: bool = False) -> dict[str, Rows | pa.Table]:
        """Run the stage on a source's rows, in the columns that the flow reads; return the rows per sink.

        checked: whether each value is known to be as declared.
        """
        from headrace.engine.columnar.columnar_intake import columns_of_frame

        graph, append = self._program.graph, self._program.source_append[name]
        schema = graph.nodes[graph.sources[name]].schema
        given: Any = None
        if len(table) >= _LEAST:
            given = columns_of_frame(schema, append, table, unread=self._inputs[name], valid=checked)
        if not given:
            given = table_to_rows(with_all_columns(table, schema), schema, weighted=not append)
        made: dict[str, Any] = self._machine.tick({name: given})
        return {sink: leaving(rows, in_columns=sink in self._in_columns) for sink, rows in made.items()}

    @cached_property
    def _machine(self) -> Machine:
        return Machine(self._program, {}, Columnar(least=1))


def leaving(rows: Rows | Columns, *, in_columns: bool) -> Rows | pa.Table:
    """Convert a stage's output for sending. in_columns: whether it may be a table."""
    if isinstance(rows, list):
        return rows
    if not in_columns:
        return rows.rows()
    return rows.user_frame().to_arrow().cast(arrow_schema(rows.schema, weighted=not rows.append))


def _changes_rows(operator: Operator) -> bool:
    """Return whether a stateless operator may run on columns, and is not just a sink."""
    if isinstance(operator, PartialAggregate):
        return True
    return has_columnar_form(operator) and not isinstance(operator, SinkOperator)


def _computes(operator: Operator) -> bool:
    """Return whether an operator computes something per row without calling user functions."""
    if isinstance(operator, Select):
        return any(not isinstance(expr, Column) for _, expr in operator.columns)
    return _changes_rows(operator) and next(operator.callables(), None) is None
