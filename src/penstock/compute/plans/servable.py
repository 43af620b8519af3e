"""Which flows can be served: those whose answers at a time are a function of the rows that are there then.

A replica begins with the rows of its collections at some time, each with its count, in any
order and cut into any ticks; and it goes on with changes. It must come to what another one has
that saw every change. So neither the order of rows, nor when they came, nor with which others,
may show in an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

from penstock.analysis import analyse
from penstock.analysis.names import called
from penstock.compute.errors import NotServable
from penstock.errors import Step
from penstock.expr.types import Schema, holds_any
from penstock.flow.flow import Flow
from penstock.flow.operators.aggregate import Aggregate
from penstock.flow.operators.assume_ordered import AssumeOrdered
from penstock.flow.operators.at_least import AtLeast
from penstock.flow.operators.bag_feedback import BagFeedback
from penstock.flow.operators.chain import Chain
from penstock.flow.operators.chain_first_n import ChainFirstN
from penstock.flow.operators.cross_singleton import CrossSingleton
from penstock.flow.operators.defer_signal import DeferSignal
from penstock.flow.operators.defer_tick import DeferTick
from penstock.flow.operators.defer_tick_lazy import DeferTickLazy
from penstock.flow.operators.difference import Difference
from penstock.flow.operators.distinct import Distinct
from penstock.flow.operators.distinct_on_time import DistinctOnTime
from penstock.flow.operators.end_of_input import EndOfInput
from penstock.flow.operators.enumerate import Enumerate
from penstock.flow.operators.every_tick import EveryTick
from penstock.flow.operators.feedback import Feedback
from penstock.flow.operators.filter import Filter
from penstock.flow.operators.filter_map import FilterMap
from penstock.flow.operators.first_within import FirstWithin
from penstock.flow.operators.flat_map import FlatMap
from penstock.flow.operators.flatten import Flatten
from penstock.flow.operators.fold import Fold
from penstock.flow.operators.fold_keyed import FoldKeyed
from penstock.flow.operators.fold_tick import FoldTick
from penstock.flow.operators.initialize import Initialize
from penstock.flow.operators.inspect import Inspect
from penstock.flow.operators.join import Join
from penstock.flow.operators.join_on_time import JoinOnTime
from penstock.flow.operators.late_rows import LateRows
from penstock.flow.operators.lattice_fold import LatticeFold
from penstock.flow.operators.lattice_growth import LatticeGrowth
from penstock.flow.operators.lattice_reduce import LatticeReduce
from penstock.flow.operators.least_watermark import LeastWatermark
from penstock.flow.operators.map import Map
from penstock.flow.operators.multiset_delta import MultisetDelta
from penstock.flow.operators.null import Null
from penstock.flow.operators.on_time import OnTime
from penstock.flow.operators.partition import Partition
from penstock.flow.operators.reduce import Reduce
from penstock.flow.operators.reduce_keyed import ReduceKeyed
from penstock.flow.operators.scan import Scan
from penstock.flow.operators.select import Select
from penstock.flow.operators.signals.signal_operator import SignalOperator
from penstock.flow.operators.signals.value_rows import ValueRows
from penstock.flow.operators.sink import Sink
from penstock.flow.operators.sort import Sort
from penstock.flow.operators.source import Source
from penstock.flow.operators.state import State
from penstock.flow.operators.top_k import TopK
from penstock.flow.operators.union import Union
from penstock.flow.operators.unique import Unique
from penstock.flow.operators.watermark import Watermark
from penstock.flow.operators.window import Window
from penstock.flow.operators.zip import Zip
from penstock.flow.operators.zip_longest import ZipLongest
from penstock.graph.node import FlowGraph, Node, Operator


@dataclass(frozen=True, slots=True)
class Unservable:
    """Why an operator's answers are no function of the rows at a time, and what to write instead."""

    why: str
    fix: str


def servable(flow: Flow) -> None:
    """Raises `NotServable` for a flow that cannot be served, with the first operator that is in the way.

    Raises what `Flow.graph` and `analyse` raise, too.
    """
    graph = flow.graph()
    analyse(graph)
    if graph.given_ticks:
        raise NotServable(
            f"flow {graph.name!r} cannot be served: its ticks are part of its input",
            why="Collections have times, and no ticks: what is written together may be read apart.",
            fix='leave out ticks="given", and let rows carry what the ticks said, in a column',
            operator="",
        )
    for node in graph.nodes:
        reason = why_not(node.operator)
        if reason is not None:
            raise _refused(graph, node, reason)
    _check_columns(graph)


