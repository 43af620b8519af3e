"""Flows longer than Python lets one function nest: they compile, and mean the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace import col

AnyStream = hr.Stream[Any, Any, Any, Any]


def same(n: int) -> int:
    return n


def itself(n: int) -> list[int]:
    return [n]


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(lambda s: s.map(same), id="map"),
        pytest.param(lambda s: s.flat_map(itself), id="flat_map"),
        pytest.param(lambda s: s.filter(col.value > 0), id="filter"),
        pytest.param(lambda s: s.select(value=col.value + 0, into=int), id="select"),
        pytest.param(lambda s: s.distinct(), id="distinct"),
        pytest.param(lambda s: s.join(s, on="value", how="semi"), id="semi join"),
        pytest.param(lambda s: s.join(s, on="value").filter(col.value > 0).select("value"), id="join"),
        pytest.param(lambda s: s.group_by("value").agg(n=hr.count()).select("value"), id="aggregate"),
        pytest.param(lambda s: s.top_k(1, by=col.value, per="value"), id="top_k"),
    ],
)
@pytest.mark.parametrize("source", ["append", "table"])
def test_150_operators_in_a_line_compile(step: Callable[[AnyStream], AnyStream], source: str) -> None:
    flow = hr.Flow("long")
    stream: AnyStream = flow.source("n", int) if source == "append" else flow.table("n", int)
    for _ in range(150):
        stream = step(stream)
    flow.sink("out", stream.select("value"))
    engine = hr.Engine(flow)
    assert [(row.value, n) for row, n in engine.tick(n=[1, -1])["out"] if row.value > 0] == [(1, 1)]
    if source == "table":
        assert [(row.value, n) for row, n in engine.tick(n=[hr.delete(1)])["out"]] == [(1, -1)]


def test_what_lies_before_an_operator_is_looked_at_once_however_long_and_branched_it_is() -> None:
    flow = hr.Flow("long and branched")
    numbers: AnyStream = flow.source("numbers", int)
    for _ in range(1_500):
        numbers = numbers.filter(col.value > 0)
    for _ in range(60):
        # The ways through these are as many as 2 ** 60.
        numbers = numbers.union(numbers.filter(col.value > 1))
    numbers.distinct()
    numbers.join(numbers, on="value")
    assert len(flow.nodes) == 1 + 1_500 + 2 * 60 + 2
