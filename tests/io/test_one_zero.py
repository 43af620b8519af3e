"""Tables count rows by equality: which of 0.0 and -0.0 came first shows in none of them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import Flow, io
from headrace.expr.row_classes import schema_of
from headrace.io.arrow import read_part, table_to_rows
from headrace.io.sink import SinkRequest, open_sink
from tests.postgres_server import Postgres
from tests.properties.effort import examples


class Ends(NamedTuple):
    low: float
    high: float | None


class Reading(NamedTuple):
    id: int
    value: float | None
    values: list[float | None]
    ends: Ends | None
    spans: list[Ends]


SCHEMA = schema_of(Reading)
ZERO = st.sampled_from([0.0, -0.0])
MAYBE = st.none() | ZERO
ENDS = st.tuples(ZERO, MAYBE)
ROW = st.tuples(
    st.sampled_from([1, 2]),
    MAYBE,
    st.lists(MAYBE, max_size=2).map(tuple),
    st.none() | ENDS,
    st.lists(ENDS, max_size=1).map(tuple),
)


def run(sink: Any, ticks: list[list[Any]]) -> None:
    """Give a sink the changes of a run."""
    with TemporaryDirectory() as spool:
        writer = open_sink(sink, SinkRequest("out", SCHEMA, Path(spool)))
        writer.recover(0)
        for number, changes in enumerate(ticks, 1):
            writer.prepare(number, changes)
            writer.publish(number)
        writer.close()


def in_memory(ticks: list[list[Any]]) -> list[Any]:
    sink = io.Memory()
    run(sink, ticks)
    changes = sink.changes()
    assert all(weight > 0 for *_, weight in changes)
    return [tuple(row) for *row, weight in changes for _ in range(weight)]


def in_files(key: str | None, ticks: list[list[Any]]) -> list[Any]:
    with TemporaryDirectory() as folder:
        run(io.TableFiles(folder, key=key, buckets=1), ticks)
        return [
            row
            for file in Path(folder, "current").glob("*.parquet")
            for row in read_part(file, SCHEMA, weighted=False)
        ]


def in_delta(ticks: list[list[Any]]) -> list[Any]:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    with TemporaryDirectory() as folder:
        run(io.DeltaTable(folder, key="id"), ticks)
        return table_to_rows(deltalake.DeltaTable(folder).to_pyarrow_table(), SCHEMA)


def other(value: Any, draw: st.DrawFn) -> Any:
    """An equal value, with other zeros in it."""
    if isinstance(value, float):
        return draw(ZERO)
    return tuple(other(part, draw) for part in value) if isinstance(value, tuple) else value


@st.composite
def arrivals(draw: st.DrawFn, most: int) -> list[list[list[Any]]]:
    """Two runs that give the same rows: in another order, with other zeros, cut into other ticks."""
    rows = draw(st.lists(ROW, min_size=1, max_size=most))
    again = [other(row, draw) for row in draw(st.permutations(rows))]
    return [[[(*row, 1) for row in rows]], [[(*row, 1)] for row in again]]


@st.composite
def rewrites(draw: st.DrawFn) -> list[list[list[Any]]]:
    """Two runs that leave the same row of a key: it comes, and goes and comes as an equal one."""
    row = draw(ROW)
    gone, back, once_more = (other(row, draw) for _ in range(3))
    changes = [(*row, 1), (*gone, -1), (*back, 1), (*once_more, -1), (*row, 1)]
    return [[changes], [changes[:1], changes[1:3], changes[3:]]]


def written(rows: list[Any]) -> list[str]:
    return sorted(map(repr, rows))


def assert_same(read: Any, runs: list[list[list[Any]]]) -> None:
    found, others = (written(read(ticks)) for ticks in runs)
    assert found == others
    assert not any("-0.0" in row for row in found)


@examples(1)
@given(arrivals(4))
def test_a_table_in_memory_has_one_zero_whatever_came_first(runs: list[list[list[Any]]]) -> None:
    assert_same(in_memory, runs)


@examples(0.3)
@given(arrivals(4))
def test_a_table_of_files_has_one_zero_whatever_came_first(runs: list[list[list[Any]]]) -> None:
    assert_same(lambda ticks: in_files(None, ticks), runs)


@examples(0.3)
@given(rewrites())
def test_a_table_of_files_with_a_key_has_one_zero_whatever_came_first(runs: list[list[list[Any]]]) -> None:
    assert_same(lambda ticks: in_files("id", ticks), runs)


@examples(0.1)
@given(rewrites())
def test_a_delta_table_with_a_key_has_one_zero_whatever_came_first(runs: list[list[list[Any]]]) -> None:
    assert_same(in_delta, runs)


def test_a_flow_that_needs_no_coordination_gives_tables_one_zero(tmp_path: Path) -> None:
    flow = Flow("zeros")
    flow.sink("out", flow.source("xs", float))
    for number, xs in enumerate(([0.0, -0.0], [-0.0, 0.0], [-0.0])):
        table, memory = tmp_path / str(number), io.Memory()
        hr.run(flow, sources={"xs": xs}, sinks={"out": memory})
        hr.run(flow, sources={"xs": xs}, sinks={"out": io.TableFiles(table, buckets=1)})
        assert repr(memory.rows()) == repr([0.0] * len(xs))
        (file,) = (table / "current").iterdir()
        assert repr(read_part(file, schema_of(float), weighted=False)) == repr([(0.0,)] * len(xs))


def test_what_shows_each_row_as_it_is_shows_its_zero() -> None:
    flow = Flow("zeros")
    flow.sink("out", flow.source("xs", float))
    out: list[Any] = []
    hr.run(flow, sources={"xs": [0.0, -0.0]}, sinks={"out": out})
    assert "-0.0" in repr(out)


def test_a_row_that_comes_with_another_zero_in_postgresql_is_the_same(postgres: Postgres) -> None:
    postgres.query('create schema "one_zero"')
    try:
        run(
            io.PostgresTable(postgres.url, "readings", key="id", schema="one_zero"),
            [
                [(1, -0.0, (-0.0,), (-0.0, -0.0), (), 1), (2, -0.0, (), None, (), 1)],
                [(2, 0.0, (), None, (), -1)],
            ],
        )
        found = postgres.query('select value::text, values::text, ends::text from "one_zero".readings')
    finally:
        postgres.query('drop schema "one_zero" cascade')
    assert "-0" not in repr(found)
