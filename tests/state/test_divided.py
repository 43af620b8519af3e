"""Values in pieces are what dicts and lists would be, and write what was touched."""

from __future__ import annotations

import bisect
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.state.chunked_values import ChunkedDict, ChunkedList, opened, piece_numbers
from headrace.state.codec import value_encoder

ENCODE = value_encoder()


class Store:
    """Where a value is between two ticks: a header and pieces, all encoded."""

    def __init__(self, value: Any) -> None:
        self.pieces: dict[int, bytes] = {}
        self.written = 0
        self.keep(value)

    def keep(self, value: Any) -> None:
        for number, data in value.changes(ENCODE):
            self.written += len(data or b"")
            if data is None:
                self.pieces.pop(number, None)
            else:
                self.pieces[number] = data
        self.header = value.header()
        assert {*self.pieces} <= {*piece_numbers(self.header)}

    def open(self) -> Any:
        return opened(self.header, self.pieces.get, None)


keys = st.integers(0, 3000) | st.tuples(st.integers(0, 40), st.text("ab", max_size=4))
dict_edits = st.lists(st.tuples(st.sampled_from("ssdg"), keys), max_size=400)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1500), st.lists(dict_edits, max_size=6))
def test_a_divided_dict_is_a_dict(size: int, ticks: list[list[tuple[str, Any]]]) -> None:
    model: dict[Any, Any] = {key: (key,) for key in range(size)}
    store = Store(ChunkedDict.of(dict(model)))
    for at, edits in enumerate(ticks):
        value = store.open()
        for what, key in edits:
            if what == "s":
                value[key] = model[key] = (at, "x")
            elif what == "g" or key not in model:
                assert value.get(key) == model.get(key)
                assert (key in value) == (key in model)
            else:
                del value[key]
                del model[key]
        assert len(value) == len(model)
        store.keep(value)
        assert store.open() == model
        assert dict(store.open().items()) == model


list_edits = st.lists(st.tuples(st.sampled_from("aaiidgS"), st.integers(-5, 4000)), max_size=300)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1500), st.lists(list_edits, max_size=6))
def test_a_divided_list_is_a_list(size: int, ticks: list[list[tuple[str, int]]]) -> None:
    model: list[Any] = list(range(size))
    store = Store(ChunkedList.of(list(model)))
    for edits in ticks:
        value = store.open()
        for what, number in edits:
            if what == "a":
                value.append(number)
                model.append(number)
            elif what == "i":
                value.insert(number, number)
                model.insert(number, number)
            elif what == "S" and number < 200:
                value[:] = model[: number * 10]
                model[:] = model[: number * 10]
            elif model and what in "dg":
                at = number % len(model)
                assert value[at] == model[at]
                if what == "d":
                    del value[at]
                    del model[at]
        assert len(value) == len(model)
        store.keep(value)
        assert store.open() == model
        assert store.open()[-3:] == model[-3:]


@given(st.lists(st.integers(0, 5000), max_size=300))
def test_a_sorted_list_may_be_searched_and_stays_sorted(values: list[int]) -> None:
    store = Store(ChunkedList.of(list(range(0, 5000, 3))))
    model = list(range(0, 5000, 3))
    value = store.open()
    for number in values:
        at = bisect.bisect_left(value, number)
        assert at == bisect.bisect_left(model, number)
        value.insert(at, number)
        model.insert(at, number)
    value.sort(key=lambda n: -n)
    assert value == sorted(model, key=lambda n: -n)


def test_a_change_writes_a_piece_and_not_the_whole() -> None:
    for whole in (ChunkedDict.of(dict.fromkeys(range(100000), 1)), ChunkedList.of(list(range(100_000)))):
        store = Store(whole)
        everything, store.written = store.written, 0
        value = store.open()
        if isinstance(value, ChunkedDict):
            value[100_001] = 1
        else:
            value.append(100_001)
        store.keep(value)
        assert store.written < everything / 100
        loaded = len(value._loaded)
        assert loaded <= 3


def test_adding_and_removing_all_leaves_no_more_than_there_is() -> None:
    store = Store(ChunkedDict.of(dict.fromkeys(range(600), 1)))
    for change in (range(600, 20_000), range(19_000)):
        value = store.open()
        for key in change:
            if key in value:
                del value[key]
            else:
                value[key] = 1
        store.keep(value)
    assert sorted(store.open()) == list(range(19_000, 20_000))
    assert len(store.pieces) < 100


def test_numbers_that_are_equal_are_one_key() -> None:
    value = ChunkedDict.of(dict.fromkeys(range(2000), 1))
    for key in (7.0, Decimal(7), Decimal("7.00")):
        assert value.get(key) == 1
    value[8.0] = 2
    assert len(value) == 2000
    nested = ChunkedDict.of({(n, "x"): 1 for n in range(2000)})
    assert nested.get((7.0, "x")) == 1
