"""Subscriptions and copies: told by all replicas, delivered once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.compute.errors import BadMessage, TargetReplicaLost, UnknownName
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.protocol.commands import CreateDataflow, IndexImport, SubscribeExport
from headrace.compute.protocol.responses import (
    BatchResponse,
    Dropped,
    DroppedAt,
    EncodedUpdates,
    Problem,
    SubscribeResponse,
)
from headrace.errors import Origin
from tests.compute.controller.world import PaperReplica, World


def batch(lower: int, upper: int | None, *updates: Any) -> BatchResponse:
    return BatchResponse(Frontier(lower), Frontier(upper), tuple(updates))


def test_what_two_replicas_tell_is_delivered_once(world: World) -> None:
    world.view()
    first, second = world.replica("r1"), world.replica("r2")
    id, events = world.subscribe(as_of=0)
    a, b, c = (("a",), 3, 1), (("b",), 4, 1), (("c",), 6, 1)
    first.tells(id, 0, 5, a)
    second.tells(id, 0, 4, a)
    second.tells(id, 4, 7, b, c)
    first.tells(id, 5, 7, c)
    second.tells(id, 7, None)
    first.tells(id, 7, None)
    assert events == [batch(0, 5, a), batch(5, 7, c), batch(7, None)]
    assert world.status().subscriptions == ()
    assert world.problems() == []


def test_columns_of_two_replicas_are_delivered_whole_and_once(world: World) -> None:
    world.view()
    first, second = world.replica("r1"), world.replica("r2")
    id, events = world.subscribe(as_of=3)
    there = EncodedUpdates(3, (b"columns",))
    for replica in (first, second):
        replica.hear()
        columns = BatchResponse(Frontier(0), Frontier(4), there)
        replica.connection.handle_response(SubscribeResponse(id, columns))
    first.tells(id, 4, 7, (("c",), 6, 1))
    second.tells(id, 4, 7, (("c",), 6, 1))
    assert events == [BatchResponse(Frontier(0), Frontier(4), there), batch(4, 7, (("c",), 6, 1))]
    assert world.problems() == []


def test_a_subscription_reads_the_index_of_the_view(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    time = world.write("bids", (1, 2))
    id, _ = world.subscribe()
    dataflow = replica.dataflow(id)
    assert dataflow.indexes == (IndexImport("input", "u1"),)
    assert dataflow.collections == ()
    assert dataflow.exports == (SubscribeExport(id, "output", snapshot=True),)
    assert dataflow.as_of == Frontier(time)


def test_a_subscription_without_a_snapshot_goes_on_after_a_time(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    time = world.write("bids", (1, 2))
    id, _ = world.subscribe(as_of=time, snapshot=False)
    assert replica.dataflow(id).exports == (SubscribeExport(id, "output", snapshot=False),)


def test_unsubscribing_ends_it_and_what_still_comes_is_passed_over(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    id, events = world.subscribe()
    replica.tells(id, 0, 5)
    world.controller.unsubscribe(id)
    world.controller.unsubscribe(id)
    assert events == [batch(0, 5), DroppedAt(Frontier(5))]
    replica.tells(id, 5, 7)
    replica.connection.handle_response(SubscribeResponse(id, DroppedAt(Frontier(7))))
    assert len(events) == 2
    assert replica.compactions(id) == [END]
    assert world.problems() == []
    replica.connection.handle_response(SubscribeResponse(id, DroppedAt(Frontier(7))))
    assert world.problems() == [f"unexpected response for {id}"]


def test_an_error_is_the_last_word(world: World) -> None:
    world.view()
    first, second = world.replica("r1"), world.replica("r2")
    id, events = world.subscribe()
    first.tells(id, 0, 5)
    second.hear()
    problem = Problem("P730", "too large")
    first.connection.handle_response(SubscribeResponse(id, BatchResponse(Frontier(5), Frontier(9), problem)))
    second.tells(id, 0, 12)
    assert events == [batch(0, 5), BatchResponse(Frontier(5), Frontier(9), problem)]
    assert second.compactions(id) == [END]


def test_only_the_target_tells_a_targeted_subscription(world: World) -> None:
    world.view()
    first, second = world.replica("r1"), world.replica("r2")
    id, events = world.subscribe(replica="r1")
    assert [c.dataflow.name for c in second.of(CreateDataflow)] == ["top"]
    second.tells(id, 0, None)
    assert events == []
    assert world.status().subscriptions[0].upper == START
    first.tells(id, 0, 5)
    assert events == [batch(0, 5)]
    second.hear()
    world.controller.unsubscribe(id)
    assert second.hear() == []


def test_a_targeted_subscription_ends_with_its_replica(world: World) -> None:
    world.view()
    first = world.replica("r1")
    world.replica("r2")
    id, events = world.subscribe(replica="r1")
    _, others = world.subscribe()
    first.tells(id, 0, 5)
    first.dies()
    last = events[-1]
    assert (last.lower, last.upper, last.updates.code) == (Frontier(5), Frontier(5), TargetReplicaLost.code)
    assert others == []
    with pytest.raises(TargetReplicaLost):
        world.subscribe(replica="r1")


def test_a_replica_that_comes_later_starts_where_the_client_is(world: World) -> None:
    world.view(keep=0)
    replica = world.replica("r1")
    time = world.write("bids", (1, 2))
    id, events = world.subscribe(as_of=time)
    a = ((1, 2), time, 1)
    replica.tells(id, 0, time + 1, a)
    later = world.write("bids", (1, 3))
    replica.reports("u1", later + 1)
    replica.tells(id, time + 1, later + 1)
    world.passes(1_000)
    second = world.replica("r2")
    assert second.dataflow(id).as_of == second.dataflow("u1").as_of == Frontier(later)
    # What the client has is not read again.
    assert second.dataflow(id).exports == (SubscribeExport(id, "output", snapshot=False),)
    second.tells(id, 0, later + 1, ((1, 2), later, 1))
    assert [event.updates for event in events] == [(a,), ()]


def test_what_was_not_delivered_stays_readable(world: World) -> None:
    world.view(keep=0)
    replica = world.replica("r1")
    time = world.write("bids", (1, 2))
    id, _ = world.subscribe(as_of=time)
    later = world.write("bids", (1, 3))
    replica.reports("u1", later + 1)
    world.passes(1_000)
    assert world.view_status().since == Frontier(time)
    world.controller.unsubscribe(id)
    assert world.view_status().since == Frontier(later)


def test_subscriptions_end_with_their_view(world: World) -> None:
    world.view()
    world.replica("r1")
    _, events = world.subscribe()
    answers: list[Any] = []
    world.controller.copy("top", "top.jsonl", answers.append)
    world.controller.drop("top")
    assert events == [DroppedAt(START)]
    assert answers == [Dropped()]


def test_a_client_may_end_it_while_it_is_told(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    events: list[Any] = []

    def stop(event: Any) -> None:
        events.append(event)
        world.controller.unsubscribe(id)

    id = world.controller.subscribe("top", stop)
    replica.tells(id, 0, 5)
    assert events == [batch(0, 5), DroppedAt(Frontier(5))]
    world.controller.check()


def test_collections_are_subscribed_to_and_kept_for_who_reads_them(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    id, _ = world.subscribe("bids")
    bids = world.controller.describe("bids").id
    assert [i.id for i in replica.dataflow(id).collections] == [bids]
    with pytest.raises(UnknownName):
        world.subscribe("nothing")
    with pytest.raises(BadMessage):
        world.subscribe(as_of=-1)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_replicas_with_any_cuts_deliver_every_change_once(data: st.DataObject) -> None:
    """Catches: a time that is told twice or never, batches that overlap or leave a gap, whatever the
    replicas' cuts, speeds, deaths."""
    world = World()
    world.view()
    last = data.draw(st.integers(1, 12), label="last")
    changes = [((time,), time, 1) for time in range(last)]
    names = ["r1", "r2", "r3"]
    replicas = {name: world.replica(name) for name in names}
    id, events = world.subscribe(as_of=0)
    uppers = dict.fromkeys(names, 0)
    while any(upper < last for upper in uppers.values()):
        name = data.draw(st.sampled_from([n for n in names if uppers[n] < last]))
        if data.draw(st.booleans()) and data.draw(st.booleans()):
            replicas[name].dies()
            replicas[name] = world.replica(name)
            uppers[name] = 0
        as_of = replicas[name].dataflow(id).as_of.time or 0
        lower = uppers[name]
        upper = data.draw(st.integers(max(lower, as_of) + 1, last)) if max(lower, as_of) < last else last
        told = [(row, max(time, as_of), w) for row, time, w in changes if lower <= max(time, as_of) < upper]
        if upper > lower:
            replicas[name].tells(id, lower, upper, *told)
        uppers[name] = upper
        world.passes(1_000)
    assert [u for event in events for u in event.updates] == changes
    assert [event.lower for event in events] == [START, *(event.upper for event in events)][:-1]
    assert events[-1].upper == Frontier(last)


