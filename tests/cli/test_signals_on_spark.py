"""Signals in the middle of a tick on Spark: the first lets it finish, the second breaks it off."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import ENVIRONMENT

pytestmark = pytest.mark.spark

# A tick that says when it is at work, and ends when it is let go.
GATED = """
import os, time
from typing import NamedTuple

import headrace as hr


class Sale(NamedTuple):
    shop: str
    price: int


def held(sale: Sale) -> int:
    open("at work", "a").close()
    while not os.path.exists("let go"):
        time.sleep(0.01)
    return sale.price


flow = hr.Flow("held")
flow.sink("prices", flow.source("sales", Sale).map(held))
"""


@contextmanager
def at_work(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that is in the middle of its first tick."""
    (folder / "gated.py").write_text(GATED)
    command = [
        "run", "gated:flow", "--on", "spark", "--source", "sales=json:in", "--shards", "1",
        "--sink", "prices=changelog:out", "--checkpoint", "state", "--follow", "--no-progress",
    ]  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", *command],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        while not (folder / "at work").exists():
            assert running.poll() is None, running.communicate()
            time.sleep(0.05)  # nothing but the file tells; it is waited for as long as it takes
        try:
            yield running
        finally:
            (folder / "let go").touch()
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)


def commits(folder: Path) -> list[str]:
    return [file.stem.lstrip("0") for file in (folder / "state" / "commit").glob("*.json")]


@pytest.mark.verify
def test_sigterm_ends_a_run_after_the_tick_at_work_and_that_is_committed(folder: Path) -> None:
    with at_work(folder) as running:
        running.terminate()
        (folder / "let go").touch()
        _, errors = running.communicate(timeout=120)
    assert running.returncode == 128 + signal.SIGTERM, errors
    assert errors == "stopped after tick 1; state is saved in state: the same command resumes from there\n"
    assert commits(folder) == ["1"]
    assert len(list((folder / "out").glob("tick=1/*.parquet"))) == 1


@pytest.mark.verify
def test_a_second_ctrl_c_breaks_the_tick_off_and_nothing_of_it_counts(folder: Path) -> None:
    with at_work(folder) as running:
        os.kill(running.pid, signal.SIGINT)
        os.kill(running.pid, signal.SIGINT)
        # Two signals of one kind may arrive as one: then it is said once more.
        assert running.stderr is not None
        while not select.select([running.stderr], [], [], 5)[0]:
            os.kill(running.pid, signal.SIGINT)
        _, errors = running.communicate(timeout=120)
    assert running.returncode == 128 + signal.SIGINT, errors
    assert errors.endswith("stopped immediately; committed ticks are kept\n")
    assert "Traceback" not in errors
    assert commits(folder) == []
    assert list((folder / "out").glob("tick=*")) == []
