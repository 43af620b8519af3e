"""Flows under random changes: the answer is that of Spark over the rows that are there."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import pytest

import headrace as hr

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace import Flow
    from headrace.expr.types import Schema

Draw = Callable[[random.Random, str], Any]
"""Draws a row of a table."""

TICKS = 5


def random_ticks(
    choice: random.Random, tables: Iterable[str], draw: Draw
) -> Iterator[tuple[dict[str, list[hr.Change[Any]]], dict[str, list[Any]]]]:
    """Ticks in which rows come and go, each with the rows that are there after it."""
    there: dict[str, list[Any]] = {table: [] for table in tables}
    for _ in range(TICKS):
        tick: dict[str, list[hr.Change[Any]]] = {}
        for table, rows in there.items():
            new = [draw(choice, table) for _ in range(choice.randrange(5))]
            rows += new
            choice.shuffle(rows)
            gone = choice.randrange(1 + len(rows) // 2)
            tick[table] = [hr.insert(row) for row in new] + [hr.delete(row) for row in rows[:gone]]
            del rows[:gone]
        yield tick, there


def check_answer(
    spark: SparkSession,
    flow: Flow,
    query: Callable[[Mapping[str, DataFrame]], DataFrame],
    tables: Mapping[str, type],
    draw: Draw,
    seed: int,
    *,
    nearly: bool = False,
    between: int | None = None,
) -> None:
    """Run a flow over random changes, and compare its answer after the last of them with Spark's.

    query: makes Spark's answer of the tables. tables: the row class of each. nearly: floats may differ in
    their last digits. between: the number of a tick after which the answer is compared too.
    """
    from headrace.expr.value_keys import with_representatives

    engine, answer = hr.Engine(flow), Counter[Any]()
    schema = engine.program.graph.nodes[engine.program.graph.sinks["answer"]].schema
    for number, (tick, there) in enumerate(random_ticks(random.Random(seed), tables, draw), start=1):
        given = {table: rows for table, rows in tick.items() if table in engine.program.graph.sources}
        for *row, weight in with_representatives(engine.tick(**given)["answer"].raw, schema):
            answer[comparable(row)] += weight
        assert min(answer.values(), default=0) >= 0
        if number in (between, TICKS):
            frames = {table: frame_of(spark, tables[table], rows) for table, rows in there.items()}
            for table, frame in frames.items():
                frame.createOrReplaceTempView(table)
            _check_rows(answer, schema, query(frames), nearly=nearly)


def _check_rows(answer: Counter[Any], schema: Schema, found: DataFrame, *, nearly: bool) -> None:
    """Compare rows, which have a schema, with those of a DataFrame, and their types too."""
    from pyspark.sql.types import NullType

    from headrace.expr.spark_columns import nullable_type, spark_type
    from headrace.expr.value_keys import with_representatives
    from headrace.io.arrow import table_to_rows
    from headrace.queries.catalyst_plan import parse_schema

    for mine, its in zip(schema.fields, found.schema.fields, strict=True):
        assert (
            nullable_type(spark_type(mine.type)) == nullable_type(its.dataType) or its.dataType == NullType()
        )
    its_schema = parse_schema(found.schema.jsonValue())
    its_rows = with_representatives(table_to_rows(found.toArrow(), its_schema), its_schema)
    expected = Counter(map(comparable, its_rows))
    more, missing = +answer - expected, expected - answer
    assert (not more and not missing) or (nearly and _nearly_equal(more, missing)), (more, missing)


def _nearly_equal(more: Counter[Any], missing: Counter[Any]) -> bool:
    """Return whether each row of one is near to another one of the other."""
    left = list(missing.elements())
    for row in more.elements():
        at = next((at for at, other in enumerate(left) if _near(row, other)), None)
        if at is None:
            return False
        del left[at]
    return not left


def _near(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_near, one, other))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-12)
    return one == other


def comparable(value: Any) -> Any:
    """Return a value of a row, hashable and equal where Spark's and Headrace's are the same."""
    if isinstance(value, tuple | list):
        return tuple(map(comparable, cast("tuple[Any, ...]", value)))
    if isinstance(value, dict):
        return frozenset((comparable(k), comparable(v)) for k, v in cast("dict[Any, Any]", value).items())
    if isinstance(value, datetime):
        return value.astimezone().replace(tzinfo=None)  # Spark shows the time of this machine
    return "NaN" if value != value else value


def frame_of(spark: SparkSession, row_class: type, rows: Sequence[Any]) -> DataFrame:
    """Return rows as a DataFrame of one partition, each as a table has it."""
    from headrace.expr.row_classes import from_user, schema_of
    from headrace.expr.spark_columns import spark_schema
    from headrace.expr.value_keys import with_representatives
    from headrace.io.arrow import rows_to_table

    schema = schema_of(row_class)
    inside = with_representatives(from_user(schema, what="rows")(rows), schema)
    return spark.createDataFrame(rows_to_table(inside, schema), spark_schema(schema)).coalesce(1)


def empty_frame(spark: SparkSession, row_class: type) -> DataFrame:
    """Return a DataFrame over which a query is planned, which Spark doesn't know to be empty."""
    from headrace.expr.row_classes import schema_of
    from headrace.expr.spark_columns import spark_schema

    return spark.createDataFrame(spark.sparkContext.emptyRDD(), spark_schema(schema_of(row_class)))


def create_view(spark: SparkSession, rows: Sequence[Any]) -> None:
    """Make rows of one class the view `v`."""
    frame_of(spark, type(rows[0]), rows).cache().createOrReplaceTempView("v")


def value_differences(
    spark: SparkSession, rows: Sequence[Any], expressions: Sequence[str], same: Callable[[Any, Any], bool]
) -> list[str]:
    """Expressions over the view `v` of rows with an `id` whose values differ from Spark's, with both."""
    from headrace.expr.value_keys import with_representatives
    from headrace.io.arrow import table_to_rows
    from headrace.queries.catalyst_plan import parse_schema

    columns = ", ".join(f"{text} AS c{at}" for at, text in enumerate(expressions))
    text = f"SELECT id, {columns} FROM v"
    frame = spark.sql(text)
    schema = parse_schema(frame.schema.jsonValue())
    found = with_representatives(table_to_rows(frame.toArrow(), schema), schema)
    expected = {row[0]: row[1:] for row in found}
    made = hr.Engine(hr.sql(text, tables={"v": type(rows[0])}, spark=spark)).tick(v=rows)["answer"].raw
    mine = {row[0]: row[1:-1] for row in made}
    assert mine.keys() == expected.keys()
    return [
        f"{shown} where id = {id}: {mine[id][at]!r}, on Spark {expected[id][at]!r}"
        for at, shown in enumerate(expressions)
        for id in mine
        if not same(mine[id][at], expected[id][at])
    ]


def equal(a: Any, b: Any) -> bool:
    """Of one type and equal; the zeros are, of which the rows of a table have one."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        mine, its = cast("tuple[Any, ...]", a), cast("tuple[Any, ...]", b)
        return len(mine) == len(its) and all(map(equal, mine, its))
    return type(a) is type(b) and (repr(a) == repr(b) or (a == b and a == 0))


def one_in_four(names: Iterable[str]) -> list[Any]:
    """Parameters of a test: every fourth name is for `make test`, the others are for `make verify`."""
    return [pytest.param(name, marks=[pytest.mark.verify] if at % 4 else []) for at, name in enumerate(names)]