def test_a_slow_reader_of_commands_is_told_of_nothing_that_is_over(world: World) -> None:
    world.view()
    replica = PaperReplica(world.replica("r1").connection)
    for _ in range(50):
        id, _ = world.subscribe()
        world.controller.unsubscribe(id)
    assert replica.hear() == []


UNWELL = Problem("P747", "its disk is full", origin=Origin.PROCESS)


def tells_problem(replica: PaperReplica, id: str, lower: int, upper: int, problem: Problem) -> None:
    replica.hear()
    told = BatchResponse(Frontier(lower), Frontier(upper), problem)
    replica.connection.handle_response(SubscribeResponse(id, told))


def test_a_subscription_goes_on_with_the_replicas_that_are_well(world: World) -> None:
    world.view()
    first, second = world.replica("r1"), world.replica("r2")
    id, events = world.subscribe(as_of=0)
    a, b = (("a",), 3, 1), (("b",), 6, 1)
    first.tells(id, 0, 5, a)
    tells_problem(first, id, 5, 9, UNWELL)
    second.tells(id, 0, 7, a, b)
    assert events == [batch(0, 5, a), batch(5, 7, b)]
    second.dies()
    assert events[2:] == [BatchResponse(Frontier(7), Frontier(7), UNWELL)]
    assert world.status().subscriptions == ()


def test_a_problem_of_a_replica_that_is_behind_the_others_keeps_nobody_waiting(world: World) -> None:
    world.view()
    first, second = world.replica("r1"), world.replica("r2")
    id, events = world.subscribe(as_of=0)
    second.tells(id, 0, 9)
    tells_problem(first, id, 0, 5, UNWELL)
    assert events == [batch(0, 9)]
    second.dies()
    assert events[1:] == [BatchResponse(Frontier(9), Frontier(9), UNWELL)]


def test_a_problem_in_the_data_ends_it_whoever_is_well(world: World) -> None:
    world.view()
    first = world.replica("r1")
    world.replica("r2")
    id, events = world.subscribe(as_of=0)
    problem = Problem("P736", "it divides by zero")
    tells_problem(first, id, 0, 5, problem)
    assert events == [BatchResponse(START, Frontier(5), problem)]
