"""Sums of groups in columns: the representation of accumulators as 64-bit sums, and their results.

A field that counts is one sum. A total, which may need more than 64 bits, is several: of 32 bits each of what
was added, and of the rest. A field that is always the same, or follows from others, is none.

A float is a whole number of units of `2**-112`, if it has no smaller bits, and such a number lies in parts:
of 32 bits each but for the last one, which has the rest. Parts of many floats are added up apart, without
loss. NaN and the infinities are counted beside. Parts that a group's sum needs beyond, as it has smaller bits
or too many, lie in further rows, each with the number of its window: those of window n count units that are
`2**(160 * n)` times as large. So any sum has columns. Rows alone make such windows; a large tick that meets
one, or would need one, runs in rows. So a sum has the same windows whoever made it, and rows take back what
columns wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, singledispatch
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

from headrace.arrangement.batch import WIDE_BITS, Numbers, masked, propagate_carries
from headrace.columns.columns import ColumnarDeclined
from headrace.errors import EvaluationError
from headrace.expr.functions.intervals import mean, of_micros
from headrace.expr.polars_columns import to_series
from headrace.expr.types import FLOAT64, INT64, INTERVAL, DataType, DecimalType, IntegerType
from headrace.operators.aggregate.aggregation import Accumulator
from headrace.operators.aggregate.counts import CountRows, CountValues
from headrace.operators.aggregate.exact_totals import (
    FLOAT_PARTS,
    FLOAT_UNIT,
    MAX_IN_LAST,
    PART_BITS,
    in_float_parts,
    lowest_terms,
    parts_of,
    statistic,
    value_of,
)
from headrace.operators.aggregate.moments import PowerSums
from headrace.operators.aggregate.sums import (
    DecimalMean,
    DecimalSum,
    DecimalTotals,
    FloatMean,
    FloatSum,
    FloatTotals,
    IntervalMean,
    IntervalSum,
    IntervalTotals,
    IntMean,
    IntSum,
    Totals,
    decimal_mean,
    decimal_mean_type,
    decimal_of_unscaled,
    decimal_sum_type,
)
from headrace.requirements import np, pa, pl

Flags: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.bool_]]"
Floats: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.float64]]"

WINDOW = "window"
"""Name of the column with the number of a row's window."""

WINDOW_BITS = FLOAT_PARTS * PART_BITS
PARTS = tuple(f"p{at}" for at in range(FLOAT_PARTS))
KINDS = ("nan", "up", "down")
ODD, THERE = "odd", "there"
"""Names of what is known of each float: its parts, what it is if it is not finite, whether it has smaller
bits or is too large, and whether it is not null."""


_LOW_PART = (1 << PART_BITS) - 1
_LAST = 2.0 ** ((FLOAT_PARTS - 1) * PART_BITS - FLOAT_UNIT)
_FLOAT_ROOM = 2.0**61
_PART = 2.0**PART_BITS


@cache
def split_type() -> pl.Struct:
    """Return the type of floats in parts."""
    return pl.Struct(
        {**dict.fromkeys(PARTS, pl.Int64()), **dict.fromkeys((*KINDS, ODD, THERE), pl.Boolean())}
    )


def parts_of_floats(values: pl.Series) -> tuple[list[Numbers], list[Flags], Flags, Flags]:
    """Split floats into parts; also return flags: the kinds NaN, inf and -inf, inexact, and non-null."""
    floats: Floats = values.cast(pl.Float64).fill_null(0.0).to_numpy()
    finite = np.isfinite(floats)
    left = np.where(finite, floats, 0.0)
    odd = np.abs(left) >= _LAST * _FLOAT_ROOM
    left[odd] = 0.0
    parts: list[Numbers] = []
    unit = _LAST
    for _ in PARTS:
        whole = np.trunc(left / unit)
        parts.append(whole.astype(np.int64))
        left = left - whole * unit
        unit /= _PART
    kinds = [np.isnan(floats), floats == np.inf, floats == -np.inf]
    return parts[::-1], kinds, odd | (left != 0.0), values.is_not_null().to_numpy()


def split_floats(values: pl.Series) -> pl.Series:
    """Return the parts and the flags of floats, as a struct (`split_type`)."""
    parts, kinds, odd, there = parts_of_floats(values)
    named = zip(split_type().to_schema(), (*parts, *kinds, odd, there), strict=True)
    return pl.DataFrame([pl.Series(name, column) for name, column in named]).to_struct()


