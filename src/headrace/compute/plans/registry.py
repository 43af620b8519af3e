"""Closed registries of plans: everything that a plan can refer to, by name.

Plans are resolved only through these registries, so anything else cannot occur in a plan. A name is never
reused for something else. Records have the fields of their classes, by name; a field that is added later
must have a default, so that older plans remain readable.
"""

from __future__ import annotations

import builtins
import dataclasses
import operator
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any

from headrace import lattice
from headrace.expr.row_classes import KeyedRows
from headrace.expr.tree import Expr, Ordering
from headrace.expr.types import DataType, Schema
from headrace.flow import (
    aggregates,
    event_time_windows,
    moment_aggregates,
    value_aggregates,
    watermark_policy,
    window_functions,
)
from headrace.flow.function_claims import Claims
from headrace.flow.lifetime import Lifetime
from headrace.flow.operators.aggregate import Aggregate
from headrace.flow.operators.assume_ordered import AssumeOrdered
from headrace.flow.operators.at_least import AtLeast
from headrace.flow.operators.bag_feedback import BagFeedback
from headrace.flow.operators.chain import Chain
from headrace.flow.operators.chain_first_n import ChainFirstN
from headrace.flow.operators.cross_singleton import CrossSingleton
from headrace.flow.operators.defer_signal import DeferSignal
from headrace.flow.operators.defer_tick import DeferTick
from headrace.flow.operators.defer_tick_lazy import DeferTickLazy
from headrace.flow.operators.difference import Difference
from headrace.flow.operators.distinct import Distinct
from headrace.flow.operators.distinct_on_time import DistinctOnTime
from headrace.flow.operators.end_of_input import EndOfInput
from headrace.flow.operators.enumerate import Enumerate
from headrace.flow.operators.every_tick import EveryTick
from headrace.flow.operators.expiring_join import JoinOnTime
from headrace.flow.operators.explode import Explode
from headrace.flow.operators.feedback import Feedback
from headrace.flow.operators.filter import Filter
from headrace.flow.operators.filter_map import FilterMap
from headrace.flow.operators.first_within import FirstWithin
from headrace.flow.operators.flat_map import FlatMap
from headrace.flow.operators.fold import Fold
from headrace.flow.operators.fold_keyed import FoldKeyed
from headrace.flow.operators.fold_tick import FoldTick
from headrace.flow.operators.history import History
from headrace.flow.operators.initialize import Initialize
from headrace.flow.operators.inspect import Inspect
from headrace.flow.operators.join import How, Join
from headrace.flow.operators.keyed_source import KeyedSource
from headrace.flow.operators.late_rows import LateRows
from headrace.flow.operators.lattice_fold import LatticeFold
from headrace.flow.operators.lattice_reduce import LatticeReduce
from headrace.flow.operators.least_watermark import LeastWatermark, Move
from headrace.flow.operators.map import Map
from headrace.flow.operators.misfits import Misfits
from headrace.flow.operators.multiset_delta import MultisetDelta
from headrace.flow.operators.null import Null
from headrace.flow.operators.on_time import OnTime
from headrace.flow.operators.over import ComputeOver
from headrace.flow.operators.partition import Partition
from headrace.flow.operators.reduce import Reduce
from headrace.flow.operators.reduce_keyed import ReduceKeyed
from headrace.flow.operators.scan import Scan
from headrace.flow.operators.select import Select
from headrace.flow.operators.signals.delay_signal import DelaySignal
from headrace.flow.operators.signals.filter_signal import FilterSignal
from headrace.flow.operators.signals.last_row import LastRow
from headrace.flow.operators.signals.lift import Align, Constant, Lift
from headrace.flow.operators.signals.no_repeats import NoRepeats
from headrace.flow.operators.signals.sample import Sample
from headrace.flow.operators.signals.scan_signal import ScanSignal
from headrace.flow.operators.signals.signal_source import SignalSource
from headrace.flow.operators.signals.statistic_signal import StatisticSignal
from headrace.flow.operators.signals.value_rows import ValueRows
from headrace.flow.operators.signals.when import When
from headrace.flow.operators.signals.window import Window as SignalWindow
from headrace.flow.operators.sink import Sink
from headrace.flow.operators.sort import Sort
from headrace.flow.operators.source import Source
from headrace.flow.operators.state import State
from headrace.flow.operators.temporal_filter import Presence, TemporalFilter
from headrace.flow.operators.top_k import TopK
from headrace.flow.operators.union import Union
from headrace.flow.operators.unique import Unique
from headrace.flow.operators.upsert import OnMisfit, Upsert, UpsertRule
from headrace.flow.operators.watermark import Watermark
from headrace.flow.operators.window import Emit, Window
from headrace.flow.operators.zip import Zip
from headrace.flow.operators.zip_longest import ZipLongest
from headrace.flow.statistics import (
    differences,
    downsampling,
    ewm,
    moments,
    ordering,
    statistic,
    value_kinds,
    value_windows,
)
from headrace.graph.node import Operator

