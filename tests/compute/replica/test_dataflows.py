"""Dataflows of a replica: when they start, how far they say they have come, and how they end."""

from __future__ import annotations

import pytest

from headrace.compute.collections.memory import MemoryCollections
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.errors import (
    DataflowFailed,
    FellBehind,
    ProtocolViolation,
    StoreUnavailable,
    UnknownName,
    error_of,
)
from headrace.compute.frontier import END, Frontier
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CollectionExport,
    CollectionImport,
    CreateDataflow,
    Dataflow,
    IndexExport,
    PlanBytes,
    Schedule,
    SubscribeExport,
)
from headrace.compute.protocol.responses import Frontiers, Problem, RowsResponse
from headrace.compute.replica.exports import failure_of
from tests.compute.replica.flows import (
    BID,
    TOTAL,
    all_bids,
    all_shares,
    both,
    cheap,
    cheap_shares,
    shares,
    totals,
)
from tests.compute.replica.rig import Bag, Rig, bag, problem, subscribed
from tests.golden import MESSAGES, assert_golden


def test_an_index_answers_at_every_time_from_its_as_of_on() -> None:
    rig = (
        Rig().connect().collection("s1", BID, (("a", 5), 3, 1), (("b", 7), 4, 1), (("a", 6), 9, 1), upper=10)
    )
    rig.index("u1", totals(), ["item"], as_of=5)
    rig.run()
    assert rig.frontiers("u1")[-1].write == Frontier(10)
    assert rig.rows("u1", 5) == Bag({("a", 5): 1, ("b", 7): 1})
    assert rig.rows("u1", 9, [("a",)]) == Bag({("a", 11): 1})
    rig.write("s1", (("b", 7), 12, -1), upper=20)
    assert rig.rows("u1", 11, [("b",)]) == Bag({("b", 7): 1})
    assert rig.rows("u1", 12, [("b",)]) == Bag()


def test_a_dataflow_starts_when_all_its_exports_are_scheduled() -> None:
    rig = Rig().connect().collection("s1", BID, upper=10).collection("s2", BID, upper=10)
    rig.create(both(), IndexExport("u1", "joined"), IndexExport("u2", "counted"), as_of=5, schedule=False)
    rig.tell(Schedule("u1")).run()
    assert rig.write_frontier("u1") in (None, Frontier(5))
    rig.tell(Schedule("u2")).run()
    assert rig.write_frontier("u1") == rig.write_frontier("u2") == Frontier(10)


def test_one_that_was_never_scheduled_is_dropped_with_all_its_frontiers_told() -> None:
    rig = Rig().connect().collection("s1", BID, upper=10).index("u1", all_bids(), as_of=5, schedule=False)
    rig.run()
    rig.said.clear()
    rig.drop("u1").run()
    assert rig.said == [Frontiers("u1", END, END, END)]


def test_an_export_id_that_is_there_cannot_be_created_again() -> None:
    rig = Rig().connect().collection("s1", BID).index("u1", all_bids())
    with pytest.raises(ProtocolViolation, match="CreateDataflow") as refused:
        rig.tell(CreateDataflow(rig.dataflow(totals(), IndexExport("u1", "out"))))
    assert refused.value.facts["message"] == "CreateDataflow"


def test_what_was_read_is_the_least_of_the_inputs() -> None:
    rig = Rig().connect().collection("s1", BID, upper=12).collection("s2", BID, upper=15)
    rig.create(both(), IndexExport("u1", "joined"), IndexExport("u2", "counted"), as_of=5)
    rig.run()
    assert rig.frontiers("u1")[-1].input == Frontier(12)
    rig.write("s1", upper=30).run()
    assert rig.frontiers("u1")[-1].input == Frontier(15)


def test_the_end_is_told_once_and_only_after_nothing_is_read_any_more() -> None:
    rig = Rig().connect().collection("s1", BID, upper=10).index("u1", all_bids(), as_of=5)
    rig.run()
    (running, _) = rig.runtimes[0]._exports["u1"]  # pyright: ignore[reportPrivateUsage]
    rig.drop("u1")
    assert rig.hear() == []
    rig.run()
    assert not running.alive
    assert rig.said[-1] == Frontiers("u1", END, END, END)
    rig.write("s1", upper=20).run()
    assert rig.said[-1] == Frontiers("u1", END, END, END)


