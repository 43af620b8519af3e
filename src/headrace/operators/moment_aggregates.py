"""Statistics by sums of powers: variance, covariance, correlation, regression, skewness, kurtosis.

The sums are exact, and a result is computed from them exactly and rounded once. So it does not depend on the
order of arrival, and what is taken back leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from headrace.errors import SourceLocation, WrongType
from headrace.expr.tree import Expr
from headrace.expr.types import FLOAT64, Field
from headrace.operators.aggregates import Aggregation, number_field, of_distinct

if TYPE_CHECKING:
    from headrace.expr.types import Schema


class Moment(Enum):
    """Statistics, by their names in SQL. Those of two variables take the dependent one first."""

    VAR_SAMP = "var_samp"
    VAR_POP = "var_pop"
    STDDEV_SAMP = "stddev_samp"
    STDDEV_POP = "stddev_pop"
    SKEWNESS = "skewness"
    KURTOSIS = "kurtosis"
    SUM_OF_SQUARES = "sum_of_squares"
    COVAR_SAMP = "covar_samp"
    COVAR_POP = "covar_pop"
    CORR = "corr"
    REGR_SXY = "regr_sxy"
    REGR_SLOPE = "regr_slope"
    REGR_INTERCEPT = "regr_intercept"
    REGR_R2 = "regr_r2"

    @property
    def variables(self) -> int:
        """Number of expressions that the statistic is of."""
        return 2 if self.value.startswith(("covar", "corr", "regr")) else 1


@dataclass(frozen=True, slots=True)
class Moments(Aggregation):
    """Statistic of one expression, or of two. Rows with a null do not take part.

    Null if there are no values, and where the statistic divides by zero.
    """

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
    """Variance of a sample, null of one value; of a population, 0 then."""
    return of_distinct(Moments(Moment.VAR_POP if population else Moment.VAR_SAMP, expr), distinct)


def stddev(expr: Expr, *, population: bool = False, distinct: bool = False) -> Aggregation:
    """Standard deviation: the root of the variance."""
    return of_distinct(Moments(Moment.STDDEV_POP if population else Moment.STDDEV_SAMP, expr), distinct)


def covariance(expr: Expr, other: Expr, *, population: bool = False) -> Moments:
    """Covariance of two expressions, null of one row; of a population, 0 then."""
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
