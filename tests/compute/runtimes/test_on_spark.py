"""What is Spark's own: going on after a kill, scans and merges by tasks, processes that die."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import col
from headrace.compute.collections.opening import open_collections
from headrace.compute.errors import ResultTooLarge, RuntimeLost
from headrace.compute.frontier import END, Frontier
from headrace.compute.plans import encode_expr
from headrace.compute.protocol.commands import Finishing, IndexExport, Parameters
from headrace.compute.protocol.responses import Canceled, Problem
from headrace.compute.replica.spark import dataflow, inputs, runtime
from headrace.compute.replica.spark.inputs import Versions
from headrace.errors import SparkProcessDied
from headrace.expr.row_classes import schema_of
from headrace.spark.external_ticks import DrivenFlow
from headrace.state.checkpoint import Checkpoint
from tests.compute.runtimes.conftest import maker
from tests.compute.runtimes.stage import Best, Stage
from tests.golden import assert_golden

pytestmark = pytest.mark.spark


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(maker("spark", request), f"sqlite:{tmp_path}/collections.db", tmp_path / "replica")
    yield stage
    stage.close()


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The times of all ticks that are run."""
    found: list[tuple[int, ...]] = []
    run = DrivenFlow.run

    def noted(driven: DrivenFlow, given: Any, times: Any, positions: Any) -> int:
        found.append(tuple(times))
        return run(driven, given, times, positions)

    monkeypatch.setattr(DrivenFlow, "run", noted)
    return found


