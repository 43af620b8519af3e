"""Lowered expressions against generated Python: values, nulls and failures."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

pl = pytest.importorskip("polars")

import headrace as hr
from headrace.columns.expressions import columns_without_bounds, lower_expression
from headrace.errors import EvaluationError
from headrace.expr.check import check
from headrace.expr.code_runtime import WIDE
from headrace.expr.compile_python import compile_rows
from headrace.expr.constructors import col
from headrace.expr.functions import CATALOGUE
from headrace.expr.polars_columns import (
    LoweredExpression,
    NotLowered,
    bounds_in,
    from_series,
    polars_type,
    to_series,
)
from headrace.expr.tree import Expr
from headrace.expr.types import DATE, INTERVALS, DecimalType, Field, Schema
from tests.expr.random_calls import calls_of, many_rows, passes
from tests.expr.random_expressions import SCHEMA, Wide, expressions, internal, rows
from tests.properties.effort import examples

Row = tuple[Any, ...]
COLUMNAR_FUNCTIONS = sorted(name for name, function in CATALOGUE.items() if function.columns is not None)
COLUMNAR = [at for at, f in enumerate(SCHEMA.fields) if polars_type(f.type) is not None]


def frame_of(some: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(
        {str(at): to_series(SCHEMA.fields[at].type, [row[at] for row in some]) for at in COLUMNAR}
    )


def columns_of(frame: pl.DataFrame) -> list[LoweredExpression]:
    """The columns with the bounds that their values have."""
    columns = columns_without_bounds(SCHEMA)
    for at in COLUMNAR:
        columns[at] = LoweredExpression(pl.col(str(at)), bounds_in(SCHEMA.fields[at].type, frame[str(at)]))
    return columns


def outcome(compute: Callable[[Row], Row], row: Row) -> object:
    """The value on a row, or the class of what it raises."""
    try:
        return compute(row)[0]
    except EvaluationError as error:
        return type(error)


def same(one: object, other: object) -> bool:
    """Equal, and shown alike: 1, 1.0 and True differ; so do the zeros; NaN is itself."""
    return type(one) is type(other) and repr(one) == repr(other)


def agrees(expr: Expr, some: list[Row], known: Callable[[pl.DataFrame], list[LoweredExpression]]) -> int:
    """Compares on each row. Returns on how many rows the columnar form declined without need."""
    frame = frame_of(some)
    lowered = lower_expression(expr, SCHEMA, known(frame))
    fails = pl.lit(False) if lowered.fails is None else lowered.fails.fill_null(False)
    made = frame.with_columns(value=lowered.value, fails=fails).with_columns(
        value=pl.when(~pl.col.fails).then(pl.col.value)
    )
    type_ = check(expr, SCHEMA).type
    values = from_series(type_, made["value"])
    compute = compile_rows((expr,), SCHEMA)
    needless = 0
    for row, value, declines in zip(some, values, made["fails"].to_list(), strict=True):
        wanted = outcome(compute, row)
        if declines:
            needless += wanted is not EvaluationError
        else:
            assert wanted is not EvaluationError, (
                f"{expr} raises on {row}, and the columnar form does not tell"
            )
            assert same(wanted, value), f"{expr} on {row}: {wanted!r}, the columnar form says {value!r}"
            if lowered.bounds is not None and value is not None:
                unscaled = value.scaleb(type_.scale, WIDE) if isinstance(type_, DecimalType) else value
                assert lowered.bounds[0] <= unscaled <= lowered.bounds[1]
    return needless


@examples(1)
@given(expressions(), st.lists(rows, min_size=1, max_size=12), st.booleans())
def test_the_columnar_form_agrees_with_generated_python(expr: Expr, some: list[Wide], bounded: bool) -> None:
    try:
        lower_expression(expr, SCHEMA, columns_without_bounds(SCHEMA))
    except NotLowered:
        assume(False)
    agrees(expr, internal(some), columns_of if bounded else lambda _: columns_without_bounds(SCHEMA))


@pytest.mark.parametrize("name", COLUMNAR_FUNCTIONS)
@examples(0.15)
@given(st.data(), st.integers(0, 9), st.booleans())
def test_the_columnar_form_of_each_function_agrees(
    name: str, data: st.DataObject, seed: int, bounded: bool
) -> None:
    expr = data.draw(calls_of(name))
    try:
        lower_expression(expr, SCHEMA, columns_without_bounds(SCHEMA))
    except NotLowered:
        return
    agrees(expr, many_rows(seed), columns_of if bounded else lambda _: columns_without_bounds(SCHEMA))


def test_a_date_moves_by_whole_days_cut_toward_zero() -> None:
    schema = Schema((Field("day", DATE), Field("by", INTERVALS[0])))
    days = timedelta(days=1)
    some = [(date(2024, 1, 10), by * days) for by in (1.5, -1.5, 0.5, -0.5, -2, 0)]
    series = {str(at): to_series(f.type, [row[at] for row in some]) for at, f in enumerate(schema.fields)}
    for expr in (col.day + col.by, col.by + col.day, col.day - col.by):
        lowered = lower_expression(expr, schema, columns_without_bounds(schema))
        made = from_series(DATE, pl.DataFrame(series).select(lowered.value).to_series())
        assert made == [compile_rows((expr,), schema)(row)[0] for row in some]


def test_zeros_of_both_signs_stay_apart() -> None:
    zeros = [hr.when(col.b, 0.0).otherwise(-0.0), hr.least(0.0, -0.0, col.x), hr.greatest(-0.0, 0.0, col.x)]
    for expr in [*zeros, col.x + 0.0, 0.0 - col.x, hr.coalesce(col.x_, -0.0) + hr.coalesce(col.y_, 0.0)]:
        agrees(expr, many_rows(3), columns_of)


def test_floats_are_divided_and_not_multiplied_by_a_reciprocal() -> None:
    agrees(col.n / 202, many_rows(4), columns_of)
    agrees(hr.coalesce(col.x_, 1.0) / 3.7, many_rows(4), columns_of)


@pytest.mark.parametrize(
    "step", [lambda e: e / col.e_, lambda e: e.substring(col.i_, 3), lambda e: e + col.n]
)
def test_what_is_nested_deeply_is_not_repeated(step: Callable[[Expr], Expr]) -> None:
    expr: Expr = step(next(c for c in (col.d, col.s, col.n) if passes(step(c))))
    for _ in range(9):
        expr = step(expr)
    lowered = lower_expression(expr, SCHEMA, columns_without_bounds(SCHEMA))
    assert len(lowered.value.meta.root_names()) < 100
    agrees(expr, many_rows(5), columns_of)


@pytest.mark.parametrize(
    ("bounds", "widened"),
    [
        ((3, 17), (1, 256)),
        ((0, 0), (0, 0)),
        ((-3, -1), (-16, -1)),
        ((-17, 0), (-256, 0)),
        ((-2, 999), (-16, 999)),
    ],
)
def test_ticks_with_similar_numbers_share_what_is_lowered(
    bounds: tuple[int, int], widened: tuple[int, int]
) -> None:
    schema = Schema((Field("d", DecimalType(3, 1)),))
    expr = col.d * 3

    def lowered(*of: tuple[int, int]) -> list[LoweredExpression]:
        return [lower_expression(expr, schema, [LoweredExpression(pl.col("0"), each)]) for each in of]

    one, other, all_ = lowered(bounds, widened, (-999, 999))
    assert one is other
    assert one is not all_


@examples(0.5)
@given(expressions(), st.integers(0, 9))
def test_arguments_that_are_computed_on_their_own_agree(expr: Expr, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.columns.expressions._MAX_COLUMNS", 0)
        try:
            agrees(expr, many_rows(seed), columns_of)
        except NotLowered:
            assume(False)
