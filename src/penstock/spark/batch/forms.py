"""In which form an operator runs in a batch: as native columns, row by row in tasks, or in subplans.

An operator that `penstock.spark.batch.operators.lower` knows has a native form. All others
run on the in-process engine, inside tasks: `penstock.spark.batch.in_process_subplans`.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

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


def form(node: Node, graph: FlowGraph) -> Form:
    """The form of a node where nothing behind it reads the order of its rows."""
    operator = node.operator
    native = lower.dispatch(type(operator)) is not lower.dispatch(object)
    if operator.linear and len(node.inputs) == 1 and (not native or next(operator.callables(), None)):
        return Form.ROWS
    # Which row is the first is only known to who has them in order.
    in_order = any(
        operator.reads_order(port) and not graph.nodes[source].operator.at_most_one_row()
        for port, source in enumerate(node.inputs)
    )
    return Form.NATIVE if native and not in_order else Form.SUBPLAN


# --- ticks and time ----------------------------------------------------------------------


def starts_ticks(operator: Operator) -> bool:
    """Whether rows of it come in a tick after the one that has the input."""
    return any(port.delay is Delay.TICK for port in operator.ports())


def counts_ticks(operator: Operator) -> bool:
    """Whether it speaks in ticks that something else starts, so that their number shows."""
    return operator.runs_each_tick or any(port.delay is Delay.LAZY for port in operator.ports())
