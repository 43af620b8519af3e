"""Sums and means: exact, and rounded once."""

from __future__ import annotations

import builtins
import math
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, Inexact, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import NAN
from headrace.expr.types import FLOAT64, INT64, INTERVAL, DataType, DecimalType, Field, IntervalType, Schema
from headrace.expr.typing_rules import is_float
from headrace.lowering.generated_source import register_runtime
from headrace.operators.aggregate import exact_totals
from headrace.operators.aggregate.aggregation import (
    WHOLE_NUMBER,
    Accumulator,
    AggregateArguments,
    Aggregation,
    ArgumentRows,
    ArgumentTypes,
    NativeAggregates,
    StateField,
    Target,
    ValueAggregation,
    accumulator_of,
    add_source,
    answer_of,
    measure,
    present_values,
    summed_field,
)
from headrace.operators.aggregate.counts import of_distinct
from headrace.operators.aggregate.exact_totals import FLOAT_PARTS
from headrace.requirements import F

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expr.tree import Expr


class Sum(ValueAggregation):
    """Sum of the non-null values; null if there are none. Integers sum to int64 and raise on overflow."""

    __slots__ = ()

    distinct_on_spark: ClassVar[bool] = True

    def field(self, name: str, schema: Schema) -> Field:
        number = summed_field("sum", self.expr, schema)
        return Field(name, _sum_type(number.type), number.nullable)


class Mean(ValueAggregation):
    """Exact mean of the non-null values, rounded once; null if there are none."""

    __slots__ = ()

    distinct_on_spark: ClassVar[bool] = True

    def field(self, name: str, schema: Schema) -> Field:
        number = summed_field("mean", self.expr, schema)
        if isinstance(number.type, IntervalType):
            return Field(name, INTERVAL, number.nullable)
        result = decimal_mean_type(number.type) if isinstance(number.type, DecimalType) else FLOAT64
        return Field(name, result, number.nullable)


def _sum_type(argument: DataType) -> DataType:
    if isinstance(argument, IntervalType):
        return argument
    if isinstance(argument, DecimalType):
        return decimal_sum_type(argument)
    return FLOAT64 if is_float(argument) else INT64


def decimal_sum_type(argument: DecimalType) -> DecimalType:
    """Return the type of a sum of decimals."""
    return DecimalType(min(argument.precision + 10, 38), argument.scale)


def decimal_mean_type(argument: DecimalType) -> DecimalType:
    """Return the type of a mean of decimals."""
    precision = min(argument.precision + 4, 38)
    return DecimalType(precision, min(argument.scale + 4, precision))


@dataclass(frozen=True, slots=True)
class NullOnError(Aggregation):
    """A sum or mean that is null, instead of an error, if it does not fit its type."""

    distinct_on_spark: ClassVar[bool] = True
    of: Aggregation

    def arguments(self) -> tuple[Expr, ...]:
        return self.of.arguments()

    def field(self, name: str, schema: Schema) -> Field:
        return replace(self.of.field(name, schema), nullable=True)

    def __str__(self) -> str:
        return f"try_{self.of}"


def sum(expr: Expr, *, distinct: bool = False) -> Aggregation:
    """Sum of a numeric expression, or of its distinct values."""
    return of_distinct(Sum(expr), distinct)


def mean(expr: Expr, *, distinct: bool = False) -> Aggregation:
    """Mean of a numeric expression, or of its distinct values."""
    return of_distinct(Mean(expr), distinct)


# --- accumulators ------------------------------------------------------------------------------------


class Totals(Accumulator):
    """Base of sum and mean: [total], or [total, number of non-null values]."""

    def total_fields(self) -> tuple[StateField, ...]:
        return (StateField("0"),)

    def fields(self) -> tuple[StateField, ...]:
        counted = (StateField("0"),) if self.types[0].nullable else ()
        return self.total_fields() + counted

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        self.add(to, arguments[0], weight)
        if self.types[0].nullable:
            to.code.line(add_source(to.field(len(self.total_fields())), "1", weight))

    def add(self, to: Target, value: str, weight: str | None) -> None:
        to.code.line(add_source(to.field(0), value, weight))

    def count(self, to: Target) -> str:
        return to.field(len(self.total_fields())) if self.types[0].nullable else f"{to.group}[0]"

    def total(self, to: Target) -> str:
        raise NotImplementedError

    def result(self, to: Target) -> str:
        if self.types[0].nullable:
            return f"({self.total(to)} if {self.count(to)} > 0 else None)"
        return self.total(to)

    def total_parts(self) -> tuple[Field, ...]:
        return (Field("total", WHOLE_NUMBER),)

    def partial_columns(self) -> tuple[Field, ...]:
        counted = (Field("values", INT64),) if self.types[0].nullable else ()
        return self.total_parts() + counted

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        self.merge_total(to, fields)
        if self.types[0].nullable:
            to.code.line(f"{to.field(len(self.total_fields()))} += {fields[-1]}")

    def merge_total(self, to: Target, fields: Sequence[str]) -> None:
        to.code.line(f"{to.field(0)} += int({fields[0]})")


