"""A shard's state is what a dict would be, whatever becomes of attempts and files."""

from __future__ import annotations

import copy
import random
import tempfile
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc
from xxhash import xxh3_128_hexdigest

from headrace.errors import CheckpointDamaged
from headrace.state.arranged_store import ENTRY_LAYOUT, code_of, stored_entries
from headrace.state.batch_files import MappedFiles
from headrace.state.chain import (
    ENTRIES,
    BatchChain,
    FileRef,
    Part,
    Run,
    StoredBatch,
    UnfinishedMerge,
    parts_of,
)
from headrace.state.chunked_values import ChunkedDict, ChunkedList
from headrace.state.codec import decode, key_encoder
from headrace.state.lazy_slots import Form, piece_keys, whole_values
from headrace.state.shard import ShardState

Model = dict[str, dict[Any, Any]]
SLOTS = {"1.counts": Form(), "2.rows": Form(dict)}

keys = st.integers(0, 12) | st.tuples(st.integers(0, 3), st.sampled_from(["a", "b"]))
edits = st.lists(
    st.tuples(st.sampled_from(["set", "grow", "delete", "look"]), st.sampled_from(sorted(SLOTS)), keys),
    max_size=12,
)
# What happens after a tick's edits: it is committed; its attempt is lost before or after writing files.
fates = st.sampled_from(["commit", "commit", "commit", "lost", "written"])


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
@given(st.lists(st.tuples(edits, fates), max_size=25), st.sampled_from([0, 1, 3]), st.data())
def test_state_equals_a_dict_through_lost_attempts(ticks: Any, bits: int, data: Any) -> None:
    few = {"RATIO": data.draw(st.integers(1, 4)), "AT_ONCE": data.draw(st.sampled_from([0, 700, 1 << 20]))}
    few |= {"WORK": 0, "_SMALL": 0, "_MAX_PARTS": 1 << 60}
    with (
        tempfile.TemporaryDirectory() as name,
        patch.multiple("headrace.state.arranged_store", **few),
        few_codes(bits) if bits else nullcontext(),
    ):
        folder = Path(name)
        model: Model = {slot: {} for slot in SLOTS}
        chain, committed = BatchChain(), 0
        for at, (changes, fate) in enumerate(ticks):
            with ShardState(folder, 0, chain, SLOTS) as state:
                assert shown(state) == model
                state.discard()
                apply(state.slots, changes, at)
                if fate == "lost":
                    continue
                after = state.finish(committed + 1, f"try{at}")
            if fate == "written":
                continue
            apply(model, changes, at)
            chain, committed = BatchChain.from_json(after.to_json()), committed + 1
            named = {file.name for file in chain.files()}
            for path in folder.glob("state/*/*"):
                if path.relative_to(folder).as_posix() not in named:
                    path.unlink()
            check_chain(folder, chain)
            check_entries(folder, chain, model)


def few_codes(bits: int) -> Any:
    """Let most keys share their code."""
    return patch("headrace.state.arranged_store.code_of", lambda key: code_of(key) >> (63 - bits))


def runs_of(chain: BatchChain) -> tuple[Run, ...]:
    return chain.arranged.get(ENTRIES, ())


def batches_of(chain: BatchChain) -> list[StoredBatch]:
    """The batches of entries that are read, oldest first."""
    runs = runs_of(chain)
    return [batch for run in runs for batch in ((run,) if isinstance(run, StoredBatch) else run.batches)]


def check_chain(folder: Path, chain: BatchChain) -> None:
    """Check what is promised of the files of a chain."""
    assert [part for batch in batches_of(chain) for part in batch.parts] == parts_of(runs_of(chain))
    for number, batch in enumerate(batches_of(chain)):
        keys: list[bytes] = []
        last = -1
        for part in batch.parts:
            held = MappedFiles(folder, ENTRY_LAYOUT).open(part)
            own = held.codes.tolist()
            assert last < own[0]
            assert own == sorted(own)
            assert (part.rows, part.upto) == (len(own), own[-1])
            last = own[-1]
            keys += held.frame["key"].to_list()
            assert number or not held.frame["value"].null_count()
        assert len(keys) == len(set(keys))


