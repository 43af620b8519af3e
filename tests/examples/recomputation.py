"""Independent answers: a database that holds all input so far and recomputes each query from scratch."""

from __future__ import annotations

import typing
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa

_SQL_TYPES = {int: "BIGINT", float: "DOUBLE", str: "VARCHAR", datetime: "TIMESTAMPTZ"}

Rows = Counter[tuple[Any, ...]]


class Recomputation:
    """A table per source, named and typed like its rows; `weighted` ones have a column `weight` too."""

    def __init__(self, sources: Mapping[str, type], weighted: Iterable[str] = ()) -> None:
        self._database = duckdb.connect()
        self._columns: dict[str, list[str]] = {}
        for name, row_class in sources.items():
            types = {n: _SQL_TYPES[t] for n, t in typing.get_type_hints(row_class).items()}
            if name in weighted:
                types["weight"] = "BIGINT"
            self._columns[name] = list(types)
            declared = ", ".join(f'"{column}" {type}' for column, type in types.items())
            self._database.execute(f"CREATE TABLE {name} ({declared})")

    def feed(self, source: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add rows; those of a weighted source end with the weight."""
        if rows:
            columns = list(zip(*rows, strict=True))
            arrivals = pa.table(columns, names=self._columns[source])
            self._database.register("arrivals", arrivals)
            self._database.execute(f"INSERT INTO {source} SELECT * FROM arrivals")
            self._database.unregister("arrivals")

    def answer(self, sql: str) -> Rows:
        """The rows of the answer and how often each is there."""
        table = self._database.sql(sql).to_arrow_table()
        return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def add(rows: Rows, changes: Iterable[tuple[Any, ...]]) -> None:
    """Add changes, whose last field is the weight; what sums to 0 is gone, below 0 is a failure."""
    for *row, weight in changes:
        rows[tuple(row)] += weight
        if not rows[tuple(row)]:
            del rows[tuple(row)]
    assert all(weight > 0 for weight in rows.values()), "a row is taken back that was never there"


class Kept:
    """A sink that adds up the changes of each tick."""

    def __init__(self) -> None:
        self.rows: Rows = Counter()
        self.ticks = 0

    def __call__(self, tick: int, changes: Iterable[tuple[Any, int]]) -> None:
        self.ticks += 1
        add(self.rows, ((*row, weight) for row, weight in changes))
