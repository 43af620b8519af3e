"""In which form an operator runs in a batch: as native columns, row by row in tasks, or in subplans.

An operator that `penstock.spark.batch.operators.lower` knows has a native form. All others
run on the in-process engine, inside tasks: `penstock.spark.batch.in_process_subplans`.
"""

from __future__ import annotations

from enum import Enum
from functools import singledispatch
from typing import TYPE_CHECKING

from penstock.expr.tree import Expr
from penstock.flow.operators.aggregate import Aggregate
from penstock.flow.operators.cross_singleton import CrossSingleton
from penstock.flow.operators.distinct_on_time import DistinctOnTime
from penstock.flow.operators.end_of_input import EndOfInput
from penstock.flow.operators.filter import Filter
from penstock.flow.operators.flatten import Flatten
from penstock.flow.operators.fold import Fold
from penstock.flow.operators.fold_tick import FoldTick
from penstock.flow.operators.initialize import Initialize
from penstock.flow.operators.join_on_time import JoinOnTime
from penstock.flow.operators.least_watermark import LeastWatermark
from penstock.flow.operators.partition import Partition
from penstock.flow.operators.reduce import Reduce
from penstock.flow.operators.watermark import Watermark
from penstock.flow.operators.window import Window
from penstock.flow.row_function import RowFunction
from penstock.graph.facts import Delay
from penstock.spark.batch import aggregates as batch_aggregates
from penstock.spark.batch import joins as batch_joins
from penstock.spark.batch import rows as batch_rows
from penstock.spark.batch import sets as batch_sets
from penstock.spark.batch import sources as batch_sources
from penstock.spark.batch.operators import lower

if TYPE_CHECKING:
    from penstock.graph.node import FlowGraph, Node, Operator


THEMES = (batch_aggregates, batch_joins, batch_rows, batch_sets, batch_sources)
"""The modules that say how operators are native: they register with `lower`."""


class Form(Enum):
    """How an operator runs in a batch, where nothing reads the order of its rows."""

    NATIVE = "native"
    ROWS = "row by row, wherever rows are"
    SUBPLAN = "on the in-process engine"


@singledispatch
def form(operator: Operator, node: Node, graph: FlowGraph) -> Form:
    """The form of an operator that stands where nothing reads the order of its rows."""
    known = lower.dispatch(type(operator)) is not lower.dispatch(object)
    return Form.NATIVE if known else Form.SUBPLAN


@form.register(RowFunction)
@form.register(Flatten)
@form.register(Partition)
def _(operator: Operator, node: Node, graph: FlowGraph) -> Form:
    return Form.ROWS


@form.register(Filter)
def _(operator: Filter, node: Node, graph: FlowGraph) -> Form:
    return Form.NATIVE if isinstance(operator.predicate, Expr) else Form.ROWS


@form.register(CrossSingleton)
def _(operator: CrossSingleton, node: Node, graph: FlowGraph) -> Form:
    # Which row is the first is only known to who has them in order.
    return Form.NATIVE if has_one_row(graph.nodes[node.inputs[1]].operator) else Form.SUBPLAN


def has_one_row(operator: Operator) -> bool:
    """Whether it answers a tick with one row at most: then that row's order is no question."""
    if isinstance(operator, Aggregate):
        return not operator.keys
    return isinstance(operator, Fold | FoldTick | Initialize | Reduce)


# --- ticks and time ----------------------------------------------------------------------


def starts_ticks(operator: Operator) -> bool:
    """Whether rows of it come in a tick after the one that has the input."""
    return any(port.delay is Delay.TICK for port in operator.ports())


def counts_ticks(operator: Operator) -> bool:
    """Whether it speaks in ticks that something else starts, so that their number shows."""
    return operator.runs_each_tick or any(port.delay is Delay.LAZY for port in operator.ports())


@singledispatch
def needless_ports(operator: Operator) -> tuple[int, ...]:
    """Inputs that an operator can do without in a batch.

    A watermark tells what can be forgotten, and when a window closes. Rows behind a watermark
    are on time, whoever reads them; in a batch all input comes at once and then ends: so every
    window closes, and there is nothing to forget.
    """
    return ()


@needless_ports.register(Window)
@needless_ports.register(DistinctOnTime)
def _(operator: Operator) -> tuple[int, ...]:
    return (1,)


@needless_ports.register(JoinOnTime)
def _(operator: Operator) -> tuple[int, ...]:
    return (2, 3)


def tells_time(operator: Operator) -> bool:
    """Whether it gives watermarks, which only operators in the same subplan can read."""
    return isinstance(operator, EndOfInput | LeastWatermark | Watermark)
