"""The state of a controller: whole after a kill at any step, of one controller at a time, not of others."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace.compute.collections.memory import MemoryCollections
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.controller.controller import Controller
from headrace.compute.controller.durable_catalog import DurableCatalog
from headrace.compute.errors import ComputeError, StaleEpoch, StoreDamaged, StoreUnavailable
from headrace.compute.frontier import START, Frontier
from headrace.compute.protocol.commands import TimelyConfig
from tests.compute.controller.world import BIDS, World, all_bids, high_tops, joined


class Killed(BaseException):
    """The process was killed."""


class Steps:
    """Counts the steps that last, and kills at one of them: before it, or after it."""

    def __init__(self, last: int | None = None) -> None:
        self.taken = 0
        self.last = last

    def step(self, what: Callable[[], Any]) -> Any:
        self.taken += 1
        if self.last is not None and self.taken > 2 * self.last:
            raise AssertionError("it goes on after it was killed")
        before, after = 2 * self.taken - 1, 2 * self.taken
        if before == self.last:
            raise Killed
        result = what()
        if after == self.last:
            raise Killed
        return result


class MortalCollections(MemoryCollections):
    """A store whose user may be killed around each change."""

    steps = Steps()

    def create(self, id: str, description: bytes, upper: Frontier = START) -> None:
        self.steps.step(lambda: super(MortalCollections, self).create(id, description, upper))

    def drop(self, id: str) -> None:
        self.steps.step(lambda: super(MortalCollections, self).drop(id))

    def append(self, appends: Sequence[CollectionAppend]) -> None:
        self.steps.step(lambda: super(MortalCollections, self).append(appends))

    def compact(self, id: str, since: Frontier) -> None:
        self.steps.step(lambda: super(MortalCollections, self).compact(id, since))


class MortalState(DurableCatalog):
    """A state whose user may be killed around each commit."""

    steps = Steps()

    def _commit(self) -> None:
        self.steps.step(super()._commit)


def mortal_world(steps: Steps) -> World:
    collections = MortalCollections()
    state = MortalState.open(":memory:")
    collections.steps = steps
    state.steps = steps  # pyright: ignore[reportAttributeAccessIssue]
    return World(state=state, collections=collections)


def acts() -> list[Callable[[World], object]]:
    return [
        lambda w: w.controller.create_collection("bids", BIDS, append_only=False),
        lambda w: w.view("top", key=["auction"]),
        lambda w: w.controller.add_replica("r1", "host:1", TimelyConfig()),
        lambda w: w.controller.time_of_write(b"1") or w.write("bids", (1, 20), ids=[b"1"]),
        lambda w: w.view("both", joined(), into="rows"),
        lambda w: w.view("high", high_tops()),
        lambda w: (
            w.controller.time_of_write(b"2") or w.change("bids", ((1, 20), -1), ((1, 30), 1), ids=[b"2"])
        ),
        lambda w: w.controller.describe("both") and w.controller.drop("both"),
        lambda w: w.passes(1_000),
        lambda w: w.controller.add_replica("r2", "host:2"),
        lambda w: w.controller.drop_replica("r1"),
        lambda w: w.passes(1_000),
        lambda w: w.controller.drop("others"),
        lambda w: w.passes(1_000),
        lambda w: w.view("all", all_bids()),
    ]


def shown(controller: Controller) -> dict[str, Any]:
    status = controller.status()
    return {
        "views": [(v.name, v.key, v.keep, v.reads, v.into) for v in status.views],
        "collections": {(c.name, c.append_only, c.columns, c.written_by) for c in status.collections},
        "replicas": [(r.name, r.address) for r in status.replicas],
    }


def rows(world: World, name: str) -> list[Any]:
    id = world.controller.describe(name).id
    (bounds,) = world.collections.bounds([id])
    assert bounds.upper.time is not None
    return sorted(row for chunk in world.collections.snapshot(id, bounds.upper.time - 1) for row in chunk)


def check_store(world: World) -> None:
    """The store holds what the catalog names, and nothing else; all of it is settled up to one time."""
    world.controller.check()
    world.passes(world.settings.patience)  # for so long what was there at the start is kept
    world.passes(1_000)
    names = {c.name for c in world.status().collections}
    ids = {world.controller.describe(name).id for name in (*names, "headrace.written")}
    assert world.collections.all().keys() == ids
    clients = [c for c in world.status().collections if c.written_by is None]
    assert all(c.upper == Frontier(world.status().read_time + 1) for c in clients)


def test_a_controller_that_is_killed_at_any_step_goes_on_from_there() -> None:
    """Catches: a change that is half in the catalog and half in the store, an id that is used twice, a write
    that is lost or done twice, a collection that nobody names."""
    counted = Steps()
    whole = mortal_world(counted)
    before = counted.taken
    states: list[dict[str, Any]] = [shown(whole.controller)]
    for act in acts():
        act(whole)
        states.append(shown(whole.controller))
    assert counted.taken > before + 20
    for last in range(1, 2 * counted.taken + 1):
        killed_at(last, states, rows(whole, "bids"))


def killed_at(last: int, states: list[dict[str, Any]], expected: list[Any]) -> None:
    steps = Steps(last)
    world: World | None = None
    try:
        world = mortal_world(steps)
    except Killed:
        return  # the world is not made yet: see `test_a_controller_that_is_killed_at_its_start`
    to_do = acts()
    for number, act in enumerate(to_do):
        try:
            act(world)
        except Killed:
            steps.last = None
            world.start()
            check_store(world)
            assert shown(world.controller) in (states[number], states[number + 1])
            if shown(world.controller) == states[number] or number in (3, 6):
                act(world)
        assert shown(world.controller) == states[number + 1]
    check_store(world)
    assert rows(world, "bids") == expected


def start_often(world: World) -> None:
    for _ in range(40):
        world.start()


def test_a_controller_that_is_killed_at_its_start_starts_again() -> None:
    for last in range(1, 30):
        state, collections = MortalState.open(":memory:"), MortalCollections()
        world = World(state=state, collections=collections)
        world.view("both", joined(), into="rows")
        steps = Steps(last)
        collections.steps = state.steps = steps  # type: ignore[misc]
        with pytest.raises(Killed):
            start_often(world)
        steps.last = None
        world.start()
        check_store(world)


def test_the_later_controller_fences_the_earlier_one(tmp_path: Path) -> None:
    """In one file, through two connections, as two processes have them."""
    collections = MemoryCollections()
    earlier = World(state=DurableCatalog.open(tmp_path / "state"), collections=collections)
    earlier.view()
    later = World(state=DurableCatalog.open(tmp_path / "state"), collections=collections)
    assert later.controller.epoch == earlier.controller.epoch + 1
    assert shown(later.controller) == shown(earlier.controller)
    old = earlier.controller
    for refused in (
        lambda: old.create_collection("more", BIDS, append_only=False),
        lambda: old.drop("top"),
        lambda: old.begin_write({"bids": []}),
        lambda: old.add_replica("r1", "host:1"),
        lambda: old.maintain(),
        lambda: earlier.peek(),
        lambda: earlier.subscribe(),
    ):
        with pytest.raises(StaleEpoch) as error:
            refused()
        assert (error.value.epoch, error.value.current) == (1, 2)  # type: ignore[attr-defined]
    later.write("bids", (1, 2))
    later.view("high", high_tops())
    earlier.state.close()
    later.state.close()


def test_what_was_told_is_there_after_the_file_was_closed(tmp_path: Path) -> None:
    collections = MemoryCollections()
    world = World(state=DurableCatalog.open(tmp_path / "state"), collections=collections)
    for act in acts():
        act(world)
    before = shown(world.controller)
    world.state.close()
    again = World(state=DurableCatalog.open(tmp_path / "state"), collections=collections)
    assert shown(again.controller) == before
    again.state.close()


Damage = Callable[[Path, MemoryCollections], None]


def no_database(path: Path, _: MemoryCollections) -> None:
    path.write_bytes(b"no database at all, " * 100)


def foreign_database(path: Path, _: MemoryCollections) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.commit()
    connection.close()


def later_layout(path: Path, _: MemoryCollections) -> None:
    DurableCatalog.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def changed(statement: str, *values: Any) -> Damage:
    def change(path: Path, collections: MemoryCollections) -> None:
        world = World(state=DurableCatalog.open(path), collections=collections)
        world.view()
        world.controller.add_replica("r1", "host:1")
        world.state.close()
        connection = sqlite3.connect(path)
        connection.execute(statement, values)
        connection.commit()
        connection.close()

    return change


@pytest.mark.parametrize(
    "damage",
    [
        no_database,
        foreign_database,
        later_layout,
        changed("UPDATE views SET entry = ?", b"\x93\x01"),
        changed("UPDATE views SET entry = ?", b"\x93\x01\x02\x03"),
        changed("UPDATE views SET entry = NULL"),
        changed("UPDATE collections SET entry = ?", b"\xff"),
        changed("UPDATE replicas SET entry = ?", b"text"),
        changed("DELETE FROM numbers"),
        changed("UPDATE numbers SET value = 'x'"),
        changed("DROP TABLE views"),
    ],
)
def test_a_file_that_is_not_ours_or_damaged_is_refused(tmp_path: Path, damage: Damage) -> None:
    path, collections = tmp_path / "state", MemoryCollections()
    damage(path, collections)
    with pytest.raises(StoreDamaged, match="is not a usable controller state"):
        World(state=DurableCatalog.open(path), collections=collections)


def test_a_change_does_not_renew_the_checksum_of_damage(tmp_path: Path) -> None:
    path = tmp_path / "state"
    world = World(state=DurableCatalog.open(path))
    world.view()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE numbers SET value = 77 WHERE name = 'u'")
    other.close()
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="do not have their checksum"):
            world.controller.add_replica("r1", "host:1")
    with pytest.raises(StoreDamaged, match="do not have their checksum"):
        world.state.check()
    world.state.close()


def test_a_file_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        DurableCatalog.open(tmp_path / "no folder" / "state")
    with pytest.raises(StoreUnavailable):
        DurableCatalog.open(tmp_path)


def test_a_store_that_belongs_to_another_state_is_refused() -> None:
    world = World()
    world.view()
    with pytest.raises(StoreDamaged, match="is missing in the store"):
        World(state=world.state, collections=MemoryCollections())


def test_a_state_that_knows_less_than_the_store_is_refused_and_nothing_is_lost() -> None:
    """A state that was deleted or is an old copy: its next ids are those of collections that are there."""
    world = World()
    world.view()
    world.write("bids", (1, 2))
    before = world.collections.all()
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="unknown to this state"):
            World(collections=world.collections)
    assert world.collections.all() == before
    assert rows(world, "bids") == [((1, 2), 1)]


def test_a_failed_change_changes_nothing(world: World) -> None:
    before = shown(world.controller)
    world.collections.create("s2", b"of somebody else")
    with pytest.raises(ComputeError):
        world.view()
    assert shown(world.controller) == before
    world.passes(1_000)
    assert world.view() == "u2"
    world.controller.check()


def test_a_state_of_an_earlier_layout_is_taken_over(tmp_path: Path) -> None:
    place = tmp_path / "controller.db"
    before = World(state=DurableCatalog.open(place))
    for act in acts():
        act(before)
    known = shown(before.controller)
    before.state.close()
    with sqlite3.connect(place) as connection:
        connection.execute("DROP TABLE positions")
        connection.execute("DELETE FROM numbers WHERE name = 'seal'")
        for table in ("collections", "views", "replicas"):
            connection.execute(f"UPDATE {table} SET entry = substr(entry, 5)")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    for epoch in (2, 3):
        world = World(state=DurableCatalog.open(place), collections=before.collections)
        assert world.status().epoch == epoch
        assert shown(world.controller) == known
        world.state.close()


@pytest.mark.seeds(200, together=50)
def test_random_bytes_in_the_file_are_noticed_or_change_nothing(seeds: range, tmp_path: Path) -> None:
    place, collections = tmp_path / "controller.db", MemoryCollections()
    world = World(state=DurableCatalog.open(place), collections=collections)
    for act in acts():
        act(world)
    with world.state.begin_change(1) as change:
        change.add_stray("s777")
    world.state.close()
    whole = place.read_bytes()
    assert len(whole) > 4096
    known = catalog_in(place)
    noticed = 0
    for seed in seeds:
        random = Random(seed)
        at = random.randrange(100, len(whole) - 500)
        for left in tmp_path.glob("controller.db-*"):
            left.unlink()
        place.write_bytes(whole[:at] + random.randbytes(500) + whole[at + 500 :])
        try:
            assert catalog_in(place) == known, seed
        except StoreDamaged:
            noticed += 1
    assert noticed


def catalog_in(place: Path) -> Any:
    """The epoch and catalog of the next controller."""
    state = DurableCatalog.open(place)
    try:
        return state.start()
    finally:
        state.close()


def test_a_write_begins_though_the_position_of_a_reader_cannot_be_recorded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.view("top", keep=1_000)
    replica = world.replica("r1")
    time = world.write("bids", (1, 2))
    id, _ = world.subscribe()
    replica.tells(id, 0, time + 1)
    world.passes(60_000)
    with monkeypatch.context() as patched:
        patched.setattr(world.state, "_commit", _full)
        world.write("bids", (1, 3))
    assert world.problems() == ["the state of the controller in :memory: cannot be used now"]
    world.passes(60_000)
    world.write("bids", (1, 4))
    (position,) = world.state.start()[1].positions.values()
    assert position == time


def _full() -> None:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise error
