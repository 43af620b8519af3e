"""Partial aggregates in columns, one form per kind of accumulator.

An accumulator has the same fields however its rows arrive: its partial values are computed of a group's rows,
and merged into the fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

from headrace.arrangement.batch import Numbers
from headrace.columns.columns import ColumnarDeclined
from headrace.engine.columnar.float_sums import (
    KINDS,
    ODD,
    PARTS,
    THERE,
    parts_of_floats,
    split_floats,
    split_type,
)
from headrace.expr.deferred_imports import np, pl
from headrace.expr.polars_columns import (
    LoweredExpression,
    bounds_of,
    dtype_of,
    either_condition,
    replace_negative_zero,
)
from headrace.expr.types import INT64, DataType, DecimalType, IntegerType
from headrace.expr.typing_rules import is_float
from headrace.operators.aggregate.accumulator import Accumulator, Target
from headrace.operators.aggregate.counts import CountRows, CountValues
from headrace.operators.aggregate.extremes import AppendExtreme
from headrace.operators.aggregate.float_totals import PART_BITS
from headrace.operators.aggregate.moments import PowerSums
from headrace.operators.aggregate.sums import DecimalTotals, FloatTotals, IntervalTotals, IntMean, IntSum

ROOM, WIDE_ROOM = 2**62, 2**126
"""Bounds of sums that leave room in 64 bits, and in 128."""

_HALF = 2**64


@dataclass(frozen=True)
class PartialForm:
    """Base of partial aggregates, one per kind of accumulator."""

    accumulator: Accumulator

    @property
    def types(self) -> tuple[DataType, ...]:
        """Types of the partial values."""
        return ()

    @property
    def rooms(self) -> tuple[int, ...]:
        """What absolute values in the columns of partial aggregates may add up to, where these are merged."""
        columns = self.accumulator.partial_columns() or ()
        return tuple(WIDE_ROOM if isinstance(column.type, DecimalType) else ROOM for column in columns)

    def prepared(self, value: pl.Expr) -> pl.Expr:
        """Return the column that `values`, `terms` and `fails` read, of what is aggregated."""
        return value

    def values(
        self, argument: LoweredExpression | None, weight: pl.Expr | None, copies: int
    ) -> Sequence[pl.Expr]:
        """Return the Polars aggregations that compute a group's partial values.

        argument: of the accumulator, prepared. weight: None on an append edge. copies: of rows, of which no
        group has more, those that are taken back included.
        """
        return ()

    def terms(
        self, argument: LoweredExpression | None, weight: pl.Expr | None, copies: int
    ) -> Sequence[pl.Expr] | None:
        """Return of each row what `summands` makes the partial values of; None if 64 bits are too few.

        Arguments as of `values`, but the argument is not prepared.
        """
        return None if self.types else ()

    def summands(self, terms: Sequence[pl.Series], weights: Numbers) -> Sequence[Numbers]:
        """Return of each row what makes the partial values if added up in 64 bits, of its terms.

        weights: 1 on an append edge. Raises `ColumnarDeclined`.
        """
        return [term.to_numpy() for term in terms]

    def fails(self, argument: LoweredExpression | None, weight: pl.Expr | None, rows: int) -> pl.Expr | None:
        """Return a condition that is true on rows that these values cannot hold; None if there are none.

        rows: no group has more.
        """
        return None

    def merge(self, to: Target, values: tuple[str, ...]) -> None:
        """Write code that merges the partial values in these variables into the group's fields."""


@singledispatch
def partial_form(accumulator: Accumulator) -> PartialForm | None:
    """Return the partial form of an accumulator; None if it has none."""
    return None


class _Counted(PartialForm):
    @property
    def types(self) -> tuple[DataType, ...]:
        return (INT64,)

    def values(
        self, argument: LoweredExpression | None, weight: pl.Expr | None, copies: int
    ) -> Sequence[pl.Expr]:
        assert argument is not None
        return (_present(argument.value, weight),)

    def terms(
        self, argument: LoweredExpression | None, weight: pl.Expr | None, copies: int
    ) -> Sequence[pl.Expr] | None:
        assert argument is not None
        return (_weight_if(argument.value.is_not_null(), weight),)

    def merge(self, to: Target, values: tuple[str, ...]) -> None:
        to.code.line(f"{to.field(0)} += {values[0]}")


