"""Closed registries of plans: everything that a plan can refer to, by name; and limits on its size.

Plans are resolved only through these registries, so anything else cannot occur in a plan. A name is never
reused for something else. Records have the fields of their classes, by name; a field that is added later
must have a default, so that older plans remain readable.
"""

from __future__ import annotations

import builtins
import dataclasses
import operator
import typing
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any

from headrace import lattice
from headrace.compute.errors import BadPlan, MessageTooLarge
from headrace.expr.row_classes import KeyedRows
from headrace.expr.tree import Expr, Ordering
from headrace.expr.types import DataType, Schema
from headrace.graph.node import Operator, described_name
from headrace.operators import all_operators, time_spans
from headrace.operators.aggregate import (
    collected_values,
    counts,
    extremes,
    histograms,
    percentiles,
    sketches,
    sums,
)
from headrace.operators.aggregate.aggregation import Aggregation
from headrace.operators.aggregate.exact_totals import Moment
from headrace.operators.aggregate.moments import Moments
from headrace.operators.event_time import watermark
from headrace.operators.event_time.temporal_filter import Presence
from headrace.operators.event_time.watermark import Move
from headrace.operators.event_time.window import Emit
from headrace.operators.fold import Claims
from headrace.operators.join.join import How, Join
from headrace.operators.keyed_tables.upsert_rule import OnMisfit, UpsertRule
from headrace.operators.lifetime import Lifetime
from headrace.operators.over import row_functions, window_function
from headrace.operators.signals.lift import Align, Constant
from headrace.operators.statistics import downsampling, ewm, moments, ordering, statistic

OPERATORS: Mapping[str, type[Operator]] = MappingProxyType(
    {name: cls for cls in all_operators() if (name := cls.kind if cls.plan_name is None else cls.plan_name)}
)
"""Operators that users can write in a flow; those that the graph derives have no name."""

_STATISTICS: tuple[type[statistic.Statistic], ...] = (
    ewm.EwmMean,
    ewm.EwmStd,
    ewm.EwmVar,
    moments.Corr,
    moments.SignalCount,
    moments.Cov,
    moments.SignalMean,
    moments.Regression,
    moments.Std,
    moments.SignalSum,
    moments.Var,
    ordering.SignalFirst,
    ordering.SignalLast,
    ordering.SignalMax,
    ordering.SignalMin,
    ordering.Quantile,
    ordering.SignalRank,
    downsampling.BarsByCount,
    downsampling.BarsByTime,
    downsampling.Debounce,
    downsampling.EveryNth,
    downsampling.Throttle,
    downsampling.Timer,
    downsampling.Crossed,
    downsampling.Diff,
    downsampling.PctChange,
)

_PARTS: Mapping[str, type[Any]] = {
    "aggregate.approx_count_distinct": sketches.ApproxCountDistinct,
    "aggregate.bits": collected_values.Bits,
    "aggregate.collect": collected_values.Collect,
    "aggregate.count": counts.Count,
    "aggregate.count_distinct": counts.CountDistinct,
    "aggregate.distinct": counts.DistinctAggregate,
    "aggregate.first": extremes.First,
    "aggregate.histogram": histograms.Histogram,
    "aggregate.hll_sketch": sketches.HllSketchAgg,
    "aggregate.hll_union": sketches.HllUnionAgg,
    "aggregate.last": extremes.Last,
    "aggregate.max": extremes.Maximum,
    "aggregate.mean": sums.Mean,
    "aggregate.min": extremes.Minimum,
    "aggregate.mode": percentiles.Mode,
    "aggregate.moments": Moments,
    "aggregate.null_on_error": sums.NullOnError,
    "aggregate.percentile": percentiles.Percentile,
    "aggregate.string_agg": collected_values.StringAgg,
    "aggregate.sum": sums.Sum,
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
    "over": window_function.Over,
    "over.cume_dist": row_functions.CumeDist,
    "over.dense_rank": row_functions.DenseRank,
    "over.frame": window_function.WindowFrame,
    "over.lag": row_functions.Lag,
    "over.months": window_function.Months,
    "over.nth_value": row_functions.NthValue,
    "over.ntile": row_functions.Ntile,
    "over.percent_rank": row_functions.PercentRank,
    "over.rank": row_functions.Rank,
    "over.row_number": row_functions.RowNumber,
    "window.count": statistic.CountWindow,
    "window.expanding": statistic.Expanding,
    "window.time": statistic.TimeWindow,
    "upsert_rule": UpsertRule,
    "windows.grid": time_spans.Grid,
    "windows.sessions": time_spans.Sessions,
}

