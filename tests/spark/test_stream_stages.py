"""Stages: where a flow is cut, and that what is cut means the same. No Spark needed."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, cast

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import Engine, Flow, col
from headrace.columns.column_stream import build_stream
from headrace.columns.columns import WEIGHT, Columns
from headrace.engine.partial_aggregation import ExchangeSink
from headrace.errors import NotPlainData
from headrace.expr.types import INT64, Field, Schema
from headrace.lowering.forms import apply_operator
from headrace.operators.endpoints import SinkOperator
from headrace.spark.placing.row_placement import ByBucket
from headrace.spark.placing.stages import StagePlan, cut_stages
from headrace.spark.ticks.messages import piece_of, place_of
from headrace.spark.ticks.round_task import fetch_messages, write_large_tables
from headrace.testing.tick_tables import check_consolidated
from tests.properties.test_verdicts import Numbers, arrivals, few_values
from tests.random_flows.cases import Case, Tick, cases, cuts
from tests.spark.tasks_in_process import SPOOLED, InProcessTasks


class Auction(NamedTuple):
    id: int
    category: int


class Bid(NamedTuple):
    auction: int
    price: int


class Word(NamedTuple):
    text: str
    length: int


def stages_of(plan: StagePlan) -> list[list[str]]:
    """Per stage the kinds of its operators, borders left out."""
    return [
        [
            node.operator.kind
            for node, origin in zip(s.graph.nodes, s.origins, strict=True)
            if origin is not None
        ]
        for s in plan.stages
    ]


def routes_of(plan: StagePlan) -> list[str]:
    return [f"{e.from_stage}->{e.to_stage} {e.route}" for e in plan.exchanges]


def closing_prices() -> Flow:
    flow = Flow("closing prices")
    bids, auctions = flow.source("bids", Bid), flow.source("auctions", Auction)
    final = (
        bids.join(auctions, on=col.auction == col.id)
        .group_by(col.id, col.category)
        .agg(final=hr.max(col.price))
    )
    flow.sink("averages", final.group_by(col.category).agg(average=hr.mean(col.final)))
    return flow


def test_a_group_that_holds_the_join_key_shares_the_stage_of_the_join() -> None:
    plan = cut_stages(closing_prices().graph(), 3)
    assert stages_of(plan) == [["source", "source"], ["join", "aggregate"], ["aggregate", "sink"]]
    assert routes_of(plan) == ["0->1 by auction", "0->1 by id", "1->2 by category"]


def test_one_shard_needs_no_second_stage() -> None:
    assert stages_of(cut_stages(closing_prices().graph(), 1)) == [
        ["source", "source"],
        ["join", "aggregate", "aggregate", "sink"],
    ]


def test_a_flow_without_state_is_stage_0_alone() -> None:
    flow = Flow("no state")
    bids = flow.source("bids", Bid)
    flow.sink("out", bids.filter(col.price > 1).select(col.price).union(bids.select(col.price)))
    assert stages_of(cut_stages(flow.graph(), 3)) == [
        ["source", "filter", "select", "select", "union", "sink"]
    ]


def test_changes_meet_before_they_leave_where_equal_rows_could_be_apart() -> None:
    flow = Flow("projected")
    flow.sink("out", flow.table("bids", Bid).filter(col.price > 1).select(col.price))
    plan = cut_stages(flow.graph(), 3)
    assert routes_of(plan) == ["0->1 by price"]
    grouped = Flow("grouped")
    sums = grouped.source("bids", Bid).group_by(col.auction).agg(total=hr.sum(col.price))
    grouped.sink("out", sums.select(col.total))
    assert routes_of(cut_stages(grouped.graph(), 3)) == ["0->1 by auction", "1->2 by total"]


def test_a_rename_keeps_the_spread_and_an_opaque_function_loses_it() -> None:
    flow = Flow("renamed")
    sums = flow.source("bids", Bid).group_by(col.auction).agg(total=hr.sum(col.price))
    kept = sums.select(item=col.auction, twice=col.total * 2).group_by(col.item).agg(n=hr.count())
    flow.sink("kept", kept)
    assert routes_of(cut_stages(flow.graph(), 3)) == ["0->1 by auction"]
    opaque = Flow("opaque")

    def same(row: Any) -> Bid:
        return Bid(*row)

    sums = opaque.source("bids", Bid).group_by(col.auction).agg(total=hr.sum(col.price))
    opaque.sink("out", sums.map(same).group_by(col.auction).agg(n=hr.count()))
    assert routes_of(cut_stages(opaque.graph(), 3)) == ["0->1 by auction", "1->2 by auction"]


def test_a_loop_runs_as_a_whole_on_one_shard() -> None:
    class Edge(NamedTuple):
        start: int
        end: int

    flow = Flow("reach")
    edges = flow.source("edges", Edge)
    seed = edges.filter(col.start == 0).select(node=col.end, into=None)
    reached = flow.fixpoint(lambda r: r.join(edges, on=col.node == col.start).select(node=col.end), seed)
    flow.sink("reached", reached)
    plan = cut_stages(flow.graph(), 4)
    assert len(plan.stages) == 2
    assert {str(e.route) for e in plan.exchanges} == {"all to one"}


def test_what_leads_to_no_end_is_put_into_no_stage() -> None:
    flow = Flow("half dead")
    bids = flow.source("bids", Bid)
    bids.defer_tick().group_by(col.auction).agg(n=hr.count())
    flow.sink("out", bids.filter(col.price > 1))
    assert stages_of(cut_stages(flow.graph(), 3)) == [["source", "filter", "sink"]]


def test_a_table_sink_gets_all_changes_of_a_bucket_in_one_place() -> None:
    plan = cut_stages(closing_prices().graph(), 3, {"averages": ByBucket(("category",), 16)})
    assert routes_of(plan)[-1] == "2->3 by bucket of category"
    assert stages_of(plan)[3] == ["sink"]


def test_the_second_side_of_a_join_comes_to_where_the_first_one_is() -> None:
    flow = Flow("enriched")
    bids, auctions = flow.source("bids", Bid), flow.source("auctions", Auction)
    best = bids.group_by(col.auction).agg(best=hr.max(col.price))
    flow.sink("out", best.join(auctions, on=col.auction == col.id))
    plan = cut_stages(flow.graph(), 3)
    assert stages_of(plan) == [["source", "source"], ["aggregate", "join", "sink"]]


@pytest.mark.parametrize("way", ["one task", "stages"])
def test_deferred_rows_wait_on_the_shard_that_got_them(way: str, tmp_path: Path) -> None:
    flow = Flow("later")
    flow.sink("out", flow.source("bids", Bid).defer_tick())
    tasks = InProcessTasks(flow, 3, tmp_path, way)
    assert tasks.tick({"bids": [Bid(n, n) for n in range(20)]}) == {}
    assert tasks.pending
    assert sorted(tasks.tick({})["out"]) == [(n, n, 1) for n in range(20)]
    assert not tasks.pending


def check_same_ticks(case: Case, ticks: list[Tick], shards: int, way: str, reading: object) -> None:
    """Every tick, the deferred ones at the end included, gives what the in-process engine gives."""
    engine = Engine(case.flow)
    with tempfile.TemporaryDirectory() as folder:
        tasks = InProcessTasks(case.flow, shards, Path(folder), way, reading=reading)
        waiting = list(ticks)
        while waiting or engine.pending:
            tick = waiting.pop(0) if waiting else {}
            # By what rows show, so that 0.0 and -0.0 differ.
            expected = {n: Counter(map(repr, c.raw)) for n, c in engine.tick(**tick).items() if len(c)}
            changes = tasks.tick(tick)
            append = engine.program.sink_append
            for name, rows in changes.items():
                if not append[name]:
                    check_consolidated(name, [(r[:-1], r[-1]) for r in rows])
            assert {n: Counter(map(repr, rows)) for n, rows in changes.items()} == expected
            assert bool(tasks.pending) == engine.pending


drawn = st.tuples(
    st.integers(1, 3), st.sampled_from(["one task", "stages"]), st.sampled_from([SPOOLED, None])
)


@settings(max_examples=60)
@given(cases(deferred=False).flatmap(lambda case: st.tuples(st.just(case), cuts(case))), drawn)
def test_any_flow_in_stages_gives_every_tick_what_the_engine_gives(
    cut_case: tuple[Case, list[Tick]], how: tuple[int, str, object]
) -> None:
    check_same_ticks(*cut_case, *how)


@settings(max_examples=60)
@given(few_values((Numbers, float)).flatmap(lambda case: st.tuples(st.just(case), arrivals(case))), drawn)
def test_shards_show_the_same_zeros_as_the_engine(
    cut_case: tuple[Case, list[Tick]], how: tuple[int, str, object]
) -> None:
    check_same_ticks(*cut_case, *how)


@settings(max_examples=40)
@given(cases(deferred=True).flatmap(lambda case: st.tuples(st.just(case), cuts(case))), drawn)
def test_deferred_rows_come_in_the_same_tick_as_in_the_engine(
    cut_case: tuple[Case, list[Tick]], how: tuple[int, str, object]
) -> None:
    check_same_ticks(*cut_case, *how)


@settings(max_examples=25)
@given(cases(settled=False).flatmap(lambda case: st.tuples(st.just(case), cuts(case))), drawn)
def test_rows_that_go_before_they_come_are_no_matter(
    cut_case: tuple[Case, list[Tick]], how: tuple[int, str, object]
) -> None:
    check_same_ticks(*cut_case, *how)


def test_an_attempt_that_is_lost_changes_nothing(tmp_path: Path) -> None:
    tasks = InProcessTasks(closing_prices(), 2, tmp_path, "stages")
    tasks.tick({"auctions": [Auction(n, n % 3) for n in range(9)], "bids": [Bid(n, 10) for n in range(9)]})
    lost = {"bids": [Bid(n, 99) for n in range(9)]}
    assert tasks.attempt(lost).rows == tasks.attempt(lost).rows
    changes = tasks.tick({"bids": [Bid(0, 40)]})
    assert sorted(changes["averages"]) == [(0, 10.0, -1), (0, 20.0, 1)]


def longest_words() -> Flow:
    flow = Flow("words")
    words = flow.source("words", Word)
    flow.sink("out", words.distinct().group_by(col.length).agg(n=hr.count(), last=hr.max(col.text)))
    return flow


PLAIN = [Word(f"w{n % 70}", n % 3) for n in range(200)]


def test_a_long_text_is_the_same_on_both_ways(tmp_path: Path) -> None:
    given = [PLAIN, [*PLAIN[:99], Word("x" * 100_000, 1)]]
    found = []
    for way in ("stages", "one task"):
        (tmp_path / way).mkdir()
        tasks = InProcessTasks(longest_words(), 3, tmp_path / way, way)
        found.append([Counter(tasks.tick({"words": rows})["out"]) for rows in given])
    assert found[0] == found[1]


@pytest.mark.parametrize("way", ["stages", "one task"])
def test_half_a_character_is_refused_before_anything_changes(tmp_path: Path, way: str) -> None:
    tasks = InProcessTasks(longest_words(), 3, tmp_path, way)
    tasks.tick({"words": PLAIN})
    with pytest.raises(NotPlainData, match="that no column holds"):
        tasks.tick({"words": [*PLAIN[:99], Word("half a character \ud800", 1)]})
    assert Counter(tasks.tick({"words": [Word("w99", 0)]})["out"]).total() == 2


def test_a_large_table_is_handed_over_in_a_file(tmp_path: Path) -> None:
    table = pa.table({"n": [1, 2, 3], "text": ["a", None, "bc"]})
    sent = list(
        write_large_tables(str(tmp_path), "attempt-0", [((2, 1, 0, 3), table), ((2, 0, 1, 0), table)])
    )
    assert list(fetch_messages(sent, of=1)) == sent, "stages between sender and reader pass on references"
    found = list(fetch_messages(sent, of=2))
    assert [(*message[:3], place_of(message)) for message in found] == [(2, 1, 0, 3), (2, 0, 1, 0)]
    assert all(cast("pa.Table", piece_of(message[4])).equals(table) for message in found)


@pytest.mark.parametrize(("weights", "rows"), [([1, 1, 2], 3), ([1, -1, 1], 1)])
def test_rows_to_another_stage_are_added_up_where_some_take_back_others(
    weights: list[int], rows: int
) -> None:
    frame = pl.DataFrame({"0": [7, 7, 7], WEIGHT: weights})
    schema = Schema((Field("n", INT64),))
    stream = build_stream(Columns(schema, False, frame))
    assert apply_operator(ExchangeSink("x"), schema, False, [stream]).collected().height == rows
    assert apply_operator(SinkOperator("x"), schema, False, [stream]).collected().height == 1
