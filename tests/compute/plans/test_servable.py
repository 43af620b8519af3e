"""What is served answers by the rows of a time alone, however they got there; all else is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.compute.errors import NotServable
from headrace.compute.plans import check_servable
from headrace.engine.change import Change
from headrace.expr.row_classes import to_user
from headrace.lattice import Max
from tests.properties.effort import examples
from tests.properties.test_promises import Maintained
from tests.random_flows.cases import Accumulated, Case, Tick, cases, cuts


@st.composite
def served_cases(draw: st.DrawFn, *, tables: bool = True) -> tuple[Case, list[Tick], int]:
    """A flow that can be served, its input, and after how many of its ticks a replica begins."""
    case = draw(cases(folds=True, tables=tables))
    try:
        check_servable(case.flow)
    except NotServable:
        assume(False)
    ticks = draw(cuts(case, most=4))
    return case, ticks, draw(st.integers(0, len(ticks)))


@st.composite
def snapshots(draw: st.DrawFn, **kind: bool) -> tuple[Case, list[Tick], list[Tick], list[Tick]]:
    """All ticks; the rows at a time, in any order and cut anyhow; and the ticks after it."""
    case, ticks, begin = draw(served_cases(**kind))
    so_far = Accumulated(case)
    for tick in ticks[:begin]:
        so_far.add(tick)
    cut: list[dict[str, list[Any]]] = [{} for _ in range(draw(st.integers(1, 3)))]
    for name, rows in so_far.inputs.items():
        source, user = case.source(name), to_user(case.source(name).schema)
        there = [(user(row), count) for row, count in rows.items() if count]
        for row, count in draw(st.permutations(there)):
            part = cut[draw(st.integers(0, len(cut) - 1))].setdefault(name, [])
            part.extend([row] * count if source.append else [Change(row, count)])
    return case, ticks, list(cut), ticks[begin:]


def check_hydration(case: Case, ticks: list[Tick], snapshot: list[Tick], after: list[Tick]) -> None:
    original, replica = Maintained(case), Maintained(case)
    for tick in ticks[: len(ticks) - len(after)]:
        original.tick(tick)
    for tick in snapshot:
        replica.tick(tick)
    # What has something to say before there are rows says it in the first tick, if there was any.
    if not any(ticks[: len(ticks) - len(after)]):
        original.tick({})
    assert replica.answers == original.answers
    for tick in after:
        original.tick(tick)
        replica.tick(tick)
        assert replica.answers == original.answers


@examples(1.2)
@given(snapshots())
def test_a_replica_that_begins_at_any_time_comes_to_the_same_answers(
    drawn: tuple[Case, list[Tick], list[Tick], list[Tick]],
) -> None:
    check_hydration(*drawn)


@examples(0.4)
@given(snapshots(tables=False))
def test_so_does_one_of_collections_that_only_grow(
    drawn: tuple[Case, list[Tick], list[Tick], list[Tick]],
) -> None:
    check_hydration(*drawn)


# --- what is refused ---------------------------------------------------------------------


class Row(NamedTuple):
    at: int
    value: int


AnyStream = hr.Stream[Any, Any, Any, Any]

REFUSED: dict[str, tuple[Callable[[AnyStream], AnyStream], str]] = {
    "an order": (lambda rows: rows.enumerate(), "order"),
    "an order that is declared": (lambda rows: rows.assume_ordered(nondet="so"), "order"),
    "a fold in order": (lambda rows: rows.fold(0, lambda n, row: n * 2 + row.value), "order"),
    "upserts in order": (lambda rows: rows.upsert("at"), "order"),
    "pairs by place": (lambda rows: rows.zip(rows, suffix="_y"), "order"),
    "a tick": (lambda rows: rows.distinct(lifetime="tick", nondet="so"), "ticks"),
    "a tick in which a lattice grew": (
        lambda rows: rows.lattice_fold(Max(), value="at", lifetime="tick", nondet="so"),
        "ticks",
    ),
    "the tick before": (lambda rows: rows.defer_tick(), "earlier ticks"),
    "all rows, again": (lambda rows: rows.every_tick(nondet="so"), "earlier ticks"),
    "event time": (lambda rows: rows.watermark(col.at, lateness=1), "event time"),
    "windows": (
        lambda rows: (
            rows.watermark(col.at, lateness=1)
            .group_by(window=hr.tumbling(col.at, 10), emit="updates")
            .agg(n=hr.count())
        ),
        "event time",
    ),
    "a signal": (lambda rows: rows.latest(nondet="so").stream(int), "signal"),
    "any values": (lambda rows: rows.map(lambda row: row.at, returns=object), "any Python value"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_depends_on_more_than_the_rows_at_a_time_is_refused(what: str) -> None:
    build, word = REFUSED[what]
    flow = hr.Flow("refused")
    flow.sink("out", build(flow.source("rows", Row)))
    with pytest.raises(NotServable) as refused:
        check_servable(flow)
    assert word in refused.value.why
    assert refused.value.fix
    assert [step.location.file for step in refused.value.where] == [__file__]
    assert refused.value.facts["operator"]


def test_ticks_that_are_part_of_the_input_are_refused() -> None:
    flow = hr.Flow("given", ticks="given")
    flow.sink("out", flow.source("rows", Row))
    with pytest.raises(NotServable, match="ticks"):
        check_servable(flow)


def test_a_source_that_ends_is_refused() -> None:
    flow = hr.Flow("bounded")
    flow.sink("out", flow.source("rows", Row, bounded=True))
    with pytest.raises(NotServable, match="bounded=True"):
        check_servable(flow)


def test_rows_that_hold_any_value_are_refused_where_they_enter() -> None:
    flow = hr.Flow("any")
    flow.sink("out", flow.source("values", object).map(repr, returns=str))
    with pytest.raises(NotServable, match="source 'values'"):
        check_servable(flow)


def test_folds_are_served_that_claim_that_order_does_not_matter() -> None:
    flow = hr.Flow("claimed")
    flow.sink("out", flow.source("rows", Row).fold(0, lambda n, row: n + row.value, commutative=True))
    check_servable(flow)


def test_records_of_a_table_with_a_key_are_refused() -> None:
    flow = hr.Flow("keyed")
    flow.sink("out", flow.table("rows", Row, key="at"))
    with pytest.raises(NotServable, match=r"upsert\(\.\.\., sequence"):
        check_servable(flow)


def test_upserts_are_served_that_read_no_order() -> None:
    for name, build in (("latest", "upsert"), ("versions", "history")):
        flow = hr.Flow(name)
        flow.sink("out", getattr(flow.source("rows", Row), build)("value", sequence="at"))
        check_servable(flow)
