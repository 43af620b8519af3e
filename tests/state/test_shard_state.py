"""A shard's state is what a dict would be, whatever becomes of copies, processes and files."""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CheckpointDamaged
from penstock.state.chain import Chain
from penstock.state.shard import ShardState

Model = dict[str, dict[Any, Any]]
SLOTS = {"1.counts": None, "2.rows": dict}

keys = st.integers(0, 12) | st.tuples(st.integers(0, 3), st.sampled_from(["a", "b"]))
edits = st.lists(
    st.tuples(st.sampled_from(["set", "grow", "delete", "look"]), st.sampled_from(sorted(SLOTS)), keys),
    max_size=12,
)
# What happens after a tick's edits: it is committed; its attempt is lost before or after writing files;
# or it is committed and a copy is lost, or kept behind from an older version.
fates = st.sampled_from(["commit", "commit", "commit", "lost", "written", "copy lost", "old copy"])


def apply(slots: Any, edits: Any, stamp: int) -> None:
    for what, slot, key in edits:
        values = slots[slot]
        if what == "set":
            values[key] = {stamp: "set"}
        elif what == "grow":
            found = values.get(key)
            if found is None:
                values[key] = {stamp: "new"}
            else:
                values[key] = {**found, stamp: "more"}
        elif what == "delete" and values.get(key) is not None:
            del values[key]
        else:
            values.get(key)


def shown(state: ShardState) -> Model:
    every = [*range(13), *((n, s) for n in range(4) for s in "ab")]
    return {
        name: {k: v for k in every if (v := slot.get(k)) is not None} for name, slot in state.slots.items()
    }


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(edits, fates), max_size=25))
def test_state_equals_a_dict_through_lost_attempts_and_lost_copies(ticks: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, work, older = Path(name), Path(name) / "work", Path(name) / "older"
        model: Model = {slot: {} for slot in SLOTS}
        chain, committed = Chain(), 0
        for at, (changes, fate) in enumerate(ticks):
            with ShardState(folder, work, 0, chain, SLOTS) as state:
                assert shown(state) == model
                state.discard()
                apply(state.slots, changes, at)
                if fate == "lost":
                    continue
                after = state.finish(committed + 1, f"try{at}")
            if fate == "written":
                continue
            apply(model, changes, at)
            chain, committed = after, committed + 1
            if fate == "copy lost":
                shutil.rmtree(work)
            elif fate == "old copy":
                if older.exists():
                    shutil.rmtree(work, ignore_errors=True)
                    shutil.copytree(older, work)
                else:
                    shutil.copytree(work, older)
        with ShardState(folder, work, 0, Chain.from_json(chain.to_json()), SLOTS) as state:
            assert shown(state) == model


def test_a_value_changed_in_place_is_written(tmp_path: Path) -> None:
    with ShardState(tmp_path, tmp_path / "w", 0, Chain(), {"s": dict}) as state:
        state.slots["s"]["k"] = {"a": 1}
        chain = state.finish(1, "x")
        state.advance(chain)
        state.slots["s"].get("k")["b"] = 2
        chain = state.finish(2, "x")
    with ShardState(tmp_path, tmp_path / "other", 0, chain, {"s": dict}) as state:
        assert state.slots["s"].get("k") == {"a": 1, "b": 2}


def test_a_tick_that_only_looks_writes_nothing(tmp_path: Path) -> None:
    with ShardState(tmp_path, tmp_path / "w", 0, Chain(), {"s": None}) as state:
        state.slots["s"][1] = (1,)
        chain = state.finish(1, "x")
        state.advance(chain)
        assert state.slots["s"].get(1) == (1,)
        assert state.slots["s"].get(2) is None
        state.slots["s"][1] = copy.copy((1,))
        state.slots["s"].get(1)
        before = sorted(tmp_path.glob("state/*/*"))
        state.slots["s"].discard()
        state.slots["s"].get(1)
        assert state.finish(2, "x") is chain
        assert sorted(tmp_path.glob("state/*/*")) == before


def test_files_and_bytes_written_follow_the_changes(tmp_path: Path) -> None:
    chain, written = Chain(), 0
    with ShardState(tmp_path, tmp_path / "w", 0, chain, {"s": None}) as state:
        for tick in range(1, 301):
            state.slots["s"][tick] = ("x" * 200,)
            chain = state.finish(tick, "a")
            state.advance(chain)
            written += sum(
                (tmp_path / f).stat().st_size for f in {r.name for r in chain.files()} if f"{tick:012d}" in f
            )
            assert len(chain.links) <= 8 * 3
    assert written < 300 * 260 * 20


def test_two_holders_of_a_copy_each_keep_their_version(tmp_path: Path) -> None:
    with ShardState(tmp_path, tmp_path / "w", 0, Chain(), {"s": None}) as state:
        state.slots["s"][1] = "old"
        first = state.finish(1, "x")
    early = ShardState(tmp_path, tmp_path / "w", 0, first, {"s": None})
    with ShardState(tmp_path, tmp_path / "w", 0, first, {"s": None}) as state:
        state.slots["s"][1] = "new"
        second = state.finish(2, "x")
        state.advance(second)
        assert state.slots["s"].get(1) == "new"
    assert early.slots["s"].get(1) == "old"
    early.close()


def damage_missing(path: Path) -> None:
    path.unlink()


def damage_torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def damage_altered(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [damage_missing, damage_torn, damage_altered])
def test_a_damaged_file_is_named_and_never_read_as_empty(tmp_path: Path, damage: Any) -> None:
    with ShardState(tmp_path, tmp_path / "w", 0, Chain(), {"s": None}) as state:
        for n in range(100):
            state.slots["s"][n] = ("x" * 50,)
        chain = state.finish(1, "x")
    victim = tmp_path / chain.links[0].file.name
    damage(victim)
    with pytest.raises(CheckpointDamaged, match=victim.name) as caught:
        ShardState(tmp_path, tmp_path / "w", 0, chain, {"s": None})
    assert caught.value.facts["file"] == str(victim)


def test_a_torn_working_copy_is_rebuilt(tmp_path: Path) -> None:
    with ShardState(tmp_path, tmp_path / "w", 0, Chain(), {"s": None}) as state:
        state.slots["s"][1] = "kept"
        chain = state.finish(1, "x")
        state.advance(chain)
    file = tmp_path / "w" / "000.sqlite"
    file.write_bytes(b"not a database at all, not even nearly" * 100)
    with ShardState(tmp_path, tmp_path / "w", 0, chain, {"s": None}) as state:
        assert state.slots["s"].get(1) == "kept"
