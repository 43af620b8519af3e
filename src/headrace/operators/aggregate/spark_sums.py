"""Exact sums and means, rounded once, independent of row order.

Integers: a sum of int64 may leave the range on its way and come back, so the
upper and the lower 32 bits are summed apart, natively, and put together as a
decimal of 38 digits. Intervals: they are summed as decimals of seconds. Floats:
no native sum is exact; the values of a group are added in Python, as the
in-process engine adds them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headrace.operators.aggregate.float_totals import float_add
from headrace.operators.aggregate.float_totals import float_sum as rounded_float_sum
from headrace.operators.aggregate.power_sums import add_powers, degrees_of, empty_sums, statistic
from headrace.requirements import F

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import Column

    from headrace.operators.aggregate.power_sums import Moment

_WIDE = "decimal(38,0)"


_EXACT_IN_A_FLOAT = 2**53
_MICROSECOND = timedelta(microseconds=1)


def half_sums(column: Column) -> tuple[Column, Column]:
    """Return the aggregates of an int64 column: the sums of its upper and lower 32 bits."""
    upper = F.sum(F.shiftright(column, 32))
    lower = F.sum(column.bitwiseAND(F.lit(2**32 - 1)))
    return upper, lower


def combine_half_sums(upper: Column, lower: Column) -> Column:
    """Combine two half sums into the full sum, as a decimal."""
    return (
        upper.cast("decimal(20,0)") * F.lit(2**32).cast("decimal(10,0)") + lower.cast("decimal(20,0)")
    ).cast(_WIDE)


def int_sum(upper: Column, lower: Column) -> Column:
    """Return the sum as an int64; overflow is an error."""
    return combine_half_sums(upper, lower).cast("long")


def int_mean(upper: Column, lower: Column, count: Column) -> Column:
    """Float nearest to sum / count; null if the count is 0."""
    return mean_of(combine_half_sums(upper, lower), count)


def mean_of(total: Column, count: Column) -> Column:
    """Float nearest to total / count, for a decimal total; null if the count is 0."""
    # Both exact as floats: then one division is one rounding.
    plain = total.cast("double") / count.cast("double")
    small = F.abs(total) <= F.lit(_EXACT_IN_A_FLOAT)
    return F.when(count > 0, F.when(small, plain).otherwise(_nearest_float(total, count)))


def _nearest_float(total: Column, count: Column) -> Column:
    """total / count rounded once, for totals beyond 2**53.

    The quotient is scaled by a power of two until its whole part has more bits than a float
    holds; a remainder then only says "a little more", which an odd last bit says as well.
    """
    size, parts = F.abs(total), count.cast("decimal(20,0)")
    bits = F.floor(F.log2(size.cast("double") / count.cast("double")))
    shift = F.greatest(F.lit(0), F.lit(58) - bits)
    power = F.pow(F.lit(2.0), shift.cast("double"))
    scaled = (size * power.cast("decimal(20,0)")).cast(_WIDE)
    rest = (scaled % parts).cast(_WIDE)
    quotient = ((scaled - rest) / parts).cast(_WIDE)
    odd = F.when((rest > 0) & (quotient % F.lit(2).cast(_WIDE) == 0), F.lit(1)).otherwise(F.lit(0))
    nearest = (quotient + odd.cast("decimal(1,0)")).cast("double") / power
    return F.when(total < 0, -nearest).otherwise(nearest)


def interval_sum(total: Column) -> Column:
    """Return a sum of seconds, a decimal, as an interval; overflow is an error."""
    return F.lit(_MICROSECOND) * _micros(total).cast("long")


def interval_sum_or_null(total: Column) -> Column:
    """Return a sum of seconds, a decimal, as an interval; null if it overflows."""
    return F.lit(_MICROSECOND) * _micros(total).try_cast("long")


def interval_mean(total: Column, count: Column) -> Column:
    """Interval nearest to a sum of seconds / count, halves away from zero; null if the count is 0."""
    twice = F.nullif((count.cast("decimal(20,0)") * 2).cast("decimal(21,0)"), F.lit(0))
    size = (F.abs(_micros(total)) * 2 + count.cast("decimal(20,0)")).cast(_WIDE)
    whole = ((size - size % twice) / twice).cast(_WIDE)
    return F.lit(_MICROSECOND) * F.when(total < 0, -whole).otherwise(whole).cast("long")


def _micros(seconds: Column) -> Column:
    return (seconds * F.lit(10**6).cast("decimal(7,0)")).cast(_WIDE)


def float_sum(values: Column) -> Column:
    """Float nearest to the sum of a list of floats; null for an empty list."""
    return _over_lists(_sum_of)(values)


def float_mean(values: Column) -> Column:
    """Float nearest to the mean of a list of floats; null for an empty list."""
    return _over_lists(_mean_of)(values)


def moments_of(moment: Moment) -> Callable[[Column], Column]:
    """Return the statistic of a list of structs of numbers; null for an empty list."""
    degrees = degrees_of(moment)

    def number(rows: list[dict[str, Any]]) -> float | None:
        state = empty_sums(degrees)
        for row in rows:
            add_powers(state, 0, degrees, tuple(row.values()), 1)
        return statistic(state, 0, degrees, moment)

    return _over_lists(number)


def _sum_of(values: list[float]) -> float:
    return _rounded(values, 1)


def _mean_of(values: list[float]) -> float:
    return _rounded(values, len(values))


def _rounded(values: list[float], parts: int) -> float:
    state: list[Any] = [0, 1, 0, 0, 0]
    for value in values:
        float_add(state, 0, value, 1)
    return rounded_float_sum(state, 0, parts)


def _over_lists(number: Callable[[list[Any]], float | None]) -> Callable[[Column], Column]:
    import pyarrow

    def numbers(lists: pa.Array) -> pa.Array:
        found = (number(values) if values else None for values in lists.to_pylist())
        return pyarrow.array(found, pyarrow.float64())

    # PySpark reads these to learn that whole arrays come and go.
    numbers.__annotations__ = {"lists": pyarrow.Array, "return": pyarrow.Array}
    arrow_udf: Any = F.arrow_udf  # its declared types know only its use as a decorator
    return arrow_udf(numbers, "double")
