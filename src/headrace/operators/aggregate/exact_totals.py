"""Exact sums of groups: of floats, of powers and products, in rows and on Spark, each rounded once.

A float is n / 2**k, so a sum of floats is too: state holds numerator and denominator, and what is taken out
leaves nothing behind. NaN and the infinities are counted beside:

    [numerator, denominator, nan, +inf, -inf]

Between stages and in columns, a sum is a whole number of units in parts of few bits, if it is one.

Sums of powers and products are a list of numbers:

    [rows, shift, not finite of each variable, sums]

Values count in units of `2**-shift`, so a sum of degree d counts units of `2**(-d * shift)`. The sums are
those of x, x**2 and so on, or of x, y, x*x, x*y, y*y. A value that is not finite counts as 0, and is
remembered: results that depend on it are NaN.

On Spark, integers: a sum of int64 may leave the range on its way and come back, so the upper and the lower 32
bits are summed apart, natively, and put together as a decimal of 38 digits. Intervals: they are summed as
decimals of seconds. Floats: no native sum is exact; the values of a group are added in Python, as the
in-process engine adds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from math import inf, isqrt
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.expr.code_runtime import NAN
from headrace.lowering.generated_source import register_runtime
from headrace.requirements import F

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyspark.sql import Column


def float_add(group: list[Any], at: int, value: float, weight: int) -> None:
    """Add `weight` copies of `value` to [numerator, denominator, nan, +inf, -inf] at `group[at:]`."""
    if value - value != 0:
        group[at + (2 if value != value else 3 if value > 0 else 4)] += weight
        return
    numerator, denominator = value.as_integer_ratio()
    common = group[at + 1]
    if denominator > common:
        total = group[at] * (denominator // common) + numerator * weight
        group[at + 1] = denominator
    else:
        total = group[at] + numerator * (common // denominator) * weight
    group[at] = total
    if not total:
        group[at + 1] = 1


def float_merge(
    group: list[Any], at: int, numerator: int, denominator: int, nan: int, up: int, down: int
) -> None:
    """Merge an exact float sum (as kept by `float_add`) into the one at `group[at:]`."""
    common = group[at + 1]
    if denominator > common:
        total = group[at] * (denominator // common) + numerator
        common = denominator
    else:
        total = group[at] + numerator * (common // denominator)
    group[at], group[at + 1] = total, common if total else 1
    group[at + 2] += nan
    group[at + 3] += up
    group[at + 4] += down


FLOAT_PARTS, PART_BITS, FLOAT_UNIT = 5, 32, 112
"""Number of parts of a float sum, bits of all but the last one, and the unit `2**-112` of the first."""


MAX_IN_LAST = 1 << 42
"""Bound of the last part, low enough that sums of many such parts fit in 64 bits."""


def parts_of(value: int, count: int) -> tuple[int, ...]:
    """Split an integer into `count` parts, lowest first."""
    if not count:
        return ()
    low = (1 << PART_BITS) - 1
    return (*(value >> at * PART_BITS & low for at in range(count - 1)), value >> (count - 1) * PART_BITS)


def value_of(parts: Sequence[int]) -> int:
    """Return the integer represented by these parts."""
    if len(parts) == 2:
        low, high = parts
        return low + (high << PART_BITS)
    return sum(part << at * PART_BITS for at, part in enumerate(parts))


def in_float_parts(total: int) -> bool:
    """Return whether a total, in units, fits into parts (`MAX_IN_LAST`)."""
    return -MAX_IN_LAST <= total >> (FLOAT_PARTS - 1) * PART_BITS < MAX_IN_LAST


def parts_of_float_sum(group: list[Any], at: int) -> tuple[int, ...]:
    """Return the parts of the sum at `group[at:]`, lowest first, and by how many bits their unit is finer.

    What has more bits than the parts is the first one.
    """
    numerator, denominator = group[at], group[at + 1]
    more = denominator.bit_length() - 1 - FLOAT_UNIT
    if more <= 0 and in_float_parts(total := numerator << -more):
        return (*parts_of(total, FLOAT_PARTS), 0)
    return (numerator, *(0,) * (FLOAT_PARTS - 1), more)


def float_merge_parts(group: list[Any], at: int, *parts: int) -> None:
    """Merge an exact float sum, as `parts_of_float_sum` gives it with nan, +inf, -inf, into `group[at:]`."""
    total, bits = value_of(list(map(int, parts[:FLOAT_PARTS]))), FLOAT_UNIT + int(parts[FLOAT_PARTS])
    float_merge(group, at, *lowest_terms(total, bits), *parts[FLOAT_PARTS + 1 :])


def lowest_terms(total: int, bits: int) -> tuple[int, int]:
    """Return the numerator and denominator of `total * 2**-bits`."""
    if not total:
        return 0, 1
    common = min(bits, (total & -total).bit_length() - 1)
    return total >> common, 1 << bits - common


def float_sum(group: list[Any], at: int, count: int = 1) -> float:
    """Divide the sum at `group[at:]` by `count`, rounding once."""
    numerator, denominator, nan, up, down = group[at : at + 5]
    if nan > 0 or (up > 0 and down > 0):
        return NAN
    if up > 0:
        return inf
    if down > 0:
        return -inf
    try:
        # A quotient that is too small for a float would be -0.0 if it is negative.
        return numerator / (denominator * count) or 0.0
    except OverflowError:
        return inf if numerator > 0 else -inf


class Moment(Enum):
    """Statistics, by their names in SQL. Statistics of two variables take the dependent one first."""

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
        """Number of variables of the statistic."""
        return 2 if self.value.startswith(("covar", "corr", "regr")) else 1


Sums: TypeAlias = "list[Any]"


OF_ONE, OF_SHAPE, OF_TWO = (1, 2), (1, 2, 3, 4), (1, 1, 2, 2, 2)
"""Degrees of the sums: for variances, for skewness and kurtosis, for two variables."""


def degrees_of(moment: Moment) -> tuple[int, ...]:
    """Return the degrees of the sums that a statistic needs."""
    if moment in (Moment.SKEWNESS, Moment.KURTOSIS):
        return OF_SHAPE
    return OF_TWO if moment.variables == 2 else OF_ONE


def variables_of(degrees: tuple[int, ...]) -> int:
    return degrees.count(1)


def empty_sums(degrees: tuple[int, ...]) -> Sums:
    return [0] * (2 + variables_of(degrees) + len(degrees))


def add_powers(group: Sums, at: int, degrees: tuple[int, ...], values: tuple[Any, ...], weight: int) -> None:
    """Add `weight` copies of a row to the state at `group[at:]`."""
    group[at] += weight
    ratios: list[tuple[int, int]] = []
    for place, value in enumerate(values, at + 2):
        # A decimal counts as the nearest float; integers count as they are.
        number = value if isinstance(value, int) else float(value)
        if number - number != 0:
            group[place] += weight
            number = 0
        above, below = number.as_integer_ratio()
        ratios.append((above, below.bit_length() - 1))
    first = at + 2 + len(values)
    shift = max(shift for _, shift in ratios)
    if shift > group[at + 1]:
        _rescale(group, at, first, degrees, shift)
    common = group[at + 1]
    for place, product in enumerate(_products(degrees, [n << common - s for n, s in ratios]), first):
        group[place] += product * weight
    if not group[at] and not any(group[first : first + len(degrees)]):
        group[at + 1] = 0


def merge_powers(group: Sums, at: int, degrees: tuple[int, ...], other: Sequence[int]) -> None:
    """Add another state to the one at `group[at:]`."""
    first, added = at + 2 + variables_of(degrees), list(other)
    _rescale(added, 0, first - at, degrees, max(group[at + 1], added[1]))
    _rescale(group, at, first, degrees, added[1])
    for place, number in enumerate(added):
        if place != 1:
            group[at + place] += number


def _rescale(group: Sums, at: int, first: int, degrees: tuple[int, ...], shift: int) -> None:
    more = shift - group[at + 1]
    group[at + 1] = shift
    for place, degree in enumerate(degrees, first):
        group[place] <<= more * degree


def _products(degrees: tuple[int, ...], values: list[int]) -> list[int]:
    if len(values) == 1:
        return [values[0] ** degree for degree in degrees]
    x, y = values
    return [x, y, x * x, x * y, y * y]


@dataclass(frozen=True, slots=True)
class _Deviations:
    """Sums over n rows of products of deviations from the mean, in whole units of `2**-shift`.

    xx, xy, yy: n times the sums; None if a value is not finite. sums: the sums themselves.
    """

    n: int
    shift: int
    sums: list[int]
    xx: int | None
    xy: int | None = None
    yy: int | None = None

    def per(self, above: int | None, parts: int) -> float:
        """Divide a sum of products, given as n times the sum, by `parts`."""
        return NAN if above is None else _quotient(above, (self.n * parts) << (2 * self.shift))

    def root_per(self, above: int | None, parts: int) -> float:
        return NAN if above is None else _root(above, (self.n * parts) << (2 * self.shift))


def statistic(group: Sums, at: int, degrees: tuple[int, ...], moment: Moment) -> float | None:
    """Compute a statistic of the state at `group[at:]`; None if it has no value."""
    n, shift = group[at], group[at + 1]
    if n <= 0:
        return None
    first = at + 2 + variables_of(degrees)
    odd, sums = group[at + 2 : first], group[first : first + len(degrees)]
    if len(odd) == 1:
        x, xx = sums[:2]
        return _STATISTICS[moment](_Deviations(n, shift, sums, None if odd[0] else n * xx - x * x))
    x, y, xx, xy, yy = sums
    of_x = None if odd[0] else n * xx - x * x
    of_y = None if odd[1] else n * yy - y * y
    of_both = None if odd[0] or odd[1] else n * xy - x * y
    return _STATISTICS[moment](_Deviations(n, shift, sums, of_x, of_both, of_y))


def _sample(divide: Callable[[_Deviations], float]) -> Callable[[_Deviations], float | None]:
    return lambda of: divide(of) if of.n > 1 else None


def _skewness(of: _Deviations) -> float | None:
    if of.xx is None:
        return NAN
    s1, s2, s3, _ = of.sums
    cubes = of.n**2 * s3 - 3 * of.n * s1 * s2 + 2 * s1**3
    return _signed(cubes, _root(cubes**2, of.xx**3)) if of.xx else None


def _kurtosis(of: _Deviations) -> float | None:
    if of.xx is None:
        return NAN
    n, (s1, s2, s3, s4) = of.n, of.sums
    fourths = n**3 * s4 - 4 * n**2 * s1 * s3 + 6 * n * s1**2 * s2 - 3 * s1**4
    return _quotient(fourths - 3 * of.xx**2, of.xx**2) if of.xx else None


def _corr(of: _Deviations) -> float | None:
    if of.xx == 0 or of.yy == 0:
        return None
    if of.xx is None or of.xy is None or of.yy is None:
        return NAN
    return _signed(of.xy, _root(of.xy**2, of.xx * of.yy))


def _slope(of: _Deviations) -> float | None:
    if of.yy == 0:
        return None
    return NAN if of.xy is None or of.yy is None else _quotient(of.xy, of.yy)


def _intercept(of: _Deviations) -> float | None:
    if of.yy == 0:
        return None
    if of.xy is None or of.yy is None:
        return NAN
    x, y = of.sums[:2]
    return _quotient(x * of.yy - of.xy * y, (of.n * of.yy) << of.shift)


def _r2(of: _Deviations) -> float | None:
    if of.yy == 0:
        return None
    if of.xx == 0:
        return 1.0
    if of.xx is None or of.xy is None or of.yy is None:
        return NAN
    return _quotient(of.xy**2, of.xx * of.yy)


_STATISTICS: dict[Moment, Callable[[_Deviations], float | None]] = {
    Moment.VAR_SAMP: _sample(lambda of: of.per(of.xx, of.n - 1)),
    Moment.VAR_POP: lambda of: of.per(of.xx, of.n),
    Moment.STDDEV_SAMP: _sample(lambda of: of.root_per(of.xx, of.n - 1)),
    Moment.STDDEV_POP: lambda of: of.root_per(of.xx, of.n),
    Moment.SUM_OF_SQUARES: lambda of: of.per(of.xx, 1),
    Moment.SKEWNESS: _skewness,
    Moment.KURTOSIS: _kurtosis,
    Moment.COVAR_SAMP: _sample(lambda of: of.per(of.xy, of.n - 1)),
    Moment.COVAR_POP: lambda of: of.per(of.xy, of.n),
    Moment.CORR: _corr,
    Moment.REGR_SXY: lambda of: of.per(of.xy, 1),
    Moment.REGR_SLOPE: _slope,
    Moment.REGR_INTERCEPT: _intercept,
    Moment.REGR_R2: _r2,
}


def _quotient(above: int, below: int) -> float:
    try:
        return above / below or 0.0
    except OverflowError:
        return inf if above > 0 else -inf


def _root(above: int, below: int) -> float:
    """Return the root of `above / below` rounded once; 0 if it is negative."""
    if above <= 0 or below <= 0:
        return 0.0
    # More bits than a float has, and one that says whether there are further ones.
    half = max(0, 64 - (above.bit_length() - below.bit_length()) // 2)
    whole, rest = divmod(above << 2 * half, below)
    digits = isqrt(whole)
    further = rest or digits * digits != whole
    return _quotient(2 * digits + bool(further), 2 << half)


def _signed(sign: int, size: float) -> float:
    return (-size if sign < 0 else size) or 0.0


register_runtime(
    {
        "x_float_add": float_add,
        "x_float_merge": float_merge,
        "x_float_merge_parts": float_merge_parts,
        "x_float_parts": parts_of_float_sum,
        "x_float_sum": float_sum,
        "x_add_powers": add_powers,
        "x_merge_powers": merge_powers,
        "x_statistic": statistic,
    }
)

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


def spark_float_sum(values: Column) -> Column:
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
    return float_sum(state, 0, parts)


def _over_lists(number: Callable[[list[Any]], float | None]) -> Callable[[Column], Column]:
    import pyarrow

    def numbers(lists: pa.Array) -> pa.Array:
        found = (number(values) if values else None for values in lists.to_pylist())
        return pyarrow.array(found, pyarrow.float64())

    # PySpark reads these to learn that whole arrays come and go.
    numbers.__annotations__ = {"lists": pyarrow.Array, "return": pyarrow.Array}
    arrow_udf: Any = F.arrow_udf  # its declared types know only its use as a decorator
    return arrow_udf(numbers, "double")