class _Total(PartialForm):
    """Partial form of totals: [total], or [total, number of non-null values]."""

    @property
    def types(self) -> tuple[DataType, ...]:
        return (INT64,) * len(self.accumulator.fields())

    def values(
        self, argument: LoweredExpression | None, weight: pl.Expr | None, copies: int
    ) -> Sequence[pl.Expr]:
        assert argument is not None
        whole = argument.value.to_physical()
        total = _exact_sum(whole, _greatest(argument) * copies, weight)
        counted = [_present(argument.value, weight)] if len(self.types) > 1 else []
        return (total, *counted)

    def terms(
        self, argument: LoweredExpression | None, weight: pl.Expr | None, copies: int
    ) -> Sequence[pl.Expr] | None:
        assert argument is not None
        if _greatest(argument) * copies >= ROOM:
            return None
        whole = argument.value.to_physical().cast(pl.Int64)
        counted = [_weight_if(argument.value.is_not_null(), weight)] if len(self.types) > 1 else []
        return ((whole if weight is None else whole * weight).fill_null(0), *counted)

    def merge(self, to: Target, values: tuple[str, ...]) -> None:
        for at, value in enumerate(values):
            to.code.line(f"{to.field(at)} += {value}")


def _greatest(argument: LoweredExpression) -> int:
    """Return what no absolute value exceeds."""
    # Nothing is known of intervals, in microseconds.
    return max(map(abs, argument.bounds)) if argument.bounds is not None else ROOM


_WEIGHT_BITS = 10


class _FloatTotal(PartialForm):
    """Partial form of exact totals of floats (`float_sums`): parts, 0, nan, +inf, -inf, and number of values.

    A float that has no such parts is marked, and so is one of which as many as there are rows might be too
    much for 64 bits.
    """

    @property
    def types(self) -> tuple[DataType, ...]:
        return (INT64,) * len(self.accumulator.partial_columns() or ())

    @property
    def rooms(self) -> tuple[int, ...]:
        # Parts in smaller units are merged in rows.
        return tuple(0 if at == len(PARTS) else ROOM for at in range(len(self.types)))

    def prepared(self, value: pl.Expr) -> pl.Expr:
        return pl.map_batches([value], _split, return_dtype=split_type(), is_elementwise=True)

    def fails(self, argument: LoweredExpression | None, weight: pl.Expr | None, rows: int) -> pl.Expr | None:
        assert argument is not None
        of = argument.value.struct.field
        # What is left of 62 bits beside those of the lower parts.
        spare = max(0, 62 - PART_BITS - rows.bit_length())
        weight_bits = 0 if weight is None else min(spare, _WEIGHT_BITS)
        room = max(0, 62 - rows.bit_length() - weight_bits)
        fails = of(ODD) | (of(PARTS[-1]).abs() >= 2**room)
        return fails if weight is None else fails | (weight.abs() > 2**weight_bits)

    def values(
        self, argument: LoweredExpression | None, weight: pl.Expr | None, copies: int
    ) -> Sequence[pl.Expr]:
        assert argument is not None
        of = argument.value.struct.field
        counted = [*KINDS, THERE][: len(self.types) - len(PARTS) - 1]
        parts = [of(name) if weight is None else of(name) * weight for name in PARTS]
        counts = [_weight_if(of(name), weight) for name in counted]
        return [term.sum() for term in (*parts, of(PARTS[0]) * 0, *counts)]

    def terms(
        self, argument: LoweredExpression | None, weight: pl.Expr | None, copies: int
    ) -> Sequence[pl.Expr]:
        assert argument is not None
        return (argument.value,)

    def summands(self, terms: Sequence[pl.Series], weights: Numbers) -> Sequence[Numbers]:
        parts, kinds, odd, there = parts_of_floats(terms[0])
        copies = np.abs(weights.astype(np.float64))
        if odd.any() or copies.sum() >= 2**29 or (np.abs(parts[-1]) * copies).sum() >= 2**61:
            raise ColumnarDeclined
        counted = [*kinds, there][: len(self.types) - len(parts) - 1]
        return [part * weights for part in (*parts, np.zeros_like(weights), *counted)]

    def merge(self, to: Target, values: tuple[str, ...]) -> None:
        self.accumulator.merge_partial(to, values)


def _split(columns: Sequence[pl.Series]) -> pl.Series:
    return split_floats(columns[0])


class _Best(PartialForm):
    @property
    def types(self) -> tuple[DataType, ...]:
        return (self.accumulator.types[0].type,)

    def values(
        self, argument: LoweredExpression | None, weight: pl.Expr | None, copies: int
    ) -> Sequence[pl.Expr]:
        assert argument is not None
        floats, dtype = is_float(self.types[0]), dtype_of(self.types[0])
        value = replace_negative_zero(argument.value) if floats else argument.value
        least = isinstance(self.accumulator, AppendExtreme) and self.accumulator.sign == "<"
        best = value.min() if least else value.max()
        if floats and not least:
            # NaN is the greatest; Polars passes it over.
            best = pl.when(value.is_nan().any()).then(pl.lit(float("nan"), dtype)).otherwise(best)
        return (best,)

    def merge(self, to: Target, values: tuple[str, ...]) -> None:
        with to.code.block(f"if {values[0]} is not None:"):
            self.accumulator.update(to, values, None)


