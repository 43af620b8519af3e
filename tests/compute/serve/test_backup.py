"""Backups of a controller: of one moment while it runs, and restored only while nothing does."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed")

from headrace.compute import AsyncClient
from headrace.compute.collections.sqlite import SqliteCollections
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.controller.durable_catalog import DurableCatalog
from headrace.compute.errors import StoreDamaged, StoreUnavailable
from headrace.compute.frontier import START, Frontier
from headrace.compute.serve.backup import ControllerFiles, restore, save
from headrace.compute.serve.controller_process import Options, run_controller
from headrace.compute.serve.replica_server import ReplicaOptions, run_replica
from headrace.errors import BadInput
from tests.compute.controller.test_durable import acts
from tests.compute.controller.world import World
from tests.compute.serve.processes import Sale, totals
from tests.compute.serve.test_roles import LOCAL, running
from tests.compute.transport.fakes import PATIENCE


def served(folder: Path, act: Callable[[AsyncClient], Any], *, replica: str = "r1") -> Any:
    """What a client does with a controller and a replica that start for it, and end."""

    async def story() -> Any:
        options = ReplicaOptions(LOCAL, folder / replica)
        async with running(lambda ready: run_replica(options, ready)) as there:
            of_controller = Options(LOCAL, folder / "state", replicas={replica: there})
            async with (
                running(lambda ready: run_controller(of_controller, ready)) as address,
                AsyncClient(address) as client,
            ):
                return await act(client)

    return asyncio.run(story())


async def shown(client: AsyncClient) -> list[tuple[str, int]]:
    return sorted((row.shop, row.total) for row in await client.peek("totals"))


def test_a_backup_of_a_running_controller_is_restored_with_its_views_and_rows(tmp_path: Path) -> None:
    place, copies = ControllerFiles.of(tmp_path / "state"), tmp_path / "backup"

    async def before(client: AsyncClient) -> None:
        await client.create_view("totals", totals(), key="shop")
        await client.insert("sales", [Sale("a", 1)])
        saved = await asyncio.to_thread(save, ControllerFiles.of(tmp_path / "state"), copies)
        assert saved == ControllerFiles(copies / "controller.db", copies / "collections.db")
        await client.insert("sales", [Sale("b", 2)])
        await client.create_collection("later", int)
        with pytest.raises(StoreUnavailable, match=r"a process has .* open"):
            await asyncio.to_thread(restore, saved, ControllerFiles.of(tmp_path / "state"), replace=True)
        assert await shown(client) == [("a", 1), ("b", 2)]

    served(tmp_path, before)
    place = ControllerFiles.of(tmp_path / "state")
    with pytest.raises(BadInput, match="would be overwritten"):
        restore(ControllerFiles.of(copies), place)
    restore(ControllerFiles.of(copies), place, replace=True)

    async def after(client: AsyncClient) -> None:
        assert await shown(client) == [("a", 1)]
        await client.insert("sales", [Sale("c", 3)])
        assert await shown(client) == [("a", 1), ("c", 3)]
        names = [each.name for each in (await client.status()).collections]
        assert "later" not in names

    served(tmp_path, after, replica="r2")


def test_a_backup_makes_a_lost_state_good(tmp_path: Path) -> None:
    async def before(client: AsyncClient) -> None:
        await client.create_view("totals", totals(), key="shop")
        await client.insert("sales", [Sale("a", 1)])

    served(tmp_path, before)
    save(ControllerFiles.of(tmp_path / "state"), tmp_path / "backup")
    (tmp_path / "state" / "controller.db").unlink()
    with pytest.raises(StoreDamaged, match="unknown to this state") as error:
        served(tmp_path, shown)
    assert "headrace backup restore" in error.value.fix
    restore(ControllerFiles.of(tmp_path / "backup"), ControllerFiles.of(tmp_path / "state"), replace=True)
    assert served(tmp_path, shown, replica="r2") == [("a", 1)]


def contents(store: SqliteCollections) -> dict[str, Any]:
    """Bounds and rows of each collection."""
    ids = list(store.all())
    found: dict[str, Any] = {}
    for id, bounds in zip(ids, store.bounds(ids), strict=True):
        last = bounds.upper.time - 1 if bounds.upper.time else None
        readable = last is not None and bounds.since <= Frontier(last)
        chunks = store.snapshot(id, last) if readable and last is not None else ()
        found[id] = bounds, sorted(row for chunk in chunks for row in chunk)
    return found


class Watched(SqliteCollections):
    """A store that calls a function around each of its changes."""

    saw: Callable[[], None] = staticmethod(lambda: None)

    def create(self, id: str, description: bytes, upper: Frontier = START) -> None:
        self.saw()
        super().create(id, description, upper)
        self.saw()

    def drop(self, id: str) -> None:
        self.saw()
        super().drop(id)
        self.saw()

    def append(self, appends: Sequence[CollectionAppend]) -> None:
        self.saw()
        super().append(appends)
        self.saw()


def test_a_backup_at_any_moment_has_files_that_belong_together(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    saved: list[tuple[ControllerFiles, dict[str, Any]]] = []

    def save_now() -> None:
        saved.append((save(ControllerFiles.of(folder), tmp_path / f"backup {len(saved)}"), contents(store)))

    store = Watched(folder / "collections.db")
    world = World(state=DurableCatalog.open(folder / "controller.db"), collections=store)
    store.saw = save_now  # type: ignore[method-assign]
    for act in acts():
        act(world)
    world.state.close()
    store.close()
    assert len(saved) > 10
    assert any(rows for _, then in saved for _, rows in then.values())
    for copies, then in saved:
        assert copies.collections is not None
        with closing(SqliteCollections(copies.collections)) as rows:
            assert contents(rows) == then
            again = World(state=DurableCatalog.open(copies.state), collections=rows)
            again.state.close()


def test_what_is_no_backup_or_no_state_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    served(tmp_path, lambda client: client.create_collection("numbers", int))
    state = tmp_path / "state"
    before = {file.name: file.read_bytes() for file in state.iterdir()}
    good = save(ControllerFiles.of(state), tmp_path / "good")
    with pytest.raises(BadInput, match="is not empty"):
        save(ControllerFiles.of(state), tmp_path / "good")
    with pytest.raises(BadInput, match="there is no"):
        save(ControllerFiles.of(tmp_path / "nowhere"), tmp_path / "new")
    with pytest.raises(BadInput, match="there is no backup"):
        restore(ControllerFiles.of(tmp_path / "nowhere"), ControllerFiles.of(state), replace=True)
    for name in ("controller.db", "collections.db"):
        bad = tmp_path / f"bad {name}"
        shutil.copytree(tmp_path / "good", bad)
        (bad / name).write_bytes(b"no database" * 1000)
        with pytest.raises(StoreDamaged):
            restore(ControllerFiles.of(bad), ControllerFiles.of(state), replace=True)
    assert {file.name: file.read_bytes() for file in state.iterdir()} == before
    assert good.collections is not None


def saved(tmp_path: Path) -> ControllerFiles:
    state = tmp_path / "state"
    state.mkdir()
    world = World(
        state=DurableCatalog.open(state / "controller.db"),
        collections=(rows := SqliteCollections(state / "collections.db")),
    )
    world.view()
    world.state.close()
    rows.close()
    return save(ControllerFiles.of(state), tmp_path / "good")


def test_a_disk_that_is_full_during_a_restore_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies, state = saved(tmp_path), tmp_path / "state"
    before = {file.name: file.read_bytes() for file in state.iterdir()}

    def full(source: object, file: Path, **_: object) -> None:
        file.write_bytes(b"the beginning")
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("headrace.compute.serve.backup._copy", full)
    with pytest.raises(StoreUnavailable, match="cannot be copied") as error:
        restore(copies, ControllerFiles.of(state), replace=True)
    assert error.value.why == "database or disk is full"
    assert {file.name: file.read_bytes() for file in state.iterdir()} == before


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    copies, file = saved(tmp_path), tmp_path / "file"
    file.touch()
    with pytest.raises(BadInput, match="is not a folder"):
        restore(copies, ControllerFiles(file / "controller.db", file / "collections.db"))
    with pytest.raises(BadInput, match="is not a folder"):
        save(ControllerFiles.of(tmp_path / "state"), file)
    with pytest.raises(BadInput, match="there is no backup"):
        restore(ControllerFiles.of(file), ControllerFiles.of(tmp_path / "state"))


def test_a_state_alone_is_not_restored_beside_rows_of_another_moment(tmp_path: Path) -> None:
    saved(tmp_path)
    state, elsewhere = tmp_path / "state", tmp_path / "rows.db"
    (state / "collections.db").rename(elsewhere)
    half = save(ControllerFiles.of(state), tmp_path / "half")
    elsewhere.rename(state / "collections.db")
    before = {file.name: file.read_bytes() for file in state.iterdir()}
    with pytest.raises(BadInput, match="has no rows"):
        restore(half, ControllerFiles.of(state), replace=True)
    assert {file.name: file.read_bytes() for file in state.iterdir()} == before
    restore(half, ControllerFiles.of(state), replace=True, state_only=True)


def test_a_backup_that_lost_its_rows_is_not_restored_as_if_they_were_elsewhere(tmp_path: Path) -> None:
    copies = saved(tmp_path)
    assert copies.collections is not None
    copies.collections.unlink()
    new = ControllerFiles(tmp_path / "new" / "controller.db", tmp_path / "new" / "collections.db")
    lost = ControllerFiles.of(tmp_path / "good")
    with pytest.raises(BadInput, match="has no rows") as error:
        restore(lost, new)
    assert "--state-only" in error.value.fix
    assert not new.state.exists()
    restore(lost, new, state_only=True)
    assert new.state.exists()


def test_a_file_that_cannot_be_opened_is_not_said_to_be_in_use(tmp_path: Path) -> None:
    copies = saved(tmp_path)
    target = tmp_path / "new"
    (target / "controller.db").mkdir(parents=True)
    with pytest.raises(StoreUnavailable, match="cannot be copied now"):
        restore(copies, ControllerFiles(target / "controller.db", target / "collections.db"), replace=True)
    assert [file.name for file in target.iterdir()] == ["controller.db"]


def test_rows_that_lie_elsewhere_are_saved_and_restored_too(tmp_path: Path) -> None:
    served(tmp_path, lambda client: client.create_collection("numbers", int))
    elsewhere = tmp_path / "elsewhere.db"
    (tmp_path / "state" / "collections.db").rename(elsewhere)
    assert save(ControllerFiles.of(tmp_path / "state"), tmp_path / "half").collections is None
    save(ControllerFiles.of(tmp_path / "state", elsewhere), tmp_path / "whole")
    restore(
        ControllerFiles.of(tmp_path / "whole"),
        ControllerFiles(tmp_path / "new" / "controller.db", tmp_path / "rows.db"),
    )
    with closing(SqliteCollections(tmp_path / "rows.db")) as rows:
        World(state=DurableCatalog.open(tmp_path / "new" / "controller.db"), collections=rows).state.close()


# --- restored by hand, under processes that run ------------------------------------


def replaced_under_a_replica(folder: Path, replace: Callable[[Path, Path], object]) -> str:
    """Why the replica ends, whose collections are those of an earlier moment at once."""

    async def story() -> str:
        file = folder / "state" / "collections.db"
        there: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        options = ReplicaOptions(LOCAL, folder / "r1")
        replica = asyncio.create_task(run_replica(options, there.set_result))
        of_controller = Options(LOCAL, folder / "state", replicas={"r1": await there})
        async with (
            running(lambda ready: run_controller(of_controller, ready)) as address,
            AsyncClient(address) as client,
        ):
            await client.create_view("totals", totals(), key="shop")
            await client.insert("sales", [Sale("a", 1)])
            await asyncio.to_thread(save, ControllerFiles.of(folder / "state"), folder / "backup")
            await client.insert("sales", [Sale("b", 2)])
            assert await shown(client) == [("a", 1), ("b", 2)]
            replace(folder / "backup" / "collections.db", file)
            async with asyncio.timeout(PATIENCE):
                with pytest.raises(StoreDamaged) as error:
                    await replica
        return str(error.value)

    return asyncio.run(story())


def test_a_replica_whose_file_was_replaced_says_so_and_ends(tmp_path: Path) -> None:
    def replace(backup: Path, file: Path) -> None:
        copy = file.with_name("copy.db")
        shutil.copy(backup, copy)
        copy.rename(file)

    said = replaced_under_a_replica(tmp_path, replace)
    assert "collections.db was replaced while this process had it open" in said
    assert "headrace backup restore" in said


def test_a_replica_whose_file_was_overwritten_says_so_and_ends(tmp_path: Path) -> None:
    said = replaced_under_a_replica(tmp_path, shutil.copyfile)
    assert "collections.db was replaced while this process had it open" in said


def test_a_replica_whose_collections_went_back_says_so_and_ends(tmp_path: Path) -> None:
    def replace(backup: Path, file: Path) -> None:
        with closing(sqlite3.connect(backup)) as source, closing(sqlite3.connect(file)) as target:
            source.backup(target)

    said = replaced_under_a_replica(tmp_path, replace)
    assert "has gone back from time" in said
    assert "start this replica again" in said


def test_a_controller_whose_state_was_replaced_changes_nothing_more(tmp_path: Path) -> None:
    file = tmp_path / "controller.db"
    world = World(state=DurableCatalog.open(file))
    world.view()
    shutil.copy(file, tmp_path / "copy")
    (tmp_path / "copy").rename(file)
    with pytest.raises(StoreDamaged, match="was replaced"):
        world.state.check_epoch(world.controller.epoch)
    with pytest.raises(StoreDamaged, match="was replaced"):
        world.view("another")
    world.state.close()
