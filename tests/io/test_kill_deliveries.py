"""Killed at any moment and started again: PostgreSQL and Delta hold each tick exactly once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import headrace as hr
from headrace.io import JsonFiles
from tests.io.killed_deliveries import flow
from tests.postgres_server import Postgres

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("deltalake", reason="deltalake is not installed")


@pytest.mark.verify
@pytest.mark.seeds(2)
def test_what_was_killed_and_started_again_has_delivered_each_tick_once(
    tmp_path: Path, postgres: Postgres, seed: int
) -> None:
    postgres.query(f"create schema killed_{seed}")
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "tests.io.killed_deliveries", str(tmp_path), str(seed), postgres.url]
    done = subprocess.run(
        [*command, f"killed_{seed}"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    ticks: list[tuple[int, Any]] = []
    hr.run(
        flow(),
        {"sales": JsonFiles(tmp_path / "in", dead_letter=tmp_path / "dead of the undisturbed")},
        {"log": lambda tick, changes: ticks.append((tick, [(*c.row, c.weight) for c in changes]))},
        tick_rows=11,
    )
    log = Counter((*change, tick) for tick, changes in ticks for change in changes)
    now: Counter[Any] = Counter()
    for *row, weight, _ in log.elements():
        now[tuple(row)] += weight
    assert Counter(pl.read_delta(str(tmp_path / "log")).rows()) == log
    assert Counter(pl.read_delta(str(tmp_path / "now")).rows()) == +now
    for table, rows in (("log", log), ("now", +now)):
        assert Counter(map(tuple, postgres.query(f"select * from killed_{seed}.{table}"))) == rows
    postgres.query(f"drop schema killed_{seed} cascade")
