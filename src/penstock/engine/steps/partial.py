"""What an accumulator has summed up of some rows, and how another one takes that over.

What a piece of the rows adds to a group's list is the list of that piece: so the
parts of an accumulator are its fields, and only their types are told here. An
accumulator whose fields do not simply add up has no parts.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from penstock.engine.steps.accumulator import (
    Accumulator,
    BestOnly,
    CountRows,
    CountValues,
    FloatTotals,
    Target,
    Totals,
    accumulator_for,
)
from penstock.expr.types import INT64, DecimalType, Field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.expr.types import Schema
    from penstock.flow.aggregates import Aggregation

WHOLE_NUMBER = DecimalType(38, 0)
"""The type of a sum of integers on its way: an int in rows of ours, a decimal where Spark made it."""


@singledispatch
def parts(accumulator: Accumulator) -> tuple[Field, ...] | None:
    """The columns in which what it has summed up travels; None where nothing of the kind exists."""
    return None


@singledispatch
def merge(accumulator: Accumulator, to: Target, columns: Sequence[str]) -> None:
    """Write how the list of `to` takes over the parts in `columns`."""
    raise NotImplementedError(type(accumulator))


@parts.register(CountRows)
def _(accumulator: CountRows) -> tuple[Field, ...]:
    return ()


@merge.register(CountRows)
def _(accumulator: CountRows, to: Target, columns: Sequence[str]) -> None:
    pass


@parts.register(CountValues)
def _(accumulator: CountValues) -> tuple[Field, ...]:
    return (Field("values", INT64),)


@merge.register(CountValues)
def _(accumulator: CountValues, to: Target, columns: Sequence[str]) -> None:
    to.code.line(f"{to.field(0)} += {columns[0]}")


@parts.register(Totals)
def _(accumulator: Totals) -> tuple[Field, ...]:
    return (Field("total", WHOLE_NUMBER), *_counted(accumulator))


@merge.register(Totals)
def _(accumulator: Totals, to: Target, columns: Sequence[str]) -> None:
    to.code.line(f"{to.field(0)} += int({columns[0]})")
    if accumulator.types[0].nullable:
        to.code.line(f"{to.field(1)} += {columns[1]}")


@parts.register(FloatTotals)
def _(accumulator: FloatTotals) -> tuple[Field, ...]:
    return (
        Field("numerator", WHOLE_NUMBER),
        Field("denominator", WHOLE_NUMBER),
        *(Field(name, INT64) for name in ("nan", "up", "down")),
        *_counted(accumulator),
    )


@merge.register(FloatTotals)
def _(accumulator: FloatTotals, to: Target, columns: Sequence[str]) -> None:
    to.code.line(f"x_float_merge({to.group}, {to.at}, {', '.join(columns[:5])})")
    if accumulator.types[0].nullable:
        to.code.line(f"{to.field(5)} += {columns[5]}")


@parts.register(BestOnly)
def _(accumulator: BestOnly) -> tuple[Field, ...]:
    return (Field("best", accumulator.types[0].type, nullable=True),)


@merge.register(BestOnly)
def _(accumulator: BestOnly, to: Target, columns: Sequence[str]) -> None:
    with to.code.block(f"if {columns[0]} is not None:"):
        accumulator.update(to, (columns[0],), None)


def _counted(accumulator: Totals) -> tuple[Field, ...]:
    return (Field("values", INT64),) if accumulator.types[0].nullable else ()


def parts_of(aggregations: Sequence[Aggregation], schema: Schema, *, appends: bool) -> list[Field] | None:
    """The columns of all parts of a group's aggregates, numbered; None where one has none."""
    found: list[Field] = []
    for number, aggregation in enumerate(aggregations):
        of = parts(accumulator_for(aggregation, schema, appends))
        if of is None:
            return None
        found.extend(Field(f"{part.name} {number}", part.type, part.nullable) for part in of)
    return found