def why_not(operator: Operator) -> Unservable | None:
    """Why a flow with this operator cannot be served; None where it does not stand in the way."""
    reason = _why_not(operator)
    return _OF_A_TICK if reason is None and operator.depends_on_cut() else reason


def _refused(graph: FlowGraph, node: Node, reason: Unservable) -> NotServable:
    return NotServable(
        f"flow {graph.name!r} cannot be served because of {called(graph, node)}",
        where=[Step(node.location, node.operator.kind)],
        why=reason.why,
        fix=reason.fix,
        operator=node.name,
    )


def _check_columns(graph: FlowGraph) -> None:
    """Raises `NotServable` where rows that are stored or sent may hold what cannot be."""
    for node_id in (*graph.sources.values(), *graph.sinks.values()):
        node = graph.nodes[node_id]
        if column := _any_column(node.schema):
            why = f"Column {column!r} may hold any Python value, which can neither be stored nor sent."
            raise _refused(graph, node, Unservable(why, "give the column a type, in the row class"))


def _any_column(schema: Schema) -> str | None:
    return next((field.name for field in schema.fields if holds_any(field.type)), None)


_OF_A_TICK = Unservable(
    "Its answers depend on how the input is cut into ticks, and who serves it cuts as is convenient.",
    'keep the rows over the ticks, lifetime="static", or name what belongs together by a column',
)
_IN_ORDER = Unservable(
    "It reads the order in which rows come, and collections keep none.",
    "say what the order is by a column: top_k(n, by=...), ps.first(..., by=...), ps.last(..., by=...)",
)
_LATER = Unservable(
    "It speaks of earlier ticks, and at a time there are only the rows of that time.",
    "give rows a time in a column, and compare that",
)
_EVENT_TIME = Unservable(
    "How far event time has passed depends on when rows came, and a replica that starts later sees them"
    " all at once.",
    "group by col.at.tumble(...) without a watermark: each window is a group, and changes while rows come",
)
_SIGNAL = Unservable(
    "A signal is what was said last, and when: collections hold rows.",
    "write the values as rows with their times; ps.last(..., by=ps.col.at) is the latest one",
)
_BOUNDED = Unservable(
    "A collection can always be written to, and this source ends with its first tick.",
    "leave out bounded=True",
)
_LOOP_OF_LATTICES = Unservable(
    "In a loop, which of its growing values are shown depends on ticks.",
    "put the lattice_fold behind the loop",
)
_UNCLAIMED = Unservable(
    "The function may give something else when rows come in another order, and collections keep none.",
    "claim commutative=True if it does not (`penstock check` tries it), or use group_by(...).agg(...)",
)


@singledispatch
def _why_not(operator: Operator) -> Unservable | None:
    return Unservable(
        "It is not known that its answers are a function of the rows at a time.",
        "write it with joins, filters, aggregates and loops",
    )


def _servable(operator: Operator) -> None:
    return None


for _kind in (
    Aggregate,
    AtLeast,
    BagFeedback,
    Chain,
    Difference,
    Distinct,
    Feedback,
    Filter,
    FilterMap,
    FlatMap,
    Flatten,
    Initialize,
    Inspect,
    Join,
    LatticeFold,
    LatticeReduce,
    Map,
    Null,
    Partition,
    Select,
    Sink,
    TopK,
    Union,
    Unique,
):
    _why_not.register(_kind)(_servable)


def _because(reason: Unservable, *kinds: type[Operator]) -> None:
    def answer(operator: Operator) -> Unservable:
        return reason

    for kind in kinds:
        _why_not.register(kind)(answer)


_because(_IN_ORDER, AssumeOrdered, ChainFirstN, CrossSingleton, Enumerate, Scan, Sort, State, Zip, ZipLongest)
_because(_LATER, DeferSignal, DeferTick, DeferTickLazy, EveryTick, MultisetDelta)
_because(_OF_A_TICK, FoldTick)
_because(_EVENT_TIME, DistinctOnTime, EndOfInput, FirstWithin, JoinOnTime, LateRows, LeastWatermark, OnTime)
_because(_EVENT_TIME, Watermark, Window)
_because(_SIGNAL, SignalOperator, ValueRows)
_because(_LOOP_OF_LATTICES, LatticeGrowth)


@_why_not.register(Source)
def _source(operator: Source) -> Unservable | None:
    return _BOUNDED if operator.bounded else None


@_why_not.register(Fold)
@_why_not.register(FoldKeyed)
@_why_not.register(Reduce)
@_why_not.register(ReduceKeyed)
def _fold(operator: Fold | FoldKeyed | Reduce | ReduceKeyed) -> Unservable | None:
    return None if operator.claims.commutative else _UNCLAIMED
