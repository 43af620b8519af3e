"""A slot that is an arrangement holds what ticks brought, through lost attempts, merges and reopening."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.arrangement.batch import Layout, SortedBatch, bounded, take
from headrace.arrangement.codes import codes_of
from headrace.arrangement.spine import Spine
from headrace.state.arranged_store import ArrangedForm
from headrace.state.batch_files import MappedFiles
from headrace.state.chain import BatchChain
from headrace.state.manifest import DescribedRows
from headrace.state.shard import ShardState, ShardWriter

LAYOUTS = {
    "exact": Layout({"k": pl.Int64(), "v": pl.String(), "w": pl.Int64()}, ("k",), ("w",), nullable=False),
    "hashed": Layout({"v": pl.String(), "k": pl.Int64(), "w": pl.Int64()}, ("v", "k"), ("w",), nullable=True),
}


class Head:
    """A slot that has written everything already."""

    def __init__(self, spine: Spine) -> None:
        self.spine = spine

    def settle(self) -> None:
        pass

    def discard(self) -> None:
        pass


rows = st.tuples(st.integers(-3, 3), st.text("ab", max_size=2), st.integers(-1, 2))
fates = st.sampled_from(["commit", "reopen", "lose", "discard"])
ticks = st.tuples(st.lists(rows, max_size=12), fates, st.none() | st.none() | st.integers(-3, 3))
"""Rows that come, what becomes of the tick, and a key below which all is dropped before."""


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(LAYOUTS)), st.lists(ticks, max_size=20), st.data())
def test_an_arrangement_in_files_is_a_bag(kind: str, all_ticks: Any, data: Any) -> None:
    layout = LAYOUTS[kind]
    few = {"AT_ONCE": data.draw(st.sampled_from([0, 200, 1 << 20])), "WORK": data.draw(st.integers(0, 2))}
    few |= {"_SMALL": 0, "_MAX_PARTS": 1 << 60, "MAX_AT_ONCE": data.draw(st.sampled_from([100, 1 << 20]))}
    forms = {"s": ArrangedForm(layout, Head)}
    model, chain = Counter[Any](), BatchChain()
    many = patch("headrace.state.batch_files._MANY", data.draw(st.sampled_from([0, 1 << 20])))
    with tempfile.TemporaryDirectory() as name, many, patch.multiple("headrace.state.arranged_store", **few):
        state = ShardState(Path(name), 0, chain, forms)
        for at, (given, fate, below) in enumerate(all_ticks):
            frame = pl.DataFrame(given, schema={"k": pl.Int64, "v": pl.String, "w": pl.Int64}, orient="row")
            if below is not None:
                drop(state.slots["s"].spine, below)
            state.slots["s"].spine.add(frame)
            if fate == "discard":
                state.discard()
                continue
            after = state.finish(at, "a")
            if fate == "lose":
                state.close()
                state = ShardState(Path(name), 0, chain, forms)
                continue
            model = Counter({row: n for row, n in model.items() if below is None or row[0] >= below})
            model.update({(k, v): 0 for k, v, _ in given})
            for k, v, w in given:
                model[k, v] += w
            chain = BatchChain.from_json(after.to_json())
            state.advance(after)
            if fate == "reopen":
                state.close()
                state = ShardState(Path(name), 0, chain, forms)
            named = {path.name for path in chain.files()}
            for path in Path(name).glob("state/*/*"):
                if path.relative_to(name).as_posix() not in named:
                    path.unlink()
            assert held(state.slots["s"].spine) == {row: n for row, n in model.items() if n}
        state.close()


def drop(spine: Spine, below: int) -> None:
    """Go on with batches without the rows of lower keys."""
    left: list[SortedBatch] = []
    for batch in spine.batches:
        at = np.flatnonzero(batch.frame["k"].to_numpy() >= below)
        whole = len(at) == len(batch)
        left.append(batch if whole else bounded(spine.layout, batch.codes[at], take(batch.frame, at)))
    spine.replace(left)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(LAYOUTS)), st.lists(st.lists(rows, max_size=12), max_size=6), st.booleans())
@example("exact", [[(0, "", 1), (0, "", -1)]], False)
def test_rows_are_described_and_divided_by_key(kind: str, ticks: Any, collide: bool) -> None:
    layout = LAYOUTS[kind]
    keys, bare = layout.keys, len(layout.keys) == 1
    described = DescribedRows.from_text(DescribedRows(layout, keys, bare, ("k", "v"), frozenset()).to_text())
    model: dict[Any, Counter[Any]] = {}
    with tempfile.TemporaryDirectory() as name, _codes(collide):
        folder, chain = Path(name), BatchChain()
        state = ShardState(folder, 0, chain, {"s": ArrangedForm(layout, Head)})
        for at, given in enumerate(ticks):
            frame = pl.DataFrame(given, schema={"k": pl.Int64, "v": pl.String, "w": pl.Int64}, orient="row")
            state.slots["s"].spine.add(frame)
            chain = state.finish(at, "a")
            state.advance(chain)
            for k, v, w in given:
                model.setdefault(k if bare else (v, k), Counter())[k, v] += w
        state.close()
        model = {key: found for key, rows in model.items() if (found := {r: w for r, w in rows.items() if w})}
        runs = chain.arranged.get("s", ())
        assert _described(described, folder, runs) == model
        writers = [ShardWriter(folder, f"state/{part}/new") for part in range(2)]
        for piece in described.pieces(folder, runs):
            for part, some in piece.divided([hash(key) % 2 for key in piece.keys]):
                writers[part].add_rows("s", layout, some)
        made = [writer.finish().arranged.get("s", ()) for writer in writers]
        found = [_described(described, folder, runs) for runs in made]
        assert found == [{k: v for k, v in model.items() if hash(k) % 2 == part} for part in range(2)]


def _codes(collide: bool) -> Any:
    if not collide:
        return nullcontext()
    few = lambda keys, *, exact: codes_of(keys, exact=exact) if exact else codes_of(keys, exact=False) % 2  # noqa: E731
    return patch("headrace.arrangement.batch.codes_of", few)


def _described(described: DescribedRows, folder: Path, runs: Any) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for piece in described.pieces(folder, runs):
        assert len(piece) == len(piece.keys)
        for at, key in enumerate(piece.keys):
            assert key not in found
            found[key] = dict(piece.value(at))
    return found


def held(spine: Spine) -> Counter[Any]:
    found = Counter[Any]()
    for k, v, w in spine.snapshot().select("k", "v", "w").rows():
        found[k, v] += w
    return found


def test_a_small_file_at_hand_keeps_no_larger_batch_in_memory(tmp_path: Path) -> None:
    layout, keys = LAYOUTS["exact"], np.arange(1_000)
    frame = pl.DataFrame({"k": keys, "v": ["v"] * 1_000, "w": np.ones(1_000, np.int64)})
    files = MappedFiles(tmp_path, layout)
    part = files.write("few", bounded(layout, keys[:3], frame[:3]))
    keys[:] = -1
    found = files.open(part)
    assert found.codes.tolist() == found.frame["k"].to_list() == [0, 1, 2]


def test_the_description_of_rows_that_none_puts_aside_is_as_it_always_was() -> None:
    described = DescribedRows(LAYOUTS["exact"], ("k",), True, ("v",), frozenset())
    assert "aside" not in described.to_text()
    assert DescribedRows.from_text(described.to_text()) == described
    aside = replace(described, aside=("k", "v"))
    assert DescribedRows.from_text(aside.to_text()) == aside
