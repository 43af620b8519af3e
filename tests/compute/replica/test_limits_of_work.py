"""One read or one row does not hold up the others: what costs too much is refused or stopped by name."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace import functions as f
from headrace.compute.errors import DataflowBroken, ViewQuarantined, error_of
from headrace.compute.frontier import END, Frontier
from headrace.compute.plans import encode_expr
from headrace.compute.protocol.commands import CreateDataflow, DataflowLimits, IndexExport, Schedule
from headrace.compute.protocol.responses import Frontiers, Problem, RowsResponse, Status
from headrace.compute.replica import peeks
from headrace.compute.replica.in_process import dataflows
from headrace.compute.replica.in_process.arrangement import TimedArrangement
from headrace.compute.replica.work_watch import MAX_RECORDED, DeathRecord, PieceLimits, WorkWatch, name_of
from headrace.engine.engine import Engine
from headrace.errors import LimitExceeded, Origin, WorkLimitExceeded
from headrace.expr import bounds
from headrace.expr.tree import Expr, FunctionCall, Literal
from tests.compute.replica.flows import BID, Bid, all_bids, totals
from tests.compute.replica.rig import Bag, Rig
from tests.golden import MESSAGES, assert_golden

HOSTILE = "a" * 60 + "!"
"""On which `(a+)+$` backtracks for years."""


def asking(rig: Rig, condition: Expr) -> RowsResponse | Problem:
    answer = rig.peek("u1", 7, predicate=encode_expr(condition, BID))
    assert isinstance(answer, RowsResponse | Problem)
    return answer


def bids(*updates: tuple[tuple[str, int], int, int], watch: WorkWatch | None = None) -> Rig:
    rig = Rig(watch=watch or WorkWatch()).connect().collection("s1", BID, *updates, upper=10)
    rig.index("u1", all_bids(), ("item",), as_of=5).run()
    return rig


@pytest.mark.parametrize(
    "condition",
    [
        f.regexp_like(col.item, "(a+)+$"),
        f.regexp_like(col.item, "(a|aa)+$"),
        col.item.like("%a" * 20 + "b"),
        f.regexp_count(col.item, "(a*a*)*b") > 0,
    ],
    ids=str,
)
def test_a_hostile_pattern_is_matched_in_linear_time(condition: Expr) -> None:
    rig = bids(((HOSTILE, 1), 3, 1), (("b", 2), 3, 1))
    answer = asking(rig, condition)
    if isinstance(answer, RowsResponse):
        assert answer == RowsResponse(())
    else:
        assert "what may be empty" in answer.why + answer.message


@pytest.mark.parametrize(
    "made",
    [
        f.repeat(col.item, 2_000_000_000),
        f.space(col.price * 2_000_000_000),
        f.lpad(col.item, 2_000_000_000, "-"),
        f.rpad(col.item, 2_000_000_000, "-"),
        f.repeat(col.item, 10_000).replace(col.item, f.repeat(col.item, 10_000)),
        f.regexp_replace(f.repeat(col.item, 20_000), "a", "x" * 1_000, 1),
        FunctionCall("format_string", (Literal("%2000000000d"), col.price)),
        f.array_join(f.transform(f.sequence(1, 100_000), lambda n: f.repeat(col.item, 1000)), ","),
    ],
    ids=lambda e: str(e)[:40],
)
def test_a_text_above_the_limit_is_refused(made: Expr) -> None:
    rig = bids((("a", 1), 3, 1))
    answer = asking(rig, made.length() > 0)
    assert isinstance(answer, Problem)
    assert answer.code == LimitExceeded.code, answer
    assert "10,000,000 is the limit" in answer.message
    assert rig.rows("u1", 7) == Bag({("a", 1): 1})


def test_a_list_above_the_limit_is_refused() -> None:
    rig = bids((("a", 1), 3, 1))
    for made in (
        f.sequence(1, col.price * 2_000_000_000),
        FunctionCall("array_repeat", (col.item, Literal(2_000_000_000))),
    ):
        answer = asking(rig, made.length() > 0)
        assert isinstance(answer, Problem)
        assert "1,000,000 is the limit" in answer.message


def test_a_limit_is_not_hidden_by_what_makes_errors_null() -> None:
    rig = bids((("a", 1), 3, 1))
    length = f.repeat(col.item, 2_000_000_000).length() // col.price
    answer = asking(rig, FunctionCall("try_eval", (length,)).is_null())
    assert isinstance(answer, Problem)
    assert answer.code == LimitExceeded.code


def test_other_peeks_are_answered_while_a_long_one_works() -> None:
    rig = bids(*((("a" * 50, n), 3, 1) for n in range(3000)), (("b", 1), 3, 1))
    long = rig.ask("u1", 7, predicate=encode_expr(f.regexp_like(col.item, "(a+)+b"), BID))
    short = rig.ask("u1", 7, [("b",)])
    while rig.answer(short) is None:
        rig.step()
    assert rig.answer(long) is None
    rig.run()
    assert rig.answer(long) == RowsResponse(())


def test_a_peek_is_ended_that_has_worked_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peeks, "WORK_SECONDS", 0.02)
    rig = bids(*((("a", n), 3, 1) for n in range(3000)))
    answer = asking(rig, col.price < 0)
    assert isinstance(answer, Problem)
    assert answer.code == WorkLimitExceeded.code
    assert rig.rows("u1", 7, [("b",)]) == Bag()


# -- dataflows -----------------------------------------------------------------------------------


def doubled() -> hr.Flow:
    """A row becomes a thousand, by unions with itself."""
    flow = hr.Flow("doubled")
    rows = flow.table("s1", Bid)
    for _ in range(10):
        rows = rows.union(rows)
    flow.sink("out", rows)
    return flow


def branching() -> hr.Flow:
    """A row has two children, each of which has two, and so on."""
    flow = hr.Flow("branching")
    seed = flow.source("s1", Bid)
    flow.sink(
        "out",
        flow.fixpoint(
            lambda rows: seed.union(
                rows.select(col.item, price=col.price * 2), rows.select(col.item, price=col.price * 2 + 1)
            ),
            seed,
        ),
    )
    return flow


def branching_table() -> hr.Flow:
    """The same, of rows that may be taken back."""
    flow = hr.Flow("branching")
    seed = flow.table("s1", Bid)
    flow.sink(
        "out",
        flow.fixpoint(
            lambda rows: seed.union(
                rows.select(col.item, price=col.price * 2), rows.select(col.item, price=col.price * 2 + 1)
            ),
            seed,
        ),
    )
    return flow


def counting() -> hr.Flow:
    flow = hr.Flow("counting")
    seed = flow.source("s1", Bid)
    flow.sink("out", flow.fixpoint(lambda rows: seed.union(rows.select(col.item, price=col.price + 1)), seed))
    return flow


@pytest.mark.parametrize(
    ("flow", "limits", "reason"),
    [
        (doubled, DataflowLimits(tick_rows=500), "and 500 is the limit"),
        (branching, DataflowLimits(tick_rows=500), "and 500 is the limit"),
        (branching_table, DataflowLimits(tick_rows=500), "and 500 is the limit"),
        (counting, DataflowLimits(rounds=50), "after 50 rounds"),
    ],
    ids=["doubled", "branching", "branching_table", "counting"],
)
def test_one_row_ends_only_the_dataflow_that_makes_too_many_of_it(
    flow: Callable[[], hr.Flow], limits: DataflowLimits, reason: str
) -> None:
    rig = Rig().connect().collection("s1", BID, upper=10)
    rig.index("u1", flow(), as_of=5, limits=limits).index("u2", totals(), ("item",), as_of=5).run()
    rig.write("s1", (("a", 1), 12, 1), upper=20).run()
    answer = rig.peek("u1", 15)
    assert isinstance(answer, Problem)
    assert reason in answer.message, answer
    assert rig.rows("u2", 15) == Bag({("a", 1): 1})
    rig.drop("u1").run()
    assert rig.frontiers("u1")[-1].write is not None


def test_a_dataflow_within_its_limits_goes_on() -> None:
    rig = Rig().connect().collection("s1", BID, upper=10)
    rig.index("u1", doubled(), as_of=5, limits=DataflowLimits(tick_rows=3000)).run()
    rig.write("s1", (("a", 1), 12, 1), upper=20).run()
    assert rig.rows("u1", 15) == Bag({("a", 1): 1024})
    rig.write("s1", (("a", 1), 22, 1), upper=30).run()
    assert rig.rows("u1", 25) == Bag({("a", 1): 2048})


def test_state_above_its_limit_ends_its_dataflow() -> None:
    rig = Rig().connect().collection("s1", BID, upper=10)
    small = DataflowLimits(state_bytes=200_000)
    rig.index("u1", totals(), ("item",), as_of=5, limits=small)
    rig.index("u2", totals(), ("item",), as_of=5).run()
    rig.write("s1", *(((f"item {n}", n), 12, 1) for n in range(10_000)), upper=20).run()
    answer = rig.peek("u1", 15, [("item 3",)])
    assert isinstance(answer, Problem)
    assert "the state takes about" in answer.message
    assert answer.code == DataflowBroken.code
    assert rig.rows("u2", 15, [("item 3",)]) == Bag({("item 3", 3): 1})


# -- interruptions -------------------------------------------------------------------------------


class Looked:
    """A watch whose clock and memory the test moves, and a function of rows in which it looks."""

    def __init__(self, deaths: DeathRecord | None = None) -> None:
        self.now, self.memory, self.rows = 0.0, 0, 0
        self.watch = WorkWatch(timer=lambda: self.now, memory=lambda: self.memory, deaths=deaths)

    def flow(self, seconds: float, memory: int) -> hr.Flow:
        def look(bid: Bid) -> Bid:
            self.rows += 1
            self.watch.look()
            self.now += seconds
            self.memory += memory
            self.watch.look()
            return bid

        flow = hr.Flow("looked at")
        flow.sink("out", flow.table("s1", Bid).map(look))
        return flow


@pytest.mark.parametrize(("seconds", "memory"), [(70.0, 0), (0.0, 3 << 30)])
def test_a_tick_that_takes_too_much_is_interrupted(seconds: float, memory: int) -> None:
    looked = Looked()
    rig = Rig(watch=looked.watch).connect().collection("s1", BID, (("a", 1), 3, 1), upper=10)
    rig.index("u1", looked.flow(seconds, memory), as_of=5).index("u2", all_bids(), as_of=5).run()
    answer = rig.peek("u1", 7)
    assert isinstance(answer, Problem)
    assert "a tick takes more than" in answer.message
    assert answer.code == DataflowBroken.code
    assert answer.origin is Origin.PROCESS, "other replicas may still answer"
    assert rig.rows("u2", 7) == Bag({("a", 1): 1})


def test_an_index_is_not_interrupted_within_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looked()
    add = TimedArrangement.add

    def costly(index: TimedArrangement, changes: Any, time: int) -> None:
        add(index, changes[:1], time)
        if time > 5:
            looked.watch.look()
            looked.now += 70.0
            looked.watch.look()
        add(index, changes[1:], time)

    monkeypatch.setattr(TimedArrangement, "add", costly)
    rig = Rig(watch=looked.watch).connect().collection("s1", BID, (("a", 1), 3, 1), upper=10)
    rig.index("u1", all_bids(), as_of=5).run()
    rig.write("s1", (("b", 1), 12, 1), (("a", 1), 12, -1), upper=20).run()
    assert isinstance(rig.peek("u1", 12), Problem)
    assert rig.rows("u1", 9) == Bag({("a", 1): 1})


@pytest.mark.parametrize("phase", [TimedArrangement.add, Engine.state_bytes], ids=["export", "measure"])
def test_what_a_tick_does_after_its_operators_is_interrupted_too(
    monkeypatch: pytest.MonkeyPatch, phase: Callable[..., Any]
) -> None:
    looked = Looked()

    def costly(*given: Any) -> Any:
        looked.watch.look()
        looked.now += 70.0
        looked.watch.look()
        return phase(*given)

    where = TimedArrangement if phase is TimedArrangement.add else Engine
    monkeypatch.setattr(where, phase.__name__, costly)
    monkeypatch.setattr(dataflows, "_MEASURED", 0)
    rig = Rig(watch=looked.watch).connect().collection("s1", BID, (("a", 1), 3, 1), upper=10)
    rig.index("u1", totals(), ("item",), as_of=5).run()
    answer = rig.peek("u1", 7)
    assert isinstance(answer, Problem)
    assert "a tick takes more than 20 s of processor time" in answer.message
    looked.now += 70.0
    looked.watch.look()


def test_a_dataflow_above_its_time_is_built_once_per_connection() -> None:
    looked = Looked()
    rig = Rig(watch=looked.watch).connect().collection("s1", BID, (("a", 1), 3, 1), upper=10)
    rig.index("u1", looked.flow(70.0, 0), as_of=5).run()
    assert looked.rows == 1
    rig.write("s1", (("b", 1), 12, 1), upper=20).run()
    assert rig.peek("u1", 15) == rig.peek("u1", 7)
    assert looked.rows == 1
    rig.connect([CreateDataflow(rig.created[0]), Schedule("u1")]).run()
    assert looked.rows == 2


def test_a_process_that_is_to_end_stops_its_work_and_says_nothing_of_it() -> None:
    looked = Looked()
    rig = Rig(watch=looked.watch).connect().collection("s1", BID, (("a", 1), 3, 1), upper=10)
    flow = hr.Flow("asked to end")

    def end(bid: Bid) -> Bid:
        looked.watch.stopping = True
        looked.watch.look()
        raise AssertionError("it goes on")

    flow.sink("out", flow.table("s1", Bid).map(end))
    rig.index("u1", flow, as_of=5)
    assert [type(said) for said in rig.run()] == [Status, Frontiers]
    assert rig.frontiers("u1") == [Frontiers("u1", Frontier(5), Frontier(5), Frontier(5))]


def test_an_event_loop_still_gets_the_signal_that_stops_work() -> None:
    watch = WorkWatch()

    async def serve() -> None:
        with watch.installed():
            signal.raise_signal(signal.SIGINT)
            for _ in range(10):
                await asyncio.sleep(0)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(serve())
    assert watch.stopping


def test_looks_that_the_event_loop_has_no_room_for_are_no_news() -> None:
    watch = WorkWatch()

    async def serve() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: None)
        with watch.installed(), watch.looking():
            for _ in range(1_000):
                signal.raise_signal(signal.SIGALRM)

    asyncio.run(serve())


def test_nothing_is_interrupted_between_two_pieces_of_work() -> None:
    looked = Looked()
    limits = PieceLimits("a tick", 1.0, 1 << 30)
    looked.watch.look()
    looked.watch.begin(limits)
    looked.watch.look()
    looked.watch.end()
    looked.now, looked.watch.stopping = 100.0, True
    looked.watch.look()


def test_what_no_linear_engine_matches_is_refused() -> None:
    rig = bids((("a", 1), 3, 1))
    answer = asking(rig, f.regexp_like(col.item, r"(a)\1"))
    assert isinstance(answer, Problem)
    assert "back reference" in answer.message


# -- deaths ----------------------------------------------------------------------------------------


def test_a_dataflow_that_a_replica_died_of_twice_is_not_computed_again(tmp_path: Path) -> None:
    flow = all_bids()
    for _ in range(2):
        looked = Looked(DeathRecord(tmp_path))
        rig = Rig(watch=looked.watch).connect().collection("s1", BID, (("a", 1), 3, 1), upper=10)
        dataflow = rig.dataflow(flow, IndexExport("u1", "out"), as_of=5)
        looked.watch.deaths.check(dataflow)
        # The process is killed in the middle of this, so it does not get to end the piece of work.
        looked.watch.begin(PieceLimits("a tick", 60, 1 << 30, name_of(dataflow)))
        looked.watch.look()
        looked.now += 1.0
        looked.watch.look()
    rig = Rig(watch=WorkWatch(deaths=DeathRecord(tmp_path))).connect()
    rig.collection("s1", BID, (("a", 1), 3, 1), upper=10)
    rig.index("u1", flow, as_of=5).index("u2", flow, as_of=5).run()
    answer = rig.peek("u1", 7)
    assert isinstance(answer, Problem)
    assert answer.origin is Origin.PROCESS, "other replicas may still answer"
    assert "this replica crashed twice while it computed" in answer.message
    assert rig.rows("u2", 7) == Bag({("a", 1): 1})


def test_a_dataflow_that_comes_past_what_it_crashed_at_is_forgiven(tmp_path: Path) -> None:
    rig = Rig(watch=WorkWatch(deaths=DeathRecord(tmp_path))).connect()
    rig.collection("s1", BID, (("a", 1), 3, 1), upper=10)
    flow = all_bids()
    dataflow = rig.dataflow(flow, IndexExport("u1", "out"), as_of=5)
    record = tmp_path / "deaths.json"
    record.write_text(json.dumps({name_of(dataflow): [1, 12], "another": [1, 12]}))
    rig.watch.deaths = DeathRecord(tmp_path)
    rig.index("u1", flow, as_of=5).run()
    assert set(json.loads(record.read_text())) == {name_of(dataflow), "another"}, "it has yet to read 12"
    rig.write("s1", (("b", 1), 12, 1), upper=20).run()
    assert set(json.loads(record.read_text())) == {"another"}


def test_the_record_is_private_and_replaced_as_a_whole(tmp_path: Path) -> None:
    for _ in range(2):
        deaths = DeathRecord(tmp_path)
        deaths.begin_work("u1 of a hash", 5)
        assert {path.name for path in tmp_path.iterdir()} <= {"at-work.txt", "deaths.json"}
        assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())
    DeathRecord(tmp_path)
    assert json.loads((tmp_path / "deaths.json").read_text()) == {"u1 of a hash": [2, 5]}


def test_the_record_keeps_the_latest_deaths_alone(tmp_path: Path) -> None:
    """Views that were dropped since are not forgotten one by one: a replica may be away when they are."""

    def die_of(dataflow: str) -> None:
        DeathRecord(tmp_path).begin_work(dataflow, 5)

    die_of("the first")
    for number in range(MAX_RECORDED - 1):
        die_of(f"u{number}")
    die_of("the first")
    die_of("another")
    DeathRecord(tmp_path)
    kept = json.loads((tmp_path / "deaths.json").read_text())
    assert len(kept) == MAX_RECORDED
    assert kept["the first"] == [2, 5]
    assert "another" in kept
    assert "u0" not in kept


def test_work_that_ends_is_no_death(tmp_path: Path) -> None:
    for _ in range(3):
        looked = Looked(DeathRecord(tmp_path))
        rig = Rig(watch=looked.watch).connect().collection("s1", BID, (("a", 1), 3, 1), upper=10)
        rig.index("u1", looked.flow(5.0, 0), as_of=5).run()
        assert rig.rows("u1", 7) == Bag({("a", 1): 1})
    assert list(tmp_path.iterdir()) == []


def test_a_record_that_cannot_be_read_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "deaths.json").write_text("{")
    DeathRecord(tmp_path).check(Rig().dataflow(all_bids(), IndexExport("u1", "out")))


def test_a_dropped_dataflow_ends_at_its_next_batch_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig().connect().collection("s1", BID, *(((f"i{n}", n), 3, 1) for n in range(20_000)), upper=10)
    rig.index("u1", totals(), ("item",), as_of=5)
    ticks = 0
    tick = Engine.tick_columns

    def counted(engine: Engine, *given: Any, **named: Any) -> Any:
        nonlocal ticks
        ticks += 1
        return tick(engine, *given, **named)

    monkeypatch.setattr(Engine, "tick_columns", counted)
    rig.step()
    assert ticks == 1, "it has more to hydrate"
    rig.drop("u1").run()
    assert ticks == 1, "and does not"
    assert rig.frontiers("u1")[-1].write == END


def test_what_is_collected_of_a_group_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_ELEMENTS", 3)
    flow = hr.Flow("collected")
    flow.sink("out", flow.table("s1", Bid).group_by(col.item).agg(prices=hr.collect(col.price)))
    rig = Rig().connect().collection("s1", BID, *((("a", n), 3, 1) for n in range(4)), upper=10)
    rig.index("u1", flow, as_of=5).run()
    answer = rig.peek("u1", 7)
    assert isinstance(answer, Problem)
    assert "a list of 4 elements, and 3 is the limit" in answer.message


def test_the_messages(tmp_path: Path) -> None:
    rig = bids((("a", 1), 3, 1))
    refused = asking(rig, f.repeat(col.item, 2_000_000_000).length() > 0)
    assert isinstance(refused, Problem)
    assert_golden(MESSAGES / "limit_exceeded.txt", f"{error_of(refused)}\n")
    (tmp_path / "deaths.json").write_text(json.dumps({name_of(rig.created[0]): [2, 5]}))
    looked = Looked()
    looked.watch.begin(PieceLimits("a tick", 20.0, 1 << 30))
    looked.watch.look()
    looked.now = 21.0
    with pytest.raises(WorkLimitExceeded) as exceeded:
        looked.watch.look()
    assert_golden(MESSAGES / "work_limit_exceeded.txt", f"{exceeded.value}\n")
    with pytest.raises(ViewQuarantined) as quarantined:
        DeathRecord(tmp_path).check(rig.created[0])
    assert_golden(MESSAGES / "view_quarantined.txt", f"{quarantined.value}\n")
