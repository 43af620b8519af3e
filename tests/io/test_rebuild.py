"""`headrace run --rebuild`: new folders beside the old ones, exchanged at the end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.rebuild import rebuild
from headrace.errors import BadInput, BadRow, CheckpointInUse, HeadraceError
from headrace.file_system import FolderLock
from headrace.io import JsonFiles
from headrace.io.kafka import KafkaTopic
from headrace.state.commit import Lease
from headrace.state.rewind import skip_file
from tests.io.killed_rebuild import NEW, OLD, Sale, rows, run, sinks_in, totals_of
from tests.io.killed_rebuild import rebuild as rebuild_in

ROOT = Path(__file__).resolve().parents[2]


def new_and_again(folder: Path, **sinks: Any) -> Any:
    return rebuild(
        folder / "state",
        {},
        {**sinks_in(folder), **sinks},
        lambda checkpoint, to: run(folder, NEW, checkpoint, to),
    )


@pytest.mark.parametrize("lost", [True, False])
def test_the_new_rows_take_the_place_of_the_old_ones_and_the_next_run_goes_on(
    tmp_path: Path, lost: bool
) -> None:
    run(tmp_path, OLD)
    if lost:
        shutil.rmtree(tmp_path / "state")
    (tmp_path / "table").chmod(0o750)
    seen: list[Any] = []

    def aside(checkpoint: str, sinks: Any) -> Any:
        done = run(tmp_path, NEW, checkpoint, sinks)
        seen.append(rows(tmp_path))
        return done

    rebuild(tmp_path / "state", {}, sinks_in(tmp_path), aside)
    assert seen == [(totals_of(OLD),) * 2]
    assert rows(tmp_path) == (totals_of(NEW),) * 2
    assert (tmp_path / "table").stat().st_mode & 0o777 == 0o750
    run(tmp_path, [*NEW, Sale(0, 100)])
    assert rows(tmp_path) == (totals_of([*NEW, Sale(0, 100)]),) * 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["changes", "state", "table"]


def test_a_failed_rebuild_leaves_everything_as_it_was(tmp_path: Path) -> None:
    run(tmp_path, OLD)
    with pytest.raises(HeadraceError):
        rebuild_in(tmp_path, [*NEW, "no sale"])  # type: ignore[list-item]
    assert rows(tmp_path) == (totals_of(OLD),) * 2
    run(tmp_path, [*OLD, Sale(0, 100)])
    assert rows(tmp_path) == (totals_of([*OLD, Sale(0, 100)]),) * 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["changes", "state", "table"]


def test_a_stopped_rebuild_replaces_nothing(tmp_path: Path) -> None:
    run(tmp_path, OLD)

    def stopped(checkpoint: str, sinks: Any) -> Any:
        return replace(run(tmp_path, NEW, checkpoint, sinks), stopped_by=signal.SIGINT)

    rebuild(tmp_path / "state", {}, sinks_in(tmp_path), stopped)
    assert rows(tmp_path) == (totals_of(OLD),) * 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["changes", "state", "table"]


def test_what_is_in_use_is_not_replaced(tmp_path: Path) -> None:
    run(tmp_path, OLD)
    lease = Lease.take(tmp_path / "state")
    with pytest.raises(CheckpointInUse):
        new_and_again(tmp_path)
    lease.release()
    lock = FolderLock.take(tmp_path / "changes")
    assert lock is not None
    with lock, pytest.raises(BadInput, match="changes is in use"):
        new_and_again(tmp_path)
    shutil.rmtree(tmp_path / "state")

    def overtaken(checkpoint: str, sinks: Any) -> Any:
        (tmp_path / "state").mkdir()
        return run(tmp_path, NEW, checkpoint, sinks)

    with pytest.raises(BadInput, match="state is in use"):
        rebuild(tmp_path / "state", {}, sinks_in(tmp_path), overtaken)
    assert rows(tmp_path) == (totals_of(OLD),) * 2


def test_dead_letters_of_earlier_runs_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / "tick=1-sales.jsonl").write_text(json.dumps({}))
    source = JsonFiles(tmp_path / "in", dead_letter=tmp_path / "dead")
    with pytest.raises(BadInput, match="holds dead letters of earlier runs"):
        rebuild(tmp_path / "state", {"sales": source}, {}, lambda *_: pytest.fail("it runs"))


def test_skipped_files_stay_skipped_and_advice_names_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    good, bad = tmp_path / "in" / "1.json", tmp_path / "in" / "2.json"
    good.write_text('{"shop": 1, "price": 2}')
    source: Any = JsonFiles(tmp_path / "in")
    run(tmp_path, source)
    bad.write_text("no sale")
    with pytest.raises(BadRow) as raised:
        rebuild_in(tmp_path, source)
    assert f"headrace skip {tmp_path / 'state'} {bad}" in str(raised.value)
    assert "rebuilt" not in str(raised.value)
    skip_file(tmp_path / "state", bad)
    rebuild_in(tmp_path, source)
    assert rows(tmp_path) == ({1: 2},) * 2
    run(tmp_path, source)


def test_a_folder_with_something_else_in_it_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, OLD)
    (tmp_path / "table" / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="table holds notes"):
        new_and_again(tmp_path)
    (tmp_path / "table" / "notes.txt").unlink()
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "letter").write_text("mine")
    with pytest.raises(BadInput, match="state holds letter"):
        new_and_again(tmp_path)
    (tmp_path / "state" / "letter").unlink()
    monkeypatch.chdir(tmp_path / "state")
    with pytest.raises(BadInput, match="state holds state"):
        new_and_again(tmp_path)
    monkeypatch.chdir(tmp_path)
    new_and_again(tmp_path)
    assert rows(tmp_path) == (totals_of(NEW),) * 2


def test_a_sink_that_is_no_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="sink 'changes' is KafkaTopic, which cannot be rebuilt"):
        new_and_again(tmp_path, changes=KafkaTopic("localhost:1", "t"))


@pytest.mark.parametrize("way", ["rebuild", "adopt"])
@pytest.mark.parametrize(
    ("what", "step", "lost"),
    [
        ("swap", 17, "kept"),
        pytest.param("swap", 1, "lost", marks=pytest.mark.verify),
        pytest.param("swap", 1, "kept", marks=pytest.mark.verify),
        pytest.param("run", 7, "lost", marks=pytest.mark.verify),
    ],
)
def test_killed_at_any_operation_it_leaves_the_old_or_the_new(
    tmp_path: Path, way: str, what: str, step: int, lost: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.io.killed_rebuild", way, what, str(tmp_path), str(step), lost],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > (15 if step < 17 else 1)
