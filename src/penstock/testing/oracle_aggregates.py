"""Oracle for aggregate functions, computed from all values of a group at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from functools import singledispatch
from typing import Any, TypeAlias

from penstock.errors import EvaluationError
from penstock.expr.code_runtime import NAN
from penstock.expr.types import FLOAT64, DataType, DecimalType
from penstock.flow.aggregates import (
    Aggregation,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    Sum,
)

_Arguments: TypeAlias = Sequence[tuple[Any, ...]]


def rank(value: Any) -> Any:
    """Return the sort key of a value: nulls first, NaN greatest, rows and lists from the left."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if math.isnan(value) else (1, value)
    if isinstance(value, tuple):
        return (1, tuple(rank(part) for part in value))
    return (1, value)


@singledispatch
def answer_of(aggregation: Aggregation, result: DataType, rows: _Arguments) -> Any:
    """Compute an aggregate of a group.

    rows: the values of `aggregation.arguments()` for each row of the group; at least one row.
    """
    raise NotImplementedError(f"the oracle does not know {type(aggregation).__name__}")


def _present(rows: _Arguments) -> list[Any]:
    return [row[0] for row in rows if row[0] is not None]


@answer_of.register
def _count(aggregation: Count, result: DataType, rows: _Arguments) -> Any:
    return len(rows) if aggregation.expr is None else len(_present(rows))


@answer_of.register
def _count_distinct(aggregation: CountDistinct, result: DataType, rows: _Arguments) -> Any:
    return len(set(_present(rows)))


@answer_of.register
def _sum(aggregation: Sum, result: DataType, rows: _Arguments) -> Any:
    values = _present(rows)
    return _rounded(values, 1, result) if values else None


@answer_of.register
def _mean(aggregation: Mean, result: DataType, rows: _Arguments) -> Any:
    values = _present(rows)
    return _rounded(values, len(values), result) if values else None


def _rounded(values: list[Any], parts: int, result: DataType) -> Any:
    """Divide the exact sum by `parts`, rounded once to the type `result`."""
    special = [v for v in values if isinstance(v, float) and not math.isfinite(v)]
    if special:
        # Infinities of both signs, and anything with NaN, sum to NaN.
        return special[0] if all(v == special[0] for v in special) else NAN
    exact = sum((Fraction(v) for v in values), Fraction(0)) / parts
    if result == FLOAT64:
        try:
            return float(exact)
        except OverflowError:
            return math.copysign(math.inf, exact)
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


@answer_of.register
def _min(aggregation: Min, result: DataType, rows: _Arguments) -> Any:
    return min(_present(rows), key=rank, default=None)


@answer_of.register
def _max(aggregation: Max, result: DataType, rows: _Arguments) -> Any:
    return max(_present(rows), key=rank, default=None)


@answer_of.register
def _first(aggregation: First, result: DataType, rows: _Arguments) -> Any:
    taking_part = [(by, value) for value, by in rows if by is not None]
    return min(taking_part, key=rank)[1] if taking_part else None


@answer_of.register
def _last(aggregation: Last, result: DataType, rows: _Arguments) -> Any:
    taking_part = [(by, value) for value, by in rows if by is not None]
    return max(taking_part, key=rank)[1] if taking_part else None


@answer_of.register
def _collect(aggregation: Collect, result: DataType, rows: _Arguments) -> Any:
    return tuple(sorted(_present(rows), key=rank))
