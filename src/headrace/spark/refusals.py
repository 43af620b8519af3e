"""Planning-time refusal of operators that do not run on Spark, with a reason and an alternative.

An operator without a function below is supported: in streaming mode on shards, by its placement, with row
order kept if it is read; in batch mode as described in `headrace.spark.batch.batch_plan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, Literal, TypeAlias

from headrace.errors import NotOnSpark
from headrace.expr.types import holds_any
from headrace.operators.signals.earlier_values import ValueRows
from headrace.operators.signals.lift import SignalOperator

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.graph.node import FlowGraph, Node, Operator

Mode: TypeAlias = Literal["stream", "batch"]

_IN_PROCESS = "run the flow in-process, with headrace.run(flow, ...)"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason and alternative for an unsupported operator. why: a sentence. fix: what to do instead."""

    why: str
    fix: str


@singledispatch
def refusal(operator: Operator, mode: Mode) -> Refusal | None:
    """Return the refusal of an operator in a mode; None if it runs on Spark."""
    return None


@refusal.register(SignalOperator)
@refusal.register(ValueRows)
def _signal(operator: Operator, mode: Mode) -> Refusal:
    return Refusal(
        "What signals show depends on the order of values among all of them, one value a tick;"
        " a micro-batch has many, and no order between its sources.",
        f"{_IN_PROCESS};\nwhat leads to the signals can run on Spark and write a changelog,"
        " and what they show can be read there as a source",
    )


def check_runs_on_spark(
    graph: FlowGraph, mode: Mode = "stream", travelling: Collection[int] | None = None
) -> None:
    """Raise `NotOnSpark` for the first operator that is unsupported or emits values that cannot be sent.

    travelling: the nodes whose rows leave the task that makes them; all of them, where it is not known.
    """
    for node in graph.nodes:
        travels = travelling is None or node.id in travelling
        refused = refusal(node.operator, mode) or (_rows_that_cannot_travel(node) if travels else None)
        if refused is not None:
            raise NotOnSpark(
                f"{node.operator.kind} does not run on Spark",
                where=[node.location],
                why=refused.why,
                fix=refused.fix,
                operator=node.name,
            )


def _rows_that_cannot_travel(node: Node) -> Refusal | None:
    for field in node.schema.fields:
        if holds_any(field.type):
            return Refusal(
                f"Column {field.name!r} may hold any Python value. Spark's columns have types,"
                " and values that are equal across types (1, True, 1.0) would go to different shards.",
                f"declare its type (annotate the function or the row class), or {_IN_PROCESS}",
            )
    return None
