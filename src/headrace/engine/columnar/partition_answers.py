"""Answers of window functions for whole partitions, whose rows lie in columns one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.arrangement.batch import Numbers, values_at
from headrace.engine.columnar.sum_columns import result_of, split, sum_widths
from headrace.expr.deferred_imports import np, pl
from headrace.expr.polars_columns import NotLowered
from headrace.operators.aggregate.accumulator import Accumulator, accumulator_for
from headrace.operators.aggregate.aggregation import Aggregation
from headrace.operators.aggregate.counts import CountRows, CountValues
from headrace.operators.aggregate.extremes import Max, Min
from headrace.operators.aggregate.moments import PowerSums
from headrace.operators.aggregate.sums import FloatTotals
from headrace.operators.over.navigation import Lag, NthValue
from headrace.operators.over.ranks import CumeDist, DenseRank, Ntile, PercentRank, Rank, RowNumber
from headrace.operators.over.window_function import Frame, FrameUnit

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema


@dataclass(frozen=True, slots=True)
class Partitions:
    """For each row, from where to where its partition goes, and its peers."""

    first: Numbers
    end: Numbers
    first_peer: Numbers
    end_peer: Numbers

    @property
    def at(self) -> Numbers:
        return np.arange(len(self.first))

    @property
    def size(self) -> Numbers:
        return self.end - self.first


def spans(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """Return for each row the first place with its number, and the one after the last."""
    if not len(numbers):
        return numbers, numbers
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    lengths = np.diff(starts, append=len(numbers))
    return np.repeat(starts, lengths), np.repeat(starts + lengths, lengths)


Compute: TypeAlias = "Callable[[Partitions, Sequence[pl.Series]], pl.Series]"


@dataclass(frozen=True)
class Answer:
    """A window function: what it is computed of, and how. `compute` raises `ColumnarDeclined`."""

    exprs: tuple[Expr, ...]
    compute: Compute


@singledispatch
def answer_of(function: Any, frame: Frame | None, schema: Schema) -> Answer:
    """Return the columnar form of a window function. Raises `NotLowered`."""
    raise NotLowered(f"{function} over a partition stays in rows")


@answer_of.register(RowNumber)
def _row_number(function: RowNumber, frame: Frame | None, schema: Schema) -> Answer:
    return Answer((), lambda rows, values: pl.Series(rows.at - rows.first + 1))


@answer_of.register(Rank)
def _rank(function: Rank, frame: Frame | None, schema: Schema) -> Answer:
    return Answer((), lambda rows, values: pl.Series(rows.first_peer - rows.first + 1))


@answer_of.register(DenseRank)
def _dense_rank(function: DenseRank, frame: Frame | None, schema: Schema) -> Answer:
    def ranks(rows: Partitions, values: Sequence[pl.Series]) -> pl.Series:
        groups = np.cumsum(rows.first_peer == rows.at)
        return pl.Series(groups - groups[rows.first] + 1)

    return Answer((), ranks)


@answer_of.register(PercentRank)
def _percent_rank(function: PercentRank, frame: Frame | None, schema: Schema) -> Answer:
    return Answer(
        (),
        lambda rows, values: pl.Series((rows.first_peer - rows.first) / np.maximum(rows.size - 1, 1)),
    )


@answer_of.register(CumeDist)
def _cume_dist(function: CumeDist, frame: Frame | None, schema: Schema) -> Answer:
    return Answer((), lambda rows, values: pl.Series((rows.end_peer - rows.first) / rows.size))


@answer_of.register(Ntile)
def _ntile(function: Ntile, frame: Frame | None, schema: Schema) -> Answer:
    def tiles(rows: Partitions, values: Sequence[pl.Series]) -> pl.Series:
        at = rows.at - rows.first
        size, larger = np.divmod(rows.size, function.parts)
        border = larger * (size + 1)
        behind = (at - border) // np.maximum(size, 1) + larger + 1
        return pl.Series(np.where(at < border, at // (size + 1) + 1, behind))

    return Answer((), tiles)


@answer_of.register(Lag)
def _lag(function: Lag, frame: Frame | None, schema: Schema) -> Answer:
    if function.ignore_nulls and function.offset:
        raise NotLowered(f"{function} passes over nulls row by row")
    default = () if function.default is None else (function.default,)

    def lagged(rows: Partitions, values: Sequence[pl.Series]) -> pl.Series:
        # No partition is longer than the numbers of all rows.
        offset = max(-len(rows.first), min(len(rows.first), function.offset))
        places = rows.at - offset
        within = (places >= rows.first) & (places < rows.end)
        found = values_at(values[0], places, within)
        if default:
            mine = values[1].cast(found.dtype)
            found = pl.select(pl.when(pl.Series(within)).then(found).otherwise(mine)).to_series()
        return found

    return Answer((function.expr, *default), lagged)


@answer_of.register(NthValue)
def _nth_value(function: NthValue, frame: Frame | None, schema: Schema) -> Answer:
    bounds, n = _bounds(frame), function.n
    if function.ignore_nulls:
        raise NotLowered(f"{function} passes over nulls row by row")

    def value(rows: Partitions, values: Sequence[pl.Series]) -> pl.Series:
        low, high = bounds(rows)
        most = len(low) + 1
        places = low + min(n, most) - 1 if n > 0 else high + max(n, -most)
        return values_at(values[0], places, (low <= places) & (places < high))

    return Answer((function.expr,), value)


@answer_of.register(Aggregation)
def _aggregate(function: Aggregation, frame: Frame | None, schema: Schema) -> Answer:
    bounds, exprs = _bounds(frame), tuple(function.arguments())
    accumulator = accumulator_for(function, schema, True)
    if isinstance(function, Min | Max):
        if frame is not None and frame.start is not None:
            raise NotLowered(f"{function} of a frame that moves stays in rows")
        return Answer(exprs, _running(bounds, least=isinstance(function, Min)))
    widths = sum_widths(accumulator)
    if widths is None or isinstance(accumulator, FloatTotals | PowerSums):
        raise NotLowered(f"{function} needs every value of a frame")
    return Answer(exprs, _totals(bounds, accumulator, widths))


def _totals(bounds: _Bounds, accumulator: Accumulator, widths: tuple[int, ...]) -> Compute:
    """Return a function of sums of frames: differences of those from the first row of all on."""
    result = result_of(accumulator)

    def totals(rows: Partitions, values: Sequence[pl.Series]) -> pl.Series:
        low, high = bounds(rows)
        summed: list[Numbers] = []
        if not isinstance(accumulator, CountRows):
            (value,) = values
            present = value.is_not_null().cast(pl.Int64)
            fields = [present] if isinstance(accumulator, CountValues) else [_physical(value), present]
            for field, width in zip(fields, widths, strict=False):
                for part in split(field, width):
                    up_to = np.concatenate(([0], np.cumsum(part.to_numpy())))
                    summed.append(up_to[high] - up_to[low])
        return result(high - low, summed)

    return totals


def _physical(value: pl.Series) -> pl.Series:
    """Return the integers that values are, 0 for a null."""
    whole = value.to_physical()
    return whole.fill_null(0) if whole.null_count() else whole


def _running(bounds: _Bounds, *, least: bool) -> Compute:
    """Return a function of the extremes of frames that begin with the partition."""

    def extremes(rows: Partitions, values: Sequence[pl.Series]) -> pl.Series:
        (value,) = values
        low, high = bounds(rows)
        # Numbers from 1 in the order of the values; 0 is no value. Those of a later partition are greater.
        ranks = value.rank("dense", descending=least).fill_null(0).cast(pl.Int64).to_numpy()
        best = np.maximum.accumulate(ranks + rows.first * (len(ranks) + 1))
        at = np.maximum(high - 1, 0)
        of = best[at] - rows.first * (len(ranks) + 1) if len(at) else at
        shown = np.zeros(len(ranks) + 1, np.int64)
        shown[ranks] = np.arange(len(ranks))
        there = (high > low) & (of > 0)
        return values_at(value, shown[np.where(there, of, 0)], there)

    return extremes


_Bounds: TypeAlias = Callable[[Partitions], tuple[Numbers, Numbers]]
"""Function that returns from where to where each row's frame is."""


def _bounds(frame: Frame | None) -> _Bounds:
    assert frame is not None
    if frame.measures_values:
        raise NotLowered("a frame by distances stays in rows")
    start: Any = frame.start
    end: Any = frame.end

    def by_rows(rows: Partitions) -> tuple[Numbers, Numbers]:
        most = len(rows.first) + 1
        low, high = rows.first, rows.end
        if start is not None:
            low = np.clip(rows.at + max(-most, min(most, start)), rows.first, rows.end)
        if end is not None:
            high = np.clip(rows.at + max(-most, min(most, end + 1)), rows.first, rows.end)
        return low, np.maximum(low, high)

    def by_peers(rows: Partitions) -> tuple[Numbers, Numbers]:
        return (
            rows.first if start is None else rows.first_peer,
            rows.end if end is None else rows.end_peer,
        )

    return by_rows if frame.unit is FrameUnit.ROWS else by_peers
