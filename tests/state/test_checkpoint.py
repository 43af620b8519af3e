"""Commits count whole, once, and for one driver at a time."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import CheckpointDamaged, CheckpointInUse, FlowChanged, NotPlainData, UnreadableSource
from headrace.state import commit
from headrace.state.chain import BatchChain
from headrace.state.checkpoint import Checkpoint, DirectoryState
from headrace.state.inspection import inspect
from headrace.state.lazy_slots import Form
from headrace.state.manifest import Manifest, as_it_is, exactly
from headrace.state.shard import ShardState
from tests.golden import MESSAGES, assert_golden

FLOW = Manifest("f1", ["source a", "sum by k"])


def opened(folder: Path, **changes: Any) -> DirectoryState:
    return DirectoryState.open(folder, exactly(replace(FLOW, **changes)), lambda _: {"1.sum": Form()})


def filled(folder: Path, ticks: int = 5) -> None:
    with opened(folder) as state:
        for tick in range(1, ticks + 1):
            for key in range(20):
                state.slots["1.sum"][key] = (tick, key)
            state.commit()


def test_a_restart_finds_the_last_commit(tmp_path: Path) -> None:
    filled(tmp_path)
    with opened(tmp_path) as state:
        assert state.tick == 5
        assert state.slots["1.sum"].get(7) == (5, 7)


def test_what_is_not_committed_is_gone(tmp_path: Path) -> None:
    filled(tmp_path)
    with opened(tmp_path) as state:
        state.slots["1.sum"][7] = "half a tick"
    with opened(tmp_path) as state:
        assert state.slots["1.sum"].get(7) == (5, 7)


def test_only_files_that_kept_commits_name_stay(tmp_path: Path) -> None:
    filled(tmp_path, 30)
    (tmp_path / "state/000/000000000031-lost").write_bytes(b"left by a killed attempt")
    with opened(tmp_path):
        commits = sorted((tmp_path / "commit").glob("*"))
        assert [p.stem for p in commits] == [f"{t:012d}" for t in (28, 29, 30)]
        named: set[str] = set()
        for path in commits:
            chain = BatchChain.from_json(json.loads(path.read_text())["body"]["chains"]["0"])
            named |= {Path(file.name).name for file in chain.files()}
        assert {p.name for p in (tmp_path / "state/000").iterdir()} == named


def test_a_shard_whose_last_key_is_removed_is_empty(tmp_path: Path) -> None:
    with opened(tmp_path) as state:
        state.slots["1.sum"][1] = "there"
        state.commit()
        del state.slots["1.sum"][1]
        state.commit()
    with opened(tmp_path) as state:
        assert state.tick == 2
        assert state.bytes == 0
        assert state.slots["1.sum"].get(1) is None


def test_a_second_driver_is_refused_by_name(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(CheckpointInUse, match=f"process {os.getpid()} on "):
        opened(tmp_path)
    opened(tmp_path).close()


def test_a_stale_driver_cannot_commit(tmp_path: Path) -> None:
    stale = opened(tmp_path)
    # As on a file system whose locks do not hold: another one takes over.
    (tmp_path / "lease" / "lock").unlink()
    with opened(tmp_path) as other:
        stale.slots["1.sum"][1] = "stale"
        with pytest.raises(CheckpointInUse, match="taken over"):
            stale.commit()
        other.slots["1.sum"][1] = "other"
        other.commit()
    stale.close()
    with opened(tmp_path) as state:
        assert state.slots["1.sum"].get(1) == "other"


@pytest.mark.parametrize("step", ["before it is written aside", "before it counts"])
def test_a_driver_superseded_in_the_middle_of_a_commit_commits_nothing(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, 2)
    stale = opened(tmp_path)
    stale.slots["1.sum"][1] = "stale"

    def taken_over(*given: Any, **options: Any) -> Any:
        # As if the process had been stopped just here, for as long as another one needs.
        monkeypatch.undo()
        (tmp_path / "lease" / "lock").unlink()
        opened(tmp_path).close()
        return before(*given, **options)

    place, name = (commit, "write_checked") if step == "before it is written aside" else (os, "link")
    before: Any = getattr(place, name)
    monkeypatch.setattr(place, name, taken_over)
    with pytest.raises(CheckpointInUse):
        stale.commit()
    stale.close()
    with opened(tmp_path) as state:
        assert state.tick == 2
        assert state.slots["1.sum"].get(1) == (2, 1)


def test_a_tick_is_committed_once(tmp_path: Path) -> None:
    with Checkpoint.open(tmp_path, exactly(FLOW)) as checkpoint:
        commit = checkpoint.commit({})
        checkpoint.last = None
        with pytest.raises(CheckpointInUse, match="tick 1 was committed"):
            checkpoint.commit({}, positions="other")
        assert checkpoint._log.read(1) == commit


def test_a_changed_flow_is_refused_with_what_changed(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(FlowChanged, match=r"(?s)-sum by k.*\+sum by j"):
        opened(tmp_path, fingerprint="f2", description=["source a", "sum by j"])


def test_a_changed_flow_passes_where_the_binder_says_so(tmp_path: Path) -> None:
    filled(tmp_path)
    asked: list[Any] = []

    def bind(_: Path, last: Manifest | None, tick: int) -> Manifest:
        asked.append((last, tick))
        return replace(FLOW, fingerprint="f2")

    with DirectoryState.open(tmp_path, bind, lambda _: {"1.sum": Form()}) as state:
        ((last, tick),) = asked
        assert (last.fingerprint, tick, state.tick) == ("f1", 5, 5)
        assert state.manifest.id == last.id
        state.commit()
    with DirectoryState.open(tmp_path, as_it_is, lambda _: {"1.sum": Form()}) as state:
        assert state.manifest.fingerprint == "f2"


def test_a_flow_binds_from_its_first_commit_on(tmp_path: Path) -> None:
    filled(tmp_path)
    DirectoryState.open(tmp_path, lambda *_: replace(FLOW, fingerprint="f2"), lambda _: {}).close()
    opened(tmp_path).close()


def test_before_the_first_commit_nothing_binds(tmp_path: Path) -> None:
    opened(tmp_path).close()
    opened(tmp_path, fingerprint="f2").close()


def test_the_number_of_shards_is_fixed(tmp_path: Path) -> None:
    with Checkpoint.open(tmp_path, exactly(replace(FLOW, shards=4))) as checkpoint:
        checkpoint.commit({})
    with pytest.raises(FlowChanged, match="has 4 shards, not 2"):
        Checkpoint.open(tmp_path, exactly(replace(FLOW, shards=2)))
    with Checkpoint.open(tmp_path, as_it_is) as checkpoint:
        assert checkpoint.manifest.shards == 4


@pytest.mark.parametrize("name", ["manifest/*", "commit/000000000005.json", "state/000/000000000005-*"])
@pytest.mark.parametrize("how", ["missing", "torn", "altered"])
def test_damage_is_named_and_never_read_as_empty(tmp_path: Path, name: str, how: str) -> None:
    filled(tmp_path)
    victim = min(tmp_path.glob(name))
    data = victim.read_bytes()
    if how == "missing":
        victim.unlink()
    elif how == "torn":
        victim.write_bytes(data[: len(data) // 2])
    else:
        victim.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    # Whether the last commit is missing or another shows by nothing but that one of them is.
    lost_tick = how == "missing" and victim.parent.name == "commit"
    named = "or those after tick 4 are" if lost_tick else victim.name
    with pytest.raises(CheckpointDamaged, match=named), opened(tmp_path) as state:
        state.slots["1.sum"].get(1)


def test_damage_leaves_the_checkpoint_free(tmp_path: Path) -> None:
    filled(tmp_path)
    (manifest,) = tmp_path.glob("manifest/*")
    whole = manifest.read_bytes()
    manifest.write_bytes(b"{")
    with pytest.raises(CheckpointDamaged):
        opened(tmp_path)
    manifest.write_bytes(whole)
    opened(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnreadableSource, match="file"):
        opened(tmp_path / "file" / "checkpoint")


WRITER = textwrap.dedent("""
    import sys
    from headrace.state.checkpoint import DirectoryState
    from headrace.state.manifest import Manifest, exactly
    from headrace.state.lazy_slots import Form
    state = DirectoryState.open(sys.argv[1], exactly(Manifest("f", [])), lambda _: {"s": Form()})
    print("open", flush=True)
    while True:
        tick = state.tick + 1
        for key in range(tick % 7, 200, 7):
            state.slots["s"][key] = (tick, key, "x" * 50)
        state.slots["s"]["at"] = tick
        state.commit()
        print(tick, flush=True)
