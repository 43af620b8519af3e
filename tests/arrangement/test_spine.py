"""A spine is a dict from rows to sums, whatever its batches and merges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.arrangement import codes, spine
from headrace.arrangement.batch import Layout, Order, batch_of, group_sums, merged, sorted_codes
from headrace.arrangement.packed_batch import PackedBatch, may_be_stored_as, narrowed
from headrace.arrangement.spine import Spine
from headrace.state import batch_files
from headrace.state.batch_files import batch_in, content_of

TYPES: dict[str, tuple[pl.DataType, st.SearchStrategy[Any]]] = {
    "ints": (pl.Int64(), st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1])),
    "short ints": (pl.Int32(), st.integers(-3, 3)),
    "booleans": (pl.Boolean(), st.booleans()),
    "floats": (pl.Float64(), st.sampled_from([0.0, -0.0, math.nan, math.inf, 1.5, -1.5])),
    "texts": (
        pl.String(),
        st.text("ab\0", max_size=3) | st.sampled_from(["abcdefgh", "abcdefgh" * 2, "abcdefghi"]),
    ),
    "bytes": (pl.Binary(), st.binary(max_size=2)),
    "dates": (pl.Date(), st.dates()),
    "times": (pl.Datetime("us"), st.datetimes()),
    "spans": (pl.Duration("us"), st.timedeltas(timedelta(days=-(10**8)), timedelta(days=10**8))),
    "decimals": (
        pl.Decimal(38, 2),
        st.sampled_from([Decimal(0), Decimal("-0.01"), Decimal(10) ** 35, Decimal("1.5")]),
    ),
}

kinds = st.sampled_from(sorted(TYPES))


def canonical(value: Any) -> Any:
    """Return what equal values have in common."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@contextmanager
def few_codes() -> Iterator[None]:
    """Let most keys share their hash."""
    known = codes.codes_of

    def colliding(keys: Any, *, exact: bool) -> Any:
        found = known(keys, exact=exact)
        return found if exact else found & 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.arrangement.batch.codes_of", colliding)
        yield


