"""Where 0.0 must be put for -0.0: both are equal, so one of them stands for all where equal rows are one.

The rows of a table are counted by equality. What is shown of them must not depend on which of
two equal rows came first, so every row of a table holds 0.0, from its source on. Rows that are
only added stand by themselves and stay as they came; an operator that makes one of equal ones
(a group, a distinct row, a maximum) gives 0.0, too.

Found here is behind which operators an engine must see to it, and behind which it need not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING

from penstock.expr.keys import holds_floats
from penstock.expr.tree import Column
from penstock.flow.operators.aggregate import Aggregate
from penstock.flow.operators.assume_ordered import AssumeOrdered
from penstock.flow.operators.bag_feedback import BagFeedback
from penstock.flow.operators.chain import Chain
from penstock.flow.operators.defer_signal import DeferSignal
from penstock.flow.operators.defer_tick import DeferTick
from penstock.flow.operators.defer_tick_lazy import DeferTickLazy
from penstock.flow.operators.difference import Difference
from penstock.flow.operators.distinct import Distinct
from penstock.flow.operators.distinct_on_time import DistinctOnTime
from penstock.flow.operators.every_tick import EveryTick
from penstock.flow.operators.feedback import Feedback
from penstock.flow.operators.filter import Filter
from penstock.flow.operators.inspect import Inspect
from penstock.flow.operators.join import Join
from penstock.flow.operators.partition import Partition
from penstock.flow.operators.select import Select
from penstock.flow.operators.sink import Sink
from penstock.flow.operators.top_k import TopK
from penstock.flow.operators.union import Union
from penstock.flow.operators.unique import Unique
from penstock.flow.operators.window import Window

if TYPE_CHECKING:
    from penstock.graph.facts import Facts
    from penstock.graph.node import FlowGraph, Operator


@dataclass(frozen=True, slots=True)
class Zeros:
    """What is known of the floats of each node's rows, by node id.

    one:  none is -0.0 where the rows are read.
    made: that is so because an engine makes it so.
    """

    one: tuple[bool, ...]
    made: frozenset[int]


def find_zeros(graph: FlowGraph, facts: Sequence[Facts]) -> Zeros:
    """See `Zeros`. In a cycle no more is known of rows that are only added than of those that enter it."""
    one = [not any(holds_floats(field.type) for field in node.schema.fields) for node in graph.nodes]
    made: set[int] = set()
    for node in graph.nodes:
        if one[node.id] or keeps_one_zero(
            node.operator, [one[i] or not facts[i].append for i in node.inputs]
        ):
            one[node.id] = True
        elif not facts[node.id].append:
            one[node.id] = True
            made.add(node.id)
    return Zeros(tuple(one), frozenset(made))


@singledispatch
def keeps_one_zero(operator: Operator, inputs: Sequence[bool]) -> bool:
    """Whether no float that an operator gives is -0.0, given of which inputs that holds."""
    return False


@keeps_one_zero.register(AssumeOrdered)
@keeps_one_zero.register(BagFeedback)
@keeps_one_zero.register(Chain)
@keeps_one_zero.register(DeferSignal)
@keeps_one_zero.register(DeferTick)
@keeps_one_zero.register(DeferTickLazy)
@keeps_one_zero.register(Difference)
@keeps_one_zero.register(EveryTick)
@keeps_one_zero.register(Filter)
@keeps_one_zero.register(Inspect)
@keeps_one_zero.register(Join)
@keeps_one_zero.register(Partition)
@keeps_one_zero.register(Sink)
@keeps_one_zero.register(Union)
def _hands_on(operator: Operator, inputs: Sequence[bool]) -> bool:
    return all(inputs)


@keeps_one_zero.register(Aggregate)
@keeps_one_zero.register(Distinct)
@keeps_one_zero.register(DistinctOnTime)
@keeps_one_zero.register(Feedback)
@keeps_one_zero.register(TopK)
@keeps_one_zero.register(Unique)
@keeps_one_zero.register(Window)
def _makes_one_of_equal(operator: Operator, inputs: Sequence[bool]) -> bool:
    return True


@keeps_one_zero.register
def _select(operator: Select, inputs: Sequence[bool]) -> bool:
    return all(inputs) and all(isinstance(expr, Column) for _, expr in operator.columns)
