"""A controller that comes back: with replicas that run on, and keep what they have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.compute.collections.memory import MemoryCollections
from headrace.compute.collections.store import CollectionAppend, CollectionBounds
from headrace.compute.controller.status import ControllerSettings
from headrace.compute.errors import SinceViolation
from headrace.compute.frontier import END, Frontier
from headrace.compute.protocol.commands import AllowCompaction, AllowWrites, CreateDataflow, Id, Parameters
from headrace.compute.protocol.responses import BatchResponse, Problem
from tests.compute.controller.live import LiveWorld
from tests.compute.controller.world import BIDS, World, all_bids, high_tops, joined, top_bids


def test_a_replica_keeps_everything_when_its_controller_comes_back() -> None:
    world = LiveWorld()
    world.view("top", key=["auction"], keep=0)
    world.view("high", high_tops(), keep=2_000)
    world.view("both", joined(), into="rows", keep=0)
    world.view("of rows", top_bids("rows"))
    replica = world.joins("r1")
    for price in range(20):
        world.write("bids", (price % 3, price))
        world.rest()
        world.passes(500)
    world.rest()
    assert replica.built == ["u1", "u2", "u3", "u4", "u5"]
    expected = {name: world.rows(name) for name in ("top", "high", "both", "of rows")}
    for _ in range(3):
        world.start()
        world.reconnect()
        assert {name: world.rows(name) for name in expected} == expected
        world.write("others", (7, 7))
        world.rest()
        expected = {name: world.rows(name) for name in expected}
        assert (7, 7) in [row for row, _ in expected["both"]]
    assert replica.built == ["u1", "u2", "u3", "u4", "u5"], "it built something again"
    assert world.problems() == []


def test_fifteen_views_are_kept_by_two_replicas() -> None:
    world = LiveWorld()
    for number in range(15):
        world.view(f"top{number}", keep=0 if number % 2 else 5_000)
    first, second = world.joins("r1"), world.joins("r2")
    world.write("bids", (1, 2))
    world.rest()
    world.passes(9_000)
    world.write("bids", (1, 3))
    world.rest()
    world.start()
    world.reconnect()
    world.rest()
    assert len(first.built) == len(second.built) == 15
    assert world.rows("top3") == [((1, 3), 1)]


def test_a_view_that_was_just_made_is_kept() -> None:
    """Its past does not go back as far as what it may keep."""
    world = LiveWorld()
    world.view("first", keep=0)
    world.now = 100_000
    world.write("bids", (1, 2))
    world.view("top", keep=60_000)
    replica = world.joins("r1")
    world.rest()
    world.start()
    world.reconnect()
    for _ in range(20):
        replica.pump()
    world.rest()
    assert replica.built == ["u1", "u2"]
    with pytest.raises(SinceViolation):
        world.peek("top", at=99_999)


def test_what_was_dropped_meanwhile_is_dropped_by_the_replica() -> None:
    world = LiveWorld()
    world.view("top")
    world.view("more")
    replica = world.joins("r1")
    world.rest()
    replica.cut()
    world.controller.drop("more")
    world.start()
    world.view("new")
    world.reconnect()
    world.rest()
    assert replica.built == ["u1", "u2", "u3"]
    assert [v.name for v in world.status().views] == ["top", "new"]
    assert world.problems() == []


def test_a_subscription_goes_on_from_where_the_client_was() -> None:
    world = LiveWorld()
    world.view("top")
    world.joins("r1")
    world.write("bids", (1, 2))
    _, events = world.subscribe()
    world.rest()
    upper = events[-1].upper.time
    world.now += 5_000
    world.write("bids", (1, 3))
    world.start()
    world.reconnect()
    _, more = world.subscribe(as_of=upper - 1, snapshot=False)
    world.rest()
    told = [u for event in (*events, *more) if isinstance(event, BatchResponse) for u in event.updates]
    assert [(row, weight) for row, _, weight in told] == [((1, 2), 1), ((1, 2), -1), ((1, 3), 1)]
    world.passes(1_000)
    world.now += 60_000
    world.write("bids", (1, 4))
    world.rest()
    world.passes(1_000)
    with pytest.raises(SinceViolation):
        world.subscribe(as_of=upper - 1, snapshot=False)


def test_what_a_view_writes_goes_on_where_it_ended() -> None:
    world = LiveWorld()
    world.view("top", into="rows", keep=0)
    replica = world.joins("r1")
    world.write("bids", (1, 2))
    world.rest()
    replica.cut()
    world.controller.drop_replica("r1")
    del world.live["r1"]
    for price in range(3, 6):
        world.now += 1_000
        world.write("bids", (1, price))
    world.passes(60_000)
    world.start()
    world.joins("r2")
    world.passes(60_000)
    world.rest()
    rows = world.controller.describe("rows").id
    (bounds,) = world.collections.bounds([rows])
    assert bounds.upper == Frontier(world.status().read_time + 1)
    assert bounds.upper.time is not None
    assert list(world.collections.snapshot(rows, bounds.upper.time - 1)) == [[((1, 5), 1)]]
    changes = [u for chunk in world.collections.changes(rows, Frontier(2_000), bounds.upper) for u in chunk]
    assert len(changes) == 6, "every change is there at its time"


def test_a_dead_controller_leaves_a_lagging_replica_time_to_read_on() -> None:
    world = LiveWorld()
    world.view("top", keep=0)
    fast, slow = world.joins("r1"), world.joins("r2")
    world.write("bids", (1, 2))
    world.rest()
    slow.cut()
    for price in range(3, 6):
        world.now += 1_000
        world.write("bids", (1, price))
        for _ in range(20):
            fast.pump()
    world.start()
    fast.connect(world.controller)
    world.passes(59_000)
    for _ in range(20):
        fast.pump()
    world.passes(500)
    slow.connect(world.controller)
    world.rest()
    assert slow.built == ["u1"]
    assert world.rows("top", replica="r2") == [((1, 5), 1)]


def test_a_view_into_a_complete_collection_runs_no_more() -> None:
    world = World()
    world.view("top", into="rows")
    world.view("high", high_tops())
    rows = world.controller.describe("rows").id
    world.collections.append([CollectionAppend(rows, Frontier(0), END)])
    world.start()
    replica = world.replica("r1")
    assert replica.of(CreateDataflow) == []
    assert world.view_status("top").hydrated
    assert world.view_status("top").upper == END
    with pytest.raises(SinceViolation):
        world.subscribe("top")
    with pytest.raises(SinceViolation):
        world.controller.copy("high", "x.jsonl", print)
    with pytest.raises(SinceViolation):
        world.peek("top")
    with pytest.raises(SinceViolation):
        world.view("more", high_tops())
    world.controller.check()


def test_a_gap_that_nobody_can_fill_is_said() -> None:
    world = World()
    world.view("top", into="rows")
    world.write("bids", (1, 2))
    world.collections.compact(world.controller.describe("bids").id, Frontier(world.now))
    world.start()
    assert world.problems() == ["'top' starts anew, with a gap"]


def test_a_new_state_is_ready_at_once() -> None:
    world = World()
    assert (world.status().epoch, world.status().read_time) == (1, 0)
    world.view()
    replica = world.replica("r1")
    assert replica.scheduled() == ["u1"]
    uuid, answers = world.peek()
    replica.answers(uuid)
    assert len(answers) == 1


def test_parameters_are_those_of_the_last_start() -> None:
    world = World()
    world.parameters = Parameters(max_result_size=5)
    world.start()
    assert any("max_result_size=5" in repr(command) for command in world.replica("r1").told)


def test_a_replica_is_not_told_to_compact_what_it_was_told_already() -> None:
    world = LiveWorld()
    world.view("top", keep=0)
    replica = world.joins("r1")
    world.write("bids", (1, 2))
    world.rest()
    world.passes(1_000)
    world.rest()
    told = [c.frontier for c in replica.told if isinstance(c, AllowCompaction)]
    assert told == sorted(set(told))


def test_a_replica_that_may_write_goes_on_writing_for_a_controller_that_allows_nothing() -> None:
    world = LiveWorld()
    world.view("top", into="rows")
    replica = world.joins("r1")
    world.rest()
    world.start()
    replica.deaf_to = AllowWrites
    world.reconnect()
    time = world.write("bids", (1, 2))
    world.rest()
    (bounds,) = world.collections.bounds([world.controller.describe("rows").id])
    assert bounds.upper == Frontier(time + 1)
    assert replica.built == ["u1", "u2"]


class LateWriter(MemoryCollections):
    """A store to which the controller before ends a write when the next one looks."""

    late: list[CollectionAppend] = []

    def bounds(self, ids: Sequence[Id]) -> list[CollectionBounds]:
        found = super().bounds(ids)
        if self.late:
            late, self.late = self.late, []
            self.append(late)
        return found


def test_a_write_that_ends_while_the_next_controller_starts_is_seen() -> None:
    collections = LateWriter()
    world = World(collections=collections)
    world.controller.create_collection("bids", BIDS, append_only=False)
    world.write("bids", (1, 2))
    write = world.controller.begin_write({"bids": [((1, 3), 1)]})
    world.controller.create_collection("others", BIDS, append_only=False)
    collections.late = list(write.appends)
    world.start()
    assert world.status().read_time == write.time + 1
    assert {c.upper for c in world.status().collections} == {Frontier(write.time + 2)}


def told(world: LiveWorld, name: str) -> None:
    """A replica hears all that there is to hear, and does no work."""
    replica = world.live[name]
    assert replica.connection is not None
    while commands := replica.connection.take_commands():
        for command in commands:
            replica.replica.receive(command)


def test_what_a_slow_replica_keeps_over_a_restart_still_finds_its_inputs() -> None:
    """It was behind the time from which the new controller asks for the view: what it reads next must stay
    until it has said how far it is, however long that takes."""
    world = LiveWorld()
    world.view("all", all_bids(), keep=0)
    slow = world.joins("r1")
    world.write("bids", (1, 1))
    world.rest()
    for price in range(2, 5):
        world.now += 10_000
        world.write("bids", (1, price))
    world.start()
    world.reconnect()
    told(world, "r1")
    for _ in range(4):
        world.passes(world.settings.patience)
    assert world.rows("all") == [((1, price), 1) for price in range(1, 5)]
    assert slow.built.count("u1") == 1


def test_a_replica_that_comes_back_after_its_inputs_are_gone_builds_anew() -> None:
    world = LiveWorld()
    world.view("all", all_bids(), keep=0)
    late = world.joins("r1")
    world.write("bids", (1, 1))
    world.rest()
    late.cut()
    for price in range(2, 5):
        world.passes(world.settings.patience)
        world.write("bids", (1, price))
    world.reconnect()
    assert world.rows("all") == [((1, price), 1) for price in range(1, 5)]
    assert late.built.count("u1") == 2


class Subscriber:
    """A client that comes back where it was: each batch that it has got moves it on; what was on the way
    to it when its connection broke never came. away_since: by the clock, while a controller runs."""

    def __init__(self, world: LiveWorld, view: str = "top") -> None:
        self.world = world
        self.view = view
        self.sum: Counter[Any] = Counter()
        self.upper: int | None = None
        self.events: list[Any] = []
        self.id: str | None = None
        self.away_since = world.now
        self.come()

    def come(self) -> None:
        self.events = []
        at = None if self.upper is None else self.upper - 1
        self.id, self.events = self.world.subscribe(self.view, as_of=at, snapshot=at is None)

    def gets(self) -> None:
        """What was sent to it has arrived."""
        for event in self.events:
            assert isinstance(event, BatchResponse)
            assert not isinstance(event.updates, Problem), event.updates
            if event.upper.time is not None and event.upper.time > (self.upper or 0):
                self.upper = event.upper.time
                for row, _, weight in event.updates:
                    self.sum[row] += weight
        self.events.clear()

    def goes(self) -> None:
        if self.id is not None:
            self.world.controller.unsubscribe(self.id)
            self.lost()

    def lost(self) -> None:
        self.events, self.id, self.away_since = [], None, self.world.now


def test_a_quiet_subscriber_goes_on_after_an_outage_and_the_write_that_waited_for_its_end() -> None:
    """It has seen all there was, and is away while the controller is: the first write after that is far
    behind what it has seen, in the timeline."""
    world = LiveWorld()
    world.view("top")
    world.joins("r1")
    world.write("bids", (1, 2))
    reader = Subscriber(world)
    world.rest()
    reader.gets()
    world.passes(12_000)
    world.rest()
    world.now += 5_000
    world.start()
    reader.lost()
    world.reconnect()
    world.write("bids", (1, 3))
    world.rest()
    world.passes(2_000)
    reader.come()
    world.rest()
    reader.gets()
    assert +reader.sum == Counter([(1, 3)])


def test_a_subscriber_that_waits_for_replicas_goes_on_after_a_restart_of_the_controller() -> None:
    """Writes go on for longer than the view keeps its past: it alone needs what was before them."""
    world = LiveWorld()
    world.view("top")
    replica = world.joins("r1")
    world.write("bids", (1, 2))
    reader = Subscriber(world)
    world.rest()
    reader.gets()
    replica.cut()
    for price in range(3, 9):
        world.passes(10_000)
        world.write("bids", (1, price))
    world.start()
    reader.lost()
    world.passes(9_000)
    reader.come()
    world.reconnect()
    world.rest()
    reader.gets()
    assert +reader.sum == Counter([(1, 8)])
    assert replica.built.count("u1") == 1


_STEPS = st.sampled_from(
    ["moment", "time", "second", "quiet", "write", "work", "maintain", "get", "go", "come", "restart", "cut"]
)
_SPANS = {"moment": 1, "time": 300, "second": 999, "quiet": 5_000}


def _steps(names: str) -> list[str]:
    return names.split()


@settings(max_examples=80, deadline=None)
@given(
    steps=st.lists(_STEPS, max_size=40),
    compaction=st.sampled_from([0, 1_000, 5_000]),
    name=st.sampled_from(["all", "bids"]),
)
@example(steps=_steps("work quiet go write work time come"), compaction=0, name="all")
@example(steps=_steps("work quiet write work maintain go time come"), compaction=0, name="all")
@example(steps=_steps("work cut quiet write time time go time come"), compaction=0, name="bids")
@example(steps=_steps("work quiet write work restart time come"), compaction=0, name="all")
def test_a_subscriber_who_is_never_away_for_longer_than_the_view_keeps_misses_nothing(
    steps: list[str], compaction: int, name: str
) -> None:
    """Catches: a position that is given up while its reader is on the way back to it, or waits there."""
    world = LiveWorld()
    world.settings = ControllerSettings(compaction=compaction, keep=1_000, patience=1_000)
    world.start()
    world.view("all", all_bids(), keep=1_000)
    world.joins("r1")
    world.rest()
    written = 0
    reader = Subscriber(world, name)
    for step in steps:
        written += step == "write"
        _take_step(world, reader, step, written)
    world.reconnect()
    if reader.id is None:
        reader.come()
    world.rest()
    reader.gets()
    assert +reader.sum == Counter([(1, price) for price in range(1, written + 1)])


def _take_step(world: LiveWorld, reader: Subscriber, step: str, written: int) -> None:
    replica = world.live["r1"]
    match step:
        case "moment" | "time" | "second" | "quiet":
            reader.gets()
            if reader.id is None and world.now + _SPANS[step] - reader.away_since >= 1_000:
                reader.come()
            world.passes(_SPANS[step])
        case "maintain":
            world.passes(0)
        case "write":
            world.write("bids", (1, written))
        case "work" if replica.connection is not None:
            for _ in range(20):
                replica.pump()
        case "get":
            reader.gets()
        case "go":
            reader.goes()
        case "come" if reader.id is None:
            reader.come()
        case "restart":
            world.start()
            reader.lost()
            replica.connect(world.controller)
        case "cut" if replica.connection is not None:
            replica.cut()
        case "cut":
            replica.connect(world.controller)
        case _:
            pass