RECORDS: Mapping[str, type[Any]] = MappingProxyType(
    {
        **{f"operator.{name}": operator for name, operator in OPERATORS.items()},
        **_PARTS,
        **{f"statistic.{described_name(each)}": each for each in _STATISTICS},
    }
)
"""Records, which are frozen dataclasses with named fields, by name."""

CHOICES: Mapping[str, type[Enum]] = MappingProxyType(
    {
        "against": moments.Against,
        "align": Align,
        "bit_operation": collected_values.BitOperation,
        "direction": downsampling.Direction,
        "emit": Emit,
        "frame_unit": window_function.FrameUnit,
        "holes": statistic.Holes,
        "how": How,
        "presence": Presence,
        "interpolation": ordering.Interpolation,
        "lifetime": Lifetime,
        "moment": Moment,
        "on_misfit": OnMisfit,
        "ties": ordering.Ties,
        "times": statistic.Times,
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
            Aggregation,
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
    "Shape": time_spans.Shape,
    "Span": timedelta | int | float,
}


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """Limits of a plan.

    size:    bytes of the plan, or of an expression or schema by itself.
    nodes:   operators of a flow. inputs: what they read, together.
    terms:   of all expressions of a plan together.
    columns: of one row type, or fields of one struct.
    nesting: of types in types.
    depth:   of one expression: operations whose operand is an operation, and so on.
    digits:  of a whole number or a decimal.
    """

    size: int = 1 << 20
    nodes: int = 2_000
    inputs: int = 10_000
    terms: int = 50_000
    columns: int = 2_000
    nesting: int = 12
    depth: int = 200
    digits: int = 1_000


LIMITS = PlanLimits()
"""Default limits: far above hand-written plans, yet read, checked and compiled in seconds."""


def check_size(what: str, size: int, limit: int) -> None:
    """Raise `MessageTooLarge` if `size` exceeds `limit`; `what` is a noun phrase for the content."""
    if size > limit:
        raise MessageTooLarge(
            f"{what} has {size} bytes, more than the {limit} allowed",
            why="What is read for others is bounded, so that nobody can fill this process.",
            fix="send less: large constants belong into a collection",
            size=size,
            limit=limit,
        )


_LONGEST_NAME = 1_000


class PlanPosition:
    """Current position in a plan, for errors: its parts, outermost first.

    >>> position = PlanPosition()
    >>> with position.enter("operator 3"), position.enter("columns"):
    ...     str(position)
    'operator 3, columns'
    """

    def __init__(self) -> None:
        self._parts: list[str] = []

    @contextmanager
    def enter(self, part: str) -> Generator[None]:
        """Enter `part` of the current position."""
        self._parts.append(part)
        yield
        # Not after an exception: its error needs the position.
        self._parts.pop()

    def __str__(self) -> str:
        return ", ".join(self._parts)

    def check_name(self, text: str) -> str:
        """Check the name of a column, source or sink. Raises `BadPlan` for an invalid name."""
        if not text or len(text) > _LONGEST_NAME or any(c < " " for c in text):
            raise self.build_error(f"{text[:40]!r} is no name")
        return text

    def build_error(self, what: str, why: str = "") -> BadPlan:
        """Create the error for a mistake at this position."""
        part = str(self)
        return BadPlan(
            f"{what} in {part}" if part else what,
            why=why,
            fix="encode plans with the same version of headrace.compute.plans",
            part=part,
        )