def check_entries(folder: Path, chain: BatchChain, model: Model) -> None:
    """Compare what is stored with a dict."""
    encode = key_encoder()
    stored = {slot: {encode(key): value for key, value in values.items()} for slot, values in model.items()}
    assert [(slot, key, decode(value)) for slot, key, value in stored_entries(folder, chain)] == [
        (slot, key, value) for slot, values in sorted(stored.items()) for key, value in sorted(values.items())
    ]


def test_a_value_changed_in_place_is_written(tmp_path: Path) -> None:
    with ShardState(tmp_path, 0, BatchChain(), {"s": Form(dict)}) as state:
        state.slots["s"]["k"] = {"a": 1}
        chain = state.finish(1, "x")
        state.advance(chain)
        state.slots["s"].get("k")["b"] = 2
        chain = state.finish(2, "x")
    with ShardState(tmp_path, 0, chain, {"s": Form(dict)}) as state:
        assert state.slots["s"].get("k") == {"a": 1, "b": 2}


def test_a_tick_that_only_looks_writes_nothing(tmp_path: Path) -> None:
    with ShardState(tmp_path, 0, BatchChain(), {"s": Form()}) as state:
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
    chain, written = BatchChain(), 0
    with ShardState(tmp_path, 0, chain, {"s": Form()}) as state:
        for tick in range(1, 301):
            state.slots["s"][tick] = ("x" * 200,)
            chain = state.finish(tick, "a")
            state.advance(chain)
            written += sum(path.stat().st_size for path in state.written if path.is_file())
            assert len(batches_of(chain)) <= 8
    assert written < 300 * 260 * 20


def test_two_states_at_different_ticks_each_keep_theirs(tmp_path: Path) -> None:
    with ShardState(tmp_path, 0, BatchChain(), {"s": Form()}) as state:
        state.slots["s"][1] = "old"
        first = state.finish(1, "x")
    early = ShardState(tmp_path, 0, first, {"s": Form()})
    with ShardState(tmp_path, 0, first, {"s": Form()}) as state:
        state.slots["s"][1] = "new"
        second = state.finish(2, "x")
        state.advance(second)
        assert state.slots["s"].get(1) == "new"
    assert early.slots["s"].get(1) == "old"
    early.close()


def test_an_attempt_that_ends_two_ticks_late_takes_nothing_back(tmp_path: Path) -> None:
    def opened(chain: BatchChain) -> ShardState:
        return ShardState(tmp_path, 0, chain, SLOTS)

    def tick(chain: BatchChain, number: int) -> BatchChain:
        with opened(chain) as state:
            state.slots["1.counts"][1] = {number: "a"}
            return state.finish(number, "a")

    first = tick(BatchChain(), 1)
    with opened(first) as late:
        late.slots["1.counts"][1] = {2: "late"}
        third = tick(tick(first, 2), 3)
        late.finish(2, "late")
    with opened(third) as state:
        assert state.slots["1.counts"][1] == {3: "a"}


def test_of_two_attempts_of_a_tick_the_committed_one_counts(tmp_path: Path) -> None:
    with ShardState(tmp_path, 0, BatchChain(), SLOTS) as state:
        state.slots["1.counts"][1], state.slots["1.counts"][2] = "first", "first"
        chain = state.finish(1, "x")
    for tick in range(2, 12):
        late = ShardState(tmp_path, 0, chain, SLOTS)
        with ShardState(tmp_path, 0, chain, SLOTS) as state:
            assert state.slots["1.counts"].get(1) == late.slots["1.counts"].get(1)
            state.slots["1.counts"][1] = f"committed {tick}"
            del state.slots["1.counts"][2]
            state.slots["1.counts"][3] = "new"
            after = state.finish(tick, "good")
        if tick % 2:
            with ShardState(tmp_path, 0, after, SLOTS) as state:
                assert state.slots["1.counts"].get(3) == "new"
        late.slots["1.counts"][1] = "never"
        late.slots["1.counts"][4] = "never"
        late.finish(tick, "bad")
        late.close()
        chain = after
        with ShardState(tmp_path, 0, chain, SLOTS) as state:
            found = [state.slots["1.counts"].get(key) for key in range(1, 5)]
            assert found == [f"committed {tick}", None, "new", None]
            state.slots["1.counts"][2], state.slots["1.counts"][3] = "again", None
            chain = state.finish(100 * tick, "x")