OPERATORS: Mapping[str, type[Operator]] = MappingProxyType(
    {
        "aggregate": Aggregate,
        "assume_ordered": AssumeOrdered,
        "at_least": AtLeast,
        "bag_feedback": BagFeedback,
        "chain": Chain,
        "chain_first_n": ChainFirstN,
        "cross_singleton": CrossSingleton,
        "defer_signal": DeferSignal,
        "defer_tick": DeferTick,
        "defer_tick_lazy": DeferTickLazy,
        "difference": Difference,
        "distinct": Distinct,
        "distinct_on_time": DistinctOnTime,
        "end_of_input": EndOfInput,
        "enumerate": Enumerate,
        "every_tick": EveryTick,
        "explode": Explode,
        "feedback": Feedback,
        "filter": Filter,
        "filter_map": FilterMap,
        "first_within": FirstWithin,
        "flat_map": FlatMap,
        "fold": Fold,
        "fold_keyed": FoldKeyed,
        "fold_tick": FoldTick,
        "initialize": Initialize,
        "history": History,
        "inspect": Inspect,
        "join": Join,
        "keyed_source": KeyedSource,
        "join_on_time": JoinOnTime,
        "late_rows": LateRows,
        "lattice_fold": LatticeFold,
        "lattice_reduce": LatticeReduce,
        "least_watermark": LeastWatermark,
        "map": Map,
        "misfits": Misfits,
        "multiset_delta": MultisetDelta,
        "null": Null,
        "on_time": OnTime,
        "over": ComputeOver,
        "partition": Partition,
        "reduce": Reduce,
        "reduce_keyed": ReduceKeyed,
        "scan": Scan,
        "select": Select,
        "signal.delay": DelaySignal,
        "signal.filter": FilterSignal,
        "signal.last_row": LastRow,
        "signal.lift": Lift,
        "signal.no_repeats": NoRepeats,
        "signal.sample": Sample,
        "signal.scan": ScanSignal,
        "signal.source": SignalSource,
        "signal.statistic": StatisticSignal,
        "signal.value_rows": ValueRows,
        "signal.when": When,
        "signal.window": SignalWindow,
        "sink": Sink,
        "sort": Sort,
        "source": Source,
        "state": State,
        "temporal_filter": TemporalFilter,
        "top_k": TopK,
        "union": Union,
        "unique": Unique,
        "upsert": Upsert,
        "watermark": Watermark,
        "window": Window,
        "zip": Zip,
        "zip_longest": ZipLongest,
    }
)
"""Operators that users can write in a flow; `LatticeGrowth` is missing because the graph derives it."""

_STATISTICS: tuple[type[statistic.Statistic], ...] = (
    ewm.EwmMean,
    ewm.EwmStd,
    ewm.EwmVar,
    moments.Corr,
    moments.Count,
    moments.Cov,
    moments.Mean,
    moments.Regression,
    moments.Std,
    moments.Sum,
    moments.Var,
    ordering.First,
    ordering.Last,
    ordering.Max,
    ordering.Min,
    ordering.Quantile,
    ordering.Rank,
    downsampling.BarsByCount,
    downsampling.BarsByTime,
    downsampling.Debounce,
    downsampling.EveryNth,
    downsampling.Throttle,
    downsampling.Timer,
    differences.Crossed,
    differences.Diff,
    differences.PctChange,
)

