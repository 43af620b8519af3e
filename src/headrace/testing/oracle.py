"""Oracle: the results of a flow recomputed from scratch, without increments or an engine.

A bag is a `Counter` of rows. Given the whole input of every source, each operator's output bag follows from
its input bags by the definition in the operator's docstring. An engine is correct if its accumulated outputs
equal these bags. Keep the oracle simple, so that its correctness can be verified by reading it.

`TickOracle` is for operators that treat ticks separately. Most operators are functions of all rows so far:
their output in a tick is the difference to the previous tick. The others get this tick's rows along with all
present rows, and each defines its output in a line. Bags have no order, so operators that read the order are
unsupported (`NotOfBags`), as are loops within a tick that contain operators of this kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.analysis import analyse
from headrace.errors import NoFixpoint
from headrace.expr.types import Row
from headrace.graph.node import FlowGraph, Node, Operator
from headrace.lowering.reference import (
    Bag,
    NotOfBags,
    OperatorInput,
    answer_of_bags,
    bag_difference,
    bag_of,
    output_of_tick,
    sum_bags,
)
from headrace.operators.across_ticks import DeferTick
from headrace.operators.aggregate.aggregate import Aggregate
from headrace.operators.endpoints import SourceOperator
from headrace.operators.feedback import FeedbackOperator
from headrace.operators.lifetime import Lifetime
from headrace.operators.order import AssumeOrdered
from headrace.operators.top_k import TopK


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


class TickOracle:
    """Oracle that recomputes a flow from scratch in each tick."""

    def __init__(self, graph: FlowGraph) -> None:
        self._graph = graph
        ranks = analyse(graph).ranks
        self._order = sorted(graph.nodes, key=lambda node: ranks[node.id])
        self._loops = [n.operator for n in graph.nodes if isinstance(n.operator, FeedbackOperator)]
        self._past: list[list[Bag]] = [[] for _ in graph.nodes]

    def tick(self, inputs: Mapping[str, Mapping[Row, int]]) -> dict[str, Bag]:
        """Compute the changes at every sink from those at the sources: rows with counts.

        Raises `NotOfBags` for a flow with an unsupported operator.
        """
        before = [sum_bags(changes) for changes in self._past]
        now: list[Bag] = [Counter() for _ in self._graph.nodes]
        rounds = 2 + max((loop.max_iterations for loop in self._loops), default=0)
        for _ in range(rounds):
            so_far = list(now)
            for node in self._order:
                if isinstance(node.operator, SourceOperator):
                    now[node.id] = sum_bags([before[node.id], Counter(inputs.get(node.operator.name, {}))])
                else:
                    now[node.id] = self._holds(node, before, now)
            if now == so_far:
                break
        for node_id, changes in enumerate(self._past):
            changes.append(bag_difference(now[node_id], before[node_id]))
        return {name: self._past[node][-1] for name, node in self._graph.sinks.items()}

    def _holds(self, node: Node, before: Sequence[Bag], now: Sequence[Bag]) -> Bag:
        """Return everything that a node has output by the end of this tick."""
        reads = [
            OperatorInput(self._graph.nodes[i].schema, [*self._past[i], bag_difference(now[i], before[i])])
            for i in node.inputs
        ]
        if isinstance(node.operator, DeferTick) or reads_ticks(node.operator):
            return sum_bags([before[node.id], output_of_tick(node.operator, node, reads)])
        return answer_of_bags(node.operator, node, [(read.schema, read.now) for read in reads])


@output_of_tick.register(Aggregate)
@output_of_tick.register(TopK)
def _of_one(operator: Aggregate | TopK, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    static = replace(operator, lifetime=Lifetime.STATIC)
    return answer_of_bags(static, node, [inputs[0].rows(of_tick=operator.lifetime is Lifetime.TICK)])
