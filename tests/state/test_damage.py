"""Whatever becomes of a file of a checkpoint: it is named, or nothing depended on it."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import Change, Flow, col
from headrace.errors import CheckpointDamaged
from headrace.state.inspection import inspect
from tests.golden import MESSAGES, assert_golden


class Bid(NamedTuple):
    item: str
    price: int


BIDS = [Bid(f"item {n % 13}", n) for n in range(60)]


def flow() -> Flow:
    flow = Flow("best")
    flow.sink("best", flow.source("bids", Bid).group_by(col.item).agg(best=hr.max(col.price)))
    return flow


def run(folder: Path, rows: list[Bid]) -> list[Change[Any]]:
    changes: list[Change[Any]] = []
    hr.run(flow(), {"bids": rows}, {"best": changes}, checkpoint=folder, tick_rows=5)
    return changes


@cache
def begun() -> tuple[Path, list[Change[Any]]]:
    """A checkpoint after some ticks, and what comes then."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-damage-"))
    run(folder / "c", BIDS[:50])
    with copy_of(folder / "c") as copy:
        return folder / "c", run(copy, BIDS)


@contextmanager
def copy_of(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(folder, Path(name) / "c")
        yield Path(name) / "c"


def files(folder: Path) -> list[Path]:
    return sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())


def delete(path: Path, others: list[Path], at: float) -> None:
    path.unlink()


def empty(path: Path, others: list[Path], at: float) -> None:
    path.write_bytes(b"")


def tear(path: Path, others: list[Path], at: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * at)])


def lengthen(path: Path, others: list[Path], at: float) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def flip(path: Path, others: list[Path], at: float) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[int((len(data) - 1) * at)] ^= 1 << int(at * 7)
    path.write_bytes(data)


def swap(path: Path, others: list[Path], at: float) -> None:
    """With another file of its folder; of the same size, if there is one."""
    beside = [p for p in others if p.parent == path.parent and p != path]
    same = [p for p in beside if p.stat().st_size == path.stat().st_size] or beside
    if same:
        other = same[int(at * (len(same) - 1))]
        data = path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)


HARMS = [delete, empty, tear, lengthen, flip, swap]


def failure_of(act: Callable[[], object], expected: object) -> CheckpointDamaged | None:
    try:
        assert act() == expected
    except CheckpointDamaged as damage:
        return damage
    return None


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from(HARMS), st.floats(0, 0.999))
def test_a_run_that_goes_on_is_right_or_names_the_damage(data: Any, harm: Any, at: float) -> None:
    whole, expected = begun()
    with copy_of(whole) as folder:
        victim = folder / data.draw(st.sampled_from(files(folder)))
        harm(victim, [folder / f for f in files(folder)], at)
        damage = failure_of(lambda: run(folder, BIDS), expected)
        if damage is not None:
            assert damage.why
            assert damage.fix
            assert Path(damage.facts["file"]).parent.name == victim.parent.name


@pytest.mark.parametrize("file", ["commit", "manifest", "state"])
@pytest.mark.parametrize("harm", HARMS)
def test_what_is_needed_is_never_read_as_empty(file: str, harm: Any) -> None:
    whole, _ = begun()
    with copy_of(whole) as folder:
        victim = max(folder.glob(f"{file}/**/*.json" if file != "state" else "state/*/*"))
        before = victim.read_bytes()
        harm(victim, [folder / f for f in files(folder)], 0.5)
        if victim.exists() and victim.read_bytes() == before:
            pytest.skip("there is one file of this kind")
        with pytest.raises(CheckpointDamaged):
            run(folder, BIDS)


@pytest.mark.parametrize("folder", ["commit", "manifest", "state"])
def test_a_folder_that_is_gone_is_damage_and_no_beginning(folder: str) -> None:
    whole, _ = begun()
    with copy_of(whole) as copy:
        shutil.rmtree(copy / folder)
        with pytest.raises(CheckpointDamaged) as error:
            run(copy, BIDS)
        text = re.sub(r"[0-9a-f]{8,}", "ID", f"{error.value}\n".replace(f"{copy}", "checkpoint"))
        assert_golden(MESSAGES / f"checkpoint_without_{folder}.txt", text)


def test_a_folder_that_nothing_depends_on_is_made_again() -> None:
    whole, expected = begun()
    with copy_of(whole) as copy:
        shutil.rmtree(copy / "lease")
        assert run(copy, BIDS) == expected


@pytest.mark.parametrize("harm", [delete, tear, flip])
def test_what_is_told_of_a_checkpoint_tells_its_damage(harm: Any) -> None:
    whole, _ = begun()
    with copy_of(whole) as folder:
        victim = max(folder.glob("state/*/*"))
        harm(victim, [], 0.4)
        (told,) = inspect(folder).damage
        assert victim.name in told
