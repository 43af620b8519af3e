"""What a group's rows of a large tick come to, before they meet what the group held.

An accumulator keeps its fields whichever way rows come. In a large tick Polars
sums up each group's rows first; generated code then adds the few sums to the
same fields, so that a small tick may follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

import polars as pl

from penstock.engine.columnar.lowered import Lowered, one_zero
from penstock.engine.steps.accumulator import (
    Accumulator,
    BestOnly,
    CountRows,
    CountValues,
    IntMean,
    IntSum,
    Target,
)
from penstock.expr.types import FLOAT64, INT64, DataType

# A sum of so many bits and fewer leaves room in 64.
_ROOM = 2**62


@dataclass(frozen=True)
class Partial:
    """Base of the partial answers of one accumulator."""

    accumulator: Accumulator

    @property
    def types(self) -> tuple[DataType, ...]:
        """The types of the partial values."""
        return ()

    def values(self, argument: Lowered | None, weight: pl.Expr | None, rows: int) -> Sequence[pl.Expr]:
        """The partial values of a group, as aggregations.

        argument: of the accumulator. weight: None on an append edge. rows: no group has more.
        """
        return ()

    def merge(self, to: Target, values: tuple[str, ...]) -> None:
        """Write how the partial values in these variables are added to the group's fields."""


@singledispatch
def partial_of(accumulator: Accumulator) -> Partial | None:
    """The partial form of an accumulator; None where it has none."""
    return None


class _Counted(Partial):
    @property
    def types(self) -> tuple[DataType, ...]:
        return (INT64,)

    def values(self, argument: Lowered | None, weight: pl.Expr | None, rows: int) -> Sequence[pl.Expr]:
        assert argument is not None
        return (_present(argument.value, weight),)

    def merge(self, to: Target, values: tuple[str, ...]) -> None:
        to.code.line(f"{to.field(0)} += {values[0]}")


class _Total(Partial):
    """[total] or [total, values that are not null]."""

    @property
    def types(self) -> tuple[DataType, ...]:
        return (INT64,) * len(self.accumulator.fields())

    def values(self, argument: Lowered | None, weight: pl.Expr | None, rows: int) -> Sequence[pl.Expr]:
        assert argument is not None
        assert argument.bounds is not None
        most = max(map(abs, argument.bounds)) * rows
        # With weights nothing is known of the products; a sum in Python has no end either.
        exact = argument.value.cast(pl.Int64 if weight is None and most < _ROOM else pl.Int128)
        total = (exact if weight is None else exact * weight.cast(pl.Int128)).sum()
        counted = [_present(argument.value, weight)] if len(self.types) > 1 else []
        return (total, *counted)

    def merge(self, to: Target, values: tuple[str, ...]) -> None:
        for at, value in enumerate(values):
            to.code.line(f"{to.field(at)} += {value}")


class _Best(Partial):
    @property
    def types(self) -> tuple[DataType, ...]:
        return (self.accumulator.types[0].type,)

    def values(self, argument: Lowered | None, weight: pl.Expr | None, rows: int) -> Sequence[pl.Expr]:
        assert argument is not None
        is_float = self.types[0] == FLOAT64
        value = one_zero(argument.value) if is_float else argument.value
        least = isinstance(self.accumulator, BestOnly) and self.accumulator.sign == "<"
        best = value.min() if least else value.max()
        if is_float and not least:
            # NaN is the greatest; Polars passes it over.
            best = pl.when(value.is_nan().any()).then(pl.lit(float("nan"))).otherwise(best)
        return (best,)

    def merge(self, to: Target, values: tuple[str, ...]) -> None:
        with to.code.block(f"if {values[0]} is not None:"):
            self.accumulator.update(to, values, None)


def _present(value: pl.Expr, weight: pl.Expr | None) -> pl.Expr:
    if weight is None:
        return value.count().cast(pl.Int64)
    return pl.when(value.is_not_null()).then(weight).otherwise(0).sum()


@partial_of.register(CountRows)
def _count_rows(accumulator: CountRows) -> Partial:
    return Partial(accumulator)


@partial_of.register(CountValues)
def _count_values(accumulator: CountValues) -> Partial:
    return _Counted(accumulator)


@partial_of.register(IntSum)
@partial_of.register(IntMean)
def _total(accumulator: Accumulator) -> Partial:
    return _Total(accumulator)


@partial_of.register(BestOnly)
def _best(accumulator: BestOnly) -> Partial:
    return _Best(accumulator)
