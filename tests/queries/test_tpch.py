"""TPC-H: after the load and after every tick of changes the answer is DuckDB's over the same rows."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

import headrace as hr
from examples.tpch.tables import TABLES, Business, Changes, generate, queries, read, write_ticks
from headrace.queries.query import sql

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tpch")
    generate(folder, 0.01)
    return folder


@pytest.fixture(scope="module")
def loaded(folder: Path) -> dict[str, list[Any]]:
    return {name: read(folder, name) for name in TABLES}


class Recomputed:
    """The tables in DuckDB, and a query over what is in them."""

    def __init__(self, folder: Path, query: str) -> None:
        self._query = query
        self._database = duckdb.connect()
        for name in TABLES:
            self._database.execute(f"CREATE TABLE {name} AS SELECT * FROM '{folder}/{name}.parquet'")

    def change(self, changes: Changes) -> None:
        for table, rows in changes.items():
            names = TABLES[table].names
            for sign, statement in (
                (-1, f"DELETE FROM {table} WHERE ({', '.join(names)}) IN (FROM changed)"),
                (1, f"INSERT INTO {table} FROM changed"),
            ):
                columns = zip(*(row for row, weight in rows if weight == sign), strict=True)
                if changed := dict(zip(names, map(list, columns), strict=False)):
                    self._database.register("changed", pa.table(changed))
                    self._database.execute(statement)

    def close(self) -> None:
        self._database.close()

    def answer(self) -> list[tuple[Any, ...]]:
        return self._database.execute(self._query).fetchall()


def compare(ours: Iterable[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> None:
    """Assert that the rows are the same, but for what DuckDB computes as floats and Spark as decimals.

    Those are quotients, such as averages: Spark's have six places or more, so half a millionth is allowed.
    """
    floats = {at for row in theirs for at, value in enumerate(row) if isinstance(value, float)}

    def split(row: tuple[Any, ...]) -> tuple[list[Any], list[float | None]]:
        exact = [(value is None, value) for at, value in enumerate(row) if at not in floats]
        return exact, [None if row[at] is None else float(row[at]) for at in sorted(floats)]

    left, right = sorted(map(split, ours)), sorted(map(split, theirs))
    assert [exact for exact, _ in left] == [exact for exact, _ in right]
    for (_, near), (_, computed) in zip(left, right, strict=True):
        assert near == pytest.approx(computed, rel=1e-12, abs=6e-7)


def without_ties(query: str, columns: Iterable[int]) -> str:
    """Order what the query's own order holds equal before its limit, such as an order and its copy."""
    return re.sub(r"\s+limit\s", f", {', '.join(map(str, columns))} limit ", query, flags=re.IGNORECASE)


Ticks = list[list[tuple[tuple[Any, ...], int]]]
"""Changes of the answer, tick by tick: rows with their weights."""


def in_process(flow: hr.Flow, loaded: dict[str, list[Any]], ticks: list[Changes]) -> Ticks:
    engine = hr.Engine(flow)
    sources = engine.program.graph.sources.keys()
    made: Ticks = []
    for given in (loaded, *ticks):
        changes = engine.tick(**{table: rows for table, rows in given.items() if table in sources})
        made.append([(tuple(row), weight) for *row, weight in changes["answer"].raw])
    return made


def on_spark(flow: hr.Flow, spark: SparkSession, folder: Path, loaded: Path, ticks: list[Changes]) -> Ticks:
    tables = flow.graph().sources.keys()
    write_ticks(folder, loaded, tables, ticks)
    made: Ticks = [[] for _ in range(1 + len(ticks))]

    def keep(tick: int, changes: list[hr.Change[Any]]) -> None:
        made[tick - 1] += [(tuple(change.row), change.weight) for change in changes]

    sources = {table: hr.io.ParquetFiles(folder / table, files_per_tick=1) for table in tables}
    result = hr.spark.run(flow, spark, sources=sources, sinks={"answer": keep})
    assert result.ticks == len(made)
    return made


SAMPLES = {
    "in-process": {"q01", "q02", "q04", "q11", "q13", "q15", "q17", "q20", "q21", "q22"},
    "spark": {"q03", "q15"},
}
"""Queries whose plans differ most, for `make test`."""


def _cases() -> list[Any]:
    """A sample with few ticks in `make test`, all with twenty ticks of either kind in `make verify`."""
    few = [pytest.param(engine, name, 4) for engine, sample in SAMPLES.items() for name in sorted(sample)]
    many = [(engine, name, 40) for engine in SAMPLES for name in queries()]
    return [*few, *(pytest.param(*case, marks=pytest.mark.verify) for case in many)]


@pytest.mark.parametrize(("engine", "name", "count"), _cases())
def test_each_query_is_kept_up_to_date(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    folder: Path,
    loaded: dict[str, list[Any]],
    tmp_path: Path,
    engine: str,
    name: str,
    count: int,
) -> None:
    text = queries()[name]
    flow = sql(text, tables=TABLES, spark=spark)
    business = Business({table: list(rows) for table, rows in loaded.items()}, random.Random(7))
    ticks = list(business.ticks(count))
    if engine == "in-process":
        made = in_process(flow, loaded, ticks)
    else:
        made = on_spark(flow, spark, tmp_path, folder, ticks)
    columns = range(1, 1 + len(flow.graph().nodes[flow.graph().sinks["answer"]].schema.fields))
    duck = Recomputed(folder, without_ties(text, columns))
    request.addfinalizer(duck.close)
    there: Counter[Any] = Counter()
    for answer, changes in zip(made, ({}, *ticks), strict=True):
        duck.change({table: rows for table, rows in changes.items() if table in flow.graph().sources})
        for row, weight in answer:
            there[row] += weight
        compare((+there).elements(), duck.answer())
        assert min(there.values(), default=0) >= 0
