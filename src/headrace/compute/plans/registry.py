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
from headrace.graph.node import Operator
from headrace.operators import (
    aggregates,
    all_operators,
    moment_aggregates,
    value_aggregates,
    window_functions,
)
from headrace.operators.event_time import watermark, window_shapes
from headrace.operators.event_time.temporal_filter import Presence
from headrace.operators.event_time.watermark import Move
from headrace.operators.event_time.window import Emit
from headrace.operators.function_claims import Claims
from headrace.operators.join import How, Join
from headrace.operators.keyed_tables.upsert_rule import OnMisfit, UpsertRule
from headrace.operators.lifetime import Lifetime
from headrace.operators.signals.lift import Align, Constant
from headrace.operators.statistics import (
    differences,
    downsampling,
    ewm,
    moments,
    ordering,
    statistic,
    value_kinds,
    value_windows,
)

OPERATORS: Mapping[str, type[Operator]] = MappingProxyType(
    {name: cls for cls in all_operators() if (name := cls.kind if cls.plan_name is None else cls.plan_name)}
)
"""Operators that users can write in a flow; those that the graph derives have no name."""

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
    "clock": watermark.WatermarkPolicy,
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
    "windows.grid": window_shapes.Grid,
    "windows.sessions": window_shapes.Sessions,
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
            watermark.WatermarkPolicy,
            DataType,
            Expr,
            Join,
            lattice.Lattice,
        )
    ),
    **_named((Ordering, Schema, timedelta)),
    "Callable": Callable,
    "Shape": window_shapes.Shape,
    "Span": timedelta | int | float,
}