def test_of_a_sealed_input_the_contents_are_final() -> None:
    store = MemoryCollections()
    rig = Rig(store=store).connect().collection("s1", BID, (("a", 5), 3, 1), upper=10)
    rig.index("u1", all_bids(), as_of=5)
    store.append([CollectionAppend("s1", Frontier(10), END, [(("b", 1), 11, 1)])])
    rig.run()
    assert rig.frontiers("u1")[-1] == Frontiers("u1", END, END, END)
    assert rig.rows("u1", 1000) == Bag({("a", 5): 1, ("b", 1): 1})
    rig.said.clear()
    rig.drop("u1").run()
    assert rig.said == []


def test_an_index_is_read_where_it_stands_by_other_dataflows() -> None:
    rig = Rig().connect().collection("s1", BID, (("a", 5), 3, 1), (("b", 70), 4, 1), upper=10)
    rig.index("u1", all_bids(), ["item"], as_of=5)
    rig.index("u2", cheap(), as_of=7, indexes={"input": "u1"})
    rig.write("s1", (("c", 1), 15, 1), (("a", 5), 16, -1), upper=20).run()
    assert rig.rows("u2", 9) == Bag({("a", 5): 1})
    assert rig.rows("u2", 15) == Bag({("a", 5): 1, ("c", 1): 1})
    assert rig.rows("u2", 19) == Bag({("c", 1): 1})


def test_compaction_does_not_pass_who_reads_the_index() -> None:
    rig = Rig().connect().collection("s1", BID, (("a", 5), 3, 1), upper=10).collection("s2", BID, upper=6)
    rig.index("u1", all_bids(), ["item"], as_of=5).run()
    flow = both()
    rig.index("u2", flow, sink="joined", as_of=5, indexes={"s1": "u1"})
    rig.run()
    rig.write("s1", (("a", 6), 12, 1), (("a", 5), 13, -1), upper=20).run()
    rig.tell(AllowCompaction("u1", Frontier(19))).run()
    rig.write("s2", (("a", 1), 7, 1), upper=20).run()
    assert rig.rows("u2", 8) == Bag({("a", 5, 1): 1})
    assert rig.rows("u2", 12) == Bag({("a", 5, 1): 1, ("a", 6, 1): 1})
    assert rig.rows("u2", 19) == Bag({("a", 6, 1): 1})


def test_a_dropped_index_stays_while_others_read_it() -> None:
    rig = Rig().connect().collection("s1", BID, (("a", 5), 3, 1), upper=10)
    rig.index("u1", all_bids(), ["item"], as_of=5).index(
        "u2", cheap(), as_of=5, indexes={"input": "u1"}
    ).run()
    (running, _) = rig.runtimes[0]._exports["u1"]  # pyright: ignore[reportPrivateUsage]
    rig.drop("u1").run()
    assert rig.frontiers("u1")[-1] == Frontiers("u1", END, END, END)
    rig.write("s1", (("c", 1), 15, 1), upper=20)
    assert rig.rows("u2", 19) == Bag({("a", 5): 1, ("c", 1): 1})
    assert running.alive
    rig.drop("u2").run()
    assert not running.alive


def test_times_without_changes_cost_nothing() -> None:
    rig = Rig().connect().collection("s1", BID, upper=10).index("u1", totals(), as_of=5)
    rig.run()
    (running, _) = rig.runtimes[0]._exports["u1"]  # pyright: ignore[reportPrivateUsage]
    ticks = running._ticking.engine.ticks  # type: ignore[union-attr]
    rig.write("s1", upper=10**12).run()
    assert rig.write_frontier("u1") == Frontier(10**12)
    assert running._ticking.engine.ticks == ticks  # type: ignore[union-attr]


def test_a_large_time_is_seen_only_when_it_is_whole() -> None:
    rig = Rig().connect().collection("s1", BID, upper=10).index("u1", totals(), ["item"], as_of=5)
    rig.run()
    rig.write("s1", *(((f"i{n % 7}", n), 10, 1) for n in range(40_000)), upper=11)
    asked = rig.ask("u1", 10)
    steps = 0
    while rig.write_frontier("u1") == Frontier(10):
        steps += 1
        rig.step()
        early = rig.ask("u1", 9, [("i0",)])
        rig.step()
        assert rig.answer(early) == RowsResponse(())
    assert steps > 3
    rig.run()
    assert bag(rig.answer(asked).rows) == Bag({(f"i{i}", sum(range(i, 40_000, 7))): 1 for i in range(7)})


