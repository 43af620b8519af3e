"""A replica and its connections: who may speak, what is kept for the next one, and when it ends itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.compute.errors import IncompatibleInstance, ProtocolViolation, ReplicaExpired, StaleEpoch
from headrace.compute.frontier import END, Frontier
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CollectionExport,
    Command,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    Epoch,
    IndexExport,
    InitializationComplete,
    InstanceConfig,
    Schedule,
    SubscribeExport,
    TimelyConfig,
)
from headrace.compute.protocol.responses import Frontiers, Status
from tests.compute.replica.flows import BID, TOTAL, all_bids, cheap, identity_of, largest, totals
from tests.compute.replica.rig import CONFIG, Bag, Rig, subscribed
from tests.golden import MESSAGES, assert_golden
from tests.properties.effort import examples


def create(dataflow: Dataflow) -> list[Command]:
    return [CreateDataflow(dataflow), *(Schedule(export.id) for export in dataflow.exports)]


def served() -> tuple[Rig, Dataflow]:
    """A replica with an index of totals, settled before 10."""
    rig = Rig().connect().collection("s1", BID, (("a", 5), 3, 1), upper=10)
    dataflow = rig.create(totals(), IndexExport("u1", "out", ("item",)), as_of=5)
    rig.run()
    return rig, dataflow


# --- stages and epochs -------------------------------------------------------------------


def test_nothing_is_said_before_the_initialization_is_complete() -> None:
    rig, dataflow = served()
    rig.said.clear()
    rig.connect(create(dataflow), complete=False)
    rig.write("s1", (("a", 1), 12, 1), upper=20)
    assert rig.run() == []
    rig.tell(InitializationComplete()).run()
    assert rig.frontiers("u1")[-1].write == Frontier(20)


def test_commands_out_of_their_stage_are_refused_and_the_replica_lives_on() -> None:
    rig, dataflow = served()
    rig.replica.begin_connection(b"n" * 16)
    with pytest.raises(ProtocolViolation):
        rig.tell(CreateInstance(CONFIG))
    rig.replica.end_connection()
    with pytest.raises(ProtocolViolation):
        rig.tell(InitializationComplete())
    rig.connect(create(dataflow))
    assert rig.rows("u1", 9) == Bag({("a", 5): 1})


def test_an_epoch_that_is_not_above_all_before_is_stale() -> None:
    rig, _ = served()
    for epoch in (Epoch(1, 1), Epoch(1, 0), Epoch(0, 9)):
        rig.replica.begin_connection(b"n" * 16)
        with pytest.raises(StaleEpoch) as refused:
            rig.tell(CreateTimely(TimelyConfig(), epoch, b"n" * 16))
        assert refused.value.facts["current"] == rig.replica.greatest_epoch == Epoch(1, 1)


def test_a_connection_has_one_nonce() -> None:
    rig, _ = served()
    rig.replica.begin_connection(b"n" * 16)
    with pytest.raises(ProtocolViolation, match="nonce"):
        rig.tell(CreateTimely(TimelyConfig(), Epoch(2, 1), b"m" * 16))


def test_an_initialization_that_is_cut_off_has_changed_nothing() -> None:
    rig, dataflow = served()
    runtime = rig.runtimes[0]
    rig.connect(create(rig.dataflow(all_bids(), IndexExport("u9", "out"), as_of=5)), complete=False)
    rig.replica.end_connection()
    rig.connect(create(dataflow))
    assert rig.rows("u1", 9) == Bag({("a", 5): 1})
    assert "u9" not in runtime.frontiers()
    assert rig.runtimes == [runtime]


# --- what is kept ------------------------------------------------------------------------


def ticks(rig: Rig) -> int:
    """How much the engines of all dataflows have run."""
    exports = rig.runtimes[0]._exports.values()  # pyright: ignore[reportPrivateUsage]
    engines = {running._ticking for running, _ in exports}  # pyright: ignore[reportPrivateUsage]
    return sum(each.engine.ticks for each in engines if each is not None)  # type: ignore[attr-defined]


def test_a_dataflow_that_is_asked_for_again_goes_on_and_is_reported_from_scratch() -> None:
    rig, dataflow = served()
    before = ticks(rig)
    rig.said.clear()
    rig.connect(create(dataflow.at(Frontier(9)))).run()
    assert ticks(rig) == before
    assert rig.frontiers("u1") == [Frontiers("u1", Frontier(10), Frontier(10), Frontier(10))]
    assert rig.rows("u1", 9) == Bag({("a", 5): 1})


def test_each_connection_is_told_how_far_it_is_also_where_nothing_has_moved_since() -> None:
    rig, dataflow = served()
    rig.runtimes[0]._watched = True  # pyright: ignore[reportPrivateUsage]
    for _ in range(3):
        rig.said.clear()
        rig.connect(create(dataflow)).run()
        assert rig.frontiers("u1") == [Frontiers("u1", Frontier(10), Frontier(10), Frontier(10))]


def test_a_connection_is_told_what_was_kept_and_what_was_not() -> None:
    rig, dataflow = served()
    other = rig.dataflow(all_bids(), IndexExport("u9", "out"), as_of=5)
    rig.said.clear()
    rig.connect(create(dataflow) + create(other)).run()
    assert Status(None, "reconciled", (("kept", 1), ("created", 1), ("dropped", 0))) in rig.said


def test_dataflows_go_on_while_nobody_is_connected() -> None:
    rig, dataflow = served()
    rig.replica.end_connection()
    rig.write("s1", (("a", 1), 12, 1), upper=20)
    assert rig.run() == []
    before = ticks(rig)
    rig.connect(create(dataflow))
    assert rig.rows("u1", 19) == Bag({("a", 6): 1})
    assert ticks(rig) == before


def test_a_peek_of_an_earlier_connection_is_never_answered() -> None:
    rig, dataflow = served()
    waiting = rig.ask("u1", 12)
    rig.connect(create(dataflow)).write("s1", upper=20).run()
    assert rig.answer(waiting) is None


def test_what_was_not_sent_on_a_connection_is_not_sent_on_the_next() -> None:
    rig, dataflow = served()
    asked = rig.ask("u1", 7)
    while rig.replica.step(0.005):
        pass
    rig.connect(create(dataflow)).run()
    assert rig.answer(asked) is None


def test_nothing_is_said_of_what_the_next_connection_does_not_want() -> None:
    rig, _ = served()
    (running, _) = rig.runtimes[0]._exports["u1"]  # pyright: ignore[reportPrivateUsage]
    rig.said.clear()
    rig.connect().write("s1", upper=20).run()
    assert [r for r in rig.said if not isinstance(r, Status)] == []
    assert not running.alive


def test_a_drop_that_was_not_told_is_not_told_later() -> None:
    rig, _ = served()
    rig.drop("u1")
    rig.said.clear()
    rig.connect().run()
    assert [r for r in rig.said if not isinstance(r, Status)] == []


def test_a_subscription_begins_anew_and_says_nothing_of_its_end() -> None:
    rig, dataflow = served()
    subscription = rig.dataflow(totals(), SubscribeExport("t1", "out"), as_of=5)
    rig.tell(*create(subscription)).run()
    rig.said.clear()
    rig.connect(create(dataflow) + create(subscription)).run()
    assert rig.dropped_at("t1") == []
    assert subscribed(rig.batches("t1"), Frontier(10)) == {5: Bag({("a", 5): 1})}
    rig.connect(create(dataflow))
    rig.said.clear()
    rig.write("s1", upper=20).run()
    assert rig.dropped_at("t1") == rig.batches("t1") == []


def test_another_plan_takes_the_place_of_the_old_one_with_what_reads_it() -> None:
    rig, dataflow = served()
    reader = rig.create(identity_of(totals()), IndexExport("u2", "out"), as_of=5, indexes={"input": "u1"})
    rig.run()
    other = replace(dataflow, plan=rig.plans.plan(largest()))
    rig.said.clear()
    rig.write("s1", (("a", 3), 12, 1), upper=20)
    rig.connect(create(other) + create(reader))
    assert rig.rows("u1", 15) == rig.rows("u2", 15) == Bag({("a", 5): 1})
    assert all(f.write != END for f in rig.frontiers("u1") + rig.frontiers("u2"))


def test_everything_at_once_and_no_word_too_many() -> None:
    rig = Rig().connect().collection("s1", BID, (("a", 5), 3, 1), upper=10).collection("s2", TOTAL)
    index = rig.create(all_bids(), IndexExport("u1", "out", ("item",)), as_of=5)
    view = rig.create(cheap(), IndexExport("u2", "out"), as_of=5, indexes={"input": "u1"})
    written = rig.create(totals(), CollectionExport("u3", "out", "s2"), as_of=5)
    subscription = rig.create(totals(), SubscribeExport("t1", "out"), as_of=5)
    rig.tell(AllowWrites("u3")).run()
    rig.drop("u3")
    rig.connect(create(index) + create(view)).write("s1", (("b", 1), 12, 1), upper=20).run()
    assert rig.rows("u2", 15) == Bag({("a", 5): 1, ("b", 1): 1})
    rig.connect(create(index) + create(view) + create(written) + create(subscription))
    rig.tell(AllowWrites("u3")).run()
    assert rig.write_frontier("u3") == Frontier(20)


@examples(0.4)
@given(st.data())
def test_a_reconciled_replica_is_as_a_fresh_one(data: st.DataObject) -> None:
    rig = Rig().connect().collection("s1", BID, upper=10)
    time = 10
    wanted, compaction, fresh = list[Dataflow](), 0, rig
    for _ in range(data.draw(st.integers(1, 4), "connections")):
        for _ in range(data.draw(st.integers(0, 2), "writes")):
            n = data.draw(st.integers(0, 3))
            rig.write("s1", ((f"i{n}", n + 1), time, 1), upper=time + 2)
            time += 2
            rig.step()
        as_of = data.draw(st.integers(5, time), "as of")
        wanted = drawn_dataflows(data, rig, as_of)
        commands = [command for dataflow in wanted for command in create(dataflow)]
        compaction = data.draw(st.integers(as_of, time + 1), "compaction")
        if wanted and data.draw(st.booleans()):
            commands.append(AllowCompaction("u1", Frontier(compaction)))
        else:
            compaction = as_of
        rig.said.clear()
        fresh = Rig(store=rig.store)
        fresh.plans = rig.plans
        rig.connect(commands)
        fresh.connect(commands)
        if data.draw(st.booleans()):
            rig.step()
    for each in (rig, fresh):
        each.run()
    ids = [dataflow.exports[0].id for dataflow in wanted]
    for id in ids:
        assert rig.write_frontier(id) == fresh.write_frontier(id)
        assert {f.id for f in rig.said if isinstance(f, Frontiers)} <= set(ids)
        for at in range(compaction, time):
            assert rig.rows(id, at) == fresh.rows(id, at)


def drawn_dataflows(data: st.DataObject, rig: Rig, as_of: int) -> list[Dataflow]:
    """An index, perhaps others that read it, each in one of two ways."""
    if not data.draw(st.booleans(), "anything"):
        return []
    key = data.draw(st.sampled_from([("item",), ()]))
    wanted = [rig.dataflow(known_flow(rig, "all"), IndexExport("u1", "out", key), as_of=as_of)]
    for at in range(2, data.draw(st.integers(2, 4))):
        read = f"u{at - 1}"
        flow = known_flow(rig, data.draw(st.sampled_from(["cheap", "cheaper"])))
        wanted.append(rig.dataflow(flow, IndexExport(f"u{at}", "out"), as_of=as_of, indexes={"input": read}))
    return wanted


def known_flow(rig: Rig, name: str) -> hr.Flow:
    flows = rig.named
    if name not in flows:
        flows[name] = {"all": all_bids, "cheap": cheap, "cheaper": lambda: cheap(below=3)}[name]()
    return flows[name]


# --- the end of a process ----------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, collections="memory:other"),
        replace(CONFIG, introspection=7),
    ],
)
def test_another_configuration_ends_the_process(config: InstanceConfig) -> None:
    rig, _ = served()
    rig.config = config
    rig.connect()
    assert isinstance(rig.halted, IncompatibleInstance)
    assert rig.run() == []


def test_another_runtime_ends_the_process() -> None:
    rig, _ = served()
    rig.replica.begin_connection(b"n" * 16)
    rig.tell(CreateTimely(TimelyConfig(workers=2), Epoch(9, 9), b"n" * 16), CreateInstance(CONFIG))
    rig.tell(InitializationComplete())
    assert isinstance(rig.halted, IncompatibleInstance)
    assert_golden(MESSAGES / "incompatible_instance.txt", f"{rig.halted}\n")


def test_an_end_that_comes_sooner_is_agreed_to_and_a_later_one_is_not() -> None:
    rig = Rig(config=replace(CONFIG, expiration_offset=50_000)).connect()
    rig.config = replace(CONFIG, expiration_offset=20_000)
    rig.connect()
    assert rig.halted is None
    rig.config = replace(CONFIG, expiration_offset=50_000)
    rig.connect()
    assert isinstance(rig.halted, IncompatibleInstance)


def test_a_replica_that_has_reached_its_age_ends_itself_and_a_new_one_answers_the_same() -> None:
    rig = Rig(config=replace(CONFIG, expiration_offset=20_000)).connect()
    rig.collection("s1", BID, (("a", 5), 3, 1), upper=10)
    dataflow = rig.create(totals(), IndexExport("u1", "out"), as_of=5)
    before = rig.rows("u1", 9)
    rig.now += 30_000
    rig.run()
    assert isinstance(rig.halted, ReplicaExpired)
    assert_golden(MESSAGES / "replica_expired.txt", f"{rig.halted}\n")
    assert rig.halted.retryable
    rig.halted = None
    rig.replica = rig.new_replica()
    rig.connect(create(dataflow))
    assert rig.rows("u1", 9) == before


# --- frontiers ---------------------------------------------------------------------------


def test_a_frontier_leaves_at_once_where_there_is_nothing_else_to_do() -> None:
    rig, _ = served()
    rig.write("s1", (("b", 1), 12, 1), upper=20)
    said = rig.step(1.0)
    assert Frontiers("u1", Frontier(20), Frontier(20), Frontier(20)) in said


def test_nothing_new_is_not_reported() -> None:
    rig, _ = served()
    assert rig.run() == []
    rig.write("s1", upper=20).run()
    assert rig.run() == []


def test_a_first_report_is_never_below_the_as_of() -> None:
    rig = Rig().connect().collection("s1", BID, upper=4)
    rig.index("u1", totals(), as_of=9).run()
    assert all(f.write is None or f.write >= Frontier(9) for f in rig.frontiers("u1"))
    rig.write("s1", upper=20).run()
    assert rig.write_frontier("u1") == Frontier(20)