def are_in_one_window(parts: Sequence[Numbers]) -> bool:
    """Return whether `windows_of` would place these sums in window 0 alone, too."""
    last = propagate_carries(parts)[-1]
    return not len(last) or (int(last.min()) >= -MAX_IN_LAST and int(last.max()) < MAX_IN_LAST)


def nearest(parts: Sequence[Numbers], counts: Numbers | None) -> Floats:
    """Return the floats nearest to sums, or to their means. Raises `ColumnarDeclined` for large counts."""
    *low, last = propagate_carries(parts)
    negative = last < 0
    if negative.any():
        # The complement, and one more.
        flipped = [np.where(negative, ~part & _LOW_PART, part) for part in low]
        flipped[0] = flipped[0] + negative
        *low, last = propagate_carries([*flipped, np.where(negative, ~last, last)])
    digits = [last >> PART_BITS, last & _LOW_PART, *reversed(low)]
    rest, unit = np.zeros_like(last), -FLOAT_UNIT
    if counts is not None and not (counts == 1).all():
        if int(counts.max()) >= 1 << 31:
            raise ColumnarDeclined
        digits += [rest] * 3
        unit -= 3 * PART_BITS
        rest = _divide(digits, counts)
    rounded = _rounded(digits, rest != 0, unit)
    return np.where(negative, -rounded, rounded)


def _divide(digits: list[Numbers], by: Numbers) -> Numbers:
    """Divide numbers, given as digits, highest first. The quotients' digits replace them.

    Return the remainders.
    """
    rest = np.zeros_like(by)
    for at, digit in enumerate(digits):
        whole = (rest << PART_BITS) | digit
        digits[at] = whole // by
        rest = whole - digits[at] * by
    return rest


def _rounded(digits: Sequence[Numbers], more: Any, unit: int) -> Floats:
    """Return the floats nearest to numbers of 32-bit digits, highest digit first.

    more: whether something lies behind the last digit, which counts `2**unit`.
    """
    zeros = np.zeros_like(digits[0])
    table = np.stack([*digits, zeros, zeros]).view(np.uint64)
    behind = np.empty((len(digits) + 3, len(zeros)), np.bool_)
    behind[len(digits) :] = more
    for at in range(len(digits) - 1, -1, -1):
        behind[at] = behind[at + 1] | (digits[at] != 0)
    first, each = np.argmax(table != 0, axis=0), np.arange(len(zeros))
    high, middle, low = (table[first + step, each] for step in range(3))
    further = behind[first + 3, each]
    shift = (PART_BITS - np.frexp(high.astype(np.float64))[1]).astype(np.uint64)
    top = (((high << np.uint64(PART_BITS)) | middle) << shift) | (low >> (np.uint64(PART_BITS) - shift))
    cut = low & ((np.uint64(1) << (np.uint64(PART_BITS) - shift)) - np.uint64(1))
    # 62 bits, of which the last one says whether there are further ones, are rounded to 53 as all would be.
    sticky = ((top & np.uint64(3)) != 0) | (cut != 0) | further
    exact = ((top >> np.uint64(2)) | sticky).astype(np.int64).astype(np.float64)
    exponent = 2 - shift.astype(np.int64) + PART_BITS * (len(digits) - 2 - first) + unit
    return np.ldexp(exact, exponent.astype(np.int32))


def with_kinds(floats: Floats, kinds: Sequence[Numbers]) -> Floats:
    """Set sums or means to NaN or infinity according to the counts of NaNs and infinities."""
    nan, up, down = (kind > 0 for kind in kinds)
    if not (nan.any() or up.any() or down.any()):
        return floats
    floats = np.where(up, np.inf, np.where(down, -np.inf, floats))
    return np.where(nan | (up & down), np.nan, floats)


def fraction(parts: Sequence[int], windows: Mapping[int, Sequence[int]]) -> tuple[int, int]:
    """Return numerator and denominator of a sum. windows: its parts in windows other than 0."""
    total, bits = value_of(parts), FLOAT_UNIT
    if windows:
        least = min(0, *windows)
        bits -= least * WINDOW_BITS
        total <<= -least * WINDOW_BITS
        for window, own in windows.items():
            total += value_of(own) << (window - least) * WINDOW_BITS
    return lowest_terms(total, bits) if bits >= 0 else (total << -bits, 1)


