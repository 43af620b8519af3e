"""Sums of groups in columns: how accumulators' fields stand in sums of 64 bits, and their results.

A field that counts is one sum. A total, which may need more than 64 bits, is several: of 32 bits each of what
was added, and of the rest. A field that is always the same, or follows from others, is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

from headrace.arrangement.batch import WIDE_BITS, Numbers, carried, masked
from headrace.columns.columns import ColumnarDeclined
from headrace.engine.columnar.float_sums import fraction, nearest, windows_of, with_kinds
from headrace.errors import EvaluationError
from headrace.expr.deferred_imports import np, pa, pl
from headrace.expr.functions.intervals import mean, of_micros
from headrace.expr.polars_columns import to_series
from headrace.expr.types import FLOAT64, INT64, INTERVAL, DataType, DecimalType, IntegerType
from headrace.operators.aggregate.accumulator import Accumulator
from headrace.operators.aggregate.counts import CountRows, CountValues
from headrace.operators.aggregate.float_totals import FLOAT_PARTS, parts_of, value_of
from headrace.operators.aggregate.moments import PowerSums
from headrace.operators.aggregate.power_sums import statistic
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
    """Return of each of an accumulator's fields how many sums hold it; None if sums alone do not."""
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
    """Return the sums that stand for an accumulator's partial values. Raises `ColumnarDeclined`."""
    widths = [width for width in sum_widths(accumulator) or () if width]
    return [part for values, width in zip(partial, widths, strict=True) for part in split(values, width)]


@sums_of.register(FloatTotals)
def _sums_of_floats(accumulator: FloatTotals, partial: Sequence[pl.Series]) -> list[pl.Series]:
    parts = carried([part.to_numpy() for part in partial[:FLOAT_PARTS]])
    return [*map(pl.Series, parts), *partial[FLOAT_PARTS + 1 :]]  # without the column of smaller units


def split(values: pl.Series, width: int) -> tuple[pl.Series, ...]:
    """Return the sums that stand for integers. Raises `ColumnarDeclined` for what they do not hold."""
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
    """Return the function that reads an accumulator's fields, whose sums begin at a place."""
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
    """Return the sums that stand for fields, by window. They are in window 0, for all but floats."""
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


Result: TypeAlias = "Callable[[Numbers, Sequence[Numbers]], pl.Series]"
"""Function from the row counts of groups and an accumulator's sums to its results. Raises `ColumnarDeclined`
where they are to be found row by row."""


@singledispatch
def result_of(accumulator: Accumulator) -> Result:
    """Return the function that computes an accumulator's results from its sums."""
    raise NotImplementedError(type(accumulator).__name__)


@result_of.register(CountRows)
def _rows(accumulator: CountRows) -> Result:
    return lambda rows, sums: pl.Series(rows)


@result_of.register(CountValues)
def _values(accumulator: CountValues) -> Result:
    return lambda rows, sums: pl.Series(sums[0])


def _of_totals(
    accumulator: Totals,
    compute: Callable[[Numbers, Numbers], pl.Series],
    one: Callable[[int, int], Any],
    type: DataType,
) -> Result:
    """Return a function that is null where no value was added.

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
def _int_sum(accumulator: IntSum) -> Result:
    assert isinstance(accumulator.types[0].type, IntegerType)
    return _of_totals(
        accumulator, lambda totals, counts: pl.Series(totals), lambda total, count: total, INT64
    )


@result_of.register(IntMean)
def _int_mean(accumulator: IntMean) -> Result:
    def mean(totals: Numbers, counts: Numbers) -> pl.Series:
        if len(totals) and max(int(np.abs(totals).max()), int(counts.max())) > _EXACT_FLOAT:
            raise _Large
        return pl.Series(totals / counts)

    return _of_totals(accumulator, mean, lambda total, count: total / count, FLOAT64)


@result_of.register(IntervalSum)
def _interval_sum(accumulator: IntervalSum) -> Result:
    def total_of(totals: Numbers, counts: Numbers) -> pl.Series:
        return pl.Series(totals).cast(pl.Duration("us"))

    return _of_totals(accumulator, total_of, lambda total, count: of_micros(total), INTERVAL)


@result_of.register(IntervalMean)
def _interval_mean(accumulator: IntervalMean) -> Result:
    def in_rows(totals: Numbers, counts: Numbers) -> pl.Series:
        raise _Large

    return _of_totals(accumulator, in_rows, mean, INTERVAL)


@result_of.register(DecimalSum)
def _decimal_sum(accumulator: DecimalSum) -> Result:
    type = decimal_sum_type(accumulator.argument)
    return _of_totals(
        accumulator,
        lambda totals, counts: decimals(totals, type),
        lambda total, count: decimal_of_unscaled(total, type.precision, type.scale),
        type,
    )


@result_of.register(DecimalMean)
def _decimal_mean(accumulator: DecimalMean) -> Result:
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
    """Return decimals of unscaled integers. Raises `_Large` where one has too many digits."""
    if len(unscaled) and type.precision < 19 and int(np.abs(unscaled).max()) >= 10**type.precision:
        raise _Large
    halves = np.empty(2 * len(unscaled), np.int64)
    halves[::2] = unscaled
    halves[1::2] = unscaled >> 63
    of = _arrow.decimal128(type.precision, type.scale)
    return _polars.from_arrow(_arrow.Array.from_buffers(of, len(unscaled), [None, _arrow.py_buffer(halves)]))


def _float_result(accumulator: FloatTotals, *, means: bool) -> Result:
    def result(rows: Numbers, sums: Sequence[Numbers]) -> pl.Series:
        parts, kinds, counted = sums[:FLOAT_PARTS], sums[FLOAT_PARTS:][:3], sums[FLOAT_PARTS + 3 :]
        counts = counted[0] if counted else rows
        some = counts > 0
        found = nearest(parts, np.where(some, counts, 1) if means else None)
        made = pl.Series(with_kinds(found, kinds))
        return made if some.all() else made.scatter(np.flatnonzero(~some), None)

    return result


@result_of.register(FloatSum)
def _float_sum(accumulator: FloatSum) -> Result:
    return _float_result(accumulator, means=False)


@result_of.register(FloatMean)
def _float_mean(accumulator: FloatMean) -> Result:
    return _float_result(accumulator, means=True)


@result_of.register(PowerSums)
def _moment(accumulator: PowerSums) -> Result:
    degrees, moment, read = accumulator.degrees, accumulator.moment, fields_reader(accumulator, 0)

    def result(rows: Numbers, sums: Sequence[Numbers]) -> pl.Series:
        each = zip(*(part.tolist() for part in sums), strict=True)
        found = [statistic(read(own, {}), 0, degrees, moment) for own in each]
        return pl.Series(found, dtype=pl.Float64)

    return result