def test_an_attempt_that_comes_a_tick_too_late_changes_nothing(tmp_path: Path) -> None:
    def change(chain: BatchChain, tick: int) -> BatchChain:
        with ShardState(tmp_path, 0, chain, {"s": Form()}) as state:
            state.slots["s"][1] = f"tick {tick}"
            return state.finish(tick, "good")

    first = change(BatchChain(), 1)
    late = ShardState(tmp_path, 0, first, {"s": Form()})
    late.slots["s"][1] = "never"
    third = change(change(first, 2), 3)
    late.finish(2, "bad")
    late.close()
    with ShardState(tmp_path, 0, third, {"s": Form()}) as state:
        assert state.slots["s"].get(1) == "tick 3"


def test_long_keys_are_kept_apart_and_in_order(tmp_path: Path) -> None:
    begin = "k" * 430
    texts = [begin + "x" * n + end for n in (0, 1, 9, 40, 41, 42, 43, 44, 80, 600) for end in "ab"]
    with ShardState(tmp_path, 0, BatchChain(), SLOTS) as state:
        for text in texts:
            state.slots["1.counts"][text] = text[-3:]
        chain = state.finish(1, "x")
    with ShardState(tmp_path, 0, chain, SLOTS) as state:
        assert all(state.slots["1.counts"].get(text) == text[-3:] for text in texts)
    keys = [key for _, key, _ in stored_entries(tmp_path, chain)]
    assert keys == sorted(map(key_encoder(), texts))


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
    with ShardState(tmp_path, 0, BatchChain(), {"s": Form()}) as state:
        for n in range(5_000):
            state.slots["s"][n] = ("x" * 50,)
        chain = state.finish(1, "x")
    (file,) = chain.files()
    victim = tmp_path / file.name
    damage(victim)
    with pytest.raises(CheckpointDamaged, match=victim.name) as caught:
        ShardState(tmp_path, 0, chain, {"s": Form()}).slots["s"].get(7)
    assert caught.value.facts["file"] == str(victim)


def test_a_file_that_is_none_of_entries_is_named(tmp_path: Path) -> None:
    """As after a file of the right size and digest that something else wrote."""
    made = pyarrow.BufferOutputStream()
    with ipc.new_file(made, pyarrow.schema([("x", pyarrow.int64())])) as writer:
        writer.write_batch(pyarrow.record_batch({"x": [1]}))
    for number, content in enumerate([b"", b"ARROW1\0\0" * 9, made.getvalue().to_pybytes()]):
        (tmp_path / str(number)).write_bytes(content)
        ref = FileRef(str(number), len(content), xxh3_128_hexdigest(content))
        chain = BatchChain({ENTRIES: (StoredBatch((Part(ref, 1, 1),)),)}, ("s",))
        with pytest.raises(CheckpointDamaged, match=f"file {number} is damaged"):
            ShardState(tmp_path, 0, chain, {"s": Form()}).slots["s"].get(7)


# -- values in pieces ------------------------------------------------------------------------------

DIVIDED = {
    "1.dict": Form(None, "value"),
    "2.lists": Form(lambda rows: {row: list(entry) for row, entry in rows.items()}, "value"),
    "3.list": Form(list, "value"),
    "4.group": Form(lambda group: [group[0], list(group[1]), dict(group[2])], "fields"),
}
large_edits = st.lists(
    st.tuples(
        st.sampled_from(sorted(DIVIDED)), st.sampled_from(["add", "add", "drop", "set", "delete"]),
        st.integers(0, 2), st.integers(0, 40),
    ),
    max_size=20,
)  # fmt: skip


