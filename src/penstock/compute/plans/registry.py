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

from penstock import lattice
from penstock.expr.keyed_rows import KeyedRows
from penstock.expr.tree import Expr, Ordering
from penstock.expr.types import DataType, Schema
from penstock.flow import (
    aggregates,
    event_time_windows,
    moment_aggregates,
    value_aggregates,
    watermark_policy,
    window_functions,
)
from penstock.flow.function_claims import Claims
from penstock.flow.lifetime import Lifetime
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
from penstock.flow.operators.expiring_join import JoinOnTime
from penstock.flow.operators.explode import Explode
from penstock.flow.operators.feedback import Feedback
from penstock.flow.operators.filter import Filter
from penstock.flow.operators.filter_map import FilterMap
from penstock.flow.operators.first_within import FirstWithin
from penstock.flow.operators.flat_map import FlatMap
from penstock.flow.operators.fold import Fold
from penstock.flow.operators.fold_keyed import FoldKeyed
from penstock.flow.operators.fold_tick import FoldTick
from penstock.flow.operators.history import History
from penstock.flow.operators.initialize import Initialize
from penstock.flow.operators.inspect import Inspect
from penstock.flow.operators.join import How, Join
from penstock.flow.operators.keyed_source import KeyedSource
from penstock.flow.operators.late_rows import LateRows
from penstock.flow.operators.lattice_fold import LatticeFold
from penstock.flow.operators.lattice_reduce import LatticeReduce
from penstock.flow.operators.least_watermark import LeastWatermark, Move
from penstock.flow.operators.map import Map
from penstock.flow.operators.misfits import Misfits
from penstock.flow.operators.multiset_delta import MultisetDelta
from penstock.flow.operators.null import Null
from penstock.flow.operators.on_time import OnTime
from penstock.flow.operators.over import ComputeOver
from penstock.flow.operators.partition import Partition
from penstock.flow.operators.reduce import Reduce
from penstock.flow.operators.reduce_keyed import ReduceKeyed
from penstock.flow.operators.scan import Scan
from penstock.flow.operators.select import Select
from penstock.flow.operators.signals.delay_signal import DelaySignal
from penstock.flow.operators.signals.filter_signal import FilterSignal
from penstock.flow.operators.signals.last_row import LastRow
from penstock.flow.operators.signals.lift import Align, Constant, Lift
from penstock.flow.operators.signals.no_repeats import NoRepeats
from penstock.flow.operators.signals.sample import Sample
from penstock.flow.operators.signals.scan_signal import ScanSignal
from penstock.flow.operators.signals.signal_source import SignalSource
from penstock.flow.operators.signals.statistic_signal import StatisticSignal
from penstock.flow.operators.signals.value_rows import ValueRows
from penstock.flow.operators.signals.when import When
from penstock.flow.operators.signals.window import Window as SignalWindow
from penstock.flow.operators.sink import Sink
from penstock.flow.operators.sort import Sort
from penstock.flow.operators.source import Source
from penstock.flow.operators.state import State
from penstock.flow.operators.temporal_filter import Presence, TemporalFilter
from penstock.flow.operators.top_k import TopK
from penstock.flow.operators.union import Union
from penstock.flow.operators.unique import Unique
from penstock.flow.operators.upsert import OnMisfit, Upsert, UpsertRule
from penstock.flow.operators.watermark import Watermark
from penstock.flow.operators.window import Emit, Window
from penstock.flow.operators.zip import Zip
from penstock.flow.operators.zip_longest import ZipLongest
from penstock.flow.statistics import (
    differences,
    downsampling,
    ewm,
    moments,
    ordering,
    statistic,
    value_kinds,
    value_windows,
)
from penstock.graph.node import Operator

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
