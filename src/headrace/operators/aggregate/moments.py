"""Statistics by sums of powers: variance, covariance, correlation, regression, skewness, kurtosis.

The sums are exact, and a result is computed from them exactly and rounded once. So it does not depend on the
order of arrival, and what is taken back leaves nothing behind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import SourceLocation, WrongType
from headrace.expr.code_runtime import NAN
from headrace.expr.types import FLOAT64, DataType, Field
from headrace.lowering.row_code import tuple_source
from headrace.operators.aggregate import exact_totals
from headrace.operators.aggregate.aggregation import (
    Accumulator,
    AggregateArguments,
    Aggregation,
    ArgumentRows,
    ArgumentTypes,
    NativeAggregates,
    StateField,
    Target,
    accumulator_of,
    answer_of,
    measure,
    number_field,
)
from headrace.operators.aggregate.counts import of_distinct
from headrace.operators.aggregate.exact_totals import Moment, degrees_of, empty_sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema


@dataclass(frozen=True, slots=True)
class Moments(Aggregation):
    """Statistic of one expression, or of two. Rows with a null are skipped.

    Null if there are no values, and where the statistic divides by zero.
    """

    distinct_on_spark: ClassVar[bool] = True
    moment: Moment
    expr: Expr
    other: Expr | None = None

    def arguments(self) -> tuple[Expr, ...]:
        return (self.expr,) if self.other is None else (self.expr, self.other)

    def field(self, name: str, schema: Schema) -> Field:
        if len(self.arguments()) != self.moment.variables:
            raise WrongType(
                f"{self.moment.value} is of {self.moment.variables} expressions, got {len(self.arguments())}",
                where=[SourceLocation.of_caller()],
                fix="hr.variance(col.x), hr.corr(col.x, col.y)",
            )
        fields = [number_field(self.moment.value, each, schema) for each in self.arguments()]
        nullable = any(each.nullable for each in fields)
        return Field(name, FLOAT64, nullable or self.moment not in _OF_ONE_VALUE)

    def __str__(self) -> str:
        return f"{self.moment.value}({', '.join(map(str, self.arguments()))})"


_OF_ONE_VALUE = frozenset(
    {Moment.VAR_POP, Moment.STDDEV_POP, Moment.SUM_OF_SQUARES, Moment.COVAR_POP, Moment.REGR_SXY}
)


def variance(expr: Expr, *, population: bool = False, distinct: bool = False) -> Aggregation:
    """Variance: of a sample (null for a single value), or of a population (0 for a single value)."""
    return of_distinct(Moments(Moment.VAR_POP if population else Moment.VAR_SAMP, expr), distinct)


def stddev(expr: Expr, *, population: bool = False, distinct: bool = False) -> Aggregation:
    """Standard deviation: the root of the variance."""
    return of_distinct(Moments(Moment.STDDEV_POP if population else Moment.STDDEV_SAMP, expr), distinct)


def covariance(expr: Expr, other: Expr, *, population: bool = False) -> Moments:
    """Covariance of two expressions: of a sample (null for one row), or of a population (0 for one row)."""
    return Moments(Moment.COVAR_POP if population else Moment.COVAR_SAMP, expr, other)


def corr(expr: Expr, other: Expr) -> Moments:
    """Pearson's correlation of two expressions; null if one is constant."""
    return Moments(Moment.CORR, expr, other)


def skewness(expr: Expr) -> Moments:
    """Skewness of a population; null if all values are equal."""
    return Moments(Moment.SKEWNESS, expr)


def kurtosis(expr: Expr) -> Moments:
    """Excess kurtosis of a population; null if all values are equal."""
    return Moments(Moment.KURTOSIS, expr)


# --- accumulator -------------------------------------------------------------------------------------


class PowerSums(Accumulator):
    """Statistic of sums of powers: the state of `power_sums`."""

    def __init__(self, types: ArgumentTypes, append: bool, aggregation: Moments) -> None:
        super().__init__(types, append)
        self.moment, self.degrees = aggregation.moment, degrees_of(aggregation.moment)

    def fields(self) -> tuple[StateField, ...]:
        return tuple(StateField("0") for _ in empty_sums(self.degrees))

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        values = tuple_source(arguments)
        to.code.line(f"x_add_powers({to.group}, {to.at}, {self.degrees}, {values}, {weight or '1'})")

    def result(self, to: Target) -> str:
        moment = to.writer.constant("moment", self.moment)
        return f"x_statistic({to.group}, {to.at}, {self.degrees}, {moment})"

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        to.code.line(f"x_merge_powers({to.group}, {to.at}, {self.degrees}, {tuple_source(tuple(fields))})")


