"""Columns may have any names, also those of parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import Parameter, getmembers, isfunction, signature
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.flow.grouped_streams import Grouped, WindowGroups
from headrace.testing import show


def _taking_columns() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Public functions that take any names as keywords."""
    for of in (hr.Stream, Grouped, WindowGroups, hr.Engine, hr.Flow, hr.Signal):
        for name, method in getmembers(of, isfunction):
            if not name.startswith("_"):
                yield f"{of.__name__}.{name}", method
    for module in (hr, hr.functions):
        yield from getmembers(module, isfunction)
    yield "show", show


TAKING = [
    pytest.param(function, id=name)
    for name, function in _taking_columns()
    # Those of signals hand on options to each other, called `how`.
    if any(
        p.kind is Parameter.VAR_KEYWORD and p.name != "how" for p in signature(function).parameters.values()
    )
]


def test_there_are_such_functions() -> None:
    assert len(TAKING) > 6


@pytest.mark.parametrize("function", TAKING)
def test_no_parameter_stands_in_the_way_of_a_column(function: Callable[..., Any]) -> None:
    others = signature(function).parameters.values()
    assert [p.name for p in others if p.kind is Parameter.POSITIONAL_OR_KEYWORD] == []


class Odd(NamedTuple):
    self: int
    cls: int
    named: int
    columns: int


def test_columns_with_names_of_parameters_are_columns() -> None:
    flow = hr.Flow("f")
    rows = flow.source("self", Odd)
    flow.sink("select", rows.select(self=col.self, unnamed=col.cls))
    flow.sink("with_columns", rows.with_columns(self=col.self + 1, of=col.cls))
    flow.sink("agg", rows.group_by(self=col.self).agg(keys=hr.sum(col.cls)))
    flow.sink("whole", rows.group_by("cls").agg(self=hr.sum(col.self)))
    flow.sink("struct", rows.select(x=hr.struct(self=col.self)))
    flow.sink("upsert", rows.upsert("self", sequence="cls"))
    flow.sink("history", rows.history("self", sequence="cls"))
    flow.sink("joined", rows.join(rows.select("self", x=col.cls), on="self"))
    made = hr.Engine(flow).tick(self=[Odd(1, 2, 3, 4)])
    assert made["select"].raw == [(1, 2, 1)]
    assert made["with_columns"].raw == [(2, 2, 3, 4, 2, 1)]
    assert made["agg"].raw == [(1, 2, 1)]
    assert made["whole"].raw == [(2, 1, 1)]
    assert made["struct"].raw == [((1,), 1)]
    assert made["upsert"].raw == [(1, 2, 3, 4, 1)]
    assert [row[:4] for row in made["history"].raw] == [(1, 2, 3, 4)]
    assert made["joined"].raw == [(1, 2, 3, 4, 2, 1)]


@pytest.mark.spark
def test_a_query_may_read_a_column_called_self(spark: Any) -> None:
    query = """
        SELECT self, count(*) AS cls, sum(named) OVER (PARTITION BY self) AS named
        FROM (SELECT DISTINCT self, named FROM t WHERE self > 0) GROUP BY self, named
    """
    flow = hr.sql(query, tables={"t": Odd}, spark=spark)
    assert hr.Engine(flow).tick(t=[Odd(1, 2, 3, 4)])["answer"].raw == [(1, 1, 3, 1)]
