"""Writes and times: what a read sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.compute.collections.memory import MemoryCollections
from headrace.compute.collections.store import CollectionAppend, CollectionBounds
from headrace.compute.controller.state import TimestampOracle
from headrace.compute.controller.status import ControllerSettings
from headrace.compute.errors import (
    NotWritable,
    StaleEpoch,
    StoreUnavailable,
    UnknownName,
    UpperMismatch,
)
from headrace.compute.frontier import LAST_TIME, Frontier
from headrace.compute.protocol.commands import Peek
from headrace.errors import BadRow
from headrace.expr.row_classes import schema_of
from tests.compute.controller.world import BIDS, World, high_tops


class Failing(MemoryCollections):
    """A store that fails: before what is asked of it is done, or after."""

    def __init__(self) -> None:
        super().__init__()
        self.before = self.after = self.blind = False

    def append(self, appends: Sequence[CollectionAppend]) -> None:
        if self.before:
            raise StoreUnavailable("the disk is gone")
        super().append(appends)
        if self.after:
            raise StoreUnavailable("the disk is gone")

    def bounds(self, ids: Sequence[str]) -> list[CollectionBounds]:
        if self.blind:
            raise StoreUnavailable("the disk is gone")
        return super().bounds(ids)


@pytest.fixture
def failing() -> tuple[World, Failing]:
    collections = Failing()
    world = World(collections=collections)
    world.view()
    return world, collections


def read_time(world: World, **options: object) -> int:
    uuid, _ = world.peek(**options)
    time = next(p.time for p in world.status().peeks if p.uuid == uuid)
    world.controller.cancel_peek(uuid)
    return time


def uppers(world: World) -> set[int | None]:
    ids = [c.id for c in world.status().collections]
    return {bounds.upper.time for bounds in world.collections.bounds(ids)}


def test_times_are_the_clocks_and_always_rise(world: World) -> None:
    world.view()
    assert world.write("bids", (1, 2)) == world.now
    assert world.write("bids", (1, 3)) == world.now + 1
    world.now -= 500
    assert world.write("bids", (1, 4)) == world.now + 502
    world.now += 10_000
    assert world.write("bids", (1, 5)) == world.now


def test_a_read_is_at_the_time_of_the_last_acknowledged_write(world: World) -> None:
    world.view()
    first = world.write("bids", (1, 2))
    assert read_time(world) == first
    write = world.controller.begin_write({"bids": [((1, 3), 1)]})
    assert read_time(world) == first
    world.collections.append(write.appends)
    assert read_time(world) == first
    world.controller.end_write(write)
    assert read_time(world) == write.time


def test_a_write_advances_all_collections_of_clients(world: World) -> None:
    for name in ("bids", "others", "more"):
        world.controller.create_collection(name, BIDS, append_only=False)
    write = world.controller.begin_write({"bids": [((1, 2), 1)]})
    assert {a.upper.time for a in write.appends} == {write.time + 1}
    assert [len(a.updates) for a in write.appends] == [1, 0, 0]
    world.collections.append(write.appends)
    world.controller.end_write(write)
    assert uppers(world) == {write.time + 1}


def test_a_collection_that_is_made_during_a_write_can_be_read_after_it(world: World) -> None:
    world.controller.create_collection("bids", BIDS, append_only=False)
    write = world.controller.begin_write({"bids": [((1, 2), 1)]})
    world.controller.create_collection("late", BIDS, append_only=False)
    world.collections.append(write.appends)
    world.controller.end_write(write)
    assert uppers(world) == {write.time + 1}
    assert world.write("late", (1, 2)) == write.time + 1


def test_a_collection_that_is_dropped_during_a_write_is_there_until_its_end(world: World) -> None:
    world.controller.create_collection("bids", BIDS, append_only=False)
    bids = world.controller.describe("bids").id
    write = world.controller.begin_write({"bids": [((1, 2), 1)]})
    world.controller.drop("bids")
    world.passes(1_000)
    world.collections.append(write.appends)
    world.controller.end_write(write)
    assert bids in world.collections.all()
    world.passes(1_000)
    assert bids not in world.collections.all()
    assert read_time_is(world, write.time)


def read_time_is(world: World, time: int) -> bool:
    return world.status().read_time == time


def test_one_write_is_under_way_at_a_time(world: World) -> None:
    world.view()
    write = world.controller.begin_write({"bids": [((1, 2), 1)]})
    with pytest.raises(RuntimeError):
        world.controller.begin_write({"bids": [((1, 2), 1)]})
    world.collections.append(write.appends)
    world.controller.end_write(write)
    with pytest.raises(RuntimeError):
        world.controller.end_write(write)


def test_rows_are_checked_before_they_are_kept(world: World) -> None:
    class Price(NamedTuple):
        price: float

    world.controller.create_collection("prices", schema_of(Price), append_only=False)
    world.controller.create_collection("numbers", schema_of(int), append_only=False)
    write = world.controller.begin_write({"prices": [((1,), 1), ((2.5,), 0)], "numbers": [((3,), -2)]})
    rows = {a.id: a.updates for a in write.appends if a.updates}
    prices, numbers = (world.controller.describe(name).id for name in ("prices", "numbers"))
    assert rows == {prices: (((1.0,), write.time, 1),), numbers: (((3,), write.time, -2),)}
    assert isinstance(rows[prices][0][0][0], float)
    world.controller.fail_write(write)
    for name, row in (("prices", ("x",)), ("prices", (1, 2)), ("numbers", ("x",)), ("numbers", (1, 2))):
        with pytest.raises(BadRow):
            world.controller.begin_write({name: [(row, 1)]})


def test_only_collections_of_clients_are_written(world: World) -> None:
    world.view(into="rows")
    world.controller.create_collection("log", BIDS, append_only=True)
    for name in ("top", "rows", "headrace.written"):
        with pytest.raises(NotWritable):
            world.controller.begin_write({name: [((1, 2), 1)]})
    with pytest.raises(NotWritable, match="retracted"):
        world.controller.begin_write({"log": [((1, 2), -1)]})
    with pytest.raises(UnknownName):
        world.controller.begin_write({"nothing": [((1, 2), 1)]})
    world.write("log", (1, 2))


def test_a_write_that_failed_leaves_no_trace(failing: tuple[World, Failing]) -> None:
    world, collections = failing
    first = world.write("bids", (1, 2))
    collections.before = True
    write = world.controller.begin_write({"bids": [((1, 3), 1)]}, [b"id"])
    with pytest.raises(StoreUnavailable):
        collections.append(write.appends)
    assert not world.controller.fail_write(write)
    assert read_time(world) == first
    assert world.controller.time_of_write(b"id") is None
    collections.before = False
    assert world.write("bids", (1, 4)) > write.time


def test_a_write_whose_answer_was_lost_is_found_to_be_durable(failing: tuple[World, Failing]) -> None:
    world, collections = failing
    collections.after = True
    write = world.controller.begin_write({"bids": [((1, 3), 1)]}, [b"id"])
    with pytest.raises(StoreUnavailable):
        collections.append(write.appends)
    assert world.controller.fail_write(write)
    assert read_time(world) == world.controller.time_of_write(b"id") == write.time
    collections.after = False
    assert world.write("bids", (1, 4)) == write.time + 1


@pytest.mark.parametrize("durable", [False, True])
def test_a_write_in_doubt_is_settled_when_the_store_is_back(
    failing: tuple[World, Failing], durable: bool
) -> None:
    world, collections = failing
    collections.before, collections.after = not durable, durable
    write = world.controller.begin_write({"bids": [((1, 3), 1)]}, [b"id"])
    with pytest.raises(StoreUnavailable):
        collections.append(write.appends)
    collections.blind = True
    with pytest.raises(StoreUnavailable):
        world.controller.fail_write(write)
    with pytest.raises(StoreUnavailable):
        world.controller.time_of_write(b"id")
    with pytest.raises(StoreUnavailable):
        world.controller.begin_write({"bids": []})
    world.passes(1_000)
    collections.blind = collections.before = collections.after = False
    assert world.controller.time_of_write(b"id") == (write.time if durable else None)
    assert world.write("bids", (1, 4)) > write.time


def test_a_write_that_cannot_be_acknowledged_is_in_doubt_until_it_can(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.view()
    write = world.controller.begin_write({"bids": [((1, 3), 1)]}, [b"id"])
    world.collections.append(write.appends)
    with monkeypatch.context() as broken:

        def unavailable(epoch: int) -> None:
            raise StoreUnavailable("the disk is gone")

        broken.setattr(world.state, "check_epoch", unavailable)
        with pytest.raises(StoreUnavailable):
            world.controller.end_write(write)
    assert world.controller.time_of_write(b"id") == write.time
    assert read_time(world) == write.time


def test_a_write_of_another_controller_shows_as_a_stale_epoch(world: World) -> None:
    world.view()
    old = world.controller
    write = old.begin_write({"bids": [((1, 2), 1)]})
    world.start()
    world.write("bids", (1, 3))
    with pytest.raises(UpperMismatch):
        world.collections.append(write.appends)
    with pytest.raises(StaleEpoch):
        old.fail_write(write)
    with pytest.raises(StaleEpoch):
        old.begin_write({"bids": []})


def test_a_superseded_controller_acknowledges_nothing_and_reads_nothing(world: World) -> None:
    world.view()
    old = world.controller
    write = old.begin_write({"bids": [((1, 2), 1)]})
    world.collections.append(write.appends)
    world.start()
    with pytest.raises(StaleEpoch):
        old.end_write(write)
    assert read_time(world) > write.time, "whoever comes later sees what may have been acknowledged"
    new, world.controller = world.controller, old
    with pytest.raises(StaleEpoch):
        world.peek()
    with pytest.raises(StaleEpoch):
        world.peek(staleness=1_000_000)
    with pytest.raises(StaleEpoch):
        old.maintain()
    world.controller = new


def test_a_superseded_controller_does_not_say_that_a_write_happened(world: World) -> None:
    """The later controller may not know of it yet: a read there would miss what was acknowledged here."""
    world.view()
    old = world.controller
    write = old.begin_write({"bids": [((1, 2), 1)]}, [b"id"])
    world.collections.append(write.appends)
    world.start()
    with pytest.raises(StaleEpoch):
        old.end_write(write)
    with pytest.raises(StaleEpoch):
        old.time_of_write(b"id")


def test_whoever_is_superseded_while_it_looks_up_a_write_does_not_acknowledge_it(
    failing: tuple[World, Failing], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, collections = failing
    old = world.controller
    write = old.begin_write({"bids": [((1, 2), 1)]}, [b"id"])
    collections.after = True
    with pytest.raises(StoreUnavailable):
        collections.append(write.appends)
    collections.after = False
    bounds = collections.bounds

    def late(ids: Sequence[str]) -> list[CollectionBounds]:
        monkeypatch.setattr(collections, "bounds", bounds)
        world.start()
        return bounds(ids)

    monkeypatch.setattr(collections, "bounds", late)
    with pytest.raises(StaleEpoch):
        old.fail_write(write)


def test_what_an_earlier_controller_still_appends_does_not_happen(world: World) -> None:
    """Its client was told nothing, and repeats the write here: it would be there twice."""
    world.view()
    old = world.controller
    write = old.begin_write({"bids": [((1, 2), 1)]}, [b"id"])
    world.start()
    with pytest.raises(UpperMismatch):
        world.collections.append(write.appends)
    assert world.controller.time_of_write(b"id") is None
    world.write("bids", (1, 2), ids=[b"id"])


def test_a_write_that_becomes_durable_late_is_known_when_it_is_repeated(
    failing: tuple[World, Failing],
) -> None:
    """The connection to the store broke in the middle of a commit, which comes after we looked."""
    world, collections = failing
    late = world.controller.begin_write({"bids": [((1, 2), 1)]}, [b"id"])
    collections.before = True
    with pytest.raises(StoreUnavailable):
        collections.append(late.appends)
    assert not world.controller.fail_write(late)
    collections.before = False
    collections.append(late.appends)
    write = world.controller.begin_write({"bids": [((1, 3), 1)]}, [b"other"])
    with pytest.raises(UpperMismatch):
        collections.append(write.appends)
    assert not world.controller.fail_write(write)
    assert world.controller.time_of_write(b"id") == late.time
    assert world.controller.time_of_write(b"other") is None
    assert read_time(world) == late.time, "its answer may go out now: reads see it"
    world.write("bids", (1, 3), ids=[b"other"])


def test_weights_that_are_too_great_together_are_refused_before_the_write(world: World) -> None:
    world.view()
    for weights in ([2**63], [2**62, 2**62], [-(2**62), -(2**62)]):
        with pytest.raises(NotWritable, match="too large weights"):
            world.controller.begin_write({"bids": [((1, 2), weight) for weight in weights]})
    world.write("bids", (1, 2))


def test_a_repeated_write_is_known_by_its_id(world: World) -> None:
    world.view()
    time = world.write("bids", (1, 2), ids=[b"one", b"two"])
    assert world.controller.time_of_write(b"one") == world.controller.time_of_write(b"two") == time
    assert world.controller.time_of_write(b"three") is None
    with pytest.raises(ValueError, match="repeated"):
        world.controller.begin_write({"bids": [((1, 2), 1)]}, [b"one"])
    world.start()
    assert world.controller.time_of_write(b"one") is not None
    assert world.write("bids", (1, 3), ids=[b"three"]) > time


def test_ids_are_forgotten_after_a_while(world: World) -> None:
    world.settings = ControllerSettings(remembered_ids=5_000)
    world.start()
    world.view()
    world.write("bids", (1, 2), ids=[b"one"])
    world.now += 5_000
    world.write("bids", (1, 3), ids=[b"two"])
    assert world.controller.time_of_write(b"one") is None
    assert world.controller.time_of_write(b"two") is not None
    world.now += 5_000
    world.write("bids", (1, 4))
    (written,) = world.collections.bounds(["s1"])
    assert written.upper.time is not None
    assert list(world.collections.snapshot("s1", written.upper.time - 1)) == []
    world.start()
    assert world.controller.time_of_write(b"two") is None


def test_as_many_ids_are_forgotten_as_come(world: World) -> None:
    world.settings = ControllerSettings(remembered_ids=5_000)
    world.start()
    world.view()
    (written,) = (id for id in world.collections.all() if id == "s1")
    for round in range(4):
        world.write("bids", (1, round), ids=[b"%d %d" % (round, n) for n in range(3_000)])
        world.now += 5_000
    world.write("bids", (1, 9))
    (bounds,) = world.collections.bounds([written])
    assert bounds.upper.time is not None
    assert sum(map(len, world.collections.snapshot(written, bounds.upper.time - 1))) <= 3_000


class TestBoundedStaleness:
    """Reads that need not see the last writes."""

    def test_it_takes_the_latest_time_that_a_replica_has_settled(self, world: World) -> None:
        world.view()
        replica = world.replica("r1")
        first = world.write("bids", (1, 2))
        replica.reports("u1", first + 1)
        world.now += 300
        last = world.write("bids", (1, 3))
        world.now += 40
        assert read_time(world, staleness=40) == first
        assert read_time(world, staleness=39) == last
        assert read_time(world) == last

    def test_an_old_time_is_current_where_nothing_was_written_since(self, world: World) -> None:
        world.view()
        replica = world.replica("r1")
        time = world.write("bids", (1, 2))
        replica.reports("u1", time + 1)
        world.now += 1_000_000
        assert read_time(world, staleness=0) == time

    def test_it_never_sees_what_is_not_acknowledged(self, world: World) -> None:
        world.view()
        replica = world.replica("r1")
        first = world.write("bids", (1, 2))
        write = world.controller.begin_write({"bids": [((1, 3), 1)]})
        world.collections.append(write.appends)
        replica.reports("u1", write.time + 1)
        assert read_time(world, staleness=1_000) == first

    def test_it_is_strict_where_nobody_has_settled_anything(self, world: World) -> None:
        world.view()
        time = world.write("bids", (1, 2))
        assert read_time(world, staleness=1_000_000) == time
        replica = world.replica("r1")
        replica.reports("u1", time + 1)
        later = world.write("bids", (1, 3))
        replica.dies()
        assert read_time(world, staleness=1_000_000) == later

    def test_it_is_strict_below_the_since(self, world: World) -> None:
        world.view(keep=0)
        slow, fast = world.replica("r1"), world.replica("r2")
        first = world.write("bids", (1, 2))
        slow.reports("u1", first + 1)
        last = world.write("bids", (1, 3))
        fast.reports("u1", last + 1)
        world.passes(1_000)
        third = world.write("bids", (1, 4))
        fast.dies()
        assert read_time(world, staleness=1_000_000) == third

    def test_collections_are_settled_by_their_writes(self, world: World) -> None:
        world.view()
        time = world.write("bids", (1, 2))
        assert read_time(world, view="bids", staleness=0) == time


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=30),
    st.integers(0, 5_000),
    st.integers(0, 1_000),
    st.integers(0, 2_000),
)
def test_staleness_is_since_the_first_write_after_a_time(
    gaps: list[int], time: int, later: int, bound: int
) -> None:
    """Also where times are ahead of the clock, as they are where many writes come in one millisecond."""
    now = [1_000]
    oracle = TimestampOracle(lambda: now[0], 900)
    written: list[tuple[int, int]] = []
    for gap in gaps:
        now[0] += gap
        oracle.acknowledge(oracle.assign_write_time())
        written.append((oracle.read, now[0]))
    now[0] += later
    after = [acknowledged for t, acknowledged in written if t > time]
    stale = now[0] - after[0] if after else 0
    within = oracle.is_within(bound, time)
    if time >= written[0][0]:
        assert within == (stale <= bound)
    else:
        assert not within, "nobody remembers"


def test_the_last_time_is_never_given() -> None:
    oracle = TimestampOracle(lambda: 2**70, 5)
    assert oracle.assign_write_time() < LAST_TIME


def test_reads_go_on_at_the_right_time_over_what_is_written_by_views(world: World) -> None:
    world.view(into="rows")
    world.view("high", high_tops("rows"))
    replica = world.replica("r1")
    time = world.write("bids", (1, 20))
    uuid, _ = world.peek("rows")
    (peek,) = replica.of(Peek)
    assert (peek.uuid, peek.time) == (uuid, time)
    rows = world.controller.describe("rows").id
    world.collections.append([CollectionAppend(rows, Frontier(0), Frontier(time + 1), (((1, 20), time, 1),))])
    world.passes(1_000)
    assert next(c.upper for c in world.status().collections if c.name == "rows") == Frontier(time + 1)