class IntSum(Totals):
    def total(self, to: Target) -> str:
        total = to.field(0)
        return f"({total} if {-(2**63)} <= {total} < {2**63} else x_int64_overflow())"


class IntMean(Totals):
    def total(self, to: Target) -> str:
        return f"{to.field(0)} / {self.count(to)}"


class FloatTotals(Totals):
    """Exact float totals: [numerator, denominator, nan, +inf, -inf], so that removal leaves no error."""

    def total_fields(self) -> tuple[StateField, ...]:
        return (StateField("0"), StateField("1"), StateField("0"), StateField("0"), StateField("0"))

    def add(self, to: Target, value: str, weight: str | None) -> None:
        to.code.line(f"x_float_add({to.group}, {to.at}, {value}, {weight or '1'})")

    def total_parts(self) -> tuple[Field, ...]:
        names = (*(f"part {at}" for at in range(FLOAT_PARTS)), "less", "nan", "up", "down")
        return tuple(Field(name, INT64) for name in names)

    def partial_values(self, to: Target) -> tuple[str, ...]:
        parts = to.writer.fresh("parts")
        to.code.line(f"{parts} = x_float_parts({to.group}, {to.at})")
        own = (f"{parts}[{at}]" for at in range(FLOAT_PARTS + 1))
        return (*own, *(to.field(number) for number in range(2, len(self.fields()))))

    def merge_total(self, to: Target, fields: Sequence[str]) -> None:
        to.code.line(f"x_float_merge({to.group}, {to.at}, {', '.join(fields[:5])})")

    def merge_partial(self, to: Target, values: Sequence[str]) -> None:
        total = len(self.total_parts())
        to.code.line(f"x_float_merge_parts({to.group}, {to.at}, {', '.join(values[:total])})")
        for value in values[total:]:
            to.code.line(f"{to.field(len(self.total_fields()))} += {value}")


class FloatSum(FloatTotals):
    def total(self, to: Target) -> str:
        return f"x_float_sum({to.group}, {to.at})"


class FloatMean(FloatTotals):
    def total(self, to: Target) -> str:
        return f"x_float_sum({to.group}, {to.at}, {self.count(to)})"


class DecimalTotals(Totals):
    """Decimal totals as integers in units of the last digit."""

    def __init__(self, types: ArgumentTypes, append: bool) -> None:
        super().__init__(types, append)
        argument = types[0].type
        assert isinstance(argument, DecimalType)
        self.argument, self.scale = argument, argument.scale

    def add(self, to: Target, value: str, weight: str | None) -> None:
        to.code.line(add_source(to.field(0), f"x_unscaled({value}, {self.scale})", weight))


class DecimalSum(DecimalTotals):
    def total(self, to: Target) -> str:
        out = decimal_sum_type(self.argument)
        return f"x_decimal_of({to.field(0)}, {out.precision}, {out.scale})"


class DecimalMean(DecimalTotals):
    def total(self, to: Target) -> str:
        out = decimal_mean_type(self.argument)
        numbers = f"{self.scale}, {out.precision}, {out.scale}"
        return f"x_decimal_mean({to.field(0)}, {self.count(to)}, {numbers})"


class IntervalTotals(Totals):
    """Totals of intervals, in microseconds."""

    def add(self, to: Target, value: str, weight: str | None) -> None:
        to.code.line(add_source(to.field(0), f"x_micros({value})", weight))


class IntervalSum(IntervalTotals):
    def total(self, to: Target) -> str:
        return f"x_interval_of({to.field(0)})"


class IntervalMean(IntervalTotals):
    def total(self, to: Target) -> str:
        return f"x_interval_mean({to.field(0)}, {self.count(to)})"


