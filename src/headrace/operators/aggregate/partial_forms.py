"""Partial aggregates in columns: a form per kind of accumulator, and the reduction of rows to groups.

Polars first aggregates the rows of each group; the fields of accumulators take the few partial values as if
their rows had come one by one. Where state is in rows, generated code does so; over arrangements, partial
values become sums (`sum_columns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING

from headrace.arrangement.batch import Numbers
from headrace.columns.column_stream import ColumnStream, as_written, decline_marked
from headrace.columns.columns import FAILS, WEIGHT, ColumnarDeclined
from headrace.expr.check import check
from headrace.expr.polars_columns import (
    LoweredExpression,
    NotLowered,
    bounds_of,
    dtype_of,
    either_condition,
    from_series,
    replace_negative_zero,
)
from headrace.expr.tree import Expr
from headrace.expr.types import INT64, DataType, DecimalType, IntegerType, Rows, Schema
from headrace.expr.typing_rules import is_float
from headrace.lowering.forms import PreReduction, choose_reduction
from headrace.operators.aggregate.aggregate import Aggregate
from headrace.operators.aggregate.aggregation import ROWS, Accumulator, Target, accumulator_for
from headrace.operators.aggregate.counts import CountRows, CountValues
from headrace.operators.aggregate.exact_totals import PART_BITS
from headrace.operators.aggregate.extremes import AppendExtreme
from headrace.operators.aggregate.moments import PowerSums
from headrace.operators.aggregate.sum_columns import (
    KINDS,
    ODD,
    PARTS,
    THERE,
    parts_of_floats,
    split_floats,
    split_type,
)
from headrace.operators.aggregate.sums import DecimalTotals, FloatTotals, IntervalTotals, IntMean, IntSum
from headrace.operators.lifetime import Lifetime
from headrace.requirements import np, pl

if TYPE_CHECKING:
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.aggregate.aggregation import Aggregation, Group


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
        """Bounds on the sums of absolute values in each column when partial aggregates are merged."""
        columns = self.accumulator.partial_columns() or ()
        return tuple(WIDE_ROOM if isinstance(column.type, DecimalType) else ROOM for column in columns)

    def prepared(self, value: pl.Expr) -> pl.Expr:
        """Derive the column that `values`, `terms` and `fails` read from the aggregated value."""
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
        """Return the per-row input of `summands`; None if it does not fit 64 bits.

        Arguments as of `values`, but the argument is not prepared.
        """
        return None if self.types else ()

    def summands(self, terms: Sequence[pl.Series], weights: Numbers) -> Sequence[Numbers]:
        """Convert each row's terms to summands, whose 64-bit sums are the partial values.

        weights: 1 on an append edge. Raises `ColumnarDeclined`.
        """
        return [term.to_numpy() for term in terms]

    def fails(self, argument: LoweredExpression | None, weight: pl.Expr | None, rows: int) -> pl.Expr | None:
        """Return the condition of rows that the partial values cannot represent; None if there are none.

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
    """Return an upper bound of the absolute values."""
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
    """Partial form of sums of integer powers: `power_sums` with a shift of 0."""

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
    """Sum up integers without loss, in as many bits as necessary.

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


HEIGHT = "rows"
"""Name of the column with the number of rows that there are, where groups have no keys."""


@dataclass(frozen=True)
class GroupedRows(PreReduction):
    """Reduction to one row per group: key, row count, partial values of the accumulators."""

    keys: tuple[Expr, ...]
    key_types: tuple[DataType, ...]
    parts: tuple[tuple[Expr | None, PartialForm], ...]

    @property
    def types(self) -> tuple[DataType, ...]:
        """Types of the reduced row."""
        return (*self.key_types, INT64, *(t for _, partial in self.parts for t in partial.types))

    def lowered_keys(self, stream: ColumnStream) -> list[LoweredExpression]:
        """Lower the group keys. Raises `NotLowered`."""
        return [stream.lower(expr) for expr in self.keys]

    def _computed(
        self, stream: ColumnStream, *, prepared: bool
    ) -> tuple[ColumnStream, list[LoweredExpression | None]]:
        """Add the keys and arguments as columns "g0", ... and "a0", ...; return the arguments, too.

        prepared: as by `PartialForm.prepared`.
        """
        keys = self.lowered_keys(stream)
        arguments = [None if expr is None else stream.lower(expr) for expr, _ in self.parts]
        noted = stream.noting(*(one.fails for one in (*keys, *arguments) if one is not None))
        # Computed before rows are grouped: once for all groups, and a constant for each row.
        partials = [partial for _, partial in self.parts]
        computed = {
            f"a{at}": partial.prepared(one.value) if prepared else one.value
            for at, (one, partial) in enumerate(zip(arguments, partials, strict=True))
            if one is not None
        }
        computed |= {f"g{at}": _key(*each) for at, each in enumerate(zip(keys, self.key_types, strict=True))}
        noted = replace(noted, frame=noted.frame.with_columns(**computed))
        arguments = [
            None if one is None else LoweredExpression(pl.col(f"a{at}"), one.bounds)
            for at, one in enumerate(arguments)
        ]
        return noted, arguments

    def reduce_lazily(self, stream: ColumnStream) -> pl.LazyFrame:
        noted, arguments = self._computed(stream, prepared=True)
        weight = None if stream.append else pl.col(WEIGHT)
        parts = zip(arguments, self.parts, strict=True)
        noted = noted.noting(*(partial.fails(one, weight, stream.most) for one, (_, partial) in parts))
        values = [pl.len().cast(pl.Int64) if weight is None else weight.sum()]
        for argument, (_, partial) in zip(arguments, self.parts, strict=True):
            values += partial.values(argument, weight, stream.copies)
        named = [value.alias(f"v{at}") for at, value in enumerate(values)]
        named += [pl.col(FAILS).any()] * noted.checked
        if not self.key_types:
            return noted.frame.select(*named, pl.len().alias(HEIGHT))
        return self.gathered(noted.frame, named)

    def terms(self, stream: ColumnStream) -> tuple[list[pl.Series], list[Numbers]] | None:
        """Return each row's key, and its weight and terms, whose sums are the partial values.

        None where 64 bits do not hold them. Raises `ColumnarDeclined`.
        """
        noted, arguments = self._computed(stream, prepared=False)
        weight = None if stream.append else pl.col(WEIGHT)
        terms = [pl.repeat(1, pl.len(), dtype=pl.Int64()) if weight is None else weight]
        counts: list[int] = []
        for argument, (_, partial) in zip(arguments, self.parts, strict=True):
            own = partial.terms(argument, weight, stream.copies)
            if own is None:
                return None
            terms += own
            counts.append(len(own))
        keys = [pl.col(f"g{at}").alias(f"k{at}") for at in range(len(self.key_types))]
        values = [term.alias(f"v{at}") for at, term in enumerate(terms)]
        taken = noted.frame.select(*keys, *values, *[FAILS] * noted.checked)
        frame = taken.collect(optimizations=as_written())
        if noted.checked:
            decline_marked(frame)
        columns = frame.get_columns()
        weights = columns[len(keys)].to_numpy()
        summands, at = [weights], len(keys) + 1
        for (_, partial), count in zip(self.parts, counts, strict=True):
            summands += partial.summands(columns[at : at + count], weights)
            at += count
        return columns[: len(keys)], summands

    def gathered(self, frame: pl.LazyFrame, named: Sequence[pl.Expr]) -> pl.LazyFrame:
        """Return one row per group, in order of first occurrence. Keys "g0", ... are renamed to "k0", ..."""
        by = [pl.col(f"g{at}").alias(f"k{at}") for at in range(len(self.key_types))]
        return frame.group_by(*by, maintain_order=True).agg(*named)

    def reduce_rows(self, stream: ColumnStream) -> Rows:
        frame = self.reduce_lazily(stream).collect()
        if FAILS in frame.columns:
            decline_marked(frame)
        if HEIGHT in frame.columns and not frame[HEIGHT][0]:
            # A group that no row reaches is not touched.
            return []
        taken = [from_series(t, frame.to_series(at)) for at, t in enumerate(self.types)]
        return list(zip(*taken, strict=True))


def _key(lowered: LoweredExpression, type: DataType) -> pl.Expr:
    return replace_negative_zero(lowered.value) if is_float(type) else lowered.value


@choose_reduction.register(Aggregate)
def _aggregate(operator: Aggregate, schema: Schema, append: bool) -> PreReduction:
    if operator.lifetime is Lifetime.TICK:
        raise NotLowered("it answers each tick for itself")
    keys = tuple(expr for _, expr in operator.keys)
    types = tuple(check(expr, schema).type for expr in keys)
    for type in types:
        dtype_of(type)
    return GroupedRows(keys, types, group_parts(operator.aggregations, schema, append))


def group_parts(
    aggregations: Sequence[tuple[str, Aggregation]], schema: Schema, append: bool
) -> tuple[tuple[Expr | None, PartialForm], ...]:
    """Return the argument and partial form of each aggregate. Raises `NotLowered`."""
    parts: list[tuple[Expr | None, PartialForm]] = []
    for _, aggregation in aggregations:
        partial = partial_form(accumulator_for(aggregation, schema, append))
        if partial is None:
            raise NotLowered(f"{aggregation} needs every value of a group")
        parts.append((next(iter(aggregation.arguments()), None), partial))
    return tuple(parts)


def merge_parts(
    writer: StepWriter, groups: GroupedRows, of: Group, group: str, values: Sequence[str]
) -> None:
    """Write code that adds a row count and partial values to the list in the variable `group`."""
    writer.code.line(f"{group}[{ROWS}] += {values[0]}")
    taken = 1
    for (_, partial), (_, at) in zip(groups.parts, of.accumulators(), strict=True):
        count = len(partial.types)
        partial.merge(Target(writer, group, at), tuple(values[taken : taken + count]))
        taken += count
