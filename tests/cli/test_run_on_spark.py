"""`headrace run --on spark`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from tests.cli.conftest import ENVIRONMENT, Run

pytestmark = pytest.mark.spark


@pytest.mark.verify
def test_ctrl_c_ends_a_run_that_follows_and_the_next_one_goes_on(headrace: Run, folder: Path) -> None:
    command = [
        "run", "flows:flow", "--on", "spark", "--source", "sales=json:in", "--shards", "2",
        "--sink", "totals=table:out?key=shop", "--checkpoint", "state", "--no-progress",
    ]  # fmt: skip
    out = folder / "out"
    with subprocess.Popen(
        [sys.executable, "-u", "-c", ANNOUNCING, *command, "--follow"],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "tick 1\n"
        # As a terminal does it: every process of the group is told, Java too.
        os.killpg(running.pid, signal.SIGINT)
        _, errors = running.communicate(timeout=120)
    assert running.returncode == 128 + signal.SIGINT
    assert errors == "stopped after tick 1; state is saved in state: the same command resumes from there\n"
    (folder / "in" / "2.json").write_text('{"shop": "b", "price": 1}\n')
    done = headrace(*command)
    assert (done.returncode, done.stderr) == (0, "")
    found = duckdb.sql(f"select * from '{out}/current/*.parquet' order by shop").fetchall()
    assert found == [("a", 4), ("b", 3)]


@pytest.mark.verify
def test_a_rebuild_replaces_rows_whose_checkpoint_is_lost(spark: Any, folder: Path) -> None:
    command = [
        "run", f"{folder}/flows.py:totals", "--on", "spark", "--source", f"sales=json:{folder}/in",
        "--shards", "2", "--sink", f"totals=table:{folder}/out?key=shop",
        "--checkpoint", f"{folder}/state", "--no-progress",
    ]  # fmt: skip

    def totals(*options: str) -> list[tuple[Any, ...]]:
        done = CliRunner().invoke(app, [*command, *options])
        assert done.exit_code == 0, done.output
        return duckdb.sql(f"select * from '{folder}/out/current/*.parquet' order by shop").fetchall()

    assert totals() == [("a", 4), ("b", 2)]
    shutil.rmtree(folder / "state")
    (folder / "in" / "1.json").write_text('{"shop": "z", "price": 10}\n')
    assert totals("--rebuild") == [("z", 10)]
    (folder / "in" / "2.json").write_text('{"shop": "z", "price": 1}\n')
    assert totals() == [("z", 11)]


@pytest.mark.verify
def test_an_adoption_writes_what_differs_from_rows_whose_checkpoint_is_lost(spark: Any, folder: Path) -> None:
    command = [
        "run", f"{folder}/flows.py:totals", "--on", "spark", "--source", f"sales=json:{folder}/in",
        "--shards", "2", "--sink", f"totals=changelog:{folder}/out", "--checkpoint", f"{folder}/state",
    ]  # fmt: skip

    def totals(*options: str) -> tuple[list[tuple[Any, ...]], list[str]]:
        done = CliRunner().invoke(app, [*command, *options])
        assert done.exit_code == 0, done.output
        rows = duckdb.sql(
            f"select shop, total, sum(weight)::int from '{folder}/out/tick=*/*.parquet' "
            "group by all having sum(weight) <> 0 order by shop"
        ).fetchall()
        return rows, sorted(p.name for p in (folder / "out").iterdir())

    assert totals() == ([("a", 4, 1), ("b", 2, 1)], ["tick=1"])
    shutil.rmtree(folder / "state")
    (folder / "in" / "2.json").write_text('{"shop": "b", "price": 10}\n')
    assert totals("--adopt") == ([("a", 4, 1), ("b", 12, 1)], ["tick=1", "tick=2"])
    shutil.rmtree(folder / "state")
    assert totals("--adopt") == ([("a", 4, 1), ("b", 12, 1)], ["tick=1", "tick=2"])
    (folder / "in" / "3.json").write_text('{"shop": "a", "price": 1}\n')
    assert totals() == ([("a", 5, 1), ("b", 12, 1)], ["tick=1", "tick=2", "tick=4"])


# The command, and a line when a tick is done: a test cannot see a commit.
ANNOUNCING = """
import contextlib
from headrace.engine import progress_display as progress
from headrace.cli.main import app
progress.progress_reporter = lambda _: contextlib.nullcontext(lambda done: print("tick", done.tick))
app()
"""


@pytest.mark.verify
def test_once_closes_the_windows_of_input_that_ended_unless_it_is_kept_open(spark: Any, folder: Path) -> None:
    command = ["run", f"{folder}/flows.py:minutes", "--on", "spark", "--source", f"sales=json:{folder}/in"]
    closed = "minutes + window_start=0 window_end=2 sales=1"
    last = "minutes + window_start=2 window_end=4 sales=2"

    def printed(*options: str) -> list[str]:
        done = CliRunner().invoke(app, [*command, *options])
        assert done.exit_code == 0, done.stderr
        return [line.partition(" ")[2] for line in done.stdout.splitlines()]

    assert printed() == [closed, last]
    assert printed("--keep-open") == [closed]
    assert printed("--checkpoint", f"{folder}/state") == [closed]
    assert printed("--checkpoint", f"{folder}/state", "--end") == [last]