class NullOnErrorAccumulator(Accumulator):
    """Wrapper of an accumulator that returns null if computing the result raises."""

    def __init__(self, types: ArgumentTypes, append: bool, of: Accumulator) -> None:
        super().__init__(types, append)
        self.of = of

    def fields(self) -> tuple[StateField, ...]:
        return self.of.fields()

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        self.of.update(to, arguments, weight)

    def settle(self, to: Target) -> None:
        self.of.settle(to)

    def result(self, to: Target) -> str:
        return f"x_try(lambda: {self.of.result(to)})"

    def partial_columns(self) -> tuple[Field, ...] | None:
        return self.of.partial_columns()

    def partial_values(self, to: Target) -> tuple[str, ...]:
        return self.of.partial_values(to)

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        self.of.merge(to, fields)

    def merge_partial(self, to: Target, values: Sequence[str]) -> None:
        self.of.merge_partial(to, values)


@accumulator_of.register(Sum)
@accumulator_of.register(Mean)
def _accumulate(aggregation: Sum | Mean, types: ArgumentTypes, append: bool) -> Accumulator:
    kinds: tuple[type[Totals], type[Totals]] = (IntSum, IntMean)
    if isinstance(types[0].type, DecimalType):
        kinds = (DecimalSum, DecimalMean)
    elif is_float(types[0].type):
        kinds = (FloatSum, FloatMean)
    elif isinstance(types[0].type, IntervalType):
        kinds = (IntervalSum, IntervalMean)
    return kinds[isinstance(aggregation, Mean)](types, append)


@accumulator_of.register(NullOnError)
def _accumulate_or_null(aggregation: NullOnError, types: ArgumentTypes, append: bool) -> Accumulator:
    return NullOnErrorAccumulator(types, append, accumulator_of(aggregation.of, types, append))


# --- decimals and overflow, at run time --------------------------------------------------------------


def int64_overflow() -> int:
    """Raise the error for an integer sum beyond the range of its type."""
    raise EvaluationError("a sum of integers leaves the range of int64", fix="cast the argument to a decimal")


_WIDE = Context(prec=200, traps=[Inexact])


def to_unscaled(value: Decimal, scale: int) -> int:
    """Return the integer `value * 10**scale`."""
    return int(value.scaleb(scale, _WIDE))


def decimal_of_unscaled(total: int, precision: int, scale: int) -> Decimal:
    """Decimal of an unscaled integer. Raises `EvaluationError` beyond `precision` digits."""
    if abs(total) >= 10**precision:
        raise EvaluationError(
            f"a sum of decimals leaves decimal({precision},{scale})", fix="cast the argument to fewer digits"
        )
    return Decimal(total).scaleb(-scale, _WIDE)


def decimal_mean(total: int, count: int, scale: int, precision: int, to_scale: int) -> Decimal:
    """Return the mean of an unscaled sum with `scale` digits, rounded half up to `to_scale` digits."""
    numerator = abs(total) * 10 ** (to_scale - scale)
    rounded = (2 * numerator + count) // (2 * count)
    return decimal_of_unscaled(rounded if total >= 0 else -rounded, precision, to_scale)


register_runtime(
    {
        "x_int64_overflow": int64_overflow,
        "x_unscaled": to_unscaled,
        "x_decimal_of": decimal_of_unscaled,
        "x_decimal_mean": decimal_mean,
    }
)


# --- on Spark ----------------------------------------------------------------------------------------


@measure.register(Sum)
def _measure_sum(aggregation: Sum, to: AggregateArguments) -> NativeAggregates:
    column, kind = to.columns[0], to.types[0]
    if is_float(kind):
        return NativeAggregates((to.values(),), exact_totals.spark_float_sum)
    if isinstance(kind, IntervalType):
        return NativeAggregates((to.sql(_SUM_OF_INTERVALS),), exact_totals.interval_sum)
    if kind != INT64:
        return NativeAggregates((to.sql("sum({of} {0})"),))
    if to.distinct:
        return NativeAggregates((to.sql(_SUM_OF_DISTINCT),))
    return NativeAggregates(exact_totals.half_sums(column), exact_totals.int_sum)