@accumulator_of.register(Moments)
def _accumulate(aggregation: Moments, types: ArgumentTypes, append: bool) -> Accumulator:
    return PowerSums(types, append, aggregation)


# --- on Spark ----------------------------------------------------------------------------------------


@measure.register(Moments)
def _measure_moments(aggregation: Moments, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((to.rows(),), exact_totals.moments_of(aggregation.moment))


# --- reference answers -------------------------------------------------------------------------------


@answer_of.register(Moments)
def _answer(aggregation: Moments, result: DataType, rows: ArgumentRows) -> Any:
    return statistic_of(aggregation.moment, [row for row in rows if None not in row])


def statistic_of(moment: Moment, rows: Sequence[tuple[Any, ...]]) -> float | None:
    """Compute a statistic of one or two variables; None if it has no value."""
    if not rows:
        return None
    n, columns = len(rows), [_exact(column) for column in zip(*rows, strict=True)]
    x, y = columns[0], columns[-1]
    xx, xy, yy = _products(x, x), _products(x, y), _products(y, y)
    match moment:
        case Moment.VAR_POP | Moment.COVAR_POP:
            return _float(xy, n)
        case Moment.VAR_SAMP | Moment.COVAR_SAMP:
            return _float(xy, n - 1) if n > 1 else None
        case Moment.SUM_OF_SQUARES | Moment.REGR_SXY:
            return _float(xy, 1)
        case Moment.STDDEV_POP:
            return _root(xx, n)
        case Moment.STDDEV_SAMP:
            return _root(xx, n - 1) if n > 1 else None
        case Moment.SKEWNESS if xx != 0:
            third = _power(x, 3)
            return NAN if xx is None or third is None else _signed(third, n * third**2 / xx**3)
        case Moment.KURTOSIS if xx != 0:
            fourth = _power(x, 4)
            return NAN if xx is None or fourth is None else _float(n * fourth / xx**2 - 3, 1)
        case Moment.CORR if xx != 0 and yy != 0:
            return NAN if xx is None or xy is None or yy is None else _signed(xy, xy**2 / (xx * yy))
        case Moment.REGR_SLOPE if yy != 0:
            return NAN if xy is None or yy is None else _float(xy, yy)
        case Moment.REGR_INTERCEPT if yy != 0:
            if x is None or y is None or xy is None or yy is None:
                return NAN
            return _float(sum(x, Fraction()) / n - xy / yy * sum(y, Fraction()) / n, 1)
        case Moment.REGR_R2 if xx == 0 and yy != 0:
            return 1.0
        case Moment.REGR_R2 if yy != 0:
            return NAN if xx is None or xy is None or yy is None else _float(xy**2, xx * yy)
        case _:
            return None


def _exact(values: Sequence[Any]) -> list[Fraction] | None:
    """Return numbers as fractions; None if one is not finite."""
    numbers = [float(v) if isinstance(v, Decimal) else v for v in values]
    return [Fraction(v) for v in numbers] if all(map(math.isfinite, numbers)) else None


def _products(x: list[Fraction] | None, y: list[Fraction] | None) -> Fraction | None:
    if x is None or y is None:
        return None
    of_x, of_y = sum(x, Fraction()) / len(x), sum(y, Fraction()) / len(y)
    return sum(((a - of_x) * (b - of_y) for a, b in zip(x, y, strict=True)), Fraction())


def _power(x: list[Fraction] | None, power: int) -> Fraction | None:
    return None if x is None else sum(((a - sum(x, Fraction()) / len(x)) ** power for a in x), Fraction())


def _float(above: Fraction | None, below: Fraction | int) -> float:
    if above is None:
        return NAN
    try:
        return float(above / below) or 0.0
    except OverflowError:
        return math.inf if above > 0 else -math.inf


_DIGITS = Context(prec=80, Emax=10**6, Emin=-(10**6))


def _root(square: Fraction | None, below: int = 1) -> float:
    if square is None:
        return NAN
    exact = square / below
    above, under = math.isqrt(exact.numerator), math.isqrt(exact.denominator)
    if Fraction(above, under) ** 2 == exact:
        # Half of the least float has more digits than are computed below.
        return float(Fraction(above, under))
    root = _DIGITS.sqrt(_DIGITS.divide(Decimal(exact.numerator), Decimal(exact.denominator)))
    return float(root)


def _signed(sign: Fraction, square: Fraction) -> float:
    return (_root(square) if sign > 0 else -_root(square)) or 0.0