def grow(slots: Any, edits: Any, stamp: int) -> None:
    """What an operator does to large values: in place, one entry or all of it."""
    for slot, what, key, number in edits:
        value = slots[slot].get(key)
        rows = range(number)
        if what == "delete":
            if value is not None:
                del slots[slot][key]
        elif value is None or what == "set":
            made: dict[str, Any] = {
                "1.dict": {(n, "row"): 1 for n in rows}, "2.lists": {n: [n, 0] for n in rows},
                "3.list": [(n, "row") for n in rows], "4.group": [number, list(rows), dict.fromkeys(rows, 1)],
            }  # fmt: skip
            slots[slot][key] = made[slot]
        elif slot == "1.dict":
            grow_dict(value, (number, "row"), what, stamp)
        elif slot == "2.lists":
            grow_dict(value, number, what, [stamp, 1])
            for row in sorted(value)[:2]:
                value[row][1] += 1
        elif slot == "3.list":
            grow_list(value, (number, "row"), what)
        else:
            value[0] = stamp
            grow_list(value[1], number, what)
            grow_dict(value[2], number, what, stamp)


def grow_dict(value: Any, key: Any, what: str, new: Any) -> None:
    if what == "add":
        value[key] = new
    elif key in value:
        del value[key]


def grow_list(value: Any, row: Any, what: str) -> None:
    if what == "add":
        value.insert(len(value) // 2, row)
        value.append(row)
    elif len(value):
        del value[len(value) // 3]


def as_stored(value: Any) -> Any:
    """A value without regard to lists or tuples, and to the order of a dict."""
    if isinstance(value, dict | ChunkedDict):
        return {key: as_stored(part) for key, part in value.items()}
    if isinstance(value, list | tuple | ChunkedList):
        return tuple(map(as_stored, value))
    return value


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(large_edits, fates), max_size=12))
def test_values_in_pieces_are_what_they_would_be_whole(ticks: Any) -> None:
    small: dict[str, Any] = {"FROM": 8, "_ENTRIES": 3, "_LEAST_RUN": 3}
    with tempfile.TemporaryDirectory() as name, patch.multiple("headrace.state.chunked_values", **small):
        folder = Path(name)
        model: Model = {slot: {} for slot in DIVIDED}
        chain, committed = BatchChain(), 0
        for at, (edits, fate) in enumerate(ticks):
            with ShardState(folder, 0, chain, DIVIDED) as state:
                grow(state.slots, edits, at)
                after = state.finish(committed + 1, f"try{at}")
            if fate in ("lost", "written"):
                continue
            grow(model, edits, at)
            chain, committed = after, committed + 1
            with ShardState(folder, 0, chain, DIVIDED) as state:
                for slot, values in model.items():
                    for key in range(3):
                        assert as_stored(state.slots[slot].get(key)) == as_stored(values.get(key))
        stored: dict[Any, Any] = {}
        for slot, key, found in whole_values(stored_entries(folder, chain)):
            stored[slot, decode(key)] = as_stored(found.value())
            # No piece is left of what was deleted, replaced or put together again.
            assert {*found.pieces} <= {*piece_keys(found.data, key)}
        assert stored == {
            (slot, key): as_stored(value) for slot, values in model.items() for key, value in values.items()
        }


@pytest.mark.parametrize("divides", ["value", "fields"])
def test_nothing_stays_of_a_value_in_pieces_that_another_replaces(tmp_path: Path, divides: Any) -> None:
    def value(step: int) -> Any:
        # Keys of even steps leave every other piece empty.
        made = {n * step: step for n in range(600)}
        return made if divides == "value" else ["x", made]

    chain = BatchChain()
    for tick, step in enumerate([1, 16], 1):
        form = {"s": Form(None if divides == "value" else list, divides)}
        with ShardState(tmp_path, 0, chain, form) as state:
            state.slots["s"]["k"] = value(step)
            chain = state.finish(tick, "x")
        with ShardState(tmp_path, 0, chain, form) as state:
            assert as_stored(state.slots["s"]["k"]) == as_stored(value(step))


