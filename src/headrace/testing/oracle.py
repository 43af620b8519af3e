"""Oracle: the results of a flow recomputed from scratch, without increments or an engine.

A bag is a `Counter` of rows. Given the whole input of every source, each operator's output bag follows from
its input bags by the definition in the operator's docstring. An engine is correct if its accumulated outputs
equal these bags. Keep the oracle simple, so that its correctness can be verified by reading it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from headrace.errors import NoFixpoint
from headrace.expr.types import Row
from headrace.graph.node import FlowGraph, Operator
from headrace.lowering.reference import Bag, NotOfBags, answer_of_bags, bag_of
from headrace.operators.endpoints import SourceOperator
from headrace.operators.feedback import FeedbackOperator
from headrace.operators.order import AssumeOrdered


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
            if isinstance(node.operator, SourceOperator):
                bags[node.id] = given[node.operator.name]
            else:
                read = [(graph.nodes[i].schema, bags[i]) for i in node.inputs]
                bags[node.id] = bag_of(answer_of_bags(node.operator, node, read))
        if bags == before:
            return bags
    raise NoFixpoint(f"flow {graph.name!r} found new rows in {rounds} rounds and more")
