"""Replicas: connected, lost, tried again, made careful, left alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from headrace.compute.controller.replica_connection import retry_delay
from headrace.compute.controller.status import ControllerSettings, ReplicaState
from headrace.compute.errors import (
    AlreadyThere,
    BadMessage,
    ConnectionBroken,
    FellBehind,
    IncompatibleInstance,
    StaleEpoch,
    UnknownName,
)
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.commands import (
    CreateDataflow,
    CreateTimely,
    Epoch,
    InitializationComplete,
    Parameters,
    Schedule,
    TimelyConfig,
    UpdateConfiguration,
)
from headrace.compute.protocol.responses import Frontiers, PeekResponse, RowsResponse, Status
from tests.compute.controller.world import PaperReplica, World, all_bids

BROKEN = ConnectionBroken("it does not answer", address="r1:1")


def test_a_replica_is_told_the_reduced_history_from_where_readers_are(world: World) -> None:
    world.view(keep=0)
    first = world.replica("r1")
    time = world.write("bids", (1, 2))
    uuid, _ = world.peek()
    first.answers(uuid)
    first.reports("u1", time + 1)
    world.passes(1_000)
    second = world.replica("r2")
    assert [type(c).__name__ for c in second.told] == [
        "CreateTimely",
        "CreateInstance",
        "UpdateConfiguration",
        "CreateDataflow",
        "Schedule",
        "InitializationComplete",
    ]
    dataflow = second.dataflow("u1")
    assert dataflow.as_of == Frontier(time)
    assert [i.upper for i in dataflow.collections] == [Frontier(time + 1)]
    on_second = next(r for r in world.view_status().replicas if r.replica == "r2")
    assert (on_second.write, on_second.output, on_second.hydrated) == (Frontier(time), Frontier(time), False)


def test_each_connection_has_a_greater_epoch_and_a_nonce_of_its_own(world: World) -> None:
    connections = []
    for _ in range(3):
        connections.append(world.replica("r1").connection)
        connections[-1].record_stream_end(BROKEN)
    assert [c.epoch for c in connections] == [Epoch(1, 1), Epoch(1, 2), Epoch(1, 3)]
    assert len({c.nonce for c in connections}) == 3
    assert all(len(c.nonce) == 16 for c in connections)
    world.start()
    last = world.replica("r1")
    assert last.connection.epoch == Epoch(2, 1) > Epoch(1, 3)
    (timely,) = last.of(CreateTimely)
    assert (timely.epoch, timely.nonce) == (last.connection.epoch, last.connection.nonce)


def test_what_an_old_connection_says_is_ignored(world: World) -> None:
    world.view()
    old = world.replica("r1")
    old.hear()
    uuid, answers = world.peek()
    new = world.replica("r1")
    assert old.connection.is_over
    assert old.hear() == []
    old.connection.handle_response(PeekResponse(uuid, RowsResponse(())))
    old.connection.handle_response(Frontiers("u1", write=Frontier(9)))
    old.dies()
    assert answers == []
    assert world.view_status().upper == Frontier(0)
    assert world.replica_status("r1").state is ReplicaState.CONNECTED
    assert not new.connection.is_over


def test_a_lost_replica_is_tried_again_and_told_everything(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    assert world.controller.replicas_to_connect() == []
    assert world.controller.next_retry_delay("r1") is None
    replica.dies(BROKEN)
    status = world.replica_status("r1")
    assert (status.state, status.problem) == (ReplicaState.WAITING, "it does not answer")
    wait = world.controller.next_retry_delay("r1")
    assert wait is not None
    assert 50 <= wait <= 100
    assert world.controller.replicas_to_connect() == []
    assert world.controller.maintain() == wait
    world.now += wait
    assert world.controller.replicas_to_connect() == [("r1", "r1:1")]
    again = world.replica("r1")
    assert len(again.of(CreateDataflow)) == len(again.of(Schedule)) == 1
    assert len(again.of(InitializationComplete)) == 1


def test_the_pause_before_a_try_doubles_up_to_a_second_and_is_left_to_chance(world: World) -> None:
    world.controller.add_replica("r1", "r1:1")
    waits: list[int] = []
    for _ in range(12):
        world.controller.record_unreachable("r1", BROKEN)
        waits.append(world.controller.next_retry_delay("r1") or 0)
        world.now += waits[-1]
    assert all(25 * 2**n <= wait <= 50 * 2**n for n, wait in enumerate(waits[:4]))
    assert all(500 <= wait <= 1_000 for wait in waits[6:])
    assert len(set(waits[6:])) > 1
    world.replica("r1")
    world.controller.record_unreachable("r1", BROKEN)
    assert world.controller.next_retry_delay("r1") is None


def test_pauses_are_made_by_the_given_chance() -> None:
    one, other = random.Random(3), random.Random(3)
    assert [retry_delay(one, n, 50, 1_000) for n in range(40)] == [
        retry_delay(other, n, 50, 1_000) for n in range(40)
    ]
    assert retry_delay(one, 10_000, 50, 1_000) <= 1_000


def test_a_replica_that_goes_on_dying_is_made_careful_then_left_alone(world: World) -> None:
    world.view("one")
    world.view("two", all_bids())
    healthy = world.replica("r0")
    for death in range(8):
        replica = world.replica("r1")
        limit = replica.of(UpdateConfiguration)[0].parameters.hydration_concurrency
        careful = death >= 3
        assert limit == (1 if careful else 4)
        assert replica.scheduled() == (["u1"] if careful else ["u1", "u2"])
        replica.dies()
        status = world.replica_status("r1")
        assert status.deaths == death + 1
        assert status.hydrating == (("u1",) if careful else ("u1", "u2"))
        world.passes(1_000)
    assert world.replica_status("r1").state is ReplicaState.QUARANTINED
    assert world.controller.next_retry_delay("r1") is None
    assert world.controller.replicas_to_connect() == []
    uuid, answers = world.peek("one")
    healthy.answers(uuid)
    assert len(answers) == 1


def quarantined(world: World) -> None:
    for _ in range(world.settings.quarantine_after):
        world.replica("r1").dies()
    assert world.replica_status("r1").state is ReplicaState.QUARANTINED


def test_a_quarantine_ends_after_its_time_and_one_more_death_renews_it(world: World) -> None:
    world.view()
    quarantined(world)
    world.passes(world.settings.quarantine - 1)
    assert world.controller.replicas_to_connect() == []
    world.passes(1)
    assert world.controller.replicas_to_connect() == [("r1", "r1:1")]
    assert world.replica("r1").of(UpdateConfiguration)[0].parameters.hydration_concurrency == 1
    world.controller.accept_connection("r1").record_stream_end(BROKEN)
    assert world.replica_status("r1").state is ReplicaState.QUARANTINED


def test_a_quarantine_ends_when_somebody_says_so(world: World) -> None:
    world.view()
    quarantined(world)
    world.controller.release_replica("r1")
    assert world.controller.replicas_to_connect() == [("r1", "r1:1")]
    assert world.replica_status("r1").deaths == 0
    with pytest.raises(UnknownName):
        world.controller.release_replica("r9")


def test_old_deaths_do_not_count(world: World) -> None:
    for _ in range(20):
        world.replica("r1").dies()
        world.passes(world.settings.window // 3)
    assert world.replica_status("r1").state is ReplicaState.WAITING
    assert world.replica_status("r1").deaths <= 3


def test_a_death_is_told_for_as_long_as_it_counts(world: World) -> None:
    world.replica("r1").dies()
    assert world.replica_status("r1").deaths == 1
    world.passes(world.settings.window)
    assert world.replica_status("r1").deaths == 0


def test_a_view_is_ready_only_with_a_replica_that_has_it(world: World) -> None:
    world.view()
    time = world.write("bids", (1, 2))
    assert (world.view_status().state, world.view_status().hydrated) == ("no replica has it", False)
    replica = world.replica("r1")
    assert world.view_status().state == "hydrating"
    replica.reports("u1", time + 1)
    assert (world.view_status().state, world.view_status().hydrated) == ("ready", True)
    replica.dies()
    assert (world.view_status().state, world.view_status().hydrated) == ("no replica has it", False)


def test_a_replica_is_ready_when_it_could_do_without_the_others_for_a_while(world: World) -> None:
    world.view()
    first, second = world.replica("r1"), world.replica("r2")

    def ready() -> set[str]:
        return {name for name in ("r1", "r2") if world.replica_status(name).ready}

    time = world.write("bids", (1, 2))
    for replica in (first, second):
        replica.reports("u1", time + 1)
    world.passes(1_000)
    assert ready() == set(), "not for a while"
    world.passes(world.settings.steady)
    assert ready() == {"r1", "r2"}
    time = world.write("bids", (1, 3))
    first.reports("u1", time + 1)
    world.passes(1_000)
    assert ready() == {"r1"}, "the other is far behind it"
    second.reports("u1", time + 1)
    first.dies()
    assert ready() == set()
    first = world.replica("r1")
    first.hear()
    world.passes(world.settings.steady)
    world.passes(world.settings.steady)
    assert ready() == {"r2"}, "the first builds anew"


def test_a_replica_with_a_broken_view_cannot_take_over_and_the_view_is_not_ready(world: World) -> None:
    world.view()
    replicas = world.replica("r1"), world.replica("r2")
    time = world.write("bids", (1, 2))
    for replica in replicas:
        replica.reports("u1", time + 1)
    world.passes(1_000)
    world.passes(world.settings.steady)
    for replica in replicas:
        replica.reports("u1", None, "input")
    assert world.replica_status("r1").ready, "it has failed on all, as it would on any other"
    assert (world.view_status("top").failure, world.view_status("top").hydrated) == ("failed", True)
    replicas[0].connection.handle_response(Status(None, "broken", (("u1", 0.0),)))
    assert (world.replica_status("r1").ready, world.replica_status("r2").ready) == (False, True)
    replicas[1].connection.handle_response(Status(None, "broken", (("u1", 0.0),)))
    found = world.view_status("top")
    assert (found.failure, found.hydrated) == ("broken", False)
    replicas[1].connection.handle_response(Status(None, "broken"))
    assert world.replica_status("r2").ready


def test_a_replica_that_fell_behind_is_tried_again_and_has_not_died(world: World) -> None:
    world.view()
    for times in range(1, 12):
        world.replica("r1").dies(FellBehind("too far behind with u1", ids=("u1",)))
        status = world.replica_status("r1")
        assert (status.state, status.deaths) == (ReplicaState.WAITING, 0)
        assert status.problem == "it has fallen too far behind, and rebuilds views"
        wait = world.controller.next_retry_delay("r1")
        longest = min(world.settings.first_rest << (times - 1), world.settings.longest_rest)
        assert wait is not None
        assert longest // 2 <= wait <= longest
    assert world.problems() == ["too far behind with u1"]


def test_a_replica_that_was_whole_for_long_enough_starts_with_a_clean_slate(world: World) -> None:
    world.view()
    for _ in range(4):
        world.replica("r1").dies()
    replica = world.replica("r1")
    world.passes(world.settings.steady * 2)
    assert world.replica_status("r1").deaths == 4, "it builds still"
    replica.reports("u1", 1)
    world.passes(1_000)
    world.passes(world.settings.steady - 1)
    assert world.replica_status("r1").deaths == 4
    world.passes(1)
    assert world.replica_status("r1").deaths == 0


@pytest.mark.parametrize("error", [IncompatibleInstance("another runtime"), StaleEpoch("another controller")])
def test_a_refusal_is_no_death(world: World, error: Exception) -> None:
    for _ in range(20):
        world.replica("r1").dies(error)  # type: ignore[arg-type]
    status = world.replica_status("r1")
    assert (status.state, status.deaths) == (ReplicaState.WAITING, 0)
    assert 500 <= (world.controller.next_retry_delay("r1") or 0) <= 1_000


def test_a_reader_that_is_behind_is_told_of_what_can_still_be_read(world: World) -> None:
    world.settings = ControllerSettings(keep=0)
    world.start()
    slow = world.replica("r1")
    world.view(keep=0)
    fast = world.replica("r2")
    time = world.write("bids", (1, 2))
    fast.reports("u1", time + 1)
    world.passes(60_000)
    world.passes(60_000)
    bids = world.controller.describe("bids").id
    (bounds,) = world.collections.bounds([bids])
    assert bounds.since > Frontier(0), "what it would have started from is gone"
    assert slow.dataflow("u1").as_of == Frontier(time)
    assert slow.compactions("u1") == []
    assert world.view_status().replicas[0].write == Frontier(time)


def test_a_reader_that_is_too_slow_is_cut_and_begins_anew(world: World) -> None:
    world.settings = replace(world.settings, most_behind=20)
    world.start()
    world.view()
    replica = world.replica("r1")
    woken: list[int] = []
    replica.connection.wake = lambda: woken.append(1)
    for _ in range(30):
        uuid, _ = world.peek()
        world.controller.cancel_peek(uuid)
    assert replica.connection.is_over
    assert replica.hear() == []
    assert woken
    replica.connection.record_stream_end(None)
    status = world.replica_status("r1")
    assert (status.deaths, status.state, world.controller.next_retry_delay("r1")) == (
        0,
        ReplicaState.WAITING,
        0,
    )
    again = world.replica("r1")
    assert len(again.told) == 6


def test_the_history_does_not_grow_with_what_is_over(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    for _ in range(2_000):
        uuid, _ = world.peek()
        replica.answers(uuid)
        id, _ = world.subscribe()
        world.controller.unsubscribe(id)
    assert world.status().commands < 1_100


def test_only_so_many_hydrate_at_a_time_and_a_report_lets_the_next_begin(world: World) -> None:
    world.parameters = Parameters(hydration_concurrency=1)
    world.start()
    world.view("one")
    world.view("two", all_bids())
    replica = world.replica("r1")
    woken: list[int] = []
    replica.connection.wake = lambda: woken.append(1)
    assert replica.scheduled() == ["u1"]
    replica.reports("u1", 0, "output")
    assert replica.scheduled() == ["u1"]
    assert not woken
    replica.reports("u1", 1)
    assert woken
    assert replica.scheduled() == ["u1", "u2"]


def test_settings_change_for_replicas_that_are_there_and_that_come(world: World) -> None:
    replica = world.replica("r1")
    world.controller.configure(Parameters(max_result_size=7))
    assert replica.hear() == [UpdateConfiguration(Parameters(max_result_size=7))]
    (merged,) = world.replica("r2").of(UpdateConfiguration)
    assert (merged.parameters.max_result_size, merged.parameters.hydration_concurrency) == (7, 4)


def test_replicas_are_remembered(world: World) -> None:
    spark = TimelyConfig("spark", 2)
    world.controller.add_replica("r1", "host:1", spark)
    world.controller.add_replica("r1", "host:1", spark)
    with pytest.raises(AlreadyThere):
        world.controller.add_replica("r1", "host:2", spark)
    with pytest.raises(BadMessage):
        world.controller.add_replica("", "host:2")
    world.controller.add_replica("r2", "host:3")
    world.controller.drop_replica("r2")
    with pytest.raises(UnknownName):
        world.controller.drop_replica("r2")
    with pytest.raises(UnknownName):
        world.controller.accept_connection("r2")
    world.start()
    assert world.controller.replicas_to_connect() == [("r1", "host:1")]
    (timely,) = PaperReplica(world.controller.accept_connection("r1")).of(CreateTimely)
    assert timely.config == spark


def test_a_dropped_replica_is_told_to_go(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    woken: list[int] = []
    replica.connection.wake = lambda: woken.append(1)
    world.controller.drop_replica("r1")
    assert replica.connection.is_over
    assert woken
    assert replica.hear() == []
    replica.dies()
    assert world.status().replicas == ()


def test_what_replicas_say_of_themselves_is_kept(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    of_view = Status("u1", "hydrated")
    for status in (
        Status(None, "well", (("memory", 5.0), ("rows", 1.0))),
        Status(None, "well", (("rows", 2.0),)),
        of_view,
        Status("u7", "of what it was not asked for"),
    ):
        replica.connection.handle_response(status)
    assert replica.connection.status == {"u1": of_view}
    assert world.view_status().replicas[0].says == of_view.text
    world.controller.drop("top")
    replica.reports("u1", None)
    assert replica.connection.status == {}
    assert world.replica_status("r1").says == (("memory", 5.0), ("rows", 2.0))


def test_the_same_problem_again_and_again_is_noted_once(world: World) -> None:
    replica = world.replica("r1")
    for _ in range(3):
        world.now += 10
        replica.reports("u7", 6)
    replica.reports("u8", 6)
    notes = [(p.at, p.replica, p.text[-28:], p.times) for p in world.status().problems]
    assert notes == [
        (world.now, "r1", "unexpected frontiers of u7"[-28:], 3),
        (world.now, "r1", "unexpected frontiers of u8"[-28:], 1),
    ]
    for number in range(300):
        replica.reports(f"v{number}", 6)
    assert len(world.problems()) == 100


def test_a_view_is_hydrated_where_one_replica_has_computed_its_start(world: World) -> None:
    world.view()
    assert not world.view_status().hydrated
    world.controller.add_replica("r1", "r1:1")
    world.controller.accept_connection("r1")
    assert not world.view_status().hydrated
    _first, second = world.replica("r1"), world.replica("r2")
    assert not world.view_status().hydrated
    second.reports("u1", 1)
    assert world.view_status().hydrated
    assert [(r.replica, r.hydrated) for r in world.view_status().replicas] == [("r1", False), ("r2", True)]


def test_the_lag_of_a_replica_is_behind_the_last_write(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    replica.reports("u1", 1)
    first = world.write("bids", (1, 2))
    world.now += 700
    world.write("bids", (1, 3))
    replica.reports("u1", first + 1)
    assert [r.lag for r in world.view_status().replicas] == [700]


def test_a_controller_that_was_superseded_takes_no_connections(world: World) -> None:
    old = world.controller
    old.add_replica("r1", "r1:1")
    world.start()
    with pytest.raises(StaleEpoch):
        old.accept_connection("r1")


def test_default_settings_end_a_loop_within_minutes() -> None:
    settings = ControllerSettings()
    assert settings.careful_after < settings.quarantine_after
    assert settings.longest_rest * settings.quarantine_after < settings.window


def test_a_replica_that_is_added_again_under_whatever_name_takes_its_next_connection(world: World) -> None:
    """The process at the address has not ended: it refuses whatever is not above all that it has heard."""
    world.controller.add_replica("r1", "host:1")
    for _ in range(5):
        last = world.controller.accept_connection("r1").epoch
    for name in ("r1", "other"):
        world.controller.drop_replica("r1")
        world.controller.add_replica(name, "host:1")
        epoch = world.controller.accept_connection(name).epoch
        assert epoch > last
        last = epoch
        assert world.replica_status(name).connections == 1
