"""Oracle: the results of a flow recomputed from scratch, without increments or an engine.

A bag is a `Counter` of rows. Given the whole input of every source, each operator's output bag follows from
its input bags by the definition in the operator's docstring. An engine is correct if its accumulated outputs
equal these bags. Keep the oracle simple, so that its correctness can be verified by reading it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.errors import NoFixpoint
from headrace.expr.types import Schema
from headrace.graph.node import FlowGraph, Node, Operator
from headrace.lowering.reference import (
    Bag,
    Bags,
    NotOfBags,
    Row,
    answer_of_bags,
    bag_of,
    copies,
    function_of,
    functions_of,
    rank,
)
from headrace.operators.aggregate import Aggregate
from headrace.operators.assume_ordered import AssumeOrdered
from headrace.operators.chain import Chain
from headrace.operators.defer_tick import DeferTick
from headrace.operators.difference import Difference
from headrace.operators.distinct import Distinct
from headrace.operators.feedback import FeedbackOperator
from headrace.operators.join import How, Join
from headrace.operators.null import Null
from headrace.operators.source import Source
from headrace.operators.top_k import TopK
from headrace.testing.oracle_aggregates import answer_of


def reads_ticks(operator: Operator) -> bool:
    """Return whether an operator's output depends on the cut into ticks, not only on the order of changes."""
    return bool(operator.depends_on_cut()) and not isinstance(operator, AssumeOrdered)


def answers(graph: FlowGraph, inputs: Mapping[str, Mapping[Row, int]]) -> dict[str, Bag]:
    """Compute the contents of each sink for all of `inputs`: internal rows with counts.

    inputs: rows of each source with their multiplicities, never negative.
    Raises `EvaluationError` if an expression does, `NoFixpoint` for a loop without one.
    """
    bags = node_bags(graph, inputs)
    return {name: bags[node] for name, node in graph.sinks.items()}


def node_bags(graph: FlowGraph, inputs: Mapping[str, Mapping[Row, int]]) -> list[Bag]:
    """Compute the output bag of every node, by node id.

    Only feedbacks read later nodes. They start empty, and all bags are recomputed until nothing changes any
    more.

    Raises `NotOfBags` for an operator that treats each tick separately, for which see `TickOracle`.
    """
    for node in graph.nodes:
        if reads_ticks(node.operator):
            raise NotOfBags(f"{node.name!r} answers each tick for itself")
    given = {name: bag_of(inputs.get(name, {})) for name in graph.sources}
    bags: list[Bag] = [Counter() for _ in graph.nodes]
    loops = [n.operator for n in graph.nodes if isinstance(n.operator, FeedbackOperator)]
    rounds = 2 + max((loop.max_iterations for loop in loops), default=0)
    for _ in range(rounds):
        before = list(bags)
        for node in graph.nodes:
            if isinstance(node.operator, Source):
                bags[node.id] = given[node.operator.name]
            else:
                read = [(graph.nodes[i].schema, bags[i]) for i in node.inputs]
                bags[node.id] = bag_of(answer_of_bags(node.operator, node, read))
        if bags == before:
            return bags
    raise NoFixpoint(f"flow {graph.name!r} found new rows in {rounds} rounds and more")


@answer_of_bags.register
def _defer_tick(operator: DeferTick, node: Node, inputs: Bags) -> Bag:
    # Once nothing is pending, deferred rows have arrived.
    return inputs[0][1]


@answer_of_bags.register
def _chain(operator: Chain, node: Node, inputs: Bags) -> Bag:
    return Counter(row for _, bag in inputs for row in copies(bag))


@answer_of_bags.register
def _null(operator: Null, node: Node, inputs: Bags) -> Bag:
    return Counter()


@answer_of_bags.register
def _distinct(operator: Distinct, node: Node, inputs: Bags) -> Bag:
    return Counter(set(inputs[0][1]))


@answer_of_bags.register
def _difference(operator: Difference, node: Node, inputs: Bags) -> Bag:
    (_, pos), (_, neg) = inputs
    return Counter({row: count for row, count in pos.items() if row not in neg})


@answer_of_bags.register
def _join(operator: Join, node: Node, inputs: Bags) -> Bag:
    (left_schema, left), (right_schema, right) = inputs
    fields = zip((*left_schema.fields, *right_schema.fields), operator.pair_names, strict=True)
    pair_schema = Schema(tuple(replace(field, name=name) for field, name in fields))
    left_key = functions_of(operator.left_keys, left_schema)
    right_key = functions_of(operator.right_keys, right_schema)
    residual = None if operator.residual is None else function_of(operator.residual, pair_schema)

    def partners(row: Row) -> list[Row]:
        key = left_key(row)
        if None in key:
            return []
        equal = [other for other in copies(right) if right_key(other) == key]
        return [other for other in equal if residual is None or residual((*row, *other)) is True]

    out: Bag = Counter()
    for row in copies(left):
        found = partners(row)
        if operator.how is How.SEMI:
            out.update([row] if found else [])
        elif operator.how is How.ANTI:
            out.update([] if found else [row])
        else:
            if operator.how is How.LEFT and not found:
                found = [(None,) * len(right_schema.fields)]
            out.update((*row, *(other[at] for at in operator.kept_right)) for other in found)
    return out


@answer_of_bags.register
def _aggregate(operator: Aggregate, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    key = functions_of([expr for _, expr in operator.keys], schema)
    groups: dict[Row, list[Row]] = {}
    for row in copies(bag):
        groups.setdefault(key(row), []).append(row)
    out: Bag = Counter()
    for group, rows in groups.items():
        values: list[Any] = []
        for name, aggregation in operator.aggregations:
            arguments = functions_of(aggregation.arguments(), schema)
            field = aggregation.field(name, schema)
            values.append(answer_of(aggregation, field.type, [arguments(row) for row in rows]))
        out[(*group, *values)] += 1
    return out


@answer_of_bags.register
def _top_k(operator: TopK, node: Node, inputs: Bags) -> Bag:
    [(schema, bag)] = inputs
    per = functions_of(operator.per, schema)
    groups: dict[Row, list[Row]] = {}
    for row in copies(bag):
        groups.setdefault(per(row), []).append(row)
    out: Bag = Counter()
    for rows in groups.values():
        rows.sort(key=rank)
        # Sorts are stable, so sort by the least significant column first.
        for ordering in reversed(operator.by):
            value = function_of(ordering.expr, schema)
            rows.sort(key=lambda row: rank(value(row)), reverse=ordering.descending)
        out.update(rows[: operator.count])
    return out
