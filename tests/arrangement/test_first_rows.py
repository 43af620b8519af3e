"""The first rows of a key are those of all its rows, sorted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.arrangement import reading as module
from headrace.arrangement import spine
from headrace.arrangement.batch import Layout, Order
from headrace.arrangement.reading import change_of_first_rows, first_rows
from headrace.arrangement.spine import Probe, Spine, together
from tests.arrangement.test_spine import few_codes, frame_of

rows = st.tuples(
    st.integers(0, 2) | st.none(),
    st.integers(0, 4) | st.none(),
    st.text("ab", max_size=1),
    st.integers(-2, 2),
)


@given(
    st.data(),
    st.booleans(),
    st.booleans(),
    st.tuples(st.booleans(), st.booleans()),
    st.integers(1, 4),
    st.booleans(),
)
@settings(deadline=None, max_examples=300)
def test_first_rows_are_those_of_all_sorted(
    data: Any, nullable: bool, collide: bool, descending: tuple[bool, bool], count: int, few: bool
) -> None:
    types = {"k": pl.Int64(), "v": pl.Int64(), "t": pl.String(), "w": pl.Int64()}
    order = (Order("v", descending[0]), Order("t", descending[1]))
    layout = Layout(types, ("k",), ("w",), nullable, order)
    held, model = Spine(layout), Counter[Any]()
    with few_codes() if collide else pytest.MonkeyPatch.context(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MORE", 0 if few else 16)
        patch.setattr(spine, "WORK", data.draw(st.sampled_from([0, 12])))
        for tick in data.draw(st.lists(st.lists(rows, max_size=10), max_size=6)):
            given = [row for row in tick if nullable or row[0] is not None]
            held.add(frame_of(types, given))
            for *own, w in given:
                model[tuple(own)] += w
        # Some keys alone: of several with one code, none tells that the others are there.
        asked = data.draw(st.lists(st.sampled_from([0, 1, 2, 5, *[None] * nullable]), unique=True))
        keys = pl.Series(asked, dtype=pl.Int64)
        more = [row for row in data.draw(st.lists(rows, max_size=10)) if nullable or row[0] is not None]
        found = change_of_first_rows(layout, held.batches, held.prepare(frame_of(types, more)), [keys], count)
    later = model.copy()
    for *own, w in more:
        later[tuple(own)] += w
    for each, held_then in zip(found, (model, later), strict=True):
        for at, key in enumerate(asked):
            mine = each.rows.filter(pl.Series(each.asked == at)).rows()
            assert mine == wanted(held_then, key, descending, count)


def test_first_rows_that_stay_are_the_same_object() -> None:
    types = {"k": pl.Int64(), "v": pl.Int64(), "w": pl.Int64()}
    held = Spine(Layout(types, ("k",), ("w",), False, (Order("v", False),)))
    held.add(frame_of(types, [(0, 1, 1), (0, 2, 1)]))
    keys = [pl.Series([0], dtype=pl.Int64)]
    for value, stays in ((3, True), (0, False)):
        new = held.prepare(frame_of(types, [(0, value, 1)]))
        before, after = change_of_first_rows(held.layout, held.batches, new, keys, 1)
        assert (before is after) == stays


def test_a_key_behind_many_rows_of_one_with_the_same_code_is_found() -> None:
    types = {"k": pl.Int64(), "v": pl.Int64(), "t": pl.String(), "w": pl.Int64()}
    held = Spine(Layout(types, ("k",), ("w",), True, (Order("v", False), Order("t", False))))
    with few_codes():
        held.add(frame_of(types, [*((key, at, "", 1) for key in range(4) for at in range(40))]))
        for key in range(4):
            asked = pl.Series([key], dtype=pl.Int64)
            found = first_rows(held.layout, held.batches, [asked], 1)
            assert found.rows.rows() == [(key, 0, "", 1)]


@given(st.data(), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=200)
def test_rows_are_found_by_a_number_within_their_key(data: Any, nullable: bool, collide: bool) -> None:
    types = {"k": pl.Int64(), "v": pl.Int64(), "t": pl.String(), "w": pl.Int64()}
    layout = Layout(types, ("k",), ("w",), nullable, (Order("v", False), Order("t", True)))
    held, model = Spine(layout), Counter[Any]()
    numbered = st.tuples(st.integers(0, 2), st.integers(0, 4), st.text("ab", max_size=1), st.integers(-2, 2))
    pairs = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=6))
    keys, values = ([pair[at] for pair in pairs] for at in (0, 1))
    with few_codes() if collide else pytest.MonkeyPatch.context(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(spine, "WORK", data.draw(st.sampled_from([0, 12])))
        for tick in data.draw(st.lists(st.lists(numbered, max_size=10), max_size=6)):
            held.add(frame_of(types, tick))
            for *own, w in tick:
                model[tuple(own)] += w
        probe = Probe.of(layout, [pl.Series(keys, dtype=pl.Int64)], within=("v", np.array(values, np.int64)))
        asked, found = together(layout, [probe.find(batch) for batch in held.batches])
    for at, (key, value) in enumerate(pairs):
        copies = Counter[Any]()
        for *own, w in found.filter(pl.Series(asked == at)).rows():
            assert own[0] == key
            copies[tuple(own)] += w
        mine = {row: w for row, w in model.items() if row[:2] == (key, value) and w}
        assert {row: w for row, w in copies.items() if w} == mine


def wanted(model: Counter[Any], key: Any, descending: tuple[bool, bool], count: int) -> list[Any]:
    present = [(*row, w) for row, w in model.items() if row[0] == key and w > 0]
    present.sort(key=lambda row: row[2], reverse=descending[1])
    present.sort(key=lambda row: (row[1] is not None, row[1] or 0), reverse=descending[0])
    found: list[Any] = []
    while present and sum(row[-1] for row in found) < count:
        found.append(present.pop(0))
    return found
