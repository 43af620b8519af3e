"""How much of the past is kept: by views, by what they read, for replicas that are behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.compute.collections.store import CollectionAppend
from headrace.compute.controller.status import ControllerSettings
from headrace.compute.errors import SinceViolation
from headrace.compute.frontier import END, Frontier
from headrace.compute.protocol.commands import AllowCompaction
from tests.compute.controller.world import PaperReplica, World, high_tops, joined


def collection_since(world: World, name: str = "bids") -> Frontier:
    return next(c.since for c in world.status().collections if c.name == name)


def test_a_view_keeps_what_it_was_asked_to_behind_its_upper(world: World) -> None:
    world.view(keep=300)
    replica = world.replica("r1")
    world.now = 5_000
    time = world.write("bids", (1, 2))
    replica.reports("u1", time + 1)
    world.passes(1_000)
    assert replica.compactions("u1") == [Frontier(time - 300)]


def test_a_view_is_never_given_up_beyond_the_last_acknowledged_write(world: World) -> None:
    world.view(keep=0)
    replica = world.replica("r1")
    first = world.write("bids", (1, 2))
    write = world.controller.begin_write({"bids": [((1, 3), 1)]})
    world.collections.append(write.appends)
    replica.reports("u1", write.time + 1)
    world.passes(1_000)
    assert world.view_status().since == Frontier(first)
    uuid, _ = world.peek()
    assert replica.peeked() == [uuid]
    world.controller.end_write(write)


def test_collections_keep_what_the_slowest_replica_still_has_to_read(world: World) -> None:
    world.settings = replace(world.settings, keep=0)
    world.start()
    world.view(keep=0)
    fast, slow = world.replica("r1"), world.replica("r2")
    fast.hear(), slow.hear()
    first = world.write("bids", (1, 2))
    second = world.write("bids", (1, 3))
    third = world.write("bids", (1, 4))
    fast.reports("u1", third + 1)
    slow.reports("u1", first + 1)
    world.passes(60_000)
    # Its next changes are those at `second`, and they are told apart as long as `first` can be read.
    assert collection_since(world) == Frontier(first)
    slow.reports("u1", second + 1)
    world.passes(10_000)
    assert collection_since(world) == Frontier(second)
    slow.reports("u1", third + 1)
    world.passes(10_000)
    assert collection_since(world) == Frontier(third)
    (bounds,) = world.collections.bounds([world.controller.describe("bids").id])
    assert bounds.since == Frontier(third)


def test_a_lost_replica_keeps_its_inputs_for_a_while_only(world: World) -> None:
    world.settings = ControllerSettings(keep=0, patience=20_000)
    world.start()
    world.view(keep=0)
    replica, slow = world.replica("r1"), world.replica("r2")
    slow.hear()
    first = world.write("bids", (1, 2))
    slow.reports("u1", first + 1)
    last = world.write("bids", (1, 3))
    replica.reports("u1", last + 1)
    world.passes(60_000)
    slow.dies()
    world.passes(19_000)
    assert collection_since(world) == Frontier(first)
    world.passes(2_000)
    assert collection_since(world) == Frontier(last)


def test_a_dropped_replica_keeps_nothing(world: World) -> None:
    world.settings = ControllerSettings(keep=0, patience=0)
    world.start()
    world.view(keep=0)
    replica, slow = world.replica("r1"), world.replica("r2")
    slow.hear()
    last = world.write("bids", (1, 2))
    replica.reports("u1", last + 1)
    world.passes(1_000)
    assert collection_since(world) < Frontier(last)
    world.controller.drop_replica("r2")
    assert collection_since(world) == Frontier(last)


def test_a_replica_that_comes_back_may_go_on_from_where_it_was(world: World) -> None:
    world.settings = ControllerSettings(keep=0, patience=60_000)
    world.start()
    world.view(keep=0)
    fast, slow = world.replica("r1"), world.replica("r2")
    slow.hear()
    first = world.write("bids", (1, 2))
    slow.reports("u1", first + 1)
    last = world.write("bids", (1, 3))
    fast.reports("u1", last + 1)
    world.passes(60_000)
    slow.dies()
    again = world.replica("r2")
    assert again.dataflow("u1").as_of == Frontier(last)
    again.reports("u1", last + 1, "write")  # which does not tell how far it has read
    world.passes(10_000)
    assert collection_since(world) == Frontier(first)
    again.reports("u1", last + 1, "input", "output")
    world.passes(10_000)
    assert collection_since(world) == Frontier(last)


def lagging(world: World, max_lag: int = 20_000) -> tuple[PaperReplica, PaperReplica, int, int]:
    """Two replicas, one of them up to date, and the other one behind from now on."""
    world.settings = ControllerSettings(keep=0, patience=60_000, max_lag=max_lag)
    world.start()
    world.view(keep=0)
    fast, slow = world.replica("r1"), world.replica("r2")
    fast.hear(), slow.hear()
    first = world.write("bids", (1, 2))
    slow.reports("u1", first + 1)
    last = world.write("bids", (1, 3))
    fast.reports("u1", last + 1)
    world.passes(60_000)
    return fast, slow, first, last


def test_a_replica_that_is_behind_for_too_long_has_to_rebuild_from_what_is_still_kept(world: World) -> None:
    _, slow, first, last = lagging(world)
    world.passes(19_000)
    assert collection_since(world) == Frontier(first)
    assert not slow.connection.is_over
    world.passes(2_000)
    assert collection_since(world) == Frontier(last)
    (bounds,) = world.collections.bounds([world.controller.describe("bids").id])
    assert bounds.since == Frontier(last), "compacted at once, so that its next connection finds it so"
    assert slow.connection.is_over
    slow.connection.record_stream_end(None)
    status = world.replica_status("r2")
    assert (status.deaths, status.problem) == (0, "it has fallen too far behind, and rebuilds views")
    (note,) = (note for note in world.status().problems if note.replica == "r2")
    assert note.text == "more than 20 s behind with 'top', which it rebuilds from a snapshot"
    again = world.replica("r2")
    assert again.dataflow("u1").as_of == Frontier(last)


def test_a_replica_that_is_behind_and_reads_on_is_kept(world: World) -> None:
    fast, slow, _, last = lagging(world)
    for _ in range(10):
        world.passes(15_000)
        slow.reports("u1", last + 1)
        last = world.write("bids", (1, 4))
        fast.reports("u1", last + 1)
        world.passes(1_000)
    assert not slow.connection.is_over


def test_a_replica_that_is_behind_is_kept_while_its_inputs_are_anyway(world: World) -> None:
    _, slow, first, _ = lagging(world)
    instance = world.controller.instance
    reader = instance.holds.acquire(world.controller.describe("bids").id)
    world.passes(60_000)
    assert not slow.connection.is_over
    assert collection_since(world) == Frontier(first)
    reader.release()
    world.passes(1_000)
    assert slow.connection.is_over


def test_the_only_replica_of_a_view_and_one_that_builds_it_are_never_too_far_behind(world: World) -> None:
    fast, slow, _, _ = lagging(world, max_lag=1_000)
    slow.connection.record_stream_end(None)
    world.replica("r2").hear()
    for _ in range(3):
        world.write("bids", (1, 4))
        world.passes(60_000)
    assert not fast.connection.is_over
    assert not world.controller.replicas["r2"].connection.is_over  # pyright: ignore


def test_the_warm_up_hold_follows_the_least_input(world: World) -> None:
    world.view("both", joined(), keep=0)
    bids, others = (world.controller.describe(name).id for name in ("bids", "others"))
    instance = world.controller.instance
    instance.advance_upper(bids, Frontier(20))
    instance.advance_upper(others, Frontier(30))
    instance.advance_warm_up_holds()
    assert instance.running["u1"].warmup.frontier == Frontier(19)


def test_without_replicas_an_index_moves_on_with_what_it_reads(world: World) -> None:
    world.view(keep=1)
    world.view("high", high_tops(), keep=0)
    world.view("written", into="rows", keep=0)
    world.now = 5_000
    time = world.write("bids", (1, 2))
    world.passes(1_000)
    # "high" reads "top" at its own since, so "top" keeps what "high" does.
    assert world.view_status("high").since == Frontier(time)
    assert world.view_status("top").since == Frontier(time - 1)
    # What is written must be written from where it ended, all of it.
    assert world.view_status("written").since == Frontier(0)


def test_with_a_replica_an_index_waits_for_it(world: World) -> None:
    world.view(keep=0)
    world.replica("r1")
    world.write("bids", (1, 2))
    world.passes(1_000)
    assert world.view_status().since == Frontier(0)


def test_what_is_written_is_held_from_its_last_time_on(world: World) -> None:
    world.view("written", into="rows", keep=0)
    replica = world.replica("r1")
    world.now = 5_000
    world.write("bids", (1, 2))
    world.now = 6_000
    time = world.write("bids", (1, 3))
    rows = world.controller.describe("rows").id
    world.collections.append([CollectionAppend(rows, Frontier(0), Frontier(time - 99))])
    replica.reports("u1", time + 1)
    world.passes(1_000)
    assert replica.compactions("u2") == [Frontier(time - 100)]
    # The index is of the same dataflow, which starts from the earlier of both.
    assert replica.compactions("u1") == [Frontier(time - 100)]
    world.collections.append([CollectionAppend(rows, Frontier(time - 99), Frontier(time + 1))])
    world.passes(1_000)
    assert replica.compactions("u2")[-1] == replica.compactions("u1")[-1] == Frontier(time)


def test_readers_are_let_go_before_what_they_read(world: World) -> None:
    world.view(keep=0)
    world.view("high", high_tops(), keep=0)
    replica = world.replica("r1")
    time = world.write("bids", (1, 2))
    replica.reports("u1", time + 1)
    replica.reports("u2", time + 1)
    replica.hear()
    world.passes(1_000)
    assert [(c.id, c.frontier) for c in replica.hear() if isinstance(c, AllowCompaction)] == [
        ("u1", Frontier(time)),
        ("u2", Frontier(time)),
    ]


def test_a_view_that_reads_another_holds_it(world: World) -> None:
    world.view(keep=0)
    world.view("high", high_tops(), keep=500)
    replica = world.replica("r1")
    world.now = 9_000
    time = world.write("bids", (1, 2))
    replica.reports("u1", time + 1)
    replica.reports("u2", time + 1)
    world.passes(1_000)
    assert world.view_status("top").since == Frontier(time - 500)


def test_a_report_that_goes_back_is_passed_over(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    replica.reports("u1", 8)
    replica.reports("u1", 6)
    assert world.view_status().replicas[0].write == Frontier(8)
    assert world.problems() == [
        f"{kind} of u1 went back from [8] to [6]" for kind in ("write", "input", "output")
    ]


def test_reports_of_what_was_not_asked_for_are_passed_over(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    replica.reports("u7", 6)
    assert world.problems() == ["unexpected frontiers of u7"]
    _, _ = world.subscribe()
    replica.reports("t1", 6)
    assert "t1" in world.problems()[-1]
    world.controller.check()


def test_a_dropped_view_is_gone_after_the_last_word_of_each_replica(world: World) -> None:
    world.view(keep=0)
    replica = world.replica("r1")
    replica.hear()
    bids = world.controller.describe("bids").id
    world.controller.drop("top")
    world.controller.drop("bids")
    assert replica.compactions("u1") == [END]
    world.passes(1_000)
    assert bids in world.collections.all()
    replica.reports("u1", None)
    world.passes(1_000)
    assert bids not in world.collections.all()
    replica.reports("u1", 6)
    assert world.problems() == ["unexpected frontiers of u1"]


def test_a_time_that_was_given_up_cannot_be_subscribed_to(world: World) -> None:
    world.view(keep=0)
    replica = world.replica("r1")
    time = world.write("bids", (1, 2))
    replica.reports("u1", time + 1)
    world.passes(1_000)
    with pytest.raises(SinceViolation):
        world.subscribe(as_of=time - 1)
    world.subscribe(as_of=time)
