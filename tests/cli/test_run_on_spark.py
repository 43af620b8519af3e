"""`penstock run --on spark`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.cli.conftest import ENVIRONMENT, Run

pytestmark = pytest.mark.spark


def test_ctrl_c_ends_a_run_that_follows_and_the_next_one_goes_on(penstock: Run, folder: Path) -> None:
    command = [
        "run", "flows:flow", "--on", "spark", "--source", "sales=json:in", "--shards", "2",
        "--sink", "totals=table:out?key=shop", "--checkpoint", "state",
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
    assert errors == "stopped after tick 1; state is saved in state: the same command goes on from there\n"
    (folder / "in" / "2.json").write_text('{"shop": "b", "price": 1}\n')
    done = penstock(*command)
    assert (done.returncode, done.stderr) == (0, "")
    found = duckdb.sql(f"select * from '{out}/current/*.parquet' order by shop").fetchall()
    assert found == [("a", 4), ("b", 3)]


# The command, and a line when a tick is done: a test cannot see a commit.
ANNOUNCING = """
import contextlib
from penstock.cli import progress
from penstock.cli.main import app
progress.shown_progress = lambda _: contextlib.nullcontext(lambda done: print("tick", done.tick))
app()
"""
