"""The commands that ask a controller, against one in a thread whose replica is in the same process."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed")

from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.compute.serve.process import Options, run_controller
from penstock.compute.serve.replica_process import ReplicaOptions, run_replica
from tests.cli.conftest import FLOWS
from tests.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"


class Served:
    """A controller and a replica, each served by one thread's event loop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        replica, found = self._started(
            lambda ready: run_replica(ReplicaOptions("127.0.0.1:0", self.folder / "r1"), ready)
        )
        options = Options("127.0.0.1:0", self.folder / "state", replicas={"r1": await found})
        controller, found = self._started(lambda ready: run_controller(options, ready))
        self.address = await found
        self._tasks = [controller, replica]
        self._ready.set()
        for task in self._tasks:
            await asyncio.wait([task])

    def _started(self, serve: Any) -> tuple[asyncio.Task[None], asyncio.Future[str]]:
        address: asyncio.Future[str] = self._loop.create_future()
        return self._loop.create_task(serve(address.set_result)), address

    def end(self) -> None:
        for task in self._tasks:
            self._loop.call_soon_threadsafe(task.cancel)
        self._thread.join()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("served"))
    (made.folder / "flows.py").write_text(FLOWS)
    yield made
    made.end()


@pytest.fixture
def penstock(served: Served) -> Any:
    runner = CliRunner()

    def run(*arguments: str, code: int = 0, **more: Any) -> Any:
        environment = {"PENSTOCK_CONTROLLER": served.address, "COLUMNS": "120", "NO_COLOR": "1"}
        done = runner.invoke(app, arguments, env=environment, **more)
        assert done.exit_code == code, done.output
        return done

    return run


def test_a_view_is_made_filled_read_watched_and_dropped(penstock: Any, served: Served) -> None:
    flow = f"{served.folder / 'flows.py'}:totals"
    made = penstock("view", "create", flow, "--key", "shop")
    assert made.output == "view totals of sales\n"
    lines = '{"shop": "a", "price": 1}\n{"shop": "b", "price": 2}\n{"price": 3, "shop": "a"}\n'
    added = penstock("insert", "sales", "-", input=lines).output
    assert re.fullmatch(r"3 rows added to sales at \d+\n", added)
    assert (
        penstock("peek", "totals", "--key", "a", "--format", "json").stdout == '{"shop": "a", "total": 4}\n'
    )
    table = penstock("peek", "totals", "--order-by=-total", "--where", "col.total > 0").stdout
    assert_golden(GOLDEN / "peek.txt", table)
    watched = penstock("subscribe", "totals", "--once").stdout
    assert re.fullmatch(
        r"\d+ \+ shop=a total=4\n\d+ \+ shop=b total=2\n", "".join(sorted(watched.splitlines(True)))
    )
    as_json = penstock("subscribe", "totals", "--once", "--format", "json").stdout
    assert {json.loads(line)["row"]["total"] for line in as_json.splitlines()} == {4, 2}
    status = json.loads(penstock("status", "--json").stdout)
    assert [view["name"] for view in status["views"]] == ["totals"]
    shown = penstock("status").stdout
    for word in ("r1", "connected", "totals", "ready", "clients, only added to"):
        assert word in shown
    assert "totals" in penstock("view", "list").stdout
    penstock("view", "drop", "totals")
    assert "UnknownName" in penstock("peek", "totals", code=2).stderr


def test_what_is_wrong_is_said_before_anything_is_written(penstock: Any, served: Served) -> None:
    penstock("view", "create", f"{served.folder / 'flows.py'}:totals", "--name", "other", "--key", "shop")
    assert "there is no file" in penstock("insert", "sales", "nowhere.json", code=2).stderr
    assert "rows are given" in penstock("insert", "sales", code=2).stderr
    wrong = penstock("insert", "sales", "--row", '{"shop": 7, "price": 1}', code=1).stderr
    assert "--row, line 1 is no row of 'sales'" in wrong
    assert "is no key of 'other'" in penstock("peek", "other", "--key", "[1, 2]", code=2).stderr
    assert "that is no expression" in penstock("peek", "other", "--where", "col.total >", code=2).stderr
    assert "NotWritable" in penstock("delete", "sales", "--row", '{"shop": "a", "price": 1}', code=2).stderr


def test_a_controller_that_is_not_there_is_said(penstock: Any) -> None:
    said = penstock("status", "--controller", "127.0.0.1:1", code=1).stderr
    assert "there is no connection to 127.0.0.1:1" in said


def test_replicas_are_added_and_dropped(penstock: Any) -> None:
    penstock("replicas", "add", "r2=127.0.0.1:1")
    assert "waiting" in penstock("status").stdout
    penstock("replicas", "release", "r2")
    penstock("replicas", "drop", "r2")
    assert "UnknownName" in penstock("replicas", "drop", "r2", code=2).stderr
