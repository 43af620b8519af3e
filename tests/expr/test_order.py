"""Sort keys: Spark's order in Python."""

from __future__ import annotations

import math
from datetime import UTC
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.expr.code_runtime import NAN
from headrace.expr.types import (
    BOOL,
    DATE,
    FLOAT64,
    INT64,
    STR,
    TIMESTAMP,
    DataType,
    DecimalType,
    Field,
    ListType,
    StructType,
)
from headrace.expr.value_keys import order_key

WIDE = Context(prec=50)
VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    BOOL: st.booleans(),
    INT64: st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
    FLOAT64: st.floats() | st.sampled_from([-0.0, 0.0, NAN]),
    DecimalType(38, 2): st.integers(-(10**38) + 1, 10**38 - 1).map(
        lambda value: Decimal(value).scaleb(-2, WIDE)
    ),
    STR: st.text(),
    DATE: st.dates(),
    TIMESTAMP: st.datetimes(timezones=st.just(UTC)),
    StructType((Field("a", INT64, nullable=True), Field("b", FLOAT64))): st.tuples(
        st.none() | st.integers(), st.floats()
    ),
}
"""Values of types, of which some are near each other."""


def sort(values: list[Any], type: DataType, *, nullable: bool = True, descending: bool = False) -> list[Any]:
    return sorted(values, key=order_key(type, nullable, descending))


def test_nulls_come_first_ascending_and_last_descending() -> None:
    assert sort([2, None, 1], INT64) == [None, 1, 2]
    assert sort([2, None, 1], INT64, descending=True) == [2, 1, None]
    assert sort(["b", None, "a"], STR, descending=True) == ["b", "a", None]


def test_nan_is_greatest() -> None:
    values = [NAN, 1.0, None, math.inf, -math.inf]
    assert sort(values, FLOAT64) == [None, -math.inf, 1.0, math.inf, NAN]
    assert sort(values, FLOAT64, descending=True) == [NAN, math.inf, 1.0, -math.inf, None]
    assert sort([NAN, 1.0], FLOAT64, nullable=False) == [1.0, NAN]


@pytest.mark.parametrize("nullable", [True, False])
@given(st.data())
def test_descending_keys_reverse_the_order(nullable: bool, data: st.DataObject) -> None:
    type = data.draw(st.sampled_from([*VALUES]))
    values = data.draw(st.lists(VALUES[type] | (st.none() if nullable else st.nothing())))
    up, down = order_key(type, nullable) or (lambda value: value), order_key(type, nullable, True)
    assert down is not None
    for a, b in pairwise(values):
        assert (up(a) < up(b), up(a) == up(b)) == (down(b) < down(a), down(a) == down(b))


def test_zeros_are_equal() -> None:
    key = order_key(FLOAT64, nullable=False)
    assert key is not None
    assert key(-0.0) == key(0.0)


@pytest.mark.parametrize("type", [INT64, STR, BOOL])
def test_values_that_sort_right_need_no_key(type: DataType) -> None:
    assert order_key(type, nullable=False) is None


def test_nested_values_sort_part_by_part() -> None:
    struct = StructType((Field("a", INT64, nullable=True), Field("b", FLOAT64)))
    assert sort([(1, NAN), (None, 5.0), (1, 2.0)], struct) == [(None, 5.0), (1, 2.0), (1, NAN)]
    lists = ListType(INT64, nullable=True)
    assert sort([(1, 2), (1,), (None,), ()], lists) == [(), (None,), (1,), (1, 2)]
