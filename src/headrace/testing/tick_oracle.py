"""Per-tick oracle: a flow's results recomputed from scratch, for operators that treat ticks separately.

Most operators are functions of all rows so far (`oracle`): their output in a tick is the difference to the
previous tick. The others get this tick's rows along with all present rows, and each defines its output in a
line. Bags have no order, so operators that read the order are unsupported (`NotOfBags`), as are loops within
a tick that contain operators of this kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.analysis import analyse
from headrace.expr.types import Row
from headrace.graph.node import FlowGraph, Node
from headrace.lowering.reference import (
    Bag,
    OperatorInput,
    answer_of_bags,
    bag_difference,
    output_of_tick,
    sum_bags,
)
from headrace.operators.across_ticks import DeferTick
from headrace.operators.aggregate.aggregate import Aggregate
from headrace.operators.endpoints import SourceOperator
from headrace.operators.feedback import FeedbackOperator
from headrace.operators.lifetime import Lifetime
from headrace.operators.top_k import TopK
from headrace.testing.oracle import reads_ticks


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