def move_to(stage: Stage, folder: Path) -> None:
    """The replica goes on from what another process has left in a folder."""
    stage.runtime.close()
    stage.folder = folder
    stage.restart()


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_killed_around_a_commit_it_goes_on_exactly_there(
    stage: Stage, ticks: list[tuple[int, ...]], moment: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    left = tmp_path / "left"

    def leave(*_: Any) -> None:
        if len(ticks) == 2 and not left.exists():
            shutil.copytree(stage.folder, left)

    within = (Checkpoint, "commit") if moment == "before the commit" else (Versions, "add")
    inner = getattr(*within)
    monkeypatch.setattr(*within, lambda *a, **k: (leave(), inner(*a, **k))[1])
    stage.collection("s1")
    stage.write("s1", ((1, 5), 3, 1))
    stage.view("u1", "s1", 3)
    stage.reached("u1", Frontier(4))
    stage.write("s1", ((1, 6), 5, 1), ((2, 2), 6, 1))
    stage.reached("u1", Frontier(7))
    assert ticks == [(3,), (5, 6)]
    move_to(stage, left)
    stage.view("u1", "s1", 3)
    found = [stage.rows("u1", time) for time in (4, 5, 6)]
    assert found == [[(1, 5)], [(1, 6)], [(1, 6), (2, 2)]]
    again = [(5, 6)] if moment == "before the commit" else []
    assert ticks[2:] == again


def test_a_restart_computes_nothing_again_and_forgets_what_is_not_asked_for(
    stage: Stage, ticks: list[tuple[int, ...]]
) -> None:
    stage.collection("s1")
    stage.write("s1", ((1, 5), 3, 1), ((1, 7), 5, 1))
    for id in ("u1", "u2"):
        stage.view(id, "s1", 3)
        stage.reached(id, Frontier(6))
    stage.on_index(IndexExport("u3", "output"), "u1", 3)
    stage.reached("u3", Frontier(6))
    before = list(ticks)
    stage.restart()
    stage.view("u1", "s1", 4)
    stage.on_index(IndexExport("u3", "output"), "u1", 4)
    assert stage.rows("u3", 4) == [(1, 5)]
    assert stage.rows("u3", 5) == [(1, 7)]
    assert ticks == before
    stage.until(lambda: len(list((stage.folder / "dataflows").iterdir())) == 2 or None)


@pytest.mark.parametrize("change", ["an as-of before", "another store", "a damaged file", "another plan"])
def test_what_cannot_be_gone_on_with_is_computed_anew(
    stage: Stage, ticks: list[tuple[int, ...]], change: str
) -> None:
    stage.collection("s1")
    stage.write("s1", ((1, 5), 3, 1), ((1, 9), 5, 1))
    stage.view("u1", "s1", 4)
    stage.reached("u1", Frontier(6))
    stage.runtime.close()
    as_of, expected = 4, [(1, 9)]
    if change == "an as-of before":
        as_of = 3
    elif change == "another store":
        stage.store.close()
        Path(stage.uri.removeprefix("sqlite:")).unlink()
        stage.store = open_collections(stage.uri)
        stage.collection("s1")
        stage.write("s1", ((7, 7), 8, 1))
        expected, as_of = [(7, 7)], 8
    elif change == "a damaged file":
        file = max(stage.folder.rglob("*.arrow"))
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    else:
        described = next(stage.folder.rglob("dataflow.json"))
        described.write_text(described.read_text().replace('"plan": "', '"plan": "0'))
    ticks.clear()
    stage.restart()
    stage.view("u1", "s1", as_of)
    assert stage.rows("u1", max(as_of, 5)) == expected
    assert ticks[0] == (as_of,)


@pytest.mark.verify
def test_large_indexes_are_scanned_and_merged_by_tasks(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "FEW_CHANGES", 10)
    monkeypatch.setattr(inputs, "MERGED_HERE", 10)
    monkeypatch.setattr(inputs, "_FILES", 2)
    stage.collection("s1")
    stage.write("s1", *(((n, n), 3, 1) for n in range(100)))
    stage.view("u1", "s1", 3)
    for time in range(4, 9):
        stage.write("s1", ((time, 100 + time), time, 1), ((200, time), time, 1))
        stage.reached("u1", Frontier(time + 1))
    stage.runtime.allow_compaction("u1", Frontier(6))
    stage.write("s1", ((0, 1000), 10, 1))
    at_8 = sorted({**{n: n for n in range(100)}, **{n: 100 + n for n in range(4, 9)}, 200: 8}.items())
    assert stage.rows("u1", 8) == at_8
    assert stage.rows("u1", 10, keys=[(0,), (5,)]) == [(0, 1000), (5, 105)]
    over = encode_expr(col.best > 97, schema_of(Best))
    assert stage.rows("u1", 8, predicate=over) == [row for row in at_8 if row[1] > 97]
    falling = Finishing(order_by=((1, True),), limit=3, offset=1, project=(0,))
    assert stage.rows("u1", 8, finishing=falling) == [(7,), (6,), (5,)]
    stage.runtime.configure(Parameters(max_result_size=500))
    assert stage.problem("u1", 8).code == ResultTooLarge.code
    stage.runtime.configure(Parameters())
    cancelled = stage.ask("u1", 8)
    stage.runtime.cancel_peek(cancelled)
    assert stage.answer(cancelled) == Canceled()
    assert stage.rows("u1", 6)[-1] == (200, 6)
    stage.runtime.allow_compaction("u1", END)
    stage.until(lambda: not list((stage.folder / "dataflows").iterdir()) or None)


def died(process: str) -> SparkProcessDied:
    return SparkProcessDied(f"the {process} died", why="It was ended.", fix="run it again", process=process)


def test_without_spark_the_replica_ends(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> int:
        raise died("jvm")

    monkeypatch.setattr(DrivenFlow, "run", die)
    stage.collection("s1", upper=5)
    stage.view("u1", "s1", 4)
    with pytest.raises(RuntimeLost) as caught:
        stage.reached("u1", Frontier(5))
    assert_golden(Path(__file__).parent / "spark_died.txt", f"{caught.value}\n")


@pytest.mark.parametrize("times", [2, 3])
def test_a_worker_may_die_twice_in_a_tick(stage: Stage, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    deaths = iter([died("worker")] * times)
    run = DrivenFlow.run

    def dying(*given: Any) -> int:
        for death in deaths:
            raise death
        return run(*given)

    monkeypatch.setattr(DrivenFlow, "run", dying)
    stage.collection("s1")
    stage.write("s1", ((1, 5), 4, 1))
    stage.view("u1", "s1", 4)
    answer = stage.answer(stage.ask("u1", 4))
    assert isinstance(answer, Problem) == (times == dataflow._ATTEMPTS)
