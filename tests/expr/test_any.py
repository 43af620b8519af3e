"""Columns of any value: what expressions may do with them, their order, and where they may not go."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import BadInput, BadRow, EvaluationError, WrongType
from headrace.expr.value_keys import any_key
from headrace.io import Changelog, CsvFiles, JsonFiles, ParquetFiles, TableFiles


class Row(NamedTuple):
    k: int
    v: object


class Nested(NamedTuple):
    k: int
    vs: list[object]


class Unordered:
    pass


ROWS = [Row(1, "a"), Row(1, (1, 2)), Row(1, 7), Row(2, None)]


def flow(build: Callable[[Any], Any], rows: Any = Row) -> hr.Flow:
    made = hr.Flow("any")
    made.sink("out", build(made.source("rows", rows)))
    return made


def answer(build: Callable[[Any], Any], rows: list[Any] = ROWS) -> list[Any]:
    return [tuple(change.row) for change in hr.Engine(flow(build)).tick(rows=rows)["out"]]


def test_values_are_carried_compared_with_their_like_and_asked_for_null() -> None:
    assert answer(lambda s: s.select(col.v)) == [("a",), ((1, 2),), (7,), (None,)]
    assert answer(lambda s: s.filter(col.v.is_null())) == [(2, None)]
    assert len(answer(lambda s: s.filter(col.v == col.v))) == 3, "null equals nothing"
    nan = [Row(1, float("nan"))]
    assert len(answer(lambda s: s.filter(col.v == col.v), nan)) == 1, "NaN equals itself"
    assert answer(lambda s: s.filter(col.v != col.v), [*nan, *ROWS]) == []
    assert answer(lambda s: s.select(x=hr.coalesce(col.v, col.v)).distinct()) == [
        ("a",),
        ((1, 2),),
        (7,),
        (None,),
    ]


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.select(x=col.v + 1),
        lambda s: s.filter(col.v == 1),
        lambda s: s.filter(col.v < 1),
        lambda s: s.filter(col.v < col.v),
        lambda s: s.filter(col.v.is_in("a", "b")),
        lambda s: s.select(x=col.v.cast(int)),
        lambda s: s.select(x=hr.hash(col.v)),
        lambda s: s.select(x=hr.greatest(col.v, col.v)),
        lambda s: s.group_by(col.k).agg(n=hr.sum(col.v)),
    ],
)
def test_what_needs_to_know_more_of_a_value_is_refused_with_a_way_out(build: Callable[[Any], Any]) -> None:
    with pytest.raises(WrongType) as refused:
        flow(build)
    assert refused.value.fix


def test_groups_and_aggregates_hold_any_value() -> None:
    assert answer(lambda s: s.group_by(col.v).agg(n=hr.count())) == [
        ("a", 1),
        ((1, 2), 1),
        (7, 1),
        (None, 1),
    ]
    grouped = answer(
        lambda s: s.group_by(col.k).agg(
            least=hr.min(col.v), most=hr.max(col.v), all=hr.collect(col.v), n=hr.count_distinct(col.v)
        )
    )
    assert grouped == [(1, 7, (1, 2), [7, "a", (1, 2)], 3), (2, None, None, [], 0)]


def test_equal_rows_are_ordered_by_any_value() -> None:
    assert answer(lambda s: s.top_k(2, by=col.k)) == [(1, 7), (1, "a")]


def test_values_of_a_class_without_order_are_an_error_that_says_so() -> None:
    rows = [Row(1, Unordered()), Row(1, Unordered())]
    with pytest.raises(EvaluationError, match="values of Unordered have no order"):
        answer(lambda s: s.group_by(col.k).agg(most=hr.max(col.v)), rows)


def test_what_cannot_be_hashed_is_a_bad_row() -> None:
    with pytest.raises(BadRow, match="give a tuple"):
        answer(lambda s: s, [Row(1, [1])])


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates(),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
)


@given(values, values, values)
def test_the_order_of_values_is_total_and_holds_equal_ones_equal(a: Any, b: Any, c: Any) -> None:
    first, second, third = sorted([a, b, c], key=any_key)
    assert not any_key(third) < any_key(first)
    assert (any_key(a) < any_key(b)) + (any_key(b) < any_key(a)) + (any_key(a) == any_key(b)) == 1
    if a == b:
        assert any_key(a) == any_key(b)
    assert not any_key(second) < any_key(first)


def test_the_order_goes_by_kind_and_then_as_the_kind_compares() -> None:
    mixed = [
        date(2024, 1, 1),
        frozenset([2]),
        frozenset([1]),
        (1, "x"),
        (1, 2),
        b"",
        "b",
        "a",
        float("nan"),
        Decimal("1.5"),
        True,
        None,
    ]
    assert [repr(v) for v in sorted(mixed, key=any_key)] == [repr(v) for v in reversed(mixed)]


@pytest.mark.parametrize("files", [JsonFiles, CsvFiles, ParquetFiles])
@pytest.mark.parametrize("rows", [Row, Nested])
def test_files_cannot_bring_values_without_a_type(files: Any, rows: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="which a file cannot hold") as refused:
        hr.run(flow(lambda s: s, rows), {"rows": files(tmp_path)})
    assert refused.value.column == rows._fields[1]


@pytest.mark.parametrize("sink", [Changelog, lambda folder: TableFiles(folder, key=["k"])])
def test_files_cannot_take_values_without_a_type(sink: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="column 'v' is any, which a file cannot hold"):
        hr.run(flow(lambda s: s.distinct()), {"rows": ROWS}, {"out": sink(tmp_path / "out")})


def test_a_sink_cannot_be_spooled_beside_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="with a checkpoint: column 'v' is any"):
        hr.run(flow(lambda s: s), {"rows": ROWS}, {"out": []}, checkpoint=tmp_path / "state")


def test_state_is_stored_as_long_as_its_values_are_plain_data(tmp_path: Path) -> None:
    counted = flow(lambda s: s.distinct())
    assert hr.run(counted, {"rows": ROWS}, checkpoint=tmp_path / "state").rows_in == 4
    assert hr.run(counted, {"rows": [*ROWS, Row(3, 1)]}, checkpoint=tmp_path / "state").rows_in == 1
    with pytest.raises(hr.HeadraceError, match="plain data"):
        hr.run(counted, {"rows": [Row(1, Unordered())]}, checkpoint=tmp_path / "other")
