"""Functions of pandas and Arrow get the rows of a tick together, and answer as they do for each row alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import io
from headrace.errors import UserFunctionFailed
from headrace.expr.types import (
    BOOL,
    DATE,
    FLOAT64,
    INT32,
    INT64,
    STR,
    TIMESTAMP,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    StructType,
)
from headrace.queries import python_functions
from headrace.queries.python_functions import PythonFunction, WithColumnValue
from tests.queries.python_values import shown_columns

PANDAS, PANDAS_ITERATOR, ARROW, ARROW_ITERATOR = 200, 204, 250, 251

_integers = st.integers(-3, 3) | st.just(2**53 + 1)
_nested = StructType((Field("a", INT64, True), Field("b", ListType(INT32, True), True)))
_times = st.sampled_from([datetime(1700, 1, 1, tzinfo=UTC), datetime(2262, 1, 1, 0, 0, 0, 1, tzinfo=UTC)])
_numbers = StructType((Field("a", INT64, True), Field("b", BOOL, True), Field("t", TIMESTAMP, True)))
_lists32 = st.lists(st.none() | st.integers(-3, 3), max_size=2)
_lists = st.lists(st.none() | _integers, max_size=2)
VALUES: list[tuple[DataType, st.SearchStrategy[Any]]] = [
    (INT64, _integers),
    (INT32, st.integers(-3, 3)),
    (BOOL, st.booleans()),
    (FLOAT64, st.sampled_from([0.5, -0.0, float("nan"), float("inf")])),
    (STR, st.sampled_from(["", "x", "ü"])),
    (DATE, st.sampled_from([date(1, 1, 1), date(2020, 2, 29)])),
    (TIMESTAMP, _times),
    (DecimalType(5, 1), st.sampled_from([Decimal("0.0"), Decimal("1.5")])),
    (ListType(INT64, True), st.lists(st.none() | _integers, max_size=2)),
    (ListType(BOOL, True), st.lists(st.none() | st.booleans(), max_size=2)),
    (ListType(STR, True), st.lists(st.none() | st.just("x"), max_size=2)),
    (
        ListType(ListType(INT64, True), True),
        st.lists(st.none() | st.lists(st.none() | _integers, max_size=2), max_size=2),
    ),
    (
        _nested,
        st.tuples(st.none() | _integers, st.none() | st.lists(st.none() | st.integers(-3, 3), max_size=2)),
    ),
    (MapType(STR, INT64, True), st.dictionaries(st.sampled_from("xy"), st.none() | _integers)),
    (MapType(INT64, BOOL, True), st.dictionaries(_integers, st.none() | st.booleans())),
    (MapType(STR, ListType(INT64, True)), st.dictionaries(st.sampled_from("xy"), _lists)),
    (ListType(TIMESTAMP, True), st.lists(st.none() | _times, max_size=2)),
    (_numbers, st.tuples(st.none() | _integers, st.none() | st.booleans(), st.none() | _times)),
    (
        ListType(_nested, True),
        st.lists(st.none() | st.tuples(st.none() | _integers, st.none() | _lists32), max_size=2),
    ),
    (
        StructType((Field("n", _nested, True), Field("s", STR, True), Field("a", INT32, True))),
        st.tuples(
            st.none() | st.tuples(st.none() | _integers, st.none() | _lists32),
            st.none() | st.just("x"),
            st.none() | st.integers(-3, 3),
        ),
    ),
]


def texts_of_series(*columns: pd.Series) -> pd.Series:
    return pd.Series(shown_columns(*columns))


def texts_of_all_series(pieces: Iterator[Any]) -> Iterator[pd.Series]:
    for piece in pieces:
        yield texts_of_series(*([piece] if isinstance(piece, pd.Series | pd.DataFrame) else piece))


def texts_of_arrays(*columns: pa.Array) -> pa.Array:
    kinds = [str(column.type) for column in columns]
    return pa.array([f"{kinds} {row}" for row in zip(*(c.to_pylist() for c in columns), strict=True)])


def texts_of_all_arrays(pieces: Iterator[Any]) -> Iterator[pa.Array]:
    for piece in pieces:
        yield texts_of_arrays(*([piece] if isinstance(piece, pa.Array) else piece))


TEXTS: dict[int, Callable[..., Any]] = {
    PANDAS: texts_of_series,
    PANDAS_ITERATOR: texts_of_all_series,
    ARROW: texts_of_arrays,
    ARROW_ITERATOR: texts_of_all_arrays,
}


@pytest.mark.parametrize("evaluation", TEXTS)
@given(data=st.data())
def test_a_row_looks_the_same_alone_and_beside_others(evaluation: int, data: st.DataObject) -> None:
    columns = data.draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=2))
    rows = data.draw(
        st.lists(st.tuples(*(values | st.none() for _, values in columns)), min_size=2, max_size=6)
    )
    fields = tuple(Field(f"c{at}", type, True) for at, (type, _) in enumerate(columns))
    function = PythonFunction("texts", TEXTS[evaluation], evaluation, STR)
    step = WithColumnValue(function, tuple(range(len(columns))), fields)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_functions, "_MAX_PIECE", data.draw(st.integers(2, 4)))
        assert step.of_rows(rows) == [step(row) for row in rows]


NULLS: list[tuple[DataType, list[Any]]] = [
    (INT64, [1, None, 2]),
    (BOOL, [True, None]),
    (ListType(INT64, True), [[1], [1, None], [], None, [None]]),
    (ListType(BOOL, True), [[True], [None]]),
    (ListType(ListType(INT64, True), True), [[[1]], [[1, None], [2]], [None, [1]]]),
    (MapType(STR, ListType(INT64, True)), [{"x": [1]}, {"x": [None], "y": [1]}]),
    (_numbers, [(1, True, None), (None, True, None), (1, None, None), None]),
    (_nested, [(1, [1]), (None, [1]), (1, [1, None]), None]),
    (ListType(_nested, True), [[(1, [1])], [(None, [1]), None], [(1, [1]), (1, [None])]]),
]


@pytest.mark.parametrize(("type", "values"), NULLS, ids=[str(type) for type, _ in NULLS])
def test_nulls_of_other_rows_change_nothing(type: DataType, values: list[Any]) -> None:
    step = WithColumnValue(
        PythonFunction("texts", texts_of_series, PANDAS, STR), (0,), (Field("c", type, True),)
    )
    rows = [(value,) for value in values]
    assert step.of_rows(rows) == [step(row) for row in rows]


def test_rows_with_nulls_at_the_same_places_come_together() -> None:
    calls: list[int] = []

    def count(a: pd.Series) -> pd.Series:
        calls.append(len(a))
        return a

    type = ListType(INT64, True)
    step = WithColumnValue(PythonFunction("count", count, PANDAS, type), (0,), (Field("c", type, True),))
    rows = [([1],), ([None],), ([2],), ([2**53 + 1, None],), (None,)]
    assert [row[1] for row in step.of_rows(rows)] == [row[0] for row in rows]
    assert calls == [3, 2]


def calls_of(evaluation: int, values: list[int | None]) -> list[list[int | None]]:
    """The pieces in which a function gets a column of integers."""
    got: list[list[int | None]] = []

    def note(piece: Any) -> Any:
        got.append([None if x != x else x for x in piece.tolist()])
        return piece

    def note_all(pieces: Iterator[Any]) -> Iterator[Any]:
        yield from map(note, pieces)

    call = note_all if evaluation in (PANDAS_ITERATOR, ARROW_ITERATOR) else note
    step = WithColumnValue(PythonFunction("note", call, evaluation, INT64), (0,), (Field("a", INT64, True),))
    assert step.of_rows([(value,) for value in values]) == [(value, value) for value in values]
    return got


def test_rows_come_together_in_pieces_of_a_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_functions, "_MAX_PIECE", 3)
    for evaluation in (PANDAS, PANDAS_ITERATOR):
        assert calls_of(evaluation, [1, 2, 3, 4]) == [[1, 2, 3], [4]]
        assert calls_of(evaluation, [1, None, 2, 3, None, 4]) == [[1, 2, 3], [4], [None, None]]
    for evaluation in (ARROW, ARROW_ITERATOR):
        assert calls_of(evaluation, [1, None, 2, 3, None, 4]) == [[1, None, 2], [3, None, 4]]


# -- in queries --------------------------------------------------------------------------------


class Item(NamedTuple):
    id: int
    a: int | None


def first_only(a: pd.Series) -> pd.Series:
    return a[:1]


def first_piece_only(pieces: Iterator[pa.Array]) -> Iterator[pa.Array]:
    yield next(pieces)[:1]


def inverse(a: pd.Series) -> pd.Series:
    return a.map(lambda x: 1 / x)


def sizes(a: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(a, 0), len(a))


def flow_of(spark: Any, function: Any) -> hr.Flow:
    spark.udf.register("function", function)
    return hr.sql("SELECT id, function(a) AS made FROM items", tables={"items": Item}, spark=spark)


@pytest.mark.spark
def test_a_function_with_too_few_values_is_refused(spark: Any) -> None:
    from pyspark.sql import functions as f

    for function in (f.pandas_udf(first_only, "bigint"), f.arrow_udf(first_piece_only, "bigint")):
        engine = hr.Engine(flow_of(spark, function))
        with pytest.raises(UserFunctionFailed, match="returned 1 values for 3 rows") as failed:
            engine.tick(items=[Item(1, 2), Item(2, 3), Item(3, 4)])
        assert failed.value.where
        assert failed.value.fix


@pytest.mark.spark
def test_the_row_on_which_a_function_of_series_fails_is_named(spark: Any) -> None:
    from pyspark.sql import functions as f

    engine = hr.Engine(flow_of(spark, f.pandas_udf(inverse, "double")))
    with pytest.raises(UserFunctionFailed, match="ZeroDivisionError") as failed:
        engine.tick(items=[Item(1, 2), Item(2, 0), Item(3, 4)])
    assert failed.value.facts["row"][0] == 2
    assert {step.location.file for step in failed.value.where} == {__file__}


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_a_task_calls_a_function_with_its_rows_together(spark: Any, mode: Any) -> None:
    from pyspark.sql import functions as f

    answer = io.Memory()
    rows = [Item(at, at) for at in range(100)]
    flow = flow_of(spark, f.arrow_udf(sizes, "bigint"))
    hr.spark.run(flow, spark, sources={"items": io.Rows([rows])}, sinks={"answer": answer}, mode=mode)
    assert [row.id for row in sorted(answer.rows())] == list(range(100))
    assert max(row.made for row in answer.rows()) > 1
