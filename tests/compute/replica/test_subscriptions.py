"""Subscriptions: all changes of settled times, once, in batches that follow each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.compute.errors import ResultTooLarge
from headrace.compute.frontier import Frontier
from headrace.compute.plans import identity_flow
from headrace.compute.protocol.commands import Parameters, SubscribeExport, UpdateConfiguration
from headrace.compute.protocol.responses import Counted, Frontiers, Problem
from headrace.compute.replica.in_process.arrangement import TimedArrangement
from tests.compute.replica.flows import BID, all_bids, totals
from tests.compute.replica.rig import Bag, Rig, problem, subscribed


def index(*updates: object, upper: int = 10) -> Rig:
    rig = Rig().connect().collection("s1", BID, *updates, upper=upper)  # type: ignore[arg-type]
    return rig.index("u1", all_bids(), ["item"], as_of=5)


def test_the_first_batch_begins_at_the_first_time_and_goes_beyond_the_as_of() -> None:
    rig = index((("a", 1), 3, 1), upper=5)
    rig.subscribe("t1", "u1", BID, as_of=5).run()
    assert rig.batches("t1") == []
    rig.write("s1", (("b", 1), 5, 1), upper=6).run()
    (first,) = rig.batches("t1")
    assert (first.lower, first.upper) == (Frontier(0), Frontier(6))
    assert sorted(first.updates) == [(("a", 1), 5, 1), (("b", 1), 5, 1)]  # type: ignore[arg-type]


def test_batches_follow_each_other_and_are_consolidated() -> None:
    rig = index((("a", 1), 3, 1))
    rig.subscribe("t1", "u1", BID, as_of=5).run()
    rig.write("s1", (("b", 1), 10, 1), (("b", 1), 10, 1), (("a", 1), 11, -1), upper=13).run()
    rig.write("s1", upper=20).run()
    rig.write("s1", (("c", 1), 21, 1), (("c", 1), 22, -1), upper=30).run()
    assert len(rig.batches("t1")) > 2
    assert subscribed(rig.batches("t1"), Frontier(30)) == {
        5: Bag({("a", 1): 1}),
        10: Bag({("b", 1): 2}),
        11: Bag({("a", 1): -1}),
        21: Bag({("c", 1): 1}),
        22: Bag({("c", 1): -1}),
    }


def test_a_time_of_many_ticks_is_told_at_once() -> None:
    rig = Rig().connect().collection("s1", BID, upper=10)
    rig.create(totals(), SubscribeExport("t1", "out"), as_of=5)
    rig.run()
    rig.write("s1", *(((f"i{n % 7}", n), 10, 1) for n in range(5000)), upper=11)
    while rig.batches("t1")[-1].upper < Frontier(11):
        rig.step()
    changes = subscribed(rig.batches("t1"), Frontier(11))
    assert changes == {10: Bag({(f"i{i}", sum(range(i, 5000, 7))): 1 for i in range(7)})}


def test_without_a_snapshot_only_what_comes_after_the_as_of_is_told() -> None:
    rig = index((("a", 1), 3, 1), (("b", 1), 7, 1))
    rig.subscribe("t1", "u1", BID, as_of=6, snapshot=False).run()
    assert subscribed(rig.batches("t1"), Frontier(10)) == {7: Bag({("b", 1): 1})}


@pytest.mark.parametrize("of_index", [True, False])
def test_without_a_snapshot_no_row_is_read_to_begin(of_index: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that reconnect all at once would otherwise read the whole view, each of them."""
    rig = index((("a", 1), 3, 1))
    rig.run()

    def unread(*_: object) -> Iterator[list[Counted]]:
        raise AssertionError("a row was read")
        yield []

    monkeypatch.setattr(TimedArrangement, "scan", unread)
    monkeypatch.setattr(rig.store, "snapshot", unread)
    if of_index:
        rig.subscribe("t1", "u1", BID, as_of=6, snapshot=False)
    else:
        export = SubscribeExport("t1", "output", snapshot=False)
        rig.create(identity_flow(BID), export, as_of=6, collections={"input": "s1"})
    rig.run()
    rig.write("s1", (("b", 1), 10, 1), upper=12).run()
    assert subscribed(rig.batches("t1"), Frontier(12)) == {10: Bag({("b", 1): 1})}


def test_without_a_snapshot_a_flow_that_computes_reads_what_it_needs() -> None:
    rig = Rig().connect().collection("s1", BID, (("a", 1), 3, 1), upper=10)
    rig.create(totals(), SubscribeExport("t1", "out", snapshot=False), as_of=6)
    rig.run()
    rig.write("s1", (("a", 2), 10, 1), upper=12).run()
    assert subscribed(rig.batches("t1"), Frontier(12)) == {10: Bag({("a", 1): -1, ("a", 3): 1})}


def test_one_that_is_dropped_says_where_it_was() -> None:
    rig = index((("a", 1), 3, 1)).subscribe("t1", "u1", BID, as_of=5)
    rig.run()
    rig.drop("t1").run()
    assert rig.dropped_at("t1") == [rig.batches("t1")[-1].upper]
    rig.write("s1", upper=20).run()
    assert rig.batches("t1")[-1].upper == Frontier(10)


def test_one_that_never_began_is_dropped_at_the_first_time() -> None:
    rig = index(upper=3).subscribe("t1", "u1", BID, as_of=5)
    rig.drop("t1").run()
    assert rig.dropped_at("t1") == [Frontier(0)]


def test_a_batch_above_the_limit_is_a_problem_and_the_last_that_is_of_use() -> None:
    rig = index((("a", 1), 3, 1))
    rig.tell(UpdateConfiguration(Parameters(max_result_size=100)))
    rig.subscribe("t1", "u1", BID, as_of=5).run()
    rig.write("s1", *((("x" * 50, n), 10, 1) for n in range(9)), upper=15).run()
    last = rig.batches("t1")[-1]
    assert isinstance(last.updates, Problem)
    problem(last.updates, ResultTooLarge)
    assert last.lower == Frontier(10)
    rig.write("s1", (("y", 1), 16, 1), upper=20).run()
    assert rig.batches("t1")[-1] == last
    rig.drop("t1").run()
    assert rig.dropped_at("t1") == [last.upper]


@pytest.mark.parametrize("dropped", [False, True])
def test_no_frontiers_are_told_of_a_subscription(dropped: bool) -> None:
    rig = index().subscribe("t1", "u1", BID, as_of=5)
    rig.run()
    if dropped:
        rig.drop("t1")
    rig.write("s1", upper=20).run()
    assert {r.id for r in rig.said if isinstance(r, Frontiers)} == {"u1"}
