"""Columns may have any name, also one that generated code uses for something else."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col


@pytest.mark.parametrize(
    "name", ["x", "rows", "out", "all", "news", "v", "key", "group", "made", "inputs", "weight", "x_1"]
)
@pytest.mark.parametrize("before", range(4))
def test_a_column_is_not_mistaken_for_a_variable_of_the_code(name: str, before: int) -> None:
    names = [*(f"a{at}" for at in range(before)), "k", name]
    row: Any = NamedTuple("row", [(n, int | None if n == name else int) for n in names])  # type: ignore[misc]
    flow = hr.Flow("names")
    made = flow.table("source", row).with_columns(k=hr.coalesce(hr.when(True, col.k), abs(col.k) % 2))
    flow.sink("out", made)
    flow.sink("twice", made.union(made))
    values = (*range(before), 7, None)
    outputs = hr.Engine(flow).tick(source=[values])
    assert outputs["out"].raw == [(*values, 1)]
    assert outputs["twice"].raw == [(*values, 2)]


@pytest.mark.parametrize("name", ["a\u00b2", "\u2460", "\u00bd", "price in \u20ac", "1st", "class"])
def test_a_computed_column_may_be_called_by_what_no_variable_can(name: str) -> None:
    flow = hr.Flow("names")
    computed = flow.table("source", int).select(**{name: hr.when(col.value > 1, col.value).otherwise(None)})
    flow.sink("out", computed.select(**{name: hr.coalesce(col[name], 0), "k": col[name].is_null()}))
    assert hr.Engine(flow).tick(source=[1, 2])["out"].raw == [(0, True, 1), (2, False, 1)]
