"""Nothing lost, nothing twice: a run in this process, killed at any moment and started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

import headrace as hr
from headrace.io import JsonFiles
from tests.io.killed_run import flow

ROOT = Path(__file__).resolve().parents[2]


def killed_until_through(folder: Path, seed: int) -> int:
    """How often it was killed."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.io.killed_run", str(folder), str(seed)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def undisturbed(folder: Path) -> list[tuple[int, Counter[Any]]]:
    """The changes per tick of a run that nobody killed."""
    ticks: list[tuple[int, Counter[Any]]] = []
    hr.run(
        flow(),
        {"sales": JsonFiles(folder / "in", dead_letter=folder / "dead of the undisturbed")},
        {"changes": lambda tick, changes: ticks.append((tick, Counter((*c.row, c.weight) for c in changes)))},
        tick_rows=11,
    )
    return ticks


@pytest.mark.seeds(4, verify_from=1)
def test_what_was_killed_and_started_again_has_written_exactly_the_right_rows(
    tmp_path: Path, seed: int
) -> None:
    deaths = killed_until_through(tmp_path, seed)
    assert deaths > 0, "this seed tests nothing"
    wanted = undisturbed(tmp_path)

    found = duckdb.sql(
        f"select tick, shop, total, n, weight from read_parquet('{tmp_path}/changes/tick=*/*.parquet')"
    ).fetchall()
    assert Counter(found) == Counter((tick, *change) for tick, changes in wanted for change in changes)

    now: Counter[Any] = Counter()
    for _, changes in wanted:
        for *row, weight in changes:
            now[tuple(row)] += weight
    table = duckdb.sql(f"select * from read_parquet('{tmp_path}/table/current/*.parquet')").fetchall()
    assert Counter(table) == +now

    dead = [p.read_text() for p in sorted((tmp_path / "dead").glob("*.jsonl"))]
    assert dead == [p.read_text() for p in sorted((tmp_path / "dead of the undisturbed").glob("*.jsonl"))]

    # A function is told every tick; those at whose end the run was killed perhaps twice, with the same rows.
    told = [json.loads(line) for line in (tmp_path / "told.jsonl").read_text().splitlines()]
    once = {tick: Counter(map(tuple, changes)) for tick, changes in told}
    assert [(tick, once[tick]) for tick in sorted(once)] == wanted
    assert all(Counter(map(tuple, changes)) == once[tick] for tick, changes in told)
    assert [tick for tick, _ in told] == sorted(tick for tick, _ in told)

    # A pull-stream is given every change, those of a tick at which the run was killed perhaps again.
    pulled = [tuple(json.loads(line)) for line in (tmp_path / "pulled.jsonl").read_text().splitlines()]
    assert Counter(pulled) >= Counter(change for _, changes in wanted for change in changes)
    assert set(pulled) == {change for _, changes in wanted for change in changes}
    left = [p for p in tmp_path.rglob("*") if p.name.startswith("_staging") or p.name.endswith(".tmp")]
    assert left == []
