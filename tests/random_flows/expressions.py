"""Random typed expressions over the columns of a stream.

A modest catalogue: every function is tried against Spark in the tests of
expressions; here they make keys, predicates and columns for flows. None of these
fails on a row, whatever its values: what fails has tests of its own.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from penstock.expr.constructors import coalesce, left, lit, right, when
from penstock.expr.tree import Column, Expr, Ordering
from penstock.expr.types import BOOL, FLOAT64, INT64, INTERVAL, STR, DataType, Schema

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
        return _number(draw, some, choice) if choice < 6 else some(STR).length()
    if type_ == FLOAT64:
        return _number(draw, some, choice) if choice < 6 else some(INT64).cast(float)
    if type_ == INTERVAL:
        return some() + some() if choice < 5 else some() - some() if choice < 7 else -some()
    return some().upper() if choice < 5 else some() + some()


def _number(draw: st.DrawFn, some: Any, choice: int) -> Expr:
    if choice == 3:
        return some() + some()
    if choice == 4:
        return some() - some()
    return abs(some()) % draw(st.sampled_from([2, 3]))


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