def test_until_is_the_end_of_a_subscription() -> None:
    rig = Rig().connect().collection("s1", BID, (("a", 5), 3, 1), upper=10).index("u1", all_bids(), as_of=3)
    rig.subscribe("t1", "u1", BID, as_of=3, until=Frontier(12)).run()
    rig.write("s1", (("b", 5), 11, 1), (("c", 5), 12, 1), upper=20).run()
    assert subscribed(rig.batches("t1"), END) == {3: Bag({("a", 5): 1}), 11: Bag({("b", 5): 1})}
    rig.drop("t1").run()
    assert rig.dropped_at("t1") == []


# --- failures ----------------------------------------------------------------------------


def test_an_error_in_the_data_is_the_answer_from_its_time_on() -> None:
    rig = Rig().connect().collection("s1", BID, (("a", 5), 3, 1), upper=10)
    rig.index("u1", shares(), as_of=5).index("u2", all_bids(), as_of=5)
    rig.index("u3", cheap_shares(), as_of=5, indexes={"input": "u1"})
    rig.create(all_shares(), SubscribeExport("t1", "out"), as_of=5, indexes={"input": "u1"})
    waiting = rig.ask("u1", 14)
    rig.run()
    rig.write("s1", (("b", 0), 12, 1), upper=20).run()
    assert rig.rows("u1", 11) == Bag({("a", 20): 1})
    for answer in (rig.answer(waiting), rig.peek("u1", 12), rig.peek("u1", 100), rig.peek("u3", 12)):
        found = problem(answer, DataflowFailed)
        assert "division by zero" in found.message
        assert found.time == 12
    assert rig.rows("u3", 11) == Bag({("a", 20): 1})
    assert rig.rows("u2", 19) == Bag({("a", 5): 1, ("b", 0): 1})
    last = rig.batches("t1")[-1]
    assert isinstance(last.updates, Problem)
    assert last.updates.code == DataflowFailed.code
    assert rig.write_frontier("u1") == Frontier(13)
    assert rig.frontiers("u1")[-1].input == END


def test_a_failure_tells_the_users_line() -> None:
    rig = Rig().connect().collection("s1", BID, (("a", 0), 3, 1), upper=10).index("u1", shares(), as_of=5)
    found = problem(rig.peek("u1", 5), DataflowFailed)
    assert any("flows.py" in str(step) for step in found.where)
    assert_golden(MESSAGES / "dataflow_failed.txt", f"{error_of(found)}\n")


def test_a_cause_outside_the_dataflow_breaks_it_at_this_replica_only() -> None:
    failed = failure_of("u1", "top", 12, OSError("no space left on the disk"))
    assert not failed.lasting
    assert_golden(MESSAGES / "dataflow_broken.txt", f"{failed.error}\n")


def test_a_bad_plan_is_a_dataflow_that_has_failed() -> None:
    rig = Rig().connect().collection("s1", BID, upper=10)
    plan = PlanBytes(b"no plan")
    bad = Dataflow(plan, (CollectionImport("s1", "s1"),), (), (IndexExport("u1", "out"),), Frontier(5))
    rig.tell(CreateDataflow(bad), Schedule("u1")).index("u2", all_bids(), as_of=5).run()
    problem(rig.peek("u1", 7), DataflowFailed)
    assert rig.rows("u2", 7) == Bag()
    rig.drop("u1").run()


@pytest.mark.parametrize(
    "dataflow",
    [
        lambda rig: rig.dataflow(all_bids(), IndexExport("u1", "nothing"), as_of=5),
        lambda rig: rig.dataflow(all_bids(), IndexExport("u1", "out", ("nothing",)), as_of=5),
        lambda rig: rig.dataflow(all_bids(), IndexExport("u1", "out"), as_of=5, collections={"s1": "s9"}),
        lambda rig: rig.dataflow(all_bids(), IndexExport("u1", "out"), as_of=5, collections={"s9": "s1"}),
    ],
    ids=["no such sink", "no such column", "no such collection", "no such source"],
)
def test_so_is_one_whose_parts_do_not_fit(dataflow: object) -> None:
    rig = Rig().connect().collection("s1", BID, upper=10)
    rig.tell(CreateDataflow(dataflow(rig)), Schedule("u1"))  # type: ignore[operator]
    found = problem(rig.peek("u1", 7), DataflowFailed)
    assert found.message.startswith("u1 failed at time 5: ")


