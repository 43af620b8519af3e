"""Several processes on one store: one wins each time, and a kill loses nothing that was acknowledged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.compute.frontier import Frontier

from .conftest import ROOT, Place
from .killed import ROWS

HERE = Path(__file__).parent


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(HERE / script), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


@pytest.fixture
def shared_place(place: Place) -> Place:
    if place.kind == "memory":
        pytest.skip("a store in memory is of one process")
    return place


def test_of_two_processes_one_wins_each_time_and_nothing_is_lost(shared_place: Place) -> None:
    store = shared_place.open()
    store.create("s1", b"")
    store.create("s2", b"")
    wins = 12
    both = {name: start("appending.py", shared_place.uri, name, str(wins)) for name in ("one", "other")}
    won = {name: [int(t) for t in process.communicate()[0].split()] for name, process in both.items()}
    upper = store.bounds(["s1"])[0].upper
    assert sorted(won["one"] + won["other"]) == list(range(2 * wins))
    assert upper == Frontier(2 * wins)
    for id in ("s1", "s2"):
        told = [u for part in store.changes(id, Frontier(0), upper) for u in part]
        assert sorted(told, key=lambda u: u[1]) == sorted(
            (((name,), time, 1) for name, times in won.items() for time in times), key=lambda u: u[1]
        )


def test_a_kill_at_any_moment_loses_no_acknowledged_append(shared_place: Place) -> None:
    store = shared_place.open()
    store.create("s1", b"")
    store.create("s2", b"")
    for after in (2, 8):
        process = start("killed.py", shared_place.uri)
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(after)]
        process.send_signal(signal.SIGKILL)
        acknowledged += map(int, process.stdout.read().split())
        process.wait()
        process.stdout.close()
        (one, other) = (bounds.upper.time for bounds in store.bounds(["s1", "s2"]))
        assert one is not None
        assert one == other
        assert acknowledged[-1] + 1 <= one <= acknowledged[-1] + 2
        for id in ("s1", "s2"):
            rows = [row for part in store.snapshot(id, one - 1) for row in part]
            assert sorted(rows) == [((one - 1, i), 1) for i in range(ROWS)]
