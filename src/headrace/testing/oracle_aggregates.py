"""Oracle for aggregate functions, computed from all values of a group at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from functools import singledispatch
from typing import Any, TypeAlias

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import NAN, float32
from headrace.expr.types import (
    DATE,
    FLOAT32,
    FLOAT64,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    IntervalType,
    ListType,
    StructType,
)
from headrace.lowering.reference import rank
from headrace.operators.aggregates import (
    Aggregation,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    NullOnError,
    OfDistinct,
    Sum,
)
from headrace.operators.moment_aggregates import Moments
from headrace.operators.value_aggregates import BitOperation, Bits, Histogram, Mode, Percentile, StringAgg
from headrace.testing.oracle_statistics import statistic_of

_Arguments: TypeAlias = Sequence[tuple[Any, ...]]


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
    if isinstance(result, IntervalType):
        micros = Fraction(sum(value // timedelta(microseconds=1) for value in values), parts)
        whole = int(abs(micros) + Fraction(1, 2))
        if whole >= 2**63:
            raise EvaluationError("sum leaves an interval")
        return timedelta(microseconds=whole if micros >= 0 else -whole)
    special = [v for v in values if isinstance(v, float) and not math.isfinite(v)]
    if special:
        # Infinities of both signs, and anything with NaN, sum to NaN.
        return special[0] if all(v == special[0] for v in special) else NAN
    exact = sum((Fraction(v) for v in values), Fraction(0)) / parts
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


@answer_of.register
def _distinct(aggregation: OfDistinct, result: DataType, rows: _Arguments) -> Any:
    return answer_of(aggregation.of, result, list(dict.fromkeys(rows)))


@answer_of.register
def _null_on_error(aggregation: NullOnError, result: DataType, rows: _Arguments) -> Any:
    try:
        return answer_of(aggregation.of, result, rows)
    except EvaluationError:
        return None


@answer_of.register
def _percentile(aggregation: Percentile, result: DataType, rows: _Arguments) -> Any:
    if aggregation.frequency is not None:
        rows = [(value,) for value, copies in rows if copies is not None for _ in range(copies)]
    values = sorted(_present(rows), key=rank, reverse=aggregation.descending)
    if not values:
        return None
    if isinstance(aggregation.at, tuple):
        return tuple(_percentile_at(values, at, discrete=aggregation.discrete) for at in aggregation.at)
    return _percentile_at(values, aggregation.at, discrete=aggregation.discrete)


def _percentile_at(values: list[Any], at: float, *, discrete: bool) -> Any:
    if discrete:
        return next(value for place, value in enumerate(values, 1) if place >= len(values) * at)
    place = (len(values) - 1) * at
    before, behind = values[math.floor(place)], values[math.ceil(place)]
    if isinstance(before, timedelta):
        micros = [each // timedelta(microseconds=1) for each in values]
        found = int(_percentile_at(micros, at, discrete=False))
        return timedelta(microseconds=min(found, 2**63 - 1))
    if before == behind:
        return float(before)
    found = float(before) + (place - math.floor(place)) * (float(behind) - float(before))
    return NAN if math.isnan(found) else found


@answer_of.register
def _histogram(aggregation: Histogram, result: DataType, rows: _Arguments) -> Any:
    values = [_as_number(value) for value in _present(rows)]
    bins: list[tuple[float, float]] = []
    for center in sorted({rank(value): value for value in values}.values(), key=rank):
        bins.append((center, float(sum(rank(value) == rank(center) for value in values))))
        if len(bins) > aggregation.bins:
            at = min(range(len(bins) - 1), key=lambda at: rank(bins[at + 1][0] - bins[at][0]))
            (x, y), (next_x, next_y) = bins[at], bins[at + 1]
            middle = x * (y / (y + next_y)) + next_x / (y + next_y) * next_y
            bins[at : at + 2] = [(NAN if math.isnan(middle) else middle, y + next_y)]
    assert isinstance(result, ListType)
    assert isinstance(result.element, StructType)
    return tuple((_of_number(x, result.element.fields[0].type), y) for x, y in bins) or None


def _as_number(value: Any) -> float:
    if isinstance(value, datetime):
        return float((value - datetime(1970, 1, 1, tzinfo=value.tzinfo)) // timedelta(microseconds=1))
    return float((value - date(1970, 1, 1)).days if isinstance(value, date) else value)


def _of_number(x: float, type: DataType) -> Any:
    if type == FLOAT64:
        return x
    if type == FLOAT32:
        return float32(x)
    if isinstance(type, DecimalType):
        with localcontext(Context(prec=80, rounding=ROUND_HALF_UP)):
            most = (Decimal(10) ** type.precision - 1).scaleb(-type.scale)
            return min(max(Decimal(repr(x)), -most), most).quantize(most)
    if type == DATE:
        return date(1970, 1, 1) + timedelta(days=int(x))
    if type in (TIMESTAMP, TIMESTAMP_NTZ):
        start, micros = datetime(1970, 1, 1), timedelta(microseconds=1)
        found = start + min(int(x), (datetime.max - start) // micros) * micros
        return found.replace(tzinfo=UTC) if type == TIMESTAMP else found
    return min(int(x), 2**63 - 1)


@answer_of.register
def _mode(aggregation: Mode, result: DataType, rows: _Arguments) -> Any:
    values = sorted(_present(rows), key=rank, reverse=aggregation.greatest)
    return max(values, key=values.count, default=None)


@answer_of.register
def _string_agg(aggregation: StringAgg, result: DataType, rows: _Arguments) -> Any:
    there = sorted((row for row in rows if row[0] is not None), key=lambda row: rank(row[0]))
    for at, ordering in reversed(list(enumerate(aggregation.by, 1))):
        there.sort(key=lambda row, at=at: rank(row[at]), reverse=ordering.descending)
    return aggregation.separator.join(row[0] for row in there) if there else None


@answer_of.register
def _bits(aggregation: Bits, result: DataType, rows: _Arguments) -> Any:
    values = _present(rows)
    if not values:
        return None
    total = values[0]
    for value in values[1:]:
        match aggregation.operation:
            case BitOperation.AND:
                total &= value
            case BitOperation.OR:
                total |= value
            case BitOperation.XOR:
                total ^= value
    return total


@answer_of.register
def _moments(aggregation: Moments, result: DataType, rows: _Arguments) -> Any:
    return statistic_of(aggregation.moment, [row for row in rows if None not in row])