@measure.register(Mean)
def _measure_mean(aggregation: Mean, to: AggregateArguments) -> NativeAggregates:
    column, kind = to.columns[0], to.types[0]
    if is_float(kind):
        return NativeAggregates((to.values(),), exact_totals.float_mean)
    if isinstance(kind, DecimalType):
        return NativeAggregates((to.sql("avg({of} {0})"),))
    if isinstance(kind, IntervalType):
        counted = F.count_distinct(column) if to.distinct else F.count(column)
        return NativeAggregates((to.sql(_SUM_OF_INTERVALS), counted), exact_totals.interval_mean)
    if to.distinct:
        return NativeAggregates((to.sql(_SUM_OF_DISTINCT), F.count_distinct(column)), exact_totals.mean_of)
    return NativeAggregates(
        (*exact_totals.half_sums(column.cast("long")), F.count(column)), exact_totals.int_mean
    )


# Halves of distinct values need not be distinct, so these are summed as decimals.
_SUM_OF_DISTINCT = "sum(DISTINCT CAST({0} AS DECIMAL(20, 0)))"


# Spark's own sum of intervals fails if it leaves the range on its way, which depends on the order of rows.
_SUM_OF_INTERVALS = "sum({of} CAST(CAST({0} AS INTERVAL DAY TO SECOND) AS DECIMAL(28, 6)))"


@measure.register(NullOnError)
def _measure_or_null(aggregation: NullOnError, to: AggregateArguments) -> NativeAggregates:
    name, kind = "try_sum" if isinstance(aggregation.of, Sum) else "try_avg", to.types[0]
    if isinstance(kind, DecimalType):
        return NativeAggregates((to.sql(f"{name}({{of}} {{0}})"),))
    if isinstance(kind, IntervalType) and name == "try_sum":
        return NativeAggregates((to.sql(_SUM_OF_INTERVALS),), exact_totals.interval_sum_or_null)
    if kind != INT64 or name == "try_avg":
        return measure(aggregation.of, to)
    if to.distinct:
        return NativeAggregates((to.sql(_SUM_OF_DISTINCT),), lambda total: total.try_cast("long"))
    halves = exact_totals.half_sums(to.columns[0])
    return NativeAggregates(
        halves, lambda upper, lower: exact_totals.combine_half_sums(upper, lower).try_cast("long")
    )


# --- reference answers -------------------------------------------------------------------------------


@answer_of.register(Sum)
def _answer_sum(aggregation: Sum, result: DataType, rows: ArgumentRows) -> Any:
    values = present_values(rows)
    return _rounded(values, 1, result) if values else None


@answer_of.register(Mean)
def _answer_mean(aggregation: Mean, result: DataType, rows: ArgumentRows) -> Any:
    values = present_values(rows)
    return _rounded(values, len(values), result) if values else None


def _rounded(values: list[Any], parts: int, result: DataType) -> Any:
    """Divide the exact sum by `parts`, rounded once to the type `result`."""
    if isinstance(result, IntervalType):
        micros = Fraction(builtins.sum(value // timedelta(microseconds=1) for value in values), parts)
        whole = int(abs(micros) + Fraction(1, 2))
        if whole >= 2**63:
            raise EvaluationError("sum leaves an interval")
        return timedelta(microseconds=whole if micros >= 0 else -whole)
    special = [v for v in values if isinstance(v, float) and not math.isfinite(v)]
    if special:
        # Infinities of both signs, and anything with NaN, sum to NaN.
        return special[0] if all(v == special[0] for v in special) else NAN
    exact = builtins.sum((Fraction(v) for v in values), Fraction(0)) / parts
    if result == FLOAT64:
        try:
            return float(exact)
        except OverflowError:
            return math.inf if exact > 0 else -math.inf
    if isinstance(result, DecimalType):
        return _decimal(exact, result)
    if not -(2**63) <= exact < 2**63:
        raise EvaluationError("sum leaves int64")
    return int(exact)


def _decimal(exact: Fraction, result: DecimalType) -> Decimal:
    unscaled = abs(exact) * 10**result.scale
    digits = int(unscaled + Fraction(1, 2))
    if digits >= 10**result.precision:
        raise EvaluationError(f"a value does not fit {result}")
    with localcontext(Context(prec=80, rounding=ROUND_HALF_UP)):
        return Decimal(digits if exact >= 0 else -digits).scaleb(-result.scale)


@answer_of.register(NullOnError)
def _answer_null_on_error(aggregation: NullOnError, result: DataType, rows: ArgumentRows) -> Any:
    try:
        return answer_of(aggregation.of, result, rows)
    except EvaluationError:
        return None
