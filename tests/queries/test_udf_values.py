"""Functions of pandas and Arrow get what Spark gives them for a row, and their results mean the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import UserFunctionFailed
from headrace.expr.types import Int32
from tests.queries.python_values import shown, shown_columns
from tests.queries.spark_answers import comparable, empty_frame, frame_of

F = pytest.importorskip("pyspark.sql.functions")

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.verify]

LARGE = 2**53 + 1
TIME = datetime(2020, 2, 29, 1, 2, 3, 456789, tzinfo=UTC)
OLD = datetime(1700, 1, 1, tzinfo=UTC)


class Numbers(NamedTuple):
    a: int | None
    b: bool | None
    t: datetime | None


class Mixed(NamedTuple):
    a: int | None
    s: str | None
    t: datetime | None
    x: list[int | None] | None


class Deep(NamedTuple):
    n: Numbers | None
    m: list[Mixed | None] | None
    d: dict[str, list[int | None] | None] | None


class Given(NamedTuple):
    id: int
    i: int | None = None
    i32: Int32 | None = None
    b: bool | None = None
    f: float | None = None
    s: str | None = None
    d: date | None = None
    t: datetime | None = None
    dec: Decimal | None = None
    bin: bytes | None = None
    li: list[int | None] | None = None
    lb: list[bool | None] | None = None
    lf: list[float | None] | None = None
    ls: list[str | None] | None = None
    lt: list[datetime | None] | None = None
    ld: list[date | None] | None = None
    lli: list[list[int | None] | None] | None = None
    llt: list[list[datetime] | None] | None = None
    lm: list[dict[str, int | None] | None] | None = None
    mi: dict[str, int | None] | None = None
    mf: dict[int, float | None] | None = None
    mb: dict[int, bool | None] | None = None
    mt: dict[date, datetime | None] | None = None
    ml: dict[str, list[int | None] | None] | None = None
    num: Numbers | None = None
    mix: Mixed | None = None
    deep: Deep | None = None
    lmix: list[Mixed | None] | None = None


COLUMNS = Given._fields[1:]

_MIXED = Mixed(LARGE, "x", TIME, [1, LARGE])
_HOLES = Mixed(None, None, None, [1, None])
ROWS = [
    Given(0),
    Given(
        *(1, LARGE, 7, True, 0.5, "ü", date(2020, 2, 29), TIME, Decimal("1.5"), b"\0x"),
        *([1, LARGE], [True], [0.5], ["x"], [TIME, OLD], [date(1, 1, 1)], [[1], [LARGE, 2]], [[TIME], [OLD]]),
        *([{"x": LARGE}], {"x": LARGE, "y": 2}, {1: 0.5}, {1: True}, {date(2020, 1, 1): TIME}, {"x": [1]}),
        *(Numbers(LARGE, True, TIME), _MIXED, Deep(Numbers(1, False, OLD), [_MIXED], {"x": [1]}), [_MIXED]),
    ),
    Given(
        *(2, -1, None, None, float("nan"), None, None, None, Decimal(0), b""),
        *([LARGE, None], [True, None], [0.5, None], ["x", None], [TIME, None], [date(1, 1, 1), None]),
        *([[1, None], None, []], [[TIME]], [{"x": None}, None], {"x": LARGE, "y": None}, {1: None}),
        *({1: None, 2: True}, {date(2020, 1, 1): None}, {"x": [1, None], "y": None}),
        *(Numbers(None, None, None), _HOLES, Deep(None, [_HOLES, None, _MIXED], {"x": [1, None]})),
        [_HOLES, None],
    ),
    Given(
        *(3, 0, 0, False, float("inf"), "", date(1, 1, 1), OLD, None, b"x", [], [], [], [], [], [], [], []),
        *([], {}, {}, {}, {}, {}, Numbers(1, None, TIME), Mixed(None, "x", None, None), Deep(None, [], {})),
        [],
    ),
    Given(
        *(4, None, 1, None, None, "x", None, None, None, None, [None], [None], [None], [None], [None]),
        *([None], [None], [None], [None], None, None, None, None, {"x": None}),
        *(
            Numbers(None, True, None),
            Mixed(1, None, None, [None]),
            Deep(Numbers(None, None, None), None, None),
        ),
        [None, _MIXED],
    ),
]

Make = Callable[["DataFrame"], "DataFrame"]
Answer = dict[Any, tuple[Any, ...]]


def answers(spark: SparkSession, make: Make) -> tuple[Answer, Answer]:
    """Rows of the DataFrame that `make` makes of one of `Given`, by the first column: Headrace's and Spark's.

    On Spark each row is a batch of its own. Headrace gets all in one tick.
    """
    before = empty_frame(spark, Given)
    mine = hr.Engine(hr.from_dataframe(make(before), tables={"given": before})).tick(given=ROWS)["answer"].raw
    return _keyed(row[:-1] for row in mine), made_on_spark(spark, make)


def made_on_spark(spark: SparkSession, make: Make) -> Answer:
    from headrace.expr.value_keys import with_representatives
    from headrace.io.arrow import table_to_rows
    from headrace.queries.catalyst_plan import parse_schema

    found = make(frame_of(spark, Given, ROWS))
    schema = parse_schema(found.schema.jsonValue())
    limit = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(limit, "1")
    try:
        return _keyed(with_representatives(table_to_rows(found.toArrow(), schema), schema))
    finally:
        spark.conf.unset(limit)


def _keyed(rows: Iterable[tuple[Any, ...]]) -> Answer:
    return {row[0]: comparable(row[1:]) for row in rows}


def check(spark: SparkSession, make: Make, count: int = len(ROWS)) -> None:
    mine, theirs = answers(spark, make)
    assert len(theirs) == count
    assert mine == theirs


# -- what functions get --------------------------------------------------------------------------


def _columns(piece: Any) -> tuple[Any, ...]:
    return piece if isinstance(piece, tuple) else (piece,)


def describe(*columns: pd.Series) -> pd.Series:
    # A series is called `_` and its place among the arguments of all functions that Spark calls together.
    names = [getattr(column, "name", None) for column in columns] if len(columns) > 1 else ""
    return pd.Series([f"{names} {text}" for text in shown_columns(*columns)])


def describe_all(pieces: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for piece in pieces:
        yield describe(*_columns(piece))


def describe_array(*columns: pa.Array) -> pa.Array:
    kinds = [str(column.type) for column in columns]
    return pa.array([f"{kinds} {row}" for row in zip(*(c.to_pylist() for c in columns), strict=True)])


def describe_arrays(pieces: Iterator[pa.Array]) -> Iterator[pa.Array]:
    for piece in pieces:
        yield describe_array(*_columns(piece))


def describe_values(*values: Any) -> str:
    return f"{list(map(shown, values))}"


SCALARS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "pandas": (F.pandas_udf, describe),
    "pandas iterator": (F.pandas_udf, describe_all),
    "arrow": (F.arrow_udf, describe_array),
    "arrow iterator": (F.arrow_udf, describe_arrays),
    "row": (partial(F.udf, useArrow=False), describe_values),
    "row by Arrow": (partial(F.udf, useArrow=True), describe_values),
}


@pytest.mark.parametrize("kind", SCALARS)
def test_a_scalar_function_gets_what_it_gets_on_spark(spark: SparkSession, kind: str) -> None:
    make, describes = SCALARS[kind]
    function = make(describes, "string")
    check(spark, lambda given: given.select("id", function(*COLUMNS)))
    if "iterator" not in kind:
        check(spark, lambda given: given.select("id", *(function(name).alias(name) for name in COLUMNS)))


def describe_group(*columns: pd.Series) -> str:
    names = [column.name for column in columns] if len(columns) > 1 else ""
    return f"{names} {sorted(shown_columns(*columns))}"


def describe_array_group(*columns: pa.Array) -> str:
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return f"{[str(column.type) for column in columns]} {sorted(map(str, rows))}"


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_an_aggregate_gets_what_it_gets_on_spark(spark: SparkSession, kind: str) -> None:
    if kind == "pandas":
        function = F.pandas_udf(describe_group, "string")
    else:
        function = F.arrow_udf(describe_array_group, "string")
    check(spark, lambda given: given.groupBy("id").agg(*(function(name).alias(name) for name in COLUMNS)))
    whole = F.lit(0).alias("all")
    check(spark, lambda given: given.groupBy(whole).agg(function("i"), function("i", "b", "t", "s")), 1)


KEYS = ("id", "i", "i32", "b", "s", "d", "t", "dec", "bin")


def describe_frame(key: tuple[Any, ...], frame: pd.DataFrame) -> pd.DataFrame:
    columns = [frame.iloc[:, at] for at in range(len(frame.columns))]
    text = f"{list(frame.columns)} {[column.name for column in columns]} {shown_columns(*columns)}"
    return pd.DataFrame({"id": frame["id"], "text": f"{list(map(shown, key))} {text}"})


def describe_table(key: tuple[Any, ...], table: pa.Table) -> pa.Table:
    texts = [f"{key} {[str(scalar.type) for scalar in key]} {table.schema} {table.to_pylist()}"]
    return pa.table({"id": table["id"], "text": pa.array(texts * len(table))})


def describe_frames(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield describe_frame((), frame)


def describe_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        texts = pa.array([f"{batch.schema} {row}" for row in batch.to_pylist()])
        yield pa.RecordBatch.from_arrays([batch.column("id"), texts], names=["id", "text"])


TABLES: dict[str, Make] = {
    "applyInPandas": lambda given: given.groupBy(*KEYS).applyInPandas(describe_frame, "id long, text string"),
    "applyInArrow": lambda given: given.groupBy(*KEYS).applyInArrow(describe_table, "id long, text string"),
    "mapInPandas": lambda given: given.mapInPandas(describe_frames, "id long, text string"),
    "mapInPandas of numbers": lambda given: given.select("id", "i", "b", "t", "bin").mapInPandas(
        describe_frames, "id long, text string"
    ),
    "mapInArrow": lambda given: given.mapInArrow(describe_batches, "id long, text string"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_function_of_tables_gets_what_it_gets_on_spark(spark: SparkSession, kind: str) -> None:
    check(spark, TABLES[kind])


# -- what functions return -----------------------------------------------------------------------


def same_series(column: pd.Series) -> pd.Series:
    return column


def same_pieces(pieces: Iterator[pd.Series]) -> Iterator[pd.Series]:
    yield from pieces


def same_array(column: pa.Array) -> pa.Array:
    return column


def same_arrays(pieces: Iterator[pa.Array]) -> Iterator[pa.Array]:
    yield from pieces


def only(column: pd.Series) -> Any:
    return column.iloc[0]


def only_value(value: Any) -> Any:
    return value


def only_scalar(column: pa.Array) -> Any:
    return column[0]


SAME: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "pandas": (F.pandas_udf, same_series),
    "pandas iterator": (F.pandas_udf, same_pieces),
    "arrow": (F.arrow_udf, same_array),
    "arrow iterator": (F.arrow_udf, same_arrays),
    "row": (partial(F.udf, useArrow=False), only_value),
    "row by Arrow": (partial(F.udf, useArrow=True), only_value),
    "pandas aggregate": (F.pandas_udf, only),
    "arrow aggregate": (F.arrow_udf, only_scalar),
}


@pytest.mark.parametrize("kind", SAME)
def test_a_result_of_each_type_is_that_of_spark(spark: SparkSession, kind: str) -> None:
    types = {field.name: field.dataType for field in empty_frame(spark, Given).schema}
    make, function = SAME[kind]
    # Spark calls functions of iterators one after the other.
    names = ("i", "t", "li", "lt", "mi", "num", "deep") if "iterator" in kind else COLUMNS
    if kind == "pandas aggregate":  # Spark takes no structs from these
        names = [name for name in COLUMNS if name not in ("num", "mix", "deep")]
    if kind == "arrow aggregate":  # Spark fails on scalars of Arrow with a null within
        names = COLUMNS[: COLUMNS.index("li")]
    made = [make(function, types[name])(name).alias(name) for name in names]
    if "aggregate" in kind:
        check(spark, lambda given: given.groupBy("id").agg(*made))
    else:
        check(spark, lambda given: given.select("id", *made))


def cast_off(column: pd.Series) -> pd.Series:
    return column.fillna(0) + 0.75


def texts(column: pd.Series) -> pd.Series:
    return column.fillna(0).astype("int64").astype(str)


def truths(column: pd.Series) -> pd.Series:
    return column == 1


def zoned(column: pd.Series) -> pd.Series:
    return column.dt.tz_localize("Europe/Paris")


def categories(column: pd.Series) -> pd.Series:
    return column.astype("category")


def pairs(column: pd.Series) -> pd.Series:
    return pd.Series([[(1, "x"), {"b": "y"}]] * len(column))


def numbers(column: pd.Series) -> pd.DataFrame:
    return pd.DataFrame({"b": ["x"] * len(column), "a": column})


def unnamed(column: pd.Series) -> pd.DataFrame:
    return pd.DataFrame([[1.5, "x"]] * len(column))


def nested(column: pd.Series) -> pd.DataFrame:
    return pd.DataFrame(
        {"t": [[TIME.replace(tzinfo=None), TIME, None]] * len(column), "a": [1] * len(column)}
    )


OTHERS: list[tuple[Callable[..., Any], str, str]] = [
    (cast_off, "f", "double"),
    (cast_off, "i32", "bigint"),
    (cast_off, "i32", "boolean"),
    (texts, "i32", "bigint"),
    (texts, "i32", "string"),
    (texts, "i32", "int"),
    (truths, "i32", "int"),
    (truths, "i32", "string"),
    (zoned, "t", "timestamp"),
    (same_series, "d", "timestamp"),
    (same_series, "t", "date"),
    (same_series, "i32", "decimal(10,2)"),
    (same_series, "i", "int"),
    (same_series, "s", "bigint"),
    (same_series, "li", "array<double>"),
    (same_series, "li", "array<string>"),
    (categories, "s", "string"),
    (pairs, "i", "array<struct<a: bigint, b: string>>"),
    (numbers, "i", "struct<a: bigint, b: string>"),
    (unnamed, "i", "struct<a: bigint, b: string>"),
    (nested, "i", "struct<a: int, t: array<timestamp>>"),
]


@pytest.mark.parametrize(("function", "column", "type"), OTHERS)
def test_a_result_of_another_type_is_converted_as_on_spark(
    spark: SparkSession, function: Callable[..., Any], column: str, type: str
) -> None:
    from pyspark.errors import PythonException

    made = F.pandas_udf(function, type)
    try:
        check(spark, lambda given: given.select("id", made(column)))
    except (UserFunctionFailed, PythonException):
        with pytest.raises(PythonException):
            made_on_spark(spark, lambda given: given.select("id", made(column)))


def same_table(table: Any) -> Any:
    return table


def same_tables(tables: Iterator[Any]) -> Iterator[Any]:
    yield from tables


@pytest.mark.parametrize("kind", ["applyInPandas", "applyInArrow", "mapInPandas", "mapInArrow"])
def test_tables_with_columns_of_each_type_are_those_of_spark(spark: SparkSession, kind: str) -> None:
    schema = empty_frame(spark, Given).schema
    if kind.startswith("apply"):
        check(spark, lambda given: getattr(given.groupBy("id"), kind)(same_table, schema))
    else:
        check(spark, lambda given: getattr(given, kind)(same_tables, schema))