@given(
    st.data(),
    st.lists(kinds, min_size=1, max_size=2),
    st.lists(kinds, max_size=2),
    st.booleans(),
    st.booleans(),
)
@settings(deadline=None, max_examples=400)
def test_a_spine_is_a_dict(
    data: Any, keys: list[str], values: list[str], nullable: bool, collide: bool
) -> None:
    names = [f"k{at}" for at in range(len(keys))] + [f"v{at}" for at in range(len(values))]
    types = {name: TYPES[kind][0] for name, kind in zip(names, keys + values)} | {
        "w": pl.Int64(),
        "x": pl.Int64(),
    }
    layout = Layout(types, tuple(names[: len(keys)]), ("w", "x"), nullable)
    row = st.tuples(
        *(
            TYPES[kind][1] | st.none() if nullable or at >= len(keys) else TYPES[kind][1]
            for at, kind in enumerate(keys + values)
        ),
        st.integers(-2, 2),
        st.integers(-1, 1),
    )
    held = Spine(layout)
    model: dict[Any, Counter[str]] = {}
    with few_codes() if collide else pytest.MonkeyPatch.context(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(spine, "AT_ONCE", data.draw(st.sampled_from([1, 5, 4096])))
        patch.setattr(spine, "WORK", data.draw(st.sampled_from([0, 1, 12])))
        patch.setattr(spine, "MERGED", data.draw(st.integers(2, 4)))
        patch.setattr(spine, "LARGE", data.draw(st.sampled_from([0, 100])))
        for rows in data.draw(st.lists(st.lists(row, max_size=12), max_size=8)):
            held.add(frame_of(types, rows))
            if data.draw(st.booleans()):
                held = reopened(held)
            for *own, w, x in rows:
                counts = model.setdefault(tuple(map(canonical, own)), Counter())
                counts.update(w=w, x=x)
        present = {own: (c["w"], c["x"]) for own, c in model.items() if c["w"] or c["x"]}
        assert sums_of(held.snapshot()) == present
        asked = data.draw(st.lists(row, max_size=5))
        questions = frame_of(types, asked).select(layout.keys)
        columns = questions.get_columns()
        if not collide:
            code = codes.coder([types[name] for name in layout.keys], exact=layout.exact)
            assert [code(q) for q in questions.rows()] == layout.codes_of(columns).tolist()
        found = held.probe(columns)
        own_keys = [tuple(map(canonical, q)) for q in questions.rows()]
        for at, key in enumerate(own_keys):
            mine = found.rows.filter(pl.Series(found.asked == at))
            assert sums_of(mine) == {own: s for own, s in present.items() if own[: len(keys)] == key}
        if not values:
            totals = zip(*(total.tolist() for total in held.sums(columns)), strict=True)
            assert list(totals) == [present.get(key, (0, 0)) for key in own_keys]


def test_rows_of_a_key_with_which_one_batch_ends_and_another_begins_are_sorted() -> None:
    types = {"k": pl.Int64(), "v": pl.Int64(), "w": pl.Int64()}
    layout = Layout(types, ("k",), ("w",), nullable=False, order=(Order("v", False),))
    ones, others = [(1, 1, 1), (2, 5, 1), (2, 9, 1)], [(2, 3, 1), (2, 9, -1), (3, 0, 1)]
    both = merged(layout, [batch_of(layout, frame_of(types, rows)) for rows in (ones, others)])
    assert both.frame.rows() == [(1, 1, 1), (2, 3, 1), (2, 5, 1), (3, 0, 1)]


def test_the_bounds_of_merged_batches_are_those_of_their_rows() -> None:
    types = {"k": pl.Int64(), "v": pl.Int64(), "w": pl.Int64()}
    held = Spine(Layout(types, ("k",), ("w",), nullable=False))
    for start in range(0, 60_000, 1_000):
        numbers = np.arange(start, start + 1_000)
        held.add(pl.DataFrame({"k": numbers, "v": numbers, "w": np.ones(1_000, np.int64)}))
    assert held.bounds == (60_000.0,)


@given(st.data(), st.lists(kinds, min_size=1, max_size=2), st.booleans())
@settings(deadline=None, max_examples=200)
def test_groups_are_added_up_first_come_first(data: Any, keys: list[str], collide: bool) -> None:
    types: dict[str, pl.DataType] = {f"k{at}": TYPES[kind][0] for at, kind in enumerate(keys)}
    row = st.tuples(*(TYPES[kind][1] for kind in keys), st.integers(-2, 2))
    rows = data.draw(st.lists(row, max_size=12))
    frame = frame_of(types | {"w": pl.Int64()}, rows)
    columns = frame.select(*types).get_columns()
    expected: dict[Any, int] = {}
    for *own, w in rows:
        key = tuple(map(canonical, own))
        expected[key] = expected.get(key, 0) + w
    with few_codes() if collide else pytest.MonkeyPatch.context():
        made = group_sums(columns, [frame["w"].to_numpy()], exact=codes.is_exact(list(types.values()), False))
    if made is None:
        assert collide
        return
    firsts, (sums,) = made
    found = [tuple(map(canonical, rows[at][:-1])) for at in firsts]
    assert list(zip(found, sums.tolist(), strict=True)) == list(expected.items())


@pytest.mark.parametrize("bits", [3, 20, 40, 63])
def test_codes_are_sorted_and_equal_ones_stay(bits: int) -> None:
    numbers = np.random.default_rng(bits)
    upper, lower = (numbers.integers(-(2**bits), 2**bits - 1, 50_000) for _ in range(2))
    for coded in (upper, np.sort(upper), upper // 2**12 * 2**12 + lower % 8):
        order, found = sorted_codes(coded)
        expected = np.argsort(coded, kind="stable")
        assert np.array_equal(np.arange(len(coded)) if order is None else order, expected)
        assert np.array_equal(found, coded[expected])


def test_the_columns_of_a_large_file_are_read_in_place() -> None:
    layout = Layout({"k": pl.Int64(), "v": pl.Int64(), "w": pl.Int64()}, ("k",), ("w",), nullable=False)
    count = 300_000
    frame = pl.DataFrame({name: np.full(count, 1 if name == "w" else 1 << 40) for name in layout.types})
    content = content_of(layout, batch_of(layout, frame))
    batch = batch_in(layout, content, (float(count),))
    whole = np.frombuffer(content, np.uint8)
    for column in (batch.codes, batch.frame["k"].to_numpy(), batch.frame["v"].to_numpy()):
        assert np.shares_memory(column, whole)


def test_rows_of_a_file_are_unpacked_as_they_are_taken() -> None:
    types = {"k": pl.Int64(), "t": pl.String(), "d": pl.Date(), "n": pl.Int64(), "w": pl.Int64()}
    layout, count = Layout(types, ("t", "d"), ("w",), nullable=True), 20_000
    rows = [
        (-(1 << 31) + at, (None, "a", "long enough to lie elsewhere", "")[at % 4],
         date(2026, 1, 1 + at % 28) if at % 5 else None, at % 100 or None, 1 + at % 2)
        for at in range(count)
    ]  # fmt: skip
    made = batch_of(layout, frame_of(types, rows))
    content = content_of(layout, made)
    assert len(content) < 12 * count
    batch = batch_in(layout, content, made.bounds)
    assert isinstance(batch, PackedBatch)
    assert np.array_equal(batch.codes, made.codes)
    places = np.array([0, 19_999, 5, 5, 7_777])
    assert batch.take(places).equals(made.take(places), null_equal=True)
    assert batch.slice(100, 200).take(places[2:4]).equals(made.slice(100, 200).take(places[2:4]))
    one, other = batch.single_rows(("t", "n", "d")), made.single_rows(("t", "n", "d"))
    assert [one.row(at) for at in range(0, count, 97)] == [other.row(at) for at in range(0, count, 97)]
    assert one.slice(9, 20).rows() == other.slice(9, 20).rows()
    assert batch.numbers("k").to_list() == made.numbers("k").to_list()
    assert copy(batch).take(places).equals(made.take(places))
    small = batch.estimated_bytes
    assert batch.frame.equals(made.frame, null_equal=True)
    assert batch.estimated_bytes > 3 * small


@pytest.mark.parametrize("type", [pl.Int16(), pl.Int32(), pl.Int64(), pl.Date()])
@pytest.mark.parametrize("bits", [7, 8, 15, 16, 31, 32, 63])
def test_integers_are_as_narrow_as_they_can_be(type: pl.DataType, bits: int) -> None:
    widest = {pl.Int16(): 15, pl.Date(): 31, pl.Int32(): 31, pl.Int64(): 63}[type]
    for least in (-(1 << bits), 1 - (1 << bits), None):
        numbers = [0, None, least, (1 << bits) - 1]
        if bits > widest:
            continue
        column = pl.Series("n", numbers, {15: pl.Int16, 31: pl.Int32, 63: pl.Int64}[widest]).cast(type)
        stored = narrowed(column)
        assert stored.dtype.base_type() in (pl.Int8, pl.Int16, pl.Int32, type.base_type())
        assert stored.to_physical().to_list() == numbers
        assert may_be_stored_as(type, stored.dtype) or stored.dtype == type
        size = {pl.Int8: 8, pl.Int16: 16, pl.Int32: 32, pl.Int64: 64, pl.Date: 32}[stored.dtype.base_type()]
        assert size == next(each for each in (8, 16, 32, 64) if each > bits)


def reopened(held: Spine) -> Spine:
    """Write all batches as files, and read these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_files, "_MANY", 0)
        contents = [content_of(held.layout, batch) for batch in held.batches]
    return Spine(
        held.layout,
        [batch_in(held.layout, c, b.bounds) for c, b in zip(contents, held.batches, strict=True)],
    )


def frame_of(types: dict[str, pl.DataType], rows: list[Any]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=types, orient="row")


def sums_of(frame: pl.DataFrame) -> dict[Any, tuple[int, int]]:
    """Return the sums of each row."""
    totals: dict[Any, tuple[int, int]] = {}
    for *own, w, x in frame.rows():
        before = totals.get(tuple(map(canonical, own)), (0, 0))
        totals[tuple(map(canonical, own))] = (before[0] + w, before[1] + x)
    return {own: sums for own, sums in totals.items() if sums != (0, 0)}


def test_a_file_holds_no_text_of_rows_that_are_gone() -> None:
    layout = Layout({"0": pl.Int64(), "1": pl.String(), "w": pl.Int64()}, ("0",), ("w",), nullable=False)
    rows = [(at, f"a text of some length, {at}", 1) for at in range(20)]
    batch = batch_of(layout, frame_of(layout.types, rows))
    read = batch_in(layout, content_of(layout, batch), batch.bounds)
    taken_back = pl.DataFrame([(7, rows[7][1], -1)], schema=layout.types, orient="row")
    less = merged(layout, (read, batch_of(layout, taken_back)))
    content = content_of(layout, less).to_pybytes()
    assert (rows[7][1].encode() in content, rows[8][1].encode() in content) == (False, True)