def test_one_more_row_of_a_hot_key_writes_little(tmp_path: Path) -> None:
    forms = {"1.dict": Form(None, "value")}
    with ShardState(tmp_path, 0, BatchChain(), forms) as state:
        state.slots["1.dict"]["hot"] = {(n, "row"): 1 for n in range(50_000)}
        chain = state.finish(1, "x")
        state.advance(chain)
        state.slots["1.dict"].get("hot")[-1, "row"] = 1
        chain = state.finish(2, "x")
        first, second = chain.files()
        assert second.size < 6_000 < first.size / 50
        state.advance(chain)
        assert len(state.slots["1.dict"].get("hot")) == 50_001


def test_the_files_of_a_thousand_ticks_stay_within_a_few_times_the_state(tmp_path: Path) -> None:
    """Keys come and go; what is on disk follows what there is, and not what there was."""
    choice = random.Random(4)
    there: dict[int, str] = {}
    chain, most = BatchChain(), 0.0
    with ShardState(tmp_path, 0, chain, {"s": Form()}) as state:
        for tick in range(1, 1001):
            for key in choice.sample(range(400), 4):
                if key in there and choice.random() < (0.2 if tick % 300 < 200 else 0.9):
                    del there[key]
                    del state.slots["s"][key]
                else:
                    there[key] = state.slots["s"][key] = f"{tick} of {key} " * 10
            before = {file.name for file in chain.files()}
            chain = state.finish(tick, "a")
            state.advance(chain)
            for name in before - {file.name for file in chain.files()}:
                (tmp_path / name).unlink()
            on_disk = sum(path.stat().st_size for path in tmp_path.glob("state/*/*"))
            most = max(most, on_disk / (4096 + sum(len(v) + 20 for v in there.values())))
        assert {key: state.slots["s"].get(key) for key in there} == there
    assert most < 4
    assert len(batches_of(chain)) < 9


def test_a_merge_of_large_batches_takes_several_ticks_and_is_not_seen(tmp_path: Path) -> None:
    """A tick moves a bounded number of bytes, and there are never many batches."""
    choice = random.Random(3)
    there: dict[int, int] = {}
    chain, merging, most_written = BatchChain(), 0, 0
    with patch.multiple("headrace.state.arranged_store", AT_ONCE=40_000, WORK=0):
        for tick in range(1, 200):
            with ShardState(tmp_path, 0, chain, SLOTS) as state:
                for key in choice.sample(range(20_000), 100):
                    if there.get(key) is not None and choice.random() < 0.3:
                        del there[key]
                        del state.slots["1.counts"][key]
                    else:
                        there[key] = state.slots["1.counts"][key] = tick
                chain = state.finish(tick, "x")
                most_written = max(most_written, sum(p.stat().st_size for p in state.written if p.is_file()))
            merging += any(isinstance(run, UnfinishedMerge) for run in runs_of(chain))
            assert len(batches_of(chain)) < 12
        with ShardState(tmp_path, 0, chain, SLOTS) as state:
            slot = state.slots["1.counts"]
            assert {k: v for k in range(20_000) if (v := slot.get(k)) is not None} == there
    assert merging > 20
    assert most_written < 3 * 40_000
    assert max(len(batch.parts) for batch in batches_of(chain)) > 1
    check_chain(tmp_path, chain)


def test_a_process_has_hundreds_of_states_open(tmp_path: Path) -> None:
    # A loop that one task runs on all shards keeps all of their states open.
    with ExitStack() as closing:
        for shard in range(200):
            closing.enter_context(ShardState(tmp_path, shard, BatchChain(), SLOTS))


def test_closing_after_a_failed_advance_hides_no_error(tmp_path: Path) -> None:
    with ShardState(tmp_path, 0, BatchChain(), SLOTS) as state:
        state.slots["1.counts"][1] = {1: "a"}
        chain = state.finish(1, "a")
    for file in chain.files():
        (tmp_path / file.name).unlink()
    with (
        pytest.raises(CheckpointDamaged),
        ShardState(tmp_path, 0, BatchChain(), SLOTS) as state,
    ):
        state.advance(chain)
    state.close()
