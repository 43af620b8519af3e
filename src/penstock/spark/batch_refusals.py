"""What does not run as a batch on Spark: refused before anything is computed, with reason and way out."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from penstock.errors import NotOnSpark
from penstock.expr.types import AnyType, DataType, ListType, StructType
from penstock.flow.operators.signals.signal_operator import SignalOperator
from penstock.flow.operators.signals.value_rows import ValueRows

if TYPE_CHECKING:
    from penstock.graph.node import FlowGraph, Node, Operator

_SIGNALS = """Each value of a signal is a tick of its own, and what several of them show depends on
which came first.
A batch has one tick for all input, and its sources have no order among each other."""
_IN_PROCESS = "run the flow in-process, with penstock.run(flow, ...)"


@singledispatch
def refused_as_batch(operator: Operator) -> tuple[str, str]:
    """Why an operator does not run as a batch, in sentences, and a way out; both empty where it runs."""
    return "", ""


@refused_as_batch.register(SignalOperator)
@refused_as_batch.register(ValueRows)
def _(operator: Operator) -> tuple[str, str]:
    return _SIGNALS, f"{_IN_PROCESS};\nor let it write to files, and give those to a flow on Spark"


def check_runs_as_batch(graph: FlowGraph) -> None:
    """Raises `NotOnSpark` for the first operator that does not run, or carries what cannot travel."""
    for node in graph.nodes:
        why, fix = refused_as_batch(node.operator)
        if not why:
            why, fix = _why_rows_cannot_travel(node)
        if why:
            raise NotOnSpark(
                f"{node.operator.kind} does not run as a batch on Spark",
                where=[node.place],
                why=why,
                fix=fix,
                operator=node.name,
            )


def _why_rows_cannot_travel(node: Node) -> tuple[str, str]:
    for field in node.schema.fields:
        if _holds_any(field.type):
            return (
                f"Column {field.name!r} may hold any Python value, and Spark's columns have types.",
                f"give the column a type (returns=, or the annotations of the row class), or {_IN_PROCESS}",
            )
    return "", ""


def _holds_any(type: DataType) -> bool:
    if isinstance(type, ListType):
        return _holds_any(type.element)
    if isinstance(type, StructType):
        return any(_holds_any(f.type) for f in type.fields)
    return isinstance(type, AnyType)
