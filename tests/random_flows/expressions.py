"""Random typed expressions over the columns of a stream.

A modest catalogue: every function is tried against Spark in the tests of
expressions; here they make keys, predicates and columns for flows. None of these
fails on a row, whatever its values: what fails has tests of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

from hypothesis import strategies as st

from headrace.expr.constructors import coalesce, left, lit, right, when
from headrace.expr.tree import Column, Expr, Ordering
from headrace.expr.types import (
    BOOL,
    DATE,
    FLOAT64,
    INT64,
    INTERVAL,
    INTERVALS,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    Schema,
)

_CONSTANTS: dict[DataType, tuple[Any, ...]] = {
    BOOL: (True, False),
    INT64: (-1, 0, 1, 2),
    FLOAT64: (0.0, 0.1, -1.5, float("nan")),
    STR: ("", "a", "ä"),
    INTERVAL: (timedelta(), timedelta(days=1), timedelta(hours=-1)),
}


def columns(schema: Schema, type_: DataType | None = None) -> list[Expr]:
    """The columns of a type, or all of them."""
    return [Column(f.name) for f in schema.fields if type_ in (None, f.type)]


def column_types(schema: Schema) -> list[DataType]:
    """The types of the columns, in order, each once."""
    return list(dict.fromkeys(f.type for f in schema.fields))


@st.composite
def expressions(draw: st.DrawFn, schema: Schema, type_: DataType, depth: int = 2) -> Expr:
    """An expression of a type. Types without constants need a column of it in `schema`."""
    own = columns(schema, type_)
    if depth == 0 or type_ not in _CONSTANTS or draw(st.integers(0, 2)) == 0:
        constants = [lit(value) for value in _CONSTANTS.get(type_, ())]
        if own and (not constants or draw(st.integers(0, 3))):
            return draw(st.sampled_from(own))
        return draw(st.sampled_from(constants))

    def some(of: DataType = type_) -> Expr:
        return draw(expressions(schema, of, depth - 1))

    choice = draw(st.integers(0, 7))
    if choice == 0:
        return when(some(BOOL), some()).otherwise(some())
    if choice == 1:
        return coalesce(some(), some())
    if choice == 2:
        return when(some(BOOL), some())
    if type_ == BOOL:
        return draw(predicates(schema, depth))
    if type_ == INT64:
        if choice == 7 and draw(st.booleans()):
            return _number_of_interval(draw, some)
        return _number(draw, some, choice) if choice < 6 else some(STR).length()
    if type_ == FLOAT64:
        return _number(draw, some, choice) if choice < 6 else some(INT64).cast(float)
    if type_ == INTERVAL:
        return _interval(draw, schema, some)
    return some().upper() if choice < 5 else some() + some()


def _number(draw: st.DrawFn, some: Any, choice: int) -> Expr:
    if choice == 3:
        return some() + some()
    if choice == 4:
        return some() - some()
    return abs(some()) % draw(st.sampled_from([2, 3]))


def _number_of_interval(draw: st.DrawFn, some: Any) -> Expr:
    if draw(st.booleans()):
        return some(INTERVAL).cast(draw(st.sampled_from(INTERVALS))).cast(int)
    least = timedelta(microseconds=1)
    return some(INTERVAL) // draw(st.sampled_from([timedelta(hours=7), timedelta(hours=-1), least, -least]))


def _interval(draw: st.DrawFn, schema: Schema, some: Any) -> Expr:
    times = [time for of in (TIMESTAMP, TIMESTAMP_NTZ, DATE) for time in columns(schema, of)]
    choices: list[Callable[[], Expr]] = [
        lambda: some() + some(),
        lambda: some() - some(),
        lambda: -some(),
        lambda: abs(some()),
        lambda: some() * draw(st.sampled_from([-2, 0, 3, 0.5])),
        lambda: some() / draw(st.sampled_from([-7, 3, 0.5])),
        lambda: some().cast(draw(st.sampled_from(INTERVALS))),
        lambda: _moved(draw, lit(date(2001, 1, 1)), some()) - lit(date(1999, 12, 31)),
    ]
    if times:
        choices += [lambda: _moved(draw, draw(st.sampled_from(times)), some()) - lit(date(2000, 1, 1))] * 2
    return draw(st.sampled_from(choices))().cast(INTERVAL)


def _moved(draw: st.DrawFn, time: Expr, span: Expr) -> Expr:
    """Move a time by at most a few years, so that it stays within the calendar."""
    few = when(abs(span) < timedelta(days=2000), span).otherwise(timedelta(hours=1))
    by = few.cast(INTERVALS[0]) if draw(st.booleans()) else few
    return time + by if draw(st.booleans()) else time - by


@st.composite
def predicates(draw: st.DrawFn, schema: Schema, depth: int = 2) -> Expr:
    """A condition that looks at a column."""
    if depth > 1 and draw(st.integers(0, 3)) == 0:
        one, other = draw(predicates(schema, depth - 1)), draw(predicates(schema, depth - 1))
        return draw(st.sampled_from([one & other, one | other, ~one]))
    type_ = draw(st.sampled_from(column_types(schema)))
    column = draw(st.sampled_from(columns(schema, type_)))
    if type_ == BOOL and draw(st.booleans()):
        return column
    other = draw(expressions(schema, type_, min(depth - 1, 1)))
    choices = [column == other, column != other, column.is_null()]
    if type_ in _CONSTANTS and type_ != BOOL:
        choices += [column < other, column >= other, column.is_in(*_CONSTANTS[type_][:2])]
    return draw(st.sampled_from(choices))


@st.composite
def orderings(draw: st.DrawFn, schema: Schema) -> Ordering:
    """An order by a column or an expression."""
    type_ = draw(st.sampled_from(column_types(schema)))
    expr = draw(expressions(schema, type_, 1))
    return Ordering(expr, draw(st.booleans()))


@st.composite
def join_conditions(draw: st.DrawFn, one: Schema, other: Schema) -> Expr | None:
    """A join condition with one or two keys and at times a residual; None where no types agree."""
    shared = [t for t in column_types(one) if columns(other, t)]
    if not shared:
        return None

    def pair() -> tuple[Expr, Expr]:
        type_ = draw(st.sampled_from(shared))
        mine = draw(st.sampled_from([f.name for f in one.fields if f.type == type_]))
        theirs = draw(st.sampled_from([f.name for f in other.fields if f.type == type_]))
        return left[mine], right[theirs]

    mine, theirs = pair()
    if draw(st.integers(0, 4)) == 0 and (constants := _CONSTANTS.get(_type_of(mine, one))):
        # A key that is computed, and for which null is a value like another.
        mine = coalesce(mine, lit(constants[0]))
    condition = mine == theirs
    for _ in range(draw(st.sampled_from([0, 0, 1]))):
        mine, theirs = pair()
        condition = condition & (mine == theirs)
    if draw(st.integers(0, 2)) == 0:
        mine, theirs = pair()
        residuals = [
            mine != theirs,
            mine.is_null(),
            theirs.is_not_null(),
            ~(mine == theirs) | theirs.is_null(),
        ]
        if _type_of(mine, one) in (INT64, FLOAT64, STR):
            residuals += [mine < theirs, mine >= theirs]
        condition = condition & draw(st.sampled_from(residuals))
    return condition


def _type_of(column: Expr, schema: Schema) -> DataType:
    assert isinstance(column, Column)
    return next(f.type for f in schema.fields if f.name == column.name)
