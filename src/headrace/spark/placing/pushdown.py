"""Pushdown: filters and projections into Spark's plan of a source, aggregates below the exchanges.

A native part contains only expressions, and ends where another operator reads an intermediate result.
Catalyst plans it together with the user's own query, and fewer and narrower rows reach Python, where a
partial aggregate after it runs on columns (`headrace.spark.ticks.columnar_stage`). A source of files has no
native part, because tasks create its rows.

An aggregate whose parts can be merged is split in two before the flow is cut into stages: a partial
aggregate that stays with its input, and one that keeps the groups. A top-k over rows that are never
retracted gets a preselection likewise, and grid windows are pre-aggregated by slice. The flow alone decides
which operators are split, because the layout of the state depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import singledispatch
from typing import TYPE_CHECKING, TypeAlias

from headrace.analysis import analyse
from headrace.engine.partial_aggregation import (
    SLICE,
    MergedAggregate,
    MergedWindow,
    PartialAggregate,
    PartialTopK,
    PartialWindow,
)
from headrace.expr.check import check
from headrace.expr.tree import Column, Expr
from headrace.expr.types import INT64, Field, Schema
from headrace.graph.node import FlowGraph, Node, Operator
from headrace.io.source import WEIGHT
from headrace.operators.aggregate.aggregate import Aggregate
from headrace.operators.aggregate.aggregation import all_partial_columns
from headrace.operators.endpoints import SinkOperator, SourceOperator
from headrace.operators.event_time.window import Window
from headrace.operators.lifetime import Lifetime
from headrace.operators.rows import Filter, Select
from headrace.operators.time_spans import Grid
from headrace.operators.top_k import TopK
from headrace.spark.placing.stages import Stage, StagePlan, cut_stages

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from headrace.operators.aggregate.aggregation import Aggregation


NativeChain: TypeAlias = tuple[Node, ...]
"""A source and the operators after it that Spark runs natively."""


def native_parts(graph: FlowGraph, names: Iterable[str]) -> dict[str, NativeChain]:
    """Return the longest native chain of each source, by name; just the source if there is none."""
    readers = graph.consumers()
    chains: dict[str, NativeChain] = {}
    for name in names:
        chain = [graph.nodes[graph.sources[name]]]
        while len(readers[chain[-1].id]) == 1:
            following = graph.nodes[readers[chain[-1].id][0].target]
            if not is_native(following):
                break
            chain.append(following)
        chains[name] = tuple(chain)
    return chains


def is_native(node: Node) -> bool:
    """Return whether Spark can run a node natively: a projection, or a filter by an expression."""
    is_filter = isinstance(node.operator, Filter) and isinstance(node.operator.predicate, Expr)
    return is_filter or isinstance(node.operator, Select)


def apply_native_chain(frame: DataFrame, chain: NativeChain, *, weighted: bool) -> DataFrame:
    """Apply a native chain to the rows of a source.

    weighted: the last column is the weight, which is kept. Since the rows belong to a table, -0.0 is replaced
          by 0.0.
    """
    from headrace.expr.spark_columns import with_representatives
    from headrace.spark.native_expressions import to_column

    schema: Schema = chain[0].schema
    if weighted:
        frame = with_representatives(frame, schema)
    kept: list[SparkColumn] = [frame[WEIGHT]] if weighted else []
    for node in chain[1:]:
        match node.operator:
            case Filter(predicate=Expr() as predicate):
                frame = frame.filter(to_column(predicate, schema))
            case Select(columns=columns):
                made = [to_column(expr, schema).alias(name) for name, expr in columns]
                frame = frame.select(*made, *kept)
                if weighted:
                    frame = with_representatives(frame, node.schema)
            case _:
                raise AssertionError(f"{node.operator.kind} is not native")
        schema = node.schema
    return frame


def without_native(plan: StagePlan, chains: Mapping[str, NativeChain]) -> StagePlan:
    """Return the plan with native parts removed from stage 0."""
    first, *others = plan.stages
    return replace(plan, stages=(_shortened(first, chains), *others))


def _shortened(stage: Stage, chains: Mapping[str, NativeChain]) -> Stage:
    # Of a source that nobody reads, the stage has the source alone.
    there = {name: [n.id for n in chain if n.id in stage.origins] for name, chain in chains.items()}
    gone = {node for chain in there.values() for node in chain[:-1]}
    ends = {chain[-1]: name for name, chain in there.items()}
    numbers = [at for at, origin in enumerate(stage.origins) if origin not in gone]
    new = {old: at for at, old in enumerate(numbers)}
    nodes: list[Node] = []
    for old in numbers:
        node, origin = stage.graph.nodes[old], stage.origins[old]
        if origin in ends:
            name = ends[origin]
            source = chains[name][0].operator
            assert isinstance(source, SourceOperator)
            schema = chains[name][-1].schema
            operator = replace(source, schema=schema)
            nodes.append(replace(node, id=new[old], schema=schema, operator=operator, inputs=()))
        else:
            nodes.append(replace(node, id=new[old], inputs=tuple(new[i] for i in node.inputs)))
    sources = {n.operator.name: n.id for n in nodes if isinstance(n.operator, SourceOperator)}
    sinks = {n.operator.name: n.id for n in nodes if isinstance(n.operator, SinkOperator)}
    graph = replace(stage.graph, nodes=tuple(nodes), sources=sources, sinks=sinks)
    return replace(stage, graph=graph, origins=tuple(stage.origins[old] for old in numbers))


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
