"""Pre-aggregation before exchanges, to reduce the number of rows sent.

An aggregate whose parts can be merged is split in two before the flow is cut into stages: a partial aggregate
that stays with its input, and one that keeps the groups. A top-k over rows that are never retracted gets a
preselection likewise, and grid windows are pre-aggregated by slice. The flow alone decides which operators
are split, because the layout of the state depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import singledispatch
from typing import TYPE_CHECKING

from headrace.analysis import analyse
from headrace.engine.partial_operators import (
    SLICE,
    MergedAggregate,
    MergedWindow,
    PartialAggregate,
    PartialTopK,
    PartialWindow,
)
from headrace.expr.check import check
from headrace.expr.tree import Column
from headrace.expr.types import INT64, Field, Schema
from headrace.graph.node import FlowGraph, Node, Operator
from headrace.operators.aggregate.aggregate import Aggregate
from headrace.operators.aggregate.aggregation import all_partial_columns
from headrace.operators.event_time.window import Window
from headrace.operators.lifetime import Lifetime
from headrace.operators.rows import Select
from headrace.operators.time_spans import Grid
from headrace.operators.top_k import TopK
from headrace.spark.placing.stages import cut_stages

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.expr.tree import Expr
    from headrace.operators.aggregate.aggregation import Aggregation

ROWS = "rows"
"""Column of a partial aggregate's output with the group's row count."""


def insert_partial_operators(graph: FlowGraph) -> FlowGraph:
    """Insert partial operators before the exchanges of a flow. Nodes keep their numbers; new ones come last.

    Raises `NotOnSpark` like `stages.cut_stages`.
    """
    exchanged = sorted(set(_lone_readers(graph)))
    if not exchanged:
        return graph
    appends = [facts.append for facts in analyse(graph).facts]
    nodes = list(graph.nodes)
    for at in exchanged:
        node = graph.nodes[at]
        source, *others = node.inputs
        divided = divide_operator(node.operator, graph.nodes[source].schema, appends[source])
        if divided is None:
            continue
        for operator, schema in divided.before:
            nodes.append(Node(len(nodes), node.name, operator, (source,), schema, node.location))
            source = nodes[-1].id
        nodes[at] = replace(node, operator=divided.after, inputs=(source, *others))
    return replace(graph, nodes=tuple(nodes))


def combined_nodes(graph: FlowGraph) -> Collection[int]:
    """Return the nodes whose rows are pre-aggregated before they are sent to shards."""
    return {
        at
        for at, node in enumerate(insert_partial_operators(graph).nodes[: len(graph.nodes)])
        if node != graph.nodes[at]
    }


def _lone_readers(graph: FlowGraph) -> Iterator[int]:
    """Yield the nodes whose first input comes through an exchange and is needed in aggregated form only."""
    # With any number of shards above one the cut is the same; with one there is less to see.
    for stage in cut_stages(graph, 2).stages:
        readers = stage.graph.consumers()
        for exchange in stage.arriving:
            edges = readers[stage.graph.sources[exchange.name]]
            targets = [at for e in edges if (at := stage.origins[e.target]) is not None]
            alone = all(edge.port == 0 for edge in edges)
            if alone and all(_may_be_divided(graph.nodes[at].operator) for at in targets):
                yield from targets


def _may_be_divided(operator: Operator) -> bool:
    if isinstance(operator, Window):
        return isinstance(operator.shape, Grid)
    return isinstance(operator, Aggregate | TopK) and operator.lifetime is Lifetime.STATIC


@dataclass(frozen=True, slots=True)
class DividedOperator:
    """An operator split in two. before: operators on the sending side, with schemas, in order.

    after: what reads that.
    """

    before: tuple[tuple[Operator, Schema], ...]
    after: Operator


@singledispatch
def divide_operator(operator: Operator, rows: Schema, appends: bool) -> DividedOperator | None:
    """Split an operator over `rows`; None if it cannot be split.

    appends: whether `rows` are never retracted.
    """
    return None


@divide_operator.register(Aggregate)
def _(operator: Aggregate, rows: Schema, appends: bool) -> DividedOperator | None:
    if all_partial_columns([a for _, a in operator.aggregations], rows, appends=appends) is None:
        return None
    # What it reads becomes columns of their own first: so a DataFrame computes them, and nothing else
    # of the row is handed to Python.
    columns = ColumnCollector(rows)
    keys = tuple((name, columns.add(expr, f"key {n}")) for n, (name, expr) in enumerate(operator.keys))
    aggregations: list[tuple[str, Aggregation]] = []
    for name, aggregation in operator.aggregations:
        arguments = {f.name: getattr(aggregation, f.name) for f in fields(aggregation)}
        found = {
            label: columns.of(expr, f"argument {len(columns.named)}")
            for label, expr in arguments.items()
            if expr is not None
        }
        aggregations.append((name, replace(aggregation, **found)))
    if not columns.named:  # a row needs a column to be counted
        columns.add(Column(rows.names[0]), "row")
    over = replace(operator, keys=keys, aggregations=tuple(aggregations))
    sums = all_partial_columns([a for _, a in over.aggregations], columns.schema, appends=appends)
    assert sums is not None, "what can be divided over rows can be over their columns"
    sent = Schema((*(columns.field(key) for _, key in keys), Field(ROWS, INT64), *sums))
    return DividedOperator(
        (
            (Select(tuple(columns.named)), columns.schema),
            (PartialAggregate(over, operator.describe()), sent),
        ),
        MergedAggregate(over, keys, columns.schema, appends, operator.describe()),
    )


@divide_operator.register(Window)
def _(operator: Window, rows: Schema, appends: bool) -> DividedOperator | None:
    time = check(operator.time, rows).type
    sums = all_partial_columns([a for _, a in operator.aggregations], rows, appends=True)
    if sums is None:
        return None
    keys = [(f"key {n}", name, check(expr, rows)) for n, (name, expr) in enumerate(operator.keys)]
    fields = (Field(column, key.type, key.nullable) for column, _, key in keys)
    sent = Schema((*fields, Field(SLICE, time), Field(ROWS, INT64), *sums))
    merged = MergedWindow(operator, tuple((name, Column(column)) for column, name, _ in keys), rows)
    return DividedOperator(((PartialWindow(operator), sent),), merged)


@divide_operator.register(TopK)
def _(operator: TopK, rows: Schema, appends: bool) -> DividedOperator | None:
    return DividedOperator(((PartialTopK(operator), rows),), operator) if appends else None


@dataclass(frozen=True, slots=True)
class ColumnCollector:
    """Collector of expressions over rows, which gives each one a column."""

    rows: Schema
    named: list[tuple[str, Expr]] = field(default_factory=list[tuple[str, "Expr"]])

    def of(self, expr: Expr, name: str) -> Column:
        """Return the column of an expression, added under `name` if it is new."""
        known = next((known for known, there in self.named if there.same(expr)), None)
        return self.add(expr, name) if known is None else Column(known)

    def add(self, expr: Expr, name: str) -> Column:
        """Add a column for an expression."""
        self.named.append((name, expr))
        return Column(name)

    @property
    def schema(self) -> Schema:
        typed = [(name, check(expr, self.rows)) for name, expr in self.named]
        return Schema(tuple(Field(name, t.type, t.nullable) for name, t in typed))

    def field(self, column: Column) -> Field:
        """Return the field of one of these columns."""
        return next(f for f in self.schema.fields if f.name == column.name)
