"""How a controller starts, and what it leaves alone where it cannot."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed")

from headrace.compute import AsyncClient
from headrace.compute.errors import ConnectionBroken
from headrace.compute.replica.peeks import PeekStash
from headrace.compute.serve.controller_process import Options, run_controller
from headrace.compute.serve.replica_server import ReplicaOptions, run_replica
from headrace.expr.row_classes import schema_of
from tests.compute.serve.processes import Sale, totals
from tests.golden import MESSAGES, assert_golden


def test_one_that_cannot_listen_does_not_end_the_one_that_serves(tmp_path: Path) -> None:
    async def story() -> None:
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        options = Options("127.0.0.1:0", tmp_path)
        first = asyncio.create_task(run_controller(options, address.set_result))
        there = await address
        with pytest.raises(ConnectionBroken) as error:
            await run_controller(replace(options, listen=there), pytest.fail)
        assert_golden(MESSAGES / "address_taken.txt", f"{error.value}\n".replace(there, "127.0.0.1:7400"))
        async with AsyncClient(there, patience="0s") as client:
            await client.create_collection("numbers", int)
            await client.insert("numbers", [1])
            assert (await client.status()).epoch == 1
        assert not first.done()
        first.cancel()
        await asyncio.wait([first])

    asyncio.run(story())


# --- who may read what they keep ---------------------------------------------------


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


async def started(serve: Any, *arguments: Any) -> tuple[asyncio.Task[None], str]:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(*arguments, address.set_result))
    return task, await address


def modes(folder: Path) -> dict[str, str]:
    """Of all that lies in a folder, and of itself."""
    found = sorted((folder, *folder.rglob("*")))
    return {each.relative_to(folder.parent).as_posix(): oct(each.stat().st_mode & 0o777) for each in found}


def test_what_a_controller_and_a_replica_keep_is_of_their_owner_alone(tmp_path: Path, umask: None) -> None:
    kept = {name: tmp_path / "made" / name for name in ("controller", "replica")}

    async def story() -> dict[str, str]:
        replica, there = await started(run_replica, ReplicaOptions("127.0.0.1:0", kept["replica"]))
        options = Options("127.0.0.1:0", kept["controller"], replicas={"r1": there})
        controller, address = await started(run_controller, options)
        async with AsyncClient(address) as client:
            await client.create_view("totals", totals(), key="shop")
            await client.insert("sales", [Sale("a", 1)])
            await client.copy("totals", "totals.jsonl")
            await client.copy("totals", "totals.parquet")
            # Large results lie there for a moment only.
            large = PeekStash(kept["replica"] / "stash", lambda: 0).writer(schema_of(Sale))
            found = modes(kept["controller"]) | modes(kept["replica"])
            large.cancel()
        for task in (controller, replica):
            task.cancel()
            await asyncio.wait([task])
        return found

    found = asyncio.run(story())
    stashed = next(name for name in found if name.endswith(".rows"))
    folder, file = "0o700", "0o600"
    assert found == {
        "controller": folder,
        "controller/collections.db": file,
        "controller/collections.db-shm": file,
        "controller/collections.db-wal": file,
        "controller/controller.db": file,
        "controller/controller.db-shm": file,
        "controller/controller.db-wal": file,
        "replica": folder,
        "replica/copies": folder,
        "replica/copies/totals.jsonl": file,
        "replica/copies/totals.parquet": file,
        "replica/stash": folder,
        stashed: file,
    }


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o750)

    async def story() -> None:
        task, _ = await started(run_controller, Options("127.0.0.1:0", folder))
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(story())
    assert modes(folder)["shared"] == "0o750"