def test_a_reader_that_fell_behind_a_collection_asks_for_a_connection_and_is_built_again() -> None:
    rig = Rig().connect().collection("s1", BID, (("a", 5), 3, 1), upper=10)
    dataflow = rig.create(all_bids(), IndexExport("u1", "out"), as_of=5)
    rig.run()
    rig.write("s1", (("b", 6), 12, 1), upper=20)
    rig.store.compact("s1", Frontier(18))
    with pytest.raises(FellBehind, match="with u1") as behind:
        rig.peek("u1", 15)
    assert behind.value.facts == {"ids": ("u1",)}
    assert_golden(MESSAGES / "fell_behind.txt", f"{behind.value}\n")
    rig.connect([CreateDataflow(dataflow.at(Frontier(18))), Schedule("u1")])
    assert rig.rows("u1", 19) == Bag({("a", 5): 1, ("b", 6): 1})


class Unavailable(MemoryCollections):
    """A store that cannot be reached now and then."""

    failures = 0

    def snapshot(self, id, at, chunk=10_000):  # type: ignore[no-untyped-def]
        for part in super().snapshot(id, at, 1):
            yield part
            self.fail()

    def changes(self, id, lower, upper, chunk=10_000):  # type: ignore[no-untyped-def]
        for part in super().changes(id, lower, upper, 1):
            yield part
            self.fail()

    def fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("gone for lunch")


def test_a_store_that_cannot_be_reached_is_tried_again() -> None:
    store = Unavailable()
    rig = Rig(store=store).connect()
    rig.collection(
        "s1", BID, (("a", 5), 3, 1), (("b", 6), 4, 1), (("a", 7), 12, 1), (("c", 1), 12, 1), upper=20
    )
    rig.index("u1", totals(), as_of=5)
    store.failures = 3
    for _ in range(1000):
        rig.step()
    assert rig.rows("u1", 19) == Bag({("a", 12): 1, ("b", 6): 1, ("c", 1): 1})


def test_a_collection_that_is_dropped_fails_who_reads_it_and_nobody_else() -> None:
    rig = Rig().connect().collection("s1", BID, (("a", 5), 3, 1), upper=10)
    rig.collection("s2", BID, upper=10).collection("s3", TOTAL)
    rig.create(totals(), IndexExport("u1", "out"), CollectionExport("u4", "out", "s3"), as_of=5)
    rig.tell(AllowWrites("u4"))
    rig.index("u2", all_bids(), as_of=5, collections={"s1": "s2"}).run()
    waiting = rig.ask("s1", 50)
    rig.store.drop("s1")
    rig.store.drop("s3")
    rig.write("s2", (("a", 1), 12, 1), upper=20)
    assert rig.rows("u2", 15) == Bag({("a", 1): 1})
    problem(rig.peek("u1", 15), DataflowFailed)
    problem(rig.answer(waiting), UnknownName)
    assert rig.rows("u1", 9) == Bag({("a", 5): 1})


def test_a_peek_at_an_index_that_is_not_there_is_refused_by_the_stages() -> None:
    rig = Rig().connect()
    with pytest.raises(ProtocolViolation):
        rig.ask("u1", 5)


@pytest.mark.parametrize("price", [5, 0])
def test_who_is_done_with_an_index_may_be_dropped_after_it(price: int) -> None:
    """Done: because it has failed, or has come to its until."""
    rig = Rig().connect().collection("s1", BID, (("a", price), 3, 1), upper=10)
    rig.index("u1", shares(), as_of=3)
    rig.index("u2", cheap_shares(), as_of=3, until=Frontier(8), indexes={"input": "u1"}).run()
    rig.drop("u1").run()
    rig.drop("u2").run()
    assert rig.frontiers("u2")[-1].write == END
