"""What `explain` says of large ticks."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

import pytest

pytest.importorskip("polars")

import headrace as hr
from headrace import col
from headrace.analysis import explain
from headrace.engine.columnar.columnar_option import explain_large_ticks
from headrace.expr.types import DecimalType


class Bid(NamedTuple):
    auction: int
    price: int
    tip: float


def lines(*streams: hr.Stream) -> list[str]:
    flow = streams[0].flow
    for at, stream in enumerate(streams):
        flow.sink(f"out{at}", stream)
    return list(explain_large_ticks(flow.graph()))


def bids() -> hr.Stream:
    return hr.Flow("bids").source("bids", Bid)


def test_a_chain_into_groups_runs_on_frames() -> None:
    stream = bids().filter(col.price > 3).group_by("auction").agg(spread=hr.stddev(col.price))
    assert lines(stream)[0] == "on frames: filter, aggregate, sink 'out0'"
    stream = bids().filter(col.price > 3).group_by("auction").agg(most=hr.max(col.price))
    assert lines(stream)[0] == "on frames: filter, aggregate, sink 'out0'"


def test_a_constant_that_is_cast_is_a_constant() -> None:
    assert lines(bids().filter(col.tip > hr.lit(3).cast(float))) == ["on frames: filter, sink 'out0'"]


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (lambda b: b.select(x=col.tip % 2), "in rows: select: % of floats has no columnar form"),
        (lambda b: b.filter(lambda bid: True), "in rows: filter: it calls a function on each row"),
        (
            lambda b: b.group_by("auction").agg(tips=hr.percentile(col.tip, 0.5)),
            "in rows: aggregate: percentile(tip, 0.5) needs every value of a group",
        ),
        (
            lambda b: b.join(b, on="auction", suffix="_b").filter(col.price > 1).filter(lambda bid: True),
            "in rows: join: what it finds is read row by row",
        ),
        (
            lambda b: b.filter(col.price > 1).sort(col.price, lifetime="tick", nondet="test"),
            "in rows: sort: it works on rows",
        ),
        (
            lambda b: b.with_columns(place=hr.row_number().over(order_by="tip")),
            "in rows: over: one partition of all rows is kept up to date in rows",
        ),
        (
            lambda b: b.with_columns(
                least=hr.min(col.tip).over(partition_by="auction", order_by="tip", rows=(-1, 1))
            ),
            "in rows: over: min(tip) of a frame that moves stays in rows",
        ),
        (
            lambda b: b.join(b, on=hr.left.tip == hr.right.tip, suffix="_b"),
            "in rows: join: a join on floats works on rows",
        ),
    ],
)
def test_what_stays_in_rows_has_a_reason(stream: object, why: str) -> None:
    assert why in lines(stream(bids()))  # type: ignore[operator]


def test_state_in_arrangements_is_named_with_the_rows_from_which_it_is_probed() -> None:
    counted, again = (bids().group_by("auction").agg(count=hr.count()) for _ in range(2))
    assert lines(counted)[1:] == [
        "state in arrangements from the first on, and then on frames from 300 rows on: aggregate"
    ]
    assert lines(again.top_k(1, by=col.count))[1].endswith("from 300 rows on: aggregate, top_k")


def test_totals_of_numbers_of_any_kind_lie_in_arrangements() -> None:
    amount = col.price.cast(DecimalType(20, 2)) * Decimal("0.05")
    totals = {"a": hr.sum(col.tip), "b": hr.mean(col.tip), "c": hr.sum(amount), "d": hr.mean(amount)}
    stream = bids().group_by("auction").agg(**totals, e=hr.stddev(col.price), f=hr.max(amount))
    assert lines(stream)[0] == "on frames: aggregate, sink 'out0'"


def test_lists_of_values_that_become_a_column_are_named() -> None:
    numbers = hr.Flow("numbers").source("numbers", int)
    total = numbers.filter(col.value > 3).group_by().agg(total=hr.sum(col.value))
    assert lines(total)[-1] == "also lists of values: source 'numbers'"
    opaque = hr.Flow("opaque").source("numbers", int).filter(lambda number: number > 3)
    assert not any("lists" in line for line in lines(opaque))


def test_the_explanation_has_a_section_for_it() -> None:
    flow = hr.Flow("bids")
    flow.sink("out", flow.source("bids", Bid).filter(col.price > 3))
    text = explain(flow, large_ticks=list(explain_large_ticks(flow.graph())))
    assert "\nLarge ticks whose rows come in a frame\n  on frames: filter, sink 'out'" in text


class Change(NamedTuple):
    id: int
    city: str
    at: int
    op: str


def test_records_that_delete_by_a_sequence_run_on_frames() -> None:
    changes = hr.Flow("records").source("changes", Change)
    options: dict[str, object] = {"sequence": "at", "deleted": col.op == "D"}
    upserted = changes.upsert("id", **options, tombstones=5)  # type: ignore[arg-type]
    operators, least = lines(upserted, changes.history("id", **options))  # type: ignore[arg-type]
    assert operators == "on frames: aggregate, history, sink 'out1', upsert, sink 'out0'"
    assert least.endswith(" on frames from 300 rows on: aggregate, history, upsert")


def test_records_of_tables_with_a_key_run_in_rows() -> None:
    table = hr.Flow("tables").table("changes", Change, key="id", sequence="at")
    assert lines(table) == ["in rows: upsert: values of type struct<id: int64> stay in rows"]