_PARTS: Mapping[str, type[Any]] = {
    "aggregate.bits": value_aggregates.Bits,
    "aggregate.collect": aggregates.Collect,
    "aggregate.count": aggregates.Count,
    "aggregate.count_distinct": aggregates.CountDistinct,
    "aggregate.distinct": aggregates.OfDistinct,
    "aggregate.first": aggregates.First,
    "aggregate.histogram": value_aggregates.Histogram,
    "aggregate.last": aggregates.Last,
    "aggregate.max": aggregates.Max,
    "aggregate.mean": aggregates.Mean,
    "aggregate.min": aggregates.Min,
    "aggregate.mode": value_aggregates.Mode,
    "aggregate.moments": moment_aggregates.Moments,
    "aggregate.null_on_error": aggregates.NullOnError,
    "aggregate.percentile": value_aggregates.Percentile,
    "aggregate.string_agg": value_aggregates.StringAgg,
    "aggregate.sum": aggregates.Sum,
    "claims": Claims,
    "clock": watermark_policy.WatermarkPolicy,
    "constant": Constant,
    "decay": ewm.Decay,
    "lattice.bool_or": lattice.BoolOr,
    "lattice.map_union": lattice.MapUnion,
    "lattice.max": lattice.Max,
    "lattice.merging": lattice.Merging,
    "lattice.min": lattice.Min,
    "lattice.pair": lattice.Pair,
    "lattice.set_union": lattice.SetUnion,
    "keyed_rows": KeyedRows,
    "move": Move,
    "ordering": Ordering,
    "over": window_functions.Over,
    "over.cume_dist": window_functions.CumeDist,
    "over.dense_rank": window_functions.DenseRank,
    "over.frame": window_functions.Frame,
    "over.lag": window_functions.Lag,
    "over.months": window_functions.Months,
    "over.nth_value": window_functions.NthValue,
    "over.ntile": window_functions.Ntile,
    "over.percent_rank": window_functions.PercentRank,
    "over.rank": window_functions.Rank,
    "over.row_number": window_functions.RowNumber,
    "window.count": value_windows.CountWindow,
    "window.expanding": value_windows.Expanding,
    "window.time": value_windows.TimeWindow,
    "upsert_rule": UpsertRule,
    "windows.grid": event_time_windows.Grid,
    "windows.sessions": event_time_windows.Sessions,
}

RECORDS: Mapping[str, type[Any]] = MappingProxyType(
    {
        **{f"operator.{name}": operator for name, operator in OPERATORS.items()},
        **_PARTS,
        **{f"statistic.{each.__name__}": each for each in _STATISTICS},
    }
)
"""Records, which are frozen dataclasses with named fields, by name."""

CHOICES: Mapping[str, type[Enum]] = MappingProxyType(
    {
        "against": moments.Against,
        "align": Align,
        "bit_operation": value_aggregates.BitOperation,
        "direction": differences.Direction,
        "emit": Emit,
        "frame_unit": window_functions.FrameUnit,
        "holes": value_kinds.Holes,
        "how": How,
        "presence": Presence,
        "interpolation": ordering.Interpolation,
        "lifetime": Lifetime,
        "moment": moment_aggregates.Moment,
        "on_misfit": OnMisfit,
        "ties": ordering.Ties,
        "times": value_kinds.Times,
    }
)
"""Enumerations; members by name."""

_ARITHMETIC = ("abs", "add", "floordiv", "matmul", "mod", "mul", "neg", "pos", "pow", "sub", "truediv")
_LOGIC = ("and_", "invert", "lshift", "or_", "rshift", "xor")
_OTHERS = ("eq", "ge", "getitem", "gt", "le", "lt", "ne")

FUNCTIONS: Mapping[str, Callable[..., object]] = MappingProxyType(
    {
        **{name: getattr(operator, name) for name in (*_ARITHMETIC, *_LOGIC, *_OTHERS)},
        "builtin.abs": builtins.abs,
        "list": list,
    }
)
"""Built-in Python functions that a plan may apply to signals; users' callables are not among them."""


def _names(register: Mapping[str, Any]) -> Mapping[Any, str]:
    return MappingProxyType({value: name for name, value in register.items()})


RECORD_NAMES: Mapping[type[Any], str] = _names(RECORDS)
CHOICE_NAMES: Mapping[type[Enum], str] = _names(CHOICES)
FUNCTION_NAMES: Mapping[Callable[..., object], str] = _names(FUNCTIONS)


@cache
def record_fields(cls: type[Any]) -> tuple[dataclasses.Field[Any], ...]:
    """Return a record's fields, in order."""
    return dataclasses.fields(cls)


@cache
def record_type_hints(cls: type[Any]) -> Mapping[str, Any]:
    """Return the type hints of a record's fields."""
    return typing.get_type_hints(cls, localns=_HINTED)


def _named(classes: Iterable[type[Any]]) -> dict[str, Any]:
    return {each.__name__: each for each in classes}


# What annotations name that their modules import for type checkers alone.
_HINTED: dict[str, Any] = {
    **_named(
        (
            aggregates.Aggregation,
            Claims,
            watermark_policy.WatermarkPolicy,
            DataType,
            Expr,
            Join,
            lattice.Lattice,
        )
    ),
    **_named((Ordering, Schema, timedelta)),
    "Callable": Callable,
    "Shape": event_time_windows.Shape,
    "Span": timedelta | int | float,
}
