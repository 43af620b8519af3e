"""Sort keys: Spark's order in Python."""

from __future__ import annotations

import math
from typing import Any

import pytest

from penstock.expr.code_runtime import NAN
from penstock.expr.sort_keys import order_key
from penstock.expr.types import BOOL, FLOAT64, INT64, STR, DataType, Field, ListType, StructType


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