""")


@pytest.mark.seeds(1)
def test_a_killed_writer_leaves_exactly_its_commits(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(choice.randrange(1, 40)):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        with DirectoryState.open(tmp_path, exactly(Manifest("f", [])), lambda _: {"s": Form()}) as state:
            assert (state.slots["s"].get("at") or 0) == state.tick
            for key in range(200):
                latest = max((t for t in range(1, state.tick + 1) if t % 7 == key % 7), default=None)
                expected = None if latest is None else (latest, key, "x" * 50)
                assert state.slots["s"].get(key) == expected


def test_a_first_tick_of_many_jobs_that_was_broken_off_leaves_nothing_to_be_missed(tmp_path: Path) -> None:
    with Checkpoint.open(tmp_path, exactly(FLOW)):
        chain = BatchChain()
        for job in range(2):
            with ShardState(tmp_path, 0, chain, {"1.sum": Form()}) as state:
                state.slots["1.sum"][job] = 1
                chain = state.finish(1, f"try-{job}")
    with Checkpoint.open(tmp_path, exactly(FLOW)) as checkpoint:
        assert checkpoint.tick == 0
        assert not [*tmp_path.glob("state/*/*")]


@pytest.mark.parametrize("kind", ["earlier", "later"])
def test_a_checkpoint_of_another_version_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    filled(tmp_path, 2)
    path = max((tmp_path / "commit").glob("*.json"))
    body = json.loads(path.read_text())["body"]
    if kind == "earlier":
        del body["format"]
        body["chains"] = {"0": {"links": [], "versions": [], "news": None}}
    else:
        body["format"] += 1
    commit.write_checked(path, body, durable=False)
    with pytest.raises(CheckpointDamaged) as error:
        opened(tmp_path)
    assert_golden(
        MESSAGES / f"checkpoint_of_{kind}_version.txt", f"{error.value}\n".replace(str(tmp_path), "state")
    )


def test_a_commit_that_is_forgotten_while_it_is_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = replace(FLOW, description=[], layout={"on": "Spark", "places": {}})
    with Checkpoint.open(tmp_path, exactly(told), keep_ticks=1) as checkpoint:
        checkpoint.commit({})
        read, still = commit.CommitLog.read, [2, 3]

        def read_late(log: commit.CommitLog, tick: int) -> commit.Commit:
            if still:
                still.pop()
                checkpoint.commit({})
            return read(log, tick)

        monkeypatch.setattr(commit.CommitLog, "read", read_late)
        assert inspect(tmp_path).tick > 1


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], ids=oct)
def test_a_new_checkpoint_is_of_its_owner_alone_and_a_folder_that_is_there_keeps_its_mode(
    tmp_path: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        filled(tmp_path / "new", ticks=1)
        Checkpoint.open(tmp_path / "several", exactly(FLOW), private=False).close()
        (tmp_path / "there").mkdir()
        (tmp_path / "there").chmod(0o750)
        filled(tmp_path / "there", ticks=1)
    finally:
        os.umask(before)
    modes = {folder.name: folder.stat().st_mode & 0o777 for folder in tmp_path.iterdir()}
    assert modes == {"new": 0o700, "there": 0o750, "several": 0o777 & ~umask}


def test_a_value_that_no_column_holds_is_refused_and_nothing_of_its_tick_stays(tmp_path: Path) -> None:
    flow = hr.Flow("texts")
    flow.sink("texts", flow.source("texts", str).distinct())
    hr.run(flow, {"texts": ["a"]}, {"texts": []}, checkpoint=tmp_path)
    with pytest.raises(NotPlainData, match="no column holds"):
        hr.run(flow, {"texts": ["a", "half \ud800"]}, {"texts": []}, checkpoint=tmp_path)
    changes: list[Any] = []
    hr.run(flow, {"texts": ["a", "b"]}, {"texts": changes}, checkpoint=tmp_path)
    assert [row for row, _ in changes] == ["b"]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system does not tell what is mapped")
def test_a_closed_checkpoint_can_be_deleted_and_takes_no_room(tmp_path: Path) -> None:
    flow = hr.Flow("texts")
    flow.sink("texts", flow.source("texts", str).distinct())
    for _ in range(2):
        hr.run(flow, {"texts": [f"{at}" * 10 for at in range(9000)]}, {"texts": []}, checkpoint=tmp_path)
    gc.collect()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
