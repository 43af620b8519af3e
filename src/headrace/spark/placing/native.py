"""Native parts: filters and projections directly after a DataFrame source, run by Spark itself.

A native part contains only expressions, and ends where another operator reads an intermediate result.
Catalyst plans it together with the user's own query, and fewer and narrower rows reach Python, where a
partial aggregate after it runs on columns (`headrace.spark.ticks.columnar_stage`). A source of files has no
native part, because tasks create its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from headrace.expr.tree import Expr
from headrace.graph.node import FlowGraph, Node
from headrace.io.source import WEIGHT
from headrace.operators.endpoints import Sink, Source
from headrace.operators.rows import Filter, Select
from headrace.spark.placing.stages import Stage, StagePlan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headrace.expr.types import Schema

Chain: TypeAlias = tuple[Node, ...]
"""A source and the operators after it that Spark runs natively."""


def native_parts(graph: FlowGraph, names: Iterable[str]) -> dict[str, Chain]:
    """Return the longest native chain of each source, by name; just the source if there is none."""
    readers = graph.consumers()
    chains: dict[str, Chain] = {}
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


def apply_native_chain(frame: DataFrame, chain: Chain, *, weighted: bool) -> DataFrame:
    """Apply a native chain to the rows of a source.

    weighted: the last column is the weight, which is kept. Since the rows belong to a table, -0.0 is replaced
          by 0.0.
    """
    from headrace.expr.spark_columns import with_representatives
    from headrace.spark.expressions import to_column

    schema: Schema = chain[0].schema
    if weighted:
        frame = with_representatives(frame, schema)
    kept: list[Column] = [frame[WEIGHT]] if weighted else []
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


def without_native(plan: StagePlan, chains: Mapping[str, Chain]) -> StagePlan:
    """Return the plan with native parts removed from stage 0."""
    first, *others = plan.stages
    return replace(plan, stages=(_shortened(first, chains), *others))


def _shortened(stage: Stage, chains: Mapping[str, Chain]) -> Stage:
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
            assert isinstance(source, Source)
            schema = chains[name][-1].schema
            operator = replace(source, schema=schema)
            nodes.append(replace(node, id=new[old], schema=schema, operator=operator, inputs=()))
        else:
            nodes.append(replace(node, id=new[old], inputs=tuple(new[i] for i in node.inputs)))
    sources = {n.operator.name: n.id for n in nodes if isinstance(n.operator, Source)}
    sinks = {n.operator.name: n.id for n in nodes if isinstance(n.operator, Sink)}
    graph = replace(stage.graph, nodes=tuple(nodes), sources=sources, sinks=sinks)
    return replace(stage, graph=graph, origins=tuple(stage.origins[old] for old in numbers))