def windows_of(numerator: int, denominator: int) -> dict[int, tuple[int, ...]]:
    """Split a sum into parts by window, without windows in which it is zero.

    They are those of the number, whatever the fraction: rows write the parts of one that they did not reduce.
    """
    common = min(denominator, numerator & -numerator) or denominator
    numerator, denominator = numerator // common, denominator // common
    more = denominator.bit_length() - 1 - FLOAT_UNIT
    window = -max(0, -(-more // WINDOW_BITS))
    total = numerator << -window * WINDOW_BITS - more
    found: dict[int, tuple[int, ...]] = {}
    while total:
        last = in_float_parts(total)
        own = total if last else total & (1 << WINDOW_BITS) - 1
        if own:
            found[window] = parts_of(own, FLOAT_PARTS)
        total = 0 if last else total >> WINDOW_BITS
        window += 1
    return found


_arrow: Any = pa
_polars: Any = pl

_BITS = WIDE_BITS
_LOW = (1 << _BITS) - 1
_DIGITS = 18
"""Digits of decimals of which two sums hold as many as there may be."""
_EXACT_FLOAT = 2**53
_ROOM = 2**62


@singledispatch
def sum_widths(accumulator: Accumulator) -> tuple[int, ...] | None:
    """Return, per field of an accumulator, the number of sums that represent it; None if sums cannot."""
    return None


@sum_widths.register(CountRows)
def _no_widths(accumulator: CountRows) -> tuple[int, ...]:
    return ()


@sum_widths.register(CountValues)
def _count_widths(accumulator: CountValues) -> tuple[int, ...]:
    return (1,)


@sum_widths.register(IntSum)
@sum_widths.register(IntMean)
@sum_widths.register(DecimalTotals)
@sum_widths.register(IntervalTotals)
def _total_widths(accumulator: Totals) -> tuple[int, ...]:
    long = isinstance(accumulator, DecimalTotals) and accumulator.argument.precision > _DIGITS
    return (4 if long else 2, 1)[: len(accumulator.fields())]


@sum_widths.register(FloatTotals)
def _float_widths(accumulator: FloatTotals) -> tuple[int, ...]:
    return (FLOAT_PARTS, 0, 1, 1, 1, 1)[: len(accumulator.fields())]


@sum_widths.register(PowerSums)
def _power_widths(accumulator: PowerSums) -> tuple[int, ...] | None:
    (first, *others) = accumulator.types
    if others or not isinstance(first.type, IntegerType):
        return None
    return (1, 0, 0, *(2 * degree for degree in accumulator.degrees))


@singledispatch
def sums_of(accumulator: Accumulator, partial: Sequence[pl.Series]) -> list[pl.Series]:
    """Split an accumulator's partial values into 64-bit sum columns. Raises `ColumnarDeclined`."""
    widths = [width for width in sum_widths(accumulator) or () if width]
    return [part for values, width in zip(partial, widths, strict=True) for part in split(values, width)]


@sums_of.register(FloatTotals)
def _sums_of_floats(accumulator: FloatTotals, partial: Sequence[pl.Series]) -> list[pl.Series]:
    parts = propagate_carries([part.to_numpy() for part in partial[:FLOAT_PARTS]])
    return [*map(pl.Series, parts), *partial[FLOAT_PARTS + 1 :]]  # without the column of smaller units


def split(values: pl.Series, width: int) -> tuple[pl.Series, ...]:
    """Split integers into 64-bit sum columns. Raises `ColumnarDeclined` for integers that are too large."""
    narrow = values.cast(pl.Int64, strict=False)
    if not narrow.null_count():
        whole = narrow.to_numpy()
        lower = [whole >> min(at * _BITS, 63) & _LOW for at in range(width - 1)]
        return tuple(map(pl.Series, (*lower, whole >> min((width - 1) * _BITS, 63))))
    try:
        parts = zip(*(parts_of(value, width) for value in values), strict=True)
        return tuple(pl.Series(part, dtype=pl.Int64, strict=True) for part in parts)
    except (OverflowError, TypeError, pl.exceptions.PolarsError) as error:
        raise ColumnarDeclined from error


Windows: TypeAlias = "Mapping[int, Sequence[int]]"
"""Sums of further windows (`float_sums`), by their numbers."""


ReadFields: TypeAlias = Callable[[Sequence[int], Windows], list[Any]]
"""Function from the sums of a group, of which an accumulator has some, to its fields."""


@singledispatch
def fields_reader(accumulator: Accumulator, at: int) -> ReadFields:
    """Return a reader of an accumulator's fields, whose sums start at position `at`."""
    ends = [at, *accumulate(sum_widths(accumulator) or (), initial=at)][1:]
    places = list(pairwise(ends))
    if all(end - start == 1 for start, end in places):
        return lambda sums, windows: list(sums[at : ends[-1]])
    return lambda sums, windows: [value_of(sums[start:end]) for start, end in places]


@fields_reader.register(FloatTotals)
def _reader_of_floats(accumulator: FloatTotals, at: int) -> ReadFields:
    behind, end = at + FLOAT_PARTS, at + sum(sum_widths(accumulator) or ())

    def read(sums: Sequence[int], windows: Windows) -> list[Any]:
        others = {window: own[at:behind] for window, own in windows.items()} if windows else {}
        return [*fraction(sums[at:behind], others), *sums[behind:end]]

    return read


@singledispatch
def windows_of_fields(accumulator: Accumulator, fields: Sequence[Any]) -> Mapping[int, tuple[int, ...]]:
    """Split an accumulator's fields into sums by window. Only floats use windows other than 0."""
    held = zip(fields, sum_widths(accumulator) or (), strict=True)
    return {0: tuple(part for value, width in held for part in parts_of(value, width))}


@windows_of_fields.register(FloatTotals)
def _windows_of_floats(accumulator: FloatTotals, fields: Sequence[Any]) -> Mapping[int, tuple[int, ...]]:
    numerator, denominator, *counts = fields
    found = windows_of(numerator, denominator)
    none = (0,) * FLOAT_PARTS
    made = {window: (*parts, *(0 for _ in counts)) for window, parts in found.items()}
    return {**made, 0: (*found.get(0, none), *counts)}


class _Large(Exception):
    """Exception for numbers beyond 62 bits."""


def _whole(parts: Sequence[Numbers]) -> Numbers:
    """Return totals. Raises `_Large`."""
    total = parts[-1]
    for part in reversed(parts[:-1]):
        if len(total) and (int(total.max()) >= 1 << 29 or int(total.min()) < -(1 << 29)):
            raise _Large
        total = (total << _BITS) + part
    return total


ResultOfSums: TypeAlias = "Callable[[Numbers, Sequence[Numbers]], pl.Series]"
"""Function from the row counts of groups and an accumulator's sums to its results. Raises `ColumnarDeclined`
where they are to be found row by row."""


@singledispatch
def result_of(accumulator: Accumulator) -> ResultOfSums:
    """Return the function that computes an accumulator's results from its sums."""
    raise NotImplementedError(type(accumulator).__name__)


@result_of.register(CountRows)
def _rows(accumulator: CountRows) -> ResultOfSums:
    return lambda rows, sums: pl.Series(rows)


@result_of.register(CountValues)
def _values(accumulator: CountValues) -> ResultOfSums:
    return lambda rows, sums: pl.Series(sums[0])


def _of_totals(
    accumulator: Totals,
    compute: Callable[[Numbers, Numbers], pl.Series],
    one: Callable[[int, int], Any],
    type: DataType,
) -> ResultOfSums:
    """Return the function from sums to results, null if no value was added.

    compute: results of totals and counts; it may raise `_Large`. one: one result, of numbers of any size.
    """
    counted = len(accumulator.fields()) > 1

    def result(rows: Numbers, sums: Sequence[Numbers]) -> pl.Series:
        parts, counts = (sums[:-1], sums[-1]) if counted else (sums, rows)
        some = counts > 0
        try:
            if some.all():
                return compute(_whole(parts), counts)
            made = compute(_whole([np.where(some, part, 0) for part in parts]), np.where(some, counts, 1))
            # Polars sets no nulls in decimals.
            return masked(made, some)
        except _Large:
            each = zip(counts.tolist(), *(part.tolist() for part in parts), strict=True)
            try:
                return to_series(type, [one(value_of(held), n) if n > 0 else None for n, *held in each])
            except (EvaluationError, pl.exceptions.PolarsError, OverflowError, TypeError) as error:
                raise ColumnarDeclined from error

    return result


@result_of.register(IntSum)
def _int_sum(accumulator: IntSum) -> ResultOfSums:
    assert isinstance(accumulator.types[0].type, IntegerType)
    return _of_totals(
        accumulator, lambda totals, counts: pl.Series(totals), lambda total, count: total, INT64
    )


@result_of.register(IntMean)
def _int_mean(accumulator: IntMean) -> ResultOfSums:
    def mean(totals: Numbers, counts: Numbers) -> pl.Series:
        if len(totals) and max(int(np.abs(totals).max()), int(counts.max())) > _EXACT_FLOAT:
            raise _Large
        return pl.Series(totals / counts)

    return _of_totals(accumulator, mean, lambda total, count: total / count, FLOAT64)


@result_of.register(IntervalSum)
def _interval_sum(accumulator: IntervalSum) -> ResultOfSums:
    def total_of(totals: Numbers, counts: Numbers) -> pl.Series:
        return pl.Series(totals).cast(pl.Duration("us"))

    return _of_totals(accumulator, total_of, lambda total, count: of_micros(total), INTERVAL)


@result_of.register(IntervalMean)
def _interval_mean(accumulator: IntervalMean) -> ResultOfSums:
    def in_rows(totals: Numbers, counts: Numbers) -> pl.Series:
        raise _Large

    return _of_totals(accumulator, in_rows, mean, INTERVAL)


@result_of.register(DecimalSum)
def _decimal_sum(accumulator: DecimalSum) -> ResultOfSums:
    type = decimal_sum_type(accumulator.argument)
    return _of_totals(
        accumulator,
        lambda totals, counts: decimals(totals, type),
        lambda total, count: decimal_of_unscaled(total, type.precision, type.scale),
        type,
    )


@result_of.register(DecimalMean)
def _decimal_mean(accumulator: DecimalMean) -> ResultOfSums:
    type = decimal_mean_type(accumulator.argument)
    factor = 10 ** (type.scale - accumulator.scale)

    def mean(totals: Numbers, counts: Numbers) -> pl.Series:
        most = max(int(np.abs(totals).max()) * factor, int(counts.max())) if len(totals) else 0
        if most >= _ROOM // 4:
            raise _Large
        rounded = (2 * np.abs(totals) * factor + counts) // (2 * counts)
        return decimals(np.where(totals < 0, -rounded, rounded), type)

    def one(total: int, count: int) -> Any:
        return decimal_mean(total, count, accumulator.scale, type.precision, type.scale)

    return _of_totals(accumulator, mean, one, type)


def decimals(unscaled: Any, type: DecimalType) -> pl.Series:
    """Return decimals of unscaled integers. Raises `_Large` if one has too many digits."""
    if len(unscaled) and type.precision < 19 and int(np.abs(unscaled).max()) >= 10**type.precision:
        raise _Large
    halves = np.empty(2 * len(unscaled), np.int64)
    halves[::2] = unscaled
    halves[1::2] = unscaled >> 63
    of = _arrow.decimal128(type.precision, type.scale)
    return _polars.from_arrow(_arrow.Array.from_buffers(of, len(unscaled), [None, _arrow.py_buffer(halves)]))


def _float_result(accumulator: FloatTotals, *, means: bool) -> ResultOfSums:
    def result(rows: Numbers, sums: Sequence[Numbers]) -> pl.Series:
        parts, kinds, counted = sums[:FLOAT_PARTS], sums[FLOAT_PARTS:][:3], sums[FLOAT_PARTS + 3 :]
        counts = counted[0] if counted else rows
        some = counts > 0
        found = nearest(parts, np.where(some, counts, 1) if means else None)
        made = pl.Series(with_kinds(found, kinds))
        return made if some.all() else made.scatter(np.flatnonzero(~some), None)

    return result


@result_of.register(FloatSum)
def _float_sum(accumulator: FloatSum) -> ResultOfSums:
    return _float_result(accumulator, means=False)


@result_of.register(FloatMean)
def _float_mean(accumulator: FloatMean) -> ResultOfSums:
    return _float_result(accumulator, means=True)


@result_of.register(PowerSums)
def _moment(accumulator: PowerSums) -> ResultOfSums:
    degrees, moment, read = accumulator.degrees, accumulator.moment, fields_reader(accumulator, 0)

    def result(rows: Numbers, sums: Sequence[Numbers]) -> pl.Series:
        each = zip(*(part.tolist() for part in sums), strict=True)
        found = [statistic(read(own, {}), 0, degrees, moment) for own in each]
        return pl.Series(found, dtype=pl.Float64)

    return result
