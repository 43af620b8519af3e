"""Aggregates over a sorted multiset: present values in order, with the copies of each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from heapq import nlargest, nsmallest
from itertools import accumulate, chain, pairwise
from math import ceil, floor, isqrt
from typing import Any

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import EPOCH, NAN, float32
from headrace.expr.decimal_arithmetic import DecimalSpec, round_to_scale
from headrace.expr.functions.intervals import micros_of, of_micros
from headrace.expr.types import (
    DataType,
    DateType,
    DecimalType,
    Float32Type,
    IntegerType,
    TimestampNtzType,
    TimestampType,
)

Values = list[Any]
Copies = dict[Any, int]
OrderKey = Callable[[Any], Any] | None


def add_ordered_value(group: list[Any], at: int, value: Any, weight: int) -> None:
    """Add `weight` copies of `value` to [values in order, counts, moved] at `group[at:]`.

    The values are brought up to date by `settle` or `settle_end`, once per tick. `moved` has the copies that
    there were, of each value that may have come or gone.
    """
    counts, moved = group[at + 1], group[at + 2]
    before = counts.get(value, 0)
    if value not in moved:
        moved[value] = before
    after = before + weight
    if after:
        counts[value] = after
    elif before:
        del counts[value]


# From so many moved values on, and this part of all, one sort is cheaper than a place for each.
_MANY, _PART = 16, 16


def settle(group: list[Any], at: int, order_key: OrderKey) -> None:
    """Bring the values at `group[at]`, all that are present, up to date with the counts."""
    values, counts, moved = group[at : at + 3]
    come, gone = _come_and_gone(counts, moved)
    _move(values, counts, come, gone, order_key)
    moved.clear()


def settle_end(group: list[Any], at: int, order_key: OrderKey, least: int, end: int) -> None:
    """Bring the values at `group[at]`, those at one end of the order, up to date with the counts.

    They are `least` at least, or all that are present. end: 0 for the first values, -1 for the last.

    More are kept than asked for, so that all others are searched only once these are used up: a change costs
    the square root of their number on average, and most changes only their count.
    """
    values, counts, moved = group[at : at + 3]
    come, gone = _come_and_gone(counts, moved)
    before = len(counts) - sum((counts.get(v, 0) != 0) - (n != 0) for v, n in moved.items())
    if before != len(values):
        come, gone = (_at_end(values, each, order_key, end) for each in (come, gone))
    kept = least + _KEPT + 4 * isqrt(len(counts))
    if len(values) + len(come) > 2 * kept:
        present = (v for v in chain(values, come) if counts.get(v, 0) > 0)
        values[:] = _ends(present, kept, order_key, end)
    else:
        _move(values, counts, come, gone, order_key)
    if len(values) < least and len(values) < len(counts):
        values[:] = _ends((v for v, n in counts.items() if n > 0), kept, order_key, end)
    moved.clear()


def ends_of(counts: Copies, order_key: OrderKey, end: int) -> Values:
    """Return the values that `settle_end` keeps of these counts."""
    return _ends((v for v, n in counts.items() if n > 0), _KEPT + 4 * isqrt(len(counts)), order_key, end)


_KEPT = 256
"""Values that are kept in order, however few there are."""


def _come_and_gone(counts: Copies, moved: Copies) -> tuple[Values, Values]:
    """Return the values that are present now and were not, and those that were."""
    come: Values = []
    gone: Values = []
    for value, before in moved.items():
        present = counts.get(value, 0) > 0
        if present != (before > 0):
            (come if present else gone).append(value)
    return come, gone


def _at_end(values: Values, some: Values, order_key: OrderKey, end: int) -> Values:
    """Return which of some values stand within the order of `values`, which are those at an end."""
    if not values:
        return []
    key = order_key or _same
    limit = key(values[-1 - end])
    return [v for v in some if (key(v) >= limit if end else key(v) <= limit)]


def _ends(values: Iterable[Any], count: int, order_key: OrderKey, end: int) -> Values:
    """Return the first or last values, in order."""
    return nlargest(count, values, order_key)[::-1] if end else nsmallest(count, values, order_key)


def _move(values: Values, counts: Copies, come: Values, gone: Values, order_key: OrderKey) -> None:
    """Put values into an ordered list, and take others out."""
    moved = len(come) + len(gone)
    if moved > _MANY and moved * _PART > len(values):
        # What stays is a sorted run, which the sort takes as a whole.
        values[:] = [v for v in values if counts.get(v, 0) > 0]
        values += come
        values.sort(key=order_key)
        return
    for value in come:
        values.insert(_place(values, value, order_key), value)
    for value in gone:
        del values[_place(values, value, order_key)]


def _place(values: Values, value: Any, order_key: OrderKey) -> int:
    return bisect_left(values, value if order_key is None else order_key(value), key=order_key)


def _same(value: Any) -> Any:
    return value


def percentiles(
    values: Values, copies: Copies, at: float | tuple[float, ...], discrete: bool, descending: bool
) -> Any:
    """Return the percentile of a non-empty multiset, or a tuple of several."""
    ordered = list(values)[:: -1 if descending else 1]
    ends = list(accumulate(copies[value] for value in ordered))

    def at_place(place: int) -> Any:
        return ordered[bisect_right(ends, place)]

    def one(part: float) -> Any:
        if discrete:
            return at_place(max(0, ceil(ends[-1] * part) - 1))
        return interpolate(at_place, (ends[-1] - 1) * part)

    return tuple(map(one, at)) if isinstance(at, tuple) else one(at)


def interpolate(at_place: Callable[[int], Any], place: float) -> float | timedelta:
    """Interpolate between the values before and behind a place, as Spark does."""
    before, behind = at_place(floor(place)), at_place(ceil(place))
    if isinstance(before, timedelta):
        # Spark cuts a fraction of a microsecond, and what its floats have beyond the longest interval.
        micros = _between(micros_of(before), micros_of(behind), place)
        return of_micros(max(-(2**63), min(int(micros), 2**63 - 1)))
    return _between(before, behind, place)


def _between(before: Any, behind: Any, place: float) -> float:
    least = float(before)
    if before == behind:
        return least
    found = least + (place - floor(place)) * (float(behind) - least)
    return found if found == found else NAN


def frequency(given: int) -> int:
    """Return how often a value counts. Raises `EvaluationError` if that is negative."""
    if given < 0:
        raise EvaluationError(f"a frequency of a percentile is negative: {given}")
    return given


def histogram(
    values: Values,
    copies: Copies,
    bins: int,
    number: Callable[[Any], float],
    value_of: Callable[[float], Any],
) -> tuple[tuple[Any, float], ...]:
    """Return the bins of a non-empty multiset, centers with counts. number: of a value, and back."""
    found: list[tuple[float, float]] = []
    ordered = iter(values)
    pending = next(ordered)
    center, count = number(pending), copies[pending]
    for value in ordered:
        # Several integers may be one float.
        if (at := number(value)) != center:
            _add_bin(found, center, float(count), bins)
            center, count = at, 0
        count += copies[value]
    _add_bin(found, center, float(count), bins)
    return tuple((value_of(center), count) for center, count in found)


def _add_bin(found: list[tuple[float, float]], center: float, count: float, most: int) -> None:
    """Add a bin behind all others. If they are too many, the two closest ones become one."""
    found.append((center, count))
    if len(found) <= most:
        return
    gaps = [after[0] - before[0] for before, after in pairwise(found)]
    at = min(range(most), key=lambda place: (gaps[place] != gaps[place], gaps[place]))
    (x, y), (next_x, next_y) = found[at : at + 2]
    total = y + next_y
    middle = x * (y / total) + next_x / total * next_y
    found[at : at + 2] = [(middle if middle == middle else NAN, total)]


_MAX_INT64 = 2**63 - 1
_FIRST_DAY = EPOCH.date().toordinal()
_MICROSECOND = timedelta(microseconds=1)
LAST_MICROSECOND = (datetime.max - EPOCH.replace(tzinfo=None)) // _MICROSECOND


def greatest_decimal(type: DecimalType) -> Decimal:
    """Return the greatest value of a decimal type."""
    return Decimal((0, (9,) * type.precision, -type.scale))


def numbers_of(type: DataType) -> tuple[Callable[[Any], float], Callable[[float], Any]]:
    """Return how a value of a type becomes a float, and the other way round.

    The greatest integers, decimals and times are no floats: those near to them become the greatest value.
    """
    match type:
        case IntegerType():
            return float, lambda number: min(int(number), _MAX_INT64)
        case DecimalType():
            shape, most = DecimalSpec.of(type), greatest_decimal(type)
            least = most.copy_negate()
            return float, lambda number: round_to_scale(min(max(Decimal(repr(number)), least), most), shape)
        case DateType():
            return (
                lambda day: float(day.toordinal() - _FIRST_DAY),
                lambda number: date.fromordinal(int(number) + _FIRST_DAY),
            )
        case TimestampType() | TimestampNtzType():
            start = EPOCH if isinstance(type, TimestampType) else EPOCH.replace(tzinfo=None)
            return (
                lambda moment: float((moment - start) // _MICROSECOND),
                lambda number: start + timedelta(microseconds=min(int(number), LAST_MICROSECOND)),
            )
        case Float32Type():
            return float, float32
        case _:
            return float, float


def mode(values: Values, copies: Copies, greatest: bool) -> Any:
    """Return the most frequent value of a non-empty multiset."""
    return max(list(values)[:: -1 if greatest else 1], key=copies.__getitem__)


def joined_text(values: Values, copies: Copies, separator: str) -> str:
    """Join the texts that are the last items of tuples."""
    return separator.join(value[-1] for value in values for _ in range(copies[value]))


def bits_and(values: Values, copies: Copies) -> int:
    """Return the bits that are set in all values of a non-empty multiset."""
    found: int = values[0]
    for value in values:
        found &= value
    return found


def bits_or(values: Values, copies: Copies) -> int:
    """Return the bits that are set in any value."""
    found = 0
    for value in values:
        found |= value
    return found


def bits_xor(values: Values, copies: Copies) -> int:
    """Return the bits that are set in an odd number of values."""
    found = 0
    for value in values:
        if copies[value] % 2:
            found ^= value
    return found


RUNTIME: dict[str, Any] = {
    "x_add_ordered_value": add_ordered_value,
    "x_settle": settle,
    "x_settle_end": settle_end,
    "x_percentiles": percentiles,
    "x_frequency": frequency,
    "x_histogram": histogram,
    "x_mode": mode,
    "x_joined_text": joined_text,
    "x_bits_and": bits_and,
    "x_bits_or": bits_or,
    "x_bits_xor": bits_xor,
}
