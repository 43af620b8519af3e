"""A row gets to the same shard, whether it travels as a row or in a table."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.expr.types import (
    BOOL,
    DATE,
    FLOAT64,
    INT64,
    INTEGERS,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
    Field,
    Schema,
)
from headrace.io.arrow import rows_to_table, table_to_rows
from headrace.spark.placing.row_placement import Broadcast, ByKey, Gather, row_divider, table_divider
from headrace.testing.strategies import values

TYPES = (*INTEGERS, FLOAT64, STR, DATE, TIMESTAMP, TIMESTAMP_NTZ, BOOL, DecimalType(12, 3))


@st.composite
def keyed_rows(draw: st.DrawFn) -> tuple[Schema, ByKey, list[tuple[Any, ...]]]:
    """Rows of which few have the same key, and of which some have; the payload is no key."""
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    fields = [Field(f"k{n}", type_, draw(st.booleans())) for n, type_ in enumerate(types)]
    pools = [
        st.sampled_from(
            draw(st.lists(st.none() | values(f.type) if f.nullable else values(f.type), min_size=1))
        )
        for f in fields
    ]
    rows = draw(st.lists(st.tuples(*pools), max_size=40))
    schema = Schema((*fields, Field("payload", INT64)))
    keys = draw(st.permutations([f.name for f in fields]))
    table = rows_to_table([(*row, n) for n, row in enumerate(rows)], schema)
    return schema, ByKey(tuple(col[name] for name in keys)), table_to_rows(table, schema)


@settings(max_examples=200)
@given(keyed_rows(), st.integers(1, 5))
def test_a_table_is_divided_as_its_rows_are(
    drawn: tuple[Schema, ByKey, list[tuple[Any, ...]]], shards: int
) -> None:
    schema, route, rows = drawn
    divide = table_divider(route, schema, shards)
    assert divide is not None
    table = rows_to_table(rows, schema)
    parts = {shard: table_to_rows(part, schema) for shard, part in divide(table).items() if len(part)}
    expected = {
        n: part for n, part in row_divider(route, schema, shards, weighted=False)(rows).items() if part
    }
    assert {n: list(map(repr, part)) for n, part in parts.items()} == {
        n: list(map(repr, part)) for n, part in expected.items()
    }


def test_all_rows_of_a_table_go_where_the_route_says() -> None:
    schema = Schema((Field("n", INT64),))
    table = rows_to_table([(1,), (2,)], schema)
    for route, shards in ((Gather(), {0}), (Broadcast(), {0, 1, 2})):
        divide = table_divider(route, schema, 3)
        assert divide is not None
        assert {shard: len(part) for shard, part in divide(table).items()} == dict.fromkeys(shards, 2)


def test_a_key_that_is_computed_leaves_the_rows_to_the_row_path() -> None:
    schema = Schema((Field("n", INT64),))
    assert table_divider(ByKey((col.n % 3,)), schema, 2) is None


def test_keys_with_more_combinations_than_an_int64_counts_are_told_apart() -> None:
    """Five columns of 8,192 values each: 2^65 combinations, of which 8,192 occur."""
    schema = Schema(tuple(Field(f"k{n}", INT64) for n in range(5)))
    rows = [tuple((row * step) % 8192 for step in (1, 3, 5, 7, 9)) for row in range(8192)]
    route = ByKey(tuple(col[name] for name in schema.names))
    divide = table_divider(route, schema, 3)
    assert divide is not None
    parts = {n: table_to_rows(part, schema) for n, part in divide(rows_to_table(rows, schema)).items()}
    assert parts == row_divider(route, schema, 3, weighted=False)(rows)


HALF = "\ud800"


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from(["a", "", "é\0", HALF, f"b{HALF}", None]), max_size=200),
    st.integers(2, 5),
)
def test_a_row_gets_to_one_shard_with_few_and_with_many_others(texts: list[str | None], shards: int) -> None:
    schema = Schema((Field("k", STR, nullable=True), Field("n", INT64)))
    divide = row_divider(ByKey((col.k,)), schema, shards, weighted=False)
    rows = [(text, n) for n, text in enumerate(texts * 70)]
    together = {row: shard for shard, part in divide(rows).items() for row in part}
    alone = {row: shard for row in rows for shard in divide([row])}
    assert together == alone


@given(st.lists(keyed_rows(), min_size=1, max_size=1), st.integers(2, 5))
def test_keys_that_are_computed_get_to_the_shard_of_columns(drawn: list[Any], shards: int) -> None:
    schema, route, rows = drawn[0]
    computed = ByKey(tuple(hr.when(True, key).otherwise(key) for key in route.keys))
    one, other = (row_divider(each, schema, shards, weighted=False) for each in (route, computed))
    assert {n: list(map(repr, part)) for n, part in one(rows).items()} == {
        n: list(map(repr, part)) for n, part in other(rows).items()
    }


def test_keys_that_follow_a_pattern_are_divided_about_equally() -> None:
    schema = Schema((Field("n", INT64),))
    divide = row_divider(ByKey((col.n,)), schema, 4, weighted=False)
    for step in (1, 2, 4, 1 << 20, 10**9):
        parts = divide([(n * step,) for n in range(4_000)])
        assert all(800 < len(part) < 1_200 for part in parts.values())
