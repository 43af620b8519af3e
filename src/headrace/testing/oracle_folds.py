"""Oracle for unique, recomputed from scratch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from headrace.graph.node import Node
from headrace.lowering.reference import Bag, Bags, OperatorInput, answer_of_bags, output_of_tick
from headrace.operators.lifetime import Lifetime
from headrace.operators.unique import Unique


@answer_of_bags.register
def _unique(operator: Unique, node: Node, inputs: Bags) -> Bag:
    return Counter(set(inputs[0][1]))


@output_of_tick.register(Unique)
def _of_a_tick(operator: Unique, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    static = replace(operator, lifetime=Lifetime.STATIC)
    return answer_of_bags(static, node, [inputs[0].rows(of_tick=True)])
