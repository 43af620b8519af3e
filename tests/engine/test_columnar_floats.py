"""Sums of floats in columns: exact under retractions, the same as in rows to the last bit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headrace as hr
from headrace import Flow, col
from headrace.columns.columns import ColumnarDeclined
from headrace.engine.program import Program, compile_program
from headrace.expr.row_classes import from_user
from headrace.operators.aggregate.exact_totals import FLOAT_UNIT, float_add
from headrace.operators.aggregate.sum_columns import fraction, nearest, parts_of_floats, windows_of
from tests.engine.test_columnar import ALWAYS, Run, noting_declines
from tests.properties.effort import examples

np = pytest.importorskip("numpy")
pl = pytest.importorskip("polars")


NAN, INF = math.nan, math.inf
SMALLEST, LARGEST = 2.0**-1074, 1.7976931348623157e308

anything = st.floats(width=64)
EDGES = (0.1, -0.1, 0.0, -0.0, NAN, INF, -INF, SMALLEST, -SMALLEST, 1e308, LARGEST, 1e16, 1.0, 1e-30)
edges = st.sampled_from(EDGES)
usual = st.integers(-(10**9), 10**9).map(lambda n: n / 100) | st.floats(-1e9, 1e9).map(lambda x: x + 1.0)
totals = st.integers(-(2**180), 2**180) | st.integers(-(2**60), 2**60) | st.integers(-9, 9)


class Item(NamedTuple):
    key: int
    value: float | None
    sure: float


def in_parts(total: int) -> list[Any]:
    last = 4 * 32
    parts = [total >> at & 2**32 - 1 for at in range(0, last, 32)]
    return [np.array([part]) for part in (*parts, total >> last)]


@given(totals, st.integers(1, 2**31 - 1) | st.integers(1, 9))
@example(2**53 + 1, 1)
@example(-(2**180), 3)
def test_sums_and_means_are_rounded_once(total: int, count: int) -> None:
    exact = Fraction(total, 2**FLOAT_UNIT)
    (sum_,), (mean,) = nearest(in_parts(total), None), nearest(in_parts(total), np.array([count]))
    assert repr(float(sum_)) == repr(float(exact))
    assert repr(float(mean)) == repr(float(exact / count))


@given(st.lists(usual | edges, min_size=1))
def test_floats_are_whole_numbers_in_parts_or_odd(values: list[float]) -> None:
    parts, _, odd, _ = parts_of_floats(pl.Series(values, dtype=pl.Float64))
    for at, value in enumerate(values):
        if math.isfinite(value) and not odd[at]:
            total = sum(int(part[at]) << 32 * n for n, part in enumerate(parts))
            assert Fraction(total, 2**FLOAT_UNIT) == Fraction(value)
        assert bool(odd[at]) <= (math.isfinite(value) and (abs(value) > 1e20 or abs(value) < 1e-16))


@given(st.lists(st.tuples(anything, st.integers(-3, 3))), st.lists(st.tuples(anything, st.integers(-3, 3))))
def test_any_sums_lie_in_windows_and_these_add_up(
    ones: list[tuple[float, int]], others: list[tuple[float, int]]
) -> None:
    def total(of: list[tuple[float, int]]) -> list[Any]:
        group: list[Any] = [0, 1, 0, 0, 0]
        for value, weight in of:
            float_add(group, 0, value, weight)
        return group[:2]

    one, other, both = (total(of) for of in (ones, others, ones + others))
    added: dict[int, list[int]] = {0: [0] * 5}
    for found in (windows_of(*one), windows_of(*other)):
        for window, parts in found.items():
            assert all(abs(part) < 2**44 for part in parts)
            known = added.setdefault(window, [0] * 5)
            added[window] = [a + b for a, b in zip(known, parts, strict=True)]
    assert Fraction(*fraction(added.pop(0), added)) == Fraction(*both)


@given(st.integers(-(2**400), 2**400), st.integers(0, 400), st.integers(0, 400))
@example(1, 110, 90)
def test_equal_sums_have_the_same_windows(numerator: int, bits: int, more: int) -> None:
    assert windows_of(numerator << more, 1 << bits + more) == windows_of(numerator, 1 << bits)


# -- whole flows ----------------------------------------------------------------------------------


def totals_of(items: Any) -> Any:
    return items.group_by("key").agg(
        n=hr.count(), total=hr.sum(col.value), mean=hr.mean(col.value),
        sure=hr.sum(col.sure), sure_mean=hr.mean(col.sure),
    )  # fmt: skip


def totals_beside_values(items: Any) -> Any:
    return items.group_by("key").agg(
        total=hr.sum(col.value), once=hr.sum(col.value, distinct=True), kinds=hr.count_distinct(col.value),
        least=hr.min(col.value), mean=hr.mean(col.sure, distinct=True),
    )  # fmt: skip


def totals_of_all(items: Any) -> Any:
    return items.group_by().agg(total=hr.sum(col.value), mean=hr.mean(col.sure))


FLOWS = [totals_of, totals_beside_values, totals_of_all]
Ticks = list[list[tuple[Item, int]]]


def items_of(values: st.SearchStrategy[float]) -> st.SearchStrategy[Ticks]:
    item = st.builds(Item, st.integers(0, 2), st.none() | values, values)
    return st.lists(st.lists(st.tuples(item, st.integers(1, 2)), max_size=6), max_size=5)


@cache
def program_of(build: Any) -> Program:
    flow = Flow("floats")
    flow.sink("out", build(flow.table("items", Item)))
    return compile_program(flow.graph())


def run_alike(build: Any, ticks: Ticks, large: Sequence[bool], *, declines: bool) -> None:
    program = program_of(build)
    schema = program.graph.nodes[program.graph.sources["items"]].schema
    inside = from_user(schema, what="items", change=hr.Change)
    in_rows, always, mixed = (Run(program, c) for c in (None, ALWAYS, ALWAYS))
    back = [[(row, -weight) for row, weight in tick] for tick in reversed(ticks)]
    for at, tick in enumerate([*ticks, *back]):
        inputs = {"items": inside([hr.Change(row, weight) for row, weight in tick])}
        wanted = in_rows.tick(inputs)
        with noting_declines() as noted:
            assert always.tick(inputs) == wanted
            mixed.machine.least = 1 if large[at % len(large)] else 10**9
            assert mixed.tick(inputs) == wanted
        assert all(why is None or (declines and isinstance(why, ColumnarDeclined)) for why in noted)
        assert always.settled() == in_rows.settled() == mixed.settled()
    if build is not totals_of_all:
        assert in_rows.settled() in ({}, {name: {} for name in in_rows.names})


@pytest.mark.parametrize("build", FLOWS)
@examples(0.15)
@given(items_of(usual), st.lists(st.booleans(), min_size=1))
def test_usual_floats_stay_in_columns(build: Any, ticks: Ticks, large: list[bool]) -> None:
    run_alike(build, ticks, large, declines=False)


@pytest.mark.parametrize("build", FLOWS)
@examples(0.15)
@given(items_of(anything | edges), st.lists(st.booleans(), min_size=1))
def test_any_floats_have_the_sums_that_they_have_in_rows(build: Any, ticks: Ticks, large: list[bool]) -> None:
    run_alike(build, ticks, large, declines=True)


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([1e16, 1.0, -1e16], 1.0),
        ([0.1] * 10, 1.0),
        ([NAN, 1.0], NAN),
        ([INF, 1.0], INF),
        ([INF, -INF], NAN),
        ([-INF, 1.0], -INF),
        ([-0.0, -0.0], 0.0),
        ([SMALLEST, SMALLEST], 2 * SMALLEST),
        ([1e308, 1e308], INF),
        ([1e308, 1e308, -1e308], 1e308),
        ([LARGEST, SMALLEST, -LARGEST], SMALLEST),
        ([1e300, 1.0, -1e300, 1e-300], 1.0),
        ([2.0**53, 1.0, 1.0], 2.0**53 + 2),
    ],
)
@pytest.mark.parametrize("beside", [[], [0.25], [INF, NAN]])
def test_edges_have_the_sums_that_they_should(values: list[float], total: float, beside: list[float]) -> None:
    flow = Flow("edges")
    flow.sink("out", flow.table("values", float).group_by().agg(total=hr.sum(col.value)))
    engine = hr.Engine(flow, columnar="always")
    answers: Counter[str] = Counter()
    for tick in ([hr.insert(value) for value in (*values, *beside)], [hr.delete(value) for value in beside]):
        for change in engine.tick(values=tick).get("out", ()):
            answers[repr(change.row.total)] += change.weight
    assert +answers == {repr(total): 1}


@pytest.mark.parametrize("values", [[1.0], [1.0, None, 1.0, 2.5]])
def test_distinct_values_of_the_group_of_nan_are_summed_up(values: list[float | None]) -> None:
    flow = Flow("nan")
    groups = flow.table("items", Item).group_by("sure")
    flow.sink("out", groups.agg(once=hr.sum(col.value, distinct=True), kinds=hr.count_distinct(col.value)))
    items = [hr.insert(Item(0, value, NAN)) for value in values]
    answers: list[str] = []
    for columnar in ("never", "always"):
        engine = hr.Engine(flow, columnar=columnar)
        answers.append(repr([engine.tick(items=tick)["out"] for tick in (items, [hr.delete(items[0].row)])]))
    assert answers[0] == answers[1]
