"""How expressions move with a column: rules, and the rules tried on values."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.expr.check import Monotonicity, monotonicity
from headrace.expr.compile_python import compile_rows
from headrace.expr.row_classes import schema_of
from headrace.expr.tree import Expr

CONSTANT, INCREASING, DECREASING, UNKNOWN = Monotonicity


class Event(NamedTuple):
    v: int
    w: int
    at: datetime


EVENT = schema_of(Event)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (col.w * 3, CONSTANT),
        (col.v + col.w, INCREASING),
        (col.w - col.v, DECREASING),
        (-col.v * -2, INCREASING),
        (col.v * col.w, UNKNOWN),
        (col.v // 3, INCREASING),
        (col.v / -2, DECREASING),
        (3 / col.v, UNKNOWN),
        (col.v % 3, UNKNOWN),
        (col.v - col.v, UNKNOWN),
        (hr.least(col.v, 5) + col.v, INCREASING),
        (hr.greatest(col.v, -col.v), UNKNOWN),
        (col.v.cast(float).floor(), INCREASING),
        (col.v.cast(str), UNKNOWN),
        (col.v.abs(), UNKNOWN),
        (hr.when(col.v > 0, col.v), UNKNOWN),
    ],
    ids=str,
)
def test_expressions_move_as_their_parts_do(expr: Expr, expected: Monotonicity) -> None:
    assert monotonicity(expr, EVENT, "v") is expected


def test_windows_rise_with_time() -> None:
    for expr in (col.at.tumble("10s"), col.at.truncate("month"), col.at.year(), col.at.to_date()):
        assert monotonicity(expr, EVENT, "at") is INCREASING
    assert monotonicity(col.at.month(), EVENT, "at") is UNKNOWN


numbers = st.integers(-3, 3)
leaves = st.sampled_from([col.v, col.w]) | numbers.map(hr.lit)


def _grown(parts: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(lambda a, b: a + b, parts, parts),
        st.builds(lambda a, b: a - b, parts, parts),
        st.builds(lambda a, b: a * b, parts, parts),
        st.builds(lambda a, b: a // b, parts, st.integers(1, 4)),
        st.builds(lambda a, b: a // -b, parts, st.integers(1, 4)),
        st.builds(lambda a: -a, parts),
        st.builds(hr.least, parts, parts),
        st.builds(hr.greatest, parts, parts),
        st.builds(lambda a: a.round(-1), parts),
        st.builds(lambda a: (a / 2).floor(), parts),
        st.builds(lambda a, b, c: hr.when(a > b, c).otherwise(a), parts, parts, parts),
        st.builds(lambda a: a % 3, parts),
    )


@given(st.recursive(leaves, _grown, max_leaves=8), st.integers(-9, 9), st.integers(-9, 9), st.integers(0, 9))
def test_values_move_as_the_rules_say(expr: Expr, v: int, w: int, step: int) -> None:
    at = datetime(2001, 1, 1)
    compute = compile_rows((expr,), EVENT)
    before, after = compute((v, w, at))[0], compute((v + step, w, at))[0]
    move = monotonicity(expr, EVENT, "v")
    if move is CONSTANT:
        assert before == after
    if move is INCREASING:
        assert before <= after
    if move is DECREASING:
        assert before >= after
