"""What does not run on Spark yet: refused when the flow is planned, with the reason.

An operator that no function below speaks of runs in streaming mode: its step
keeps its state in shards by the operator's placement. One that reads more out of
rows than their sum (the tick they come in, their order within it) is refused here,
because rows lose both on their way between tasks.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from penstock.errors import NotOnSpark
from penstock.expr.types import AnyType, DataType, ListType, StructType
from penstock.flow.operators.at_least import AtLeast
from penstock.flow.operators.chain import Chain
from penstock.flow.operators.distinct_on_time import DistinctOnTime
from penstock.flow.operators.enumerate import Enumerate
from penstock.flow.operators.first_within import FirstWithin
from penstock.flow.operators.fold_keyed import FoldKeyed
from penstock.flow.operators.inspect import Inspect
from penstock.flow.operators.join_on_time import JoinOnTime
from penstock.flow.operators.late_rows import LateRows
from penstock.flow.operators.lattice_growth import LatticeGrowth
from penstock.flow.operators.lattice_reduce import LatticeReduce
from penstock.flow.operators.least_watermark import LeastWatermark
from penstock.flow.operators.null import Null
from penstock.flow.operators.on_time import OnTime
from penstock.flow.operators.reduce import Reduce
from penstock.flow.operators.reduce_keyed import ReduceKeyed
from penstock.flow.operators.scan import Scan
from penstock.flow.operators.signals.signal_operator import SignalOperator
from penstock.flow.operators.signals.value_rows import ValueRows
from penstock.flow.operators.sort import Sort
from penstock.flow.operators.state import State
from penstock.flow.operators.unique import Unique
from penstock.flow.operators.watermark import Watermark
from penstock.flow.operators.window import Window
from penstock.flow.operators.zip import Zip

if TYPE_CHECKING:
    from penstock.graph.node import FlowGraph, Node, Operator


@singledispatch
def not_on_spark(operator: Operator) -> str:
    """Why an operator does not run on Spark, a sentence; empty where it does."""
    if operator.runs_each_tick or operator.runs_first_tick:
        return "It acts in ticks in which nothing reaches it, and tasks run for rows alone."
    if operator.depends_on_cut():
        return "It answers each tick for itself, and tasks keep neither ticks nor the order of rows."
    return ""


@not_on_spark.register(SignalOperator)
@not_on_spark.register(ValueRows)
def _signal(operator: Operator) -> str:
    return "What signals show depends on the order of values, which rows lose between tasks."


@not_on_spark.register(Chain)
@not_on_spark.register(Zip)
def _(operator: Operator) -> str:
    return "It reads the order of rows, which they lose between tasks."


@not_on_spark.register(Enumerate)
@not_on_spark.register(Reduce)
@not_on_spark.register(FoldKeyed)
@not_on_spark.register(ReduceKeyed)
@not_on_spark.register(Scan)
@not_on_spark.register(Sort)
@not_on_spark.register(State)
@not_on_spark.register(Unique)
def _in_order(operator: Operator) -> str:
    return "It reads or keeps the order of rows, which they lose between tasks."


@not_on_spark.register(AtLeast)
@not_on_spark.register(LatticeGrowth)
@not_on_spark.register(LatticeReduce)
def _merged(operator: Operator) -> str:
    return "What is merged is made and compared by Python, and a batch on Spark has no form of it yet."


@not_on_spark.register(Inspect)
def _inspect(operator: Inspect) -> str:
    return "What its function does would happen in other processes, and once more when a task is repeated."


@not_on_spark.register(Null)
def _null(operator: Null) -> str:
    return "Spark runs for what leaves the flow, and nothing does here."


@not_on_spark.register(OnTime)
@not_on_spark.register(LateRows)
@not_on_spark.register(Watermark)
def _watermark(operator: OnTime | LateRows | Watermark) -> str:
    return "Which rows are late is decided in the order of the source, which rows lose between tasks."


@not_on_spark.register(Window)
@not_on_spark.register(LeastWatermark)
@not_on_spark.register(DistinctOnTime)
@not_on_spark.register(FirstWithin)
@not_on_spark.register(JoinOnTime)
def _event_time(operator: Operator) -> str:
    return "It hears of the watermark, which is found in the order of the source; tasks do not have that."


def check_runs_on_spark(graph: FlowGraph) -> None:
    """Raises `NotOnSpark` for the first operator that does not run there, or carries what cannot travel."""
    for node in graph.nodes:
        why = not_on_spark(node.operator) or _why_rows_cannot_travel(node)
        if why:
            raise NotOnSpark(
                f"{node.operator.kind} does not run on Spark",
                where=[node.place],
                why=why,
                fix="run the flow in-process, with penstock.run(flow, ...)",
                operator=node.name,
            )


def _why_rows_cannot_travel(node: Node) -> str:
    for field in node.schema.fields:
        if _holds_any(field.type):
            return f"Column {field.name!r} may hold any Python value, and Spark's columns have types."
    return ""


def _holds_any(type: DataType) -> bool:
    if isinstance(type, ListType):
        return _holds_any(type.element)
    if isinstance(type, StructType):
        return any(_holds_any(f.type) for f in type.fields)
    return isinstance(type, AnyType)
