"""What both runtimes owe: the same scenarios on the in-process engine and on Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace import functions as f
from headrace.compute.errors import ResultTooLarge, SinceViolation, UnknownName
from headrace.compute.frontier import END, Frontier
from headrace.compute.plans import encode, encode_expr
from headrace.compute.protocol.commands import (
    CollectionExport,
    CollectionImport,
    CopyToExport,
    Dataflow,
    DataflowLimits,
    Finishing,
    IndexExport,
    Parameters,
    SubscribeExport,
)
from headrace.compute.protocol.responses import (
    Canceled,
    CopyToResponse,
    DroppedAt,
    PeekResponse,
    Problem,
    RowCount,
    Stashed,
    SubscribeResponse,
)
from headrace.errors import Origin
from headrace.expr.row_classes import schema_of
from tests.compute.runtimes.stage import BEST, Best, Bid, Stage


def test_a_peek_is_right_at_every_time_from_the_as_of_on(stage: Stage) -> None:
    stage.collection("s1")
    stage.write("s1", ((1, 5), 3, 1), ((2, 7), 3, 1), ((1, 6), 5, 1))
    stage.view("u1", "s1", 4)
    stage.write("s1", ((1, 9), 7, 1), ((1, 9), 8, -1), ((3, 1), 8, 1), upper=20)
    assert stage.rows("u1", 4) == [(1, 5), (2, 7)]
    assert stage.rows("u1", 6) == [(1, 6), (2, 7)]
    assert stage.rows("u1", 7) == [(1, 9), (2, 7)]
    assert stage.rows("u1", 19) == [(1, 6), (2, 7), (3, 1)]
    reached = stage.reached("u1", Frontier(20))
    assert (reached.write, reached.output, reached.since) == (Frontier(20), Frontier(20), Frontier(4))


def test_a_peek_waits_until_its_time_is_settled(stage: Stage) -> None:
    stage.collection("s1", upper=3)
    stage.view("u1", "s1", 2)
    stage.reached("u1", Frontier(3))
    early = stage.ask("u1", 4)
    stage.write("s1", ((1, 5), 4, 1), upper=4 + 1)
    answer = stage.answer(early)
    assert answer == stage.answer(stage.ask("u1", 4))
    assert stage.rows("u1", 4) == [(1, 5)]


def test_peeks_by_key_with_a_condition_an_order_and_a_limit(stage: Stage) -> None:
    stage.collection("s1")
    stage.write("s1", *(((n, 10 * n), 3, 1) for n in range(1, 10)))
    stage.view("u1", "s1", 3)
    assert stage.rows("u1", 3, keys=[(4,), (2,), (77,), (4,)]) == [(2, 20), (4, 40)]
    assert stage.rows("u1", 3, predicate=encode_expr(col.best > 75, schema_of(Best))) == [(8, 80), (9, 90)]
    falling = Finishing(order_by=((1, True),), limit=2, offset=1, project=(1,))
    assert stage.rows("u1", 3, finishing=falling) == [(80,), (70,)]


def test_a_view_of_nothing_has_no_rows_but_those_it_begins_with(stage: Stage) -> None:
    flow = hr.Flow("with a house")
    house = flow.initialize().select(auction=hr.lit(0), price=hr.lit(0))
    flow.sink("best", flow.table("bids", Bid).union(house))
    stage.collection("s1", upper=4)
    stage.view("u1", "s1", 3)
    stage.view("u2", "s1", 3, plan=encode(flow), key=())
    assert stage.rows("u1", 3) == []
    assert stage.rows("u2", 3) == [(0, 0)]
    stage.write("s1", ((1, 1), 6, 2))
    assert stage.rows("u2", 5) == [(0, 0)]
    assert stage.rows("u2", 6) == [(0, 0), (1, 1), (1, 1)]


def test_an_int_finds_the_float_that_it_equals(stage: Stage) -> None:
    flow = hr.Flow("halves")
    flow.sink("best", flow.table("bids", Bid).select(col.auction, half=col.price / 2))
    stage.collection("s1")
    stage.write("s1", ((1, 4), 3, 1), ((2, 5), 3, 1))
    stage.view("u1", "s1", 3, plan=encode(flow), key=("half",))
    assert stage.rows("u1", 3, keys=[(2,)]) == stage.rows("u1", 3, keys=[(2.0,)]) == [(1, 2.0)]


def test_an_index_of_rows_that_are_only_added_has_one_zero(stage: Stage) -> None:
    flow = hr.Flow("zeros")
    flow.sink("best", flow.source("bids", Bid).select(col.auction, zero=0.0 * col.price))
    stage.collection("s1")
    stage.write("s1", ((1, -1), 3, 1), ((1, 1), 4, 1), ((2, 1), 4, 1), ((2, -1), 5, 1))
    stage.view("u1", "s1", 3, plan=encode(flow))
    assert repr(stage.rows("u1", 3)) == "[(1, 0.0)]"
    assert repr(stage.rows("u1", 5)) == "[(1, 0.0), (1, 0.0), (2, 0.0), (2, 0.0)]"


def test_below_the_since_is_an_error_and_above_it_all_is_as_before(stage: Stage) -> None:
    stage.collection("s1")
    stage.view("u1", "s1", 0)
    for time in range(1, 15):
        stage.write("s1", ((1, time), time, 1))
        stage.reached("u1", Frontier(time + 1))
    stage.runtime.allow_compaction("u1", Frontier(12))
    stage.write("s1", ((1, 15), 15, 1))
    assert stage.problem("u1", 11).code == SinceViolation.code
    assert [stage.rows("u1", time) for time in (12, 13, 15)] == [[(1, 12)], [(1, 13)], [(1, 15)]]
    assert stage.runtime.frontiers()["u1"].since == Frontier(12)


def test_a_subscription_sees_what_is_there_and_then_each_change_at_its_time(stage: Stage) -> None:
    stage.collection("s1")
    stage.write("s1", ((1, 5), 3, 1), ((2, 7), 4, 1))
    stage.view("u1", "s1", 3)
    stage.on_index(SubscribeExport("t1", "output"), "u1", 4)
    stage.on_index(SubscribeExport("t2", "output", snapshot=False), "u1", 4)
    stage.batches("t1", Frontier(5))
    stage.write("s1", ((1, 6), 7, 1), ((2, 7), 9, -1), upper=12)
    later = [((1, 5), 7, -1), ((1, 6), 7, 1), ((2, 7), 9, -1)]
    assert stage.updates("t1", Frontier(12)) == [((1, 5), 4, 1), ((2, 7), 4, 1), *later]
    assert stage.updates("t2", Frontier(12)) == later
    assert not stage.runtime.frontiers().keys() & {"t1", "t2"}


def test_a_subscription_ends_with_one_word(stage: Stage) -> None:
    stage.collection("s1", upper=5)
    stage.view("u1", "s1", 4)
    stage.on_index(SubscribeExport("t1", "output"), "u1", 4)
    stage.on_index(SubscribeExport("t2", "output"), "u1", 4, until=Frontier(6))
    stage.batches("t1", Frontier(5))
    stage.runtime.allow_compaction("t1", END)
    stage.write("s1", ((1, 1), 5, 1), ((1, 2), 7, 1))
    assert stage.updates("t2", END) == [((1, 1), 5, 1)]
    stage.runtime.allow_compaction("t2", END)
    stage.reached("u1", Frontier(8))
    ends = [a for a in stage.said(SubscribeResponse) if isinstance(a.event, DroppedAt)]
    assert ends == [SubscribeResponse("t1", DroppedAt(Frontier(5)))]


def test_what_is_dropped_tells_its_end_and_serves_those_who_read_it(stage: Stage) -> None:
    stage.collection("s1")
    stage.write("s1", ((1, 5), 3, 1))
    stage.view("u1", "s1", 3)
    stage.on_index(IndexExport("u2", "output", ("best",)), "u1", 3)
    assert stage.rows("u2", 3, keys=[(5,)]) == [(1, 5)]
    waiting = stage.ask("u1", 99)
    stage.runtime.allow_compaction("u1", END)
    gone = stage.answer(waiting)
    assert isinstance(gone, Problem)
    assert gone.code == UnknownName.code
    reached = stage.runtime.frontiers()["u1"]
    assert (reached.write, reached.input, reached.output) == (END, END, END)
    stage.runtime.forget("u1")
    assert "u1" not in stage.runtime.frontiers()
    stage.write("s1", ((1, 6), 5, 1))
    assert stage.rows("u2", 5) == [(1, 6)]
    assert stage.rows("u2", 4) == [(1, 5)]


def test_an_index_that_is_imported_has_been_compacted_too_far(stage: Stage) -> None:
    stage.collection("s1", upper=9)
    stage.view("u1", "s1", 3)
    stage.runtime.allow_compaction("u1", Frontier(6))
    stage.on_index(IndexExport("u2", "output"), "u1", 4)
    assert "compacted" in stage.problem("u2", 4).message


def test_a_dataflow_that_fails_is_an_error_from_that_time_on_and_others_go_on(stage: Stage) -> None:
    flow = hr.Flow("shares")
    flow.sink("best", flow.table("bids", Bid).select(col.auction, best=col.auction // col.price))
    stage.collection("s1")
    stage.write("s1", ((1, 1), 1, 1))
    stage.view("u1", "s1", 1, plan=encode(flow))
    stage.view("u2", "s1", 1)
    stage.on_index(SubscribeExport("t1", "output"), "u1", 1)
    stage.write("s1", ((8, 2), 3, 1), ((2, 0), 5, 1), ((8, 4), 6, 1), upper=9)
    assert stage.rows("u1", 4) == [(1, 1), (8, 4)]
    found = stage.problem("u1", 5)
    assert (found.code, found.id, found.time) == ("P736", "u1", 5)
    assert "zero" in found.message
    assert stage.rows("u2", 8) == [(1, 1), (2, 0), (8, 4)]
    last = stage.batches("t1", Frontier(6))[-1]
    assert isinstance(last.updates, Problem)
    assert last.updates.code == "P736"


def test_a_plan_that_cannot_be_read_is_a_dataflow_that_has_failed(stage: Stage) -> None:
    stage.collection("s1", upper=9)
    plan = type(BEST)(b"no plan")
    stage.view("u1", "s1", 3, plan=plan)
    assert stage.problem("u1", 3).code == "P736"
    stage.runtime.allow_compaction("u1", END)
    assert stage.reached("u1", END).output == END


def test_it_does_not_run_before_all_its_exports_are_scheduled(stage: Stage) -> None:
    stage.collection("s1", upper=9)
    exports = (IndexExport("u1", "best", ("auction",)), IndexExport("u2", "best", ("best",)))
    stage.runtime.create_dataflow(Dataflow(BEST, (CollectionImport("bids", "s1"),), (), exports, Frontier(3)))
    stage.view("u3", "s1", 3)
    stage.runtime.schedule("u1")
    stage.reached("u3", Frontier(9))
    assert stage.runtime.frontiers()["u1"].write == Frontier(3)
    stage.runtime.schedule("u2")
    stage.write("s1", ((1, 5), 9, 1))
    assert stage.rows("u2", 9, keys=[(5,)]) == [(1, 5)]
    assert stage.rows("u1", 9, keys=[(1,)]) == [(1, 5)]


def test_an_export_that_is_dropped_is_not_waited_for(stage: Stage) -> None:
    # A reduced history says so: Schedules first, what was dropped before them later.
    stage.collection("s1", upper=9)
    exports = (IndexExport("u1", "best", ("auction",)), IndexExport("u2", "best", ("best",)))
    stage.runtime.create_dataflow(Dataflow(BEST, (CollectionImport("bids", "s1"),), (), exports, Frontier(3)))
    stage.runtime.schedule("u1")
    stage.runtime.allow_compaction("u2", END)
    stage.write("s1", ((1, 5), 9, 1))
    assert stage.rows("u1", 9, keys=[(1,)]) == [(1, 5)]


def test_a_peek_is_cancelled_once_and_another_one_is_not(stage: Stage) -> None:
    stage.collection("s1", upper=4)
    stage.view("u1", "s1", 3)
    waits, answered = stage.ask("u1", 50), stage.ask("u1", 3)
    stage.answer(answered)
    for uuid in (waits, waits, answered, b"unknown"):
        stage.runtime.cancel_peek(uuid)
    assert stage.answer(waits) == Canceled()
    stage.write("s1", ((1, 1), 60, 1))
    assert stage.rows("u1", 60) == [(1, 1)]
    assert stage.answer(waits) == Canceled()


def test_a_collection_is_read_at_a_time_too(stage: Stage) -> None:
    stage.collection("s1")
    stage.write("s1", ((1, 5), 3, 2), ((1, 5), 4, -1), ((2, 2), 4, 1))
    assert stage.rows("s1", 3, collection=True) == [(1, 5), (1, 5)]
    late = stage.ask("s1", 6, collection=True, keys=[(2, 2)])
    stage.write("s1", ((3, 3), 7, 1))
    assert stage.answer(late) == stage.answer(stage.ask("s1", 5, collection=True, keys=[(2, 2)]))
    assert stage.problem("s9", 3, collection=True).code == UnknownName.code


def test_limits_hold_for_answers_and_batches(stage: Stage) -> None:
    stage.collection("s1")
    stage.write("s1", *(((n, n), 3, 1) for n in range(1000)))
    stage.view("u1", "s1", 3)
    stage.runtime.configure(Parameters(max_result_size=1000))
    assert stage.problem("u1", 3).code == ResultTooLarge.code
    assert stage.rows("u1", 3, finishing=Finishing(((0, False),), limit=2)) == [(0, 0), (1, 1)]
    stage.on_index(SubscribeExport("t1", "output"), "u1", 3)
    (batch,) = stage.batches("t1", Frontier(4))
    assert isinstance(batch.updates, Problem)
    assert batch.updates.code == ResultTooLarge.code
    stage.runtime.configure(Parameters(max_result_size=10**9, peek_stash_size=1000))
    answer = stage.answer(stage.ask("u1", 3))
    assert isinstance(answer, Stashed)
    assert answer.rows == 1000
    fetched = [counted for part in stage.runtime.fetch(answer.token) for counted in part]
    assert sorted(fetched) == [((n, n), 1) for n in range(1000)]


def test_a_copy_is_a_file_of_the_rows_at_the_as_of(stage: Stage) -> None:
    stage.collection("s1")
    stage.write("s1", ((1, 5), 3, 1), ((2, 7), 4, 1), ((2, 8), 5, 1))
    stage.view("u1", "s1", 3)
    stage.on_index(CopyToExport("t1", "output", "best.jsonl"), "u1", 4)
    assert stage.until(lambda: stage.said(CopyToResponse) or None) == [CopyToResponse("t1", RowCount(2))]
    lines = (stage.folder / "copies" / "best.jsonl").read_text().splitlines()
    assert sorted(tuple(json.loads(line).values()) for line in lines) == [(1, 5), (2, 7)]
    stage.runtime.allow_compaction("t1", END)
    stage.reached("u1", Frontier(6))
    assert len(stage.said(CopyToResponse)) == 1


def test_a_collection_is_written_once_that_is_allowed_and_not_before(stage: Stage) -> None:
    stage.collection("s1")
    stage.collection("s2", Best, upper=3)
    stage.write("s1", ((1, 5), 2, 1), ((2, 7), 4, 1))
    exports = (IndexExport("u1", "best"), CollectionExport("u2", "best", "s2"))
    stage.create(Dataflow(BEST, (CollectionImport("bids", "s1"),), (), exports, Frontier(2)))
    stage.reached("u1", Frontier(5))
    assert stage.store.bounds(["s2"])[0].upper == Frontier(3)
    stage.runtime.allow_writes("u2")
    stage.write("s1", ((1, 6), 8, 1), upper=10)
    assert stage.reached("u2", Frontier(10)).write == Frontier(10)
    assert stage.rows("s2", 4, collection=True) == [(1, 5), (2, 7)]
    assert stage.rows("s2", 9, collection=True) == [(1, 6), (2, 7)]


def test_after_a_restart_it_goes_on_and_is_right_from_the_new_as_of(stage: Stage) -> None:
    stage.collection("s1")
    stage.collection("s2", Best)
    stage.write("s1", ((1, 5), 3, 1))

    def create(as_of: int) -> None:
        exports = (IndexExport("u1", "best", ("auction",)), CollectionExport("u2", "best", "s2"))
        stage.create(Dataflow(BEST, (CollectionImport("bids", "s1"),), (), exports, Frontier(as_of)))
        stage.runtime.allow_writes("u2")
        stage.on_index(IndexExport("u3", "output"), "u1", as_of)

    create(3)
    stage.write("s1", ((1, 9), 5, 1), ((1, 9), 6, -1))
    stage.reached("u2", Frontier(7))
    stage.reached("u3", Frontier(7))
    stage.restart()
    stage.write("s1", ((2, 2), 8, 1))
    create(5)
    assert [stage.rows("u1", time) for time in (5, 6, 8)] == [[(1, 9)], [(1, 5)], [(1, 5), (2, 2)]]
    assert [stage.rows("u3", time) for time in (5, 8)] == [[(1, 9)], [(1, 5), (2, 2)]]
    stage.reached("u2", Frontier(9))
    assert [stage.rows("s2", time, collection=True) for time in (5, 7, 8)] == [
        [(1, 9)], [(1, 5)], [(1, 5), (2, 2)],
    ]  # fmt: skip


def test_of_another_connection_nothing_is_told(stage: Stage) -> None:
    stage.collection("s1", upper=4)
    stage.view("u1", "s1", 3)
    stage.ask("u1", 5)
    stage.runtime.forget_answers()
    stage.write("s1", ((1, 1), 5, 1))
    stage.reached("u1", Frontier(6))
    assert stage.rows("u1", 5) == [(1, 1)]
    assert len(stage.said(PeekResponse)) == 1


# -- limits ----------------------------------------------------------------------------------------


class Line(NamedTuple):
    auction: int
    text: str


def bounded_view(stage: Stage, flow: hr.Flow, rows: Sequence[Any], **limits: int) -> None:
    """A view with limits of its own, over rows that come after its as-of."""
    stage.collection("s1", type(rows[0]))
    imports = (CollectionImport("bids", "s1"),)
    export = IndexExport("u1", "best", ("auction",))
    stage.create(Dataflow(encode(flow), imports, (), (export,), Frontier(1), limits=DataflowLimits(**limits)))
    stage.write("s1", *((tuple(row), 3, 1) for row in rows))


def doubled(bids: Any) -> Any:
    for _ in range(10):
        bids = bids.union(bids)
    return bids


def paired(bids: Any) -> Any:
    return bids.join(bids, on="auction", suffix="_too")


@pytest.mark.parametrize(("made", "rows"), [(doubled, 1), (paired, 100)])
def test_a_view_that_makes_too_many_rows_fails(stage: Stage, made: Any, rows: int) -> None:
    flow = hr.Flow("many")
    flow.sink("best", made(flow.table("bids", Bid)))
    bounded_view(stage, flow, [Bid(1, price) for price in range(rows)], tick_rows=500)
    problem = stage.problem("u1", 3)
    assert "rows, and 500 is the limit" in problem.message
    assert problem.origin is Origin.DATA


def test_a_loop_that_does_not_end_ends_its_view(stage: Stage) -> None:
    flow = hr.Flow("counting")
    bids = flow.table("bids", Bid)
    flow.sink(
        "best", flow.fixpoint(lambda rows: bids.union(rows.select("auction", price=col.price + 1)), bids)
    )
    bounded_view(stage, flow, [Bid(1, 1)], rounds=50)
    assert "after 50 rounds" in stage.problem("u1", 3).message


def test_a_pattern_is_matched_in_linear_time_and_a_text_has_a_size(stage: Stage) -> None:
    flow = hr.Flow("lines")
    lines = flow.table("bids", Line)
    flow.sink(
        "best",
        lines.filter(~f.regexp_like(col.text, "(a+)+$")).select("auction", text=f.repeat(col.text, 200_000)),
    )
    bounded_view(stage, flow, [Line(1, "a" * 60 + "!")])
    assert "12,200,000" in stage.problem("u1", 3).message