class _PowerSums(PartialForm):
    """Partial form of sums of powers of integers, those of `power_sums` with a shift of 0."""

    @property
    def _degrees(self) -> tuple[int, ...]:
        assert isinstance(self.accumulator, PowerSums)
        return self.accumulator.degrees

    @property
    def types(self) -> tuple[DataType, ...]:
        return (INT64,) * (1 + len(self._degrees))

    def fails(self, argument: LoweredExpression | None, weight: pl.Expr | None, rows: int) -> pl.Expr | None:
        assert argument is not None
        bits = (126 - rows.bit_length() - (0 if weight is None else _WEIGHT_BITS)) // max(self._degrees)
        low, high = bounds_of(argument)
        beyond = None
        if max(abs(low), abs(high)) >= 2**bits:
            beyond = ~argument.value.cast(pl.Int128).is_between(-(2**bits), 2**bits)
        return either_condition(beyond, None if weight is None else weight.abs() > 2**_WEIGHT_BITS)

    def values(
        self, argument: LoweredExpression | None, weight: pl.Expr | None, copies: int
    ) -> Sequence[pl.Expr]:
        assert argument is not None
        power = one = argument.value.cast(pl.Int128)
        weights = 1 if weight is None else weight.cast(pl.Int128)
        sums: list[pl.Expr] = []
        for _ in self._degrees:
            sums.append((power * weights).sum())
            power = power * one
        return (_present(argument.value, weight), *sums)

    def merge(self, to: Target, values: tuple[str, ...]) -> None:
        count, *sums = values
        state = f"({count}, 0, 0, {', '.join(sums)})"
        to.code.line(f"x_merge_powers({to.group}, {to.at}, {self._degrees}, {state})")


def _exact_sum(whole: pl.Expr, most: int, weight: pl.Expr | None = None) -> pl.Expr:
    """Sum up integers without loss, in as many bits as it takes.

    most: that no sum of absolute values exceeds.
    """
    if most < WIDE_ROOM:
        wide = pl.Int64 if most < ROOM else pl.Int128
        return (whole.cast(wide) if weight is None else whole.cast(wide) * weight.cast(wide)).sum()
    # In two halves. An error of Polars makes the tick run in rows where their sum has more bits yet:
    # a result that fits in no decimal, unless what is taken back from a group later makes it small.
    above, below = whole // _HALF, whole % _HALF
    if weight is not None:
        above, below = (half.cast(pl.Int128) * weight.cast(pl.Int128) for half in (above, below))
    return (above.sum() * 2).cast(pl.Int64).cast(pl.Int128) * (_HALF // 2) + below.sum()


def _present(value: pl.Expr, weight: pl.Expr | None) -> pl.Expr:
    return value.count().cast(pl.Int64) if weight is None else _weight_where(value.is_not_null(), weight)


def _weight_if(condition: pl.Expr, weight: pl.Expr | None) -> pl.Expr:
    return condition.cast(pl.Int64) if weight is None else pl.when(condition).then(weight).otherwise(0)


def _weight_where(condition: pl.Expr, weight: pl.Expr | None) -> pl.Expr:
    return condition.sum().cast(pl.Int64) if weight is None else pl.when(condition).then(weight).sum()


@partial_form.register(CountRows)
def _count_rows(accumulator: CountRows) -> PartialForm:
    return PartialForm(accumulator)


@partial_form.register(CountValues)
def _count_values(accumulator: CountValues) -> PartialForm:
    return _Counted(accumulator)


@partial_form.register(IntSum)
@partial_form.register(IntMean)
@partial_form.register(DecimalTotals)
@partial_form.register(IntervalTotals)
def _total(accumulator: Accumulator) -> PartialForm:
    return _Total(accumulator)


@partial_form.register(FloatTotals)
def _float_total(accumulator: FloatTotals) -> PartialForm:
    return _FloatTotal(accumulator)


@partial_form.register(PowerSums)
def _power_sums(accumulator: PowerSums) -> PartialForm | None:
    of_integers = len(accumulator.types) == 1 and isinstance(accumulator.types[0].type, IntegerType)
    return _PowerSums(accumulator) if of_integers else None


@partial_form.register(AppendExtreme)
def _best(accumulator: AppendExtreme) -> PartialForm | None:
    return _Best(accumulator) if len(accumulator.types) == 1 else None
