"""TPC-H: after the load and after every tick of changes the answer is DuckDB's over the same rows."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

import penstock as ps
from examples.tpch.tables import TABLES, Business, Changes, generate, queries, read
from penstock.queries.query import sql

if TYPE_CHECKING:
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
            equal = " AND ".join(f"{name} = ?" for name in names)
            for row, weight in rows:
                if weight < 0:
                    self._database.execute(f"DELETE FROM {table} WHERE {equal}", row)
                else:
                    self._database.execute(
                        f"INSERT INTO {table} VALUES ({', '.join('?' for _ in names)})", row
                    )

    def close(self) -> None:
        self._database.close()

    def answer(self) -> Counter[Any]:
        return Counter(map(rounded, self._database.execute(self._query).fetchall()))


def rounded(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Averages of decimals have other places in DuckDB, where they are floats."""
    return tuple(round(float(v), 4) if isinstance(v, float | Decimal) else v for v in row)


def _sampled() -> list[Any]:
    """All queries in `make verify`; in `make test` those whose plans differ most."""
    sample = {"q01", "q02", "q04", "q11", "q13", "q15", "q17", "q20", "q21", "q22"}
    return [name if name in sample else pytest.param(name, marks=pytest.mark.verify) for name in queries()]


@pytest.mark.parametrize("name", _sampled())
def test_each_query_is_kept_up_to_date(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    folder: Path,
    loaded: dict[str, list[Any]],
    name: str,
) -> None:
    text = queries()[name]
    engine = ps.Engine(sql(text, tables=TABLES, spark=spark))
    duck = Recomputed(folder, text)
    request.addfinalizer(duck.close)
    sources = engine.program.graph.sources.keys()
    there: Counter[Any] = Counter()

    def take(given: dict[str, list[Any]]) -> None:
        changes = engine.tick(**{table: rows for table, rows in given.items() if table in sources})["answer"]
        for *row, weight in changes.raw:
            there[tuple(row)] += weight
        held = Counter(rounded(row) for row in (+there).elements())
        assert held == duck.answer()
        assert min(there.values(), default=0) >= 0

    take(loaded)
    business = Business({table: list(rows) for table, rows in loaded.items()}, random.Random(7))
    for changes in business.ticks(4):
        duck.change(changes)
        take(changes)
