"""Answers of the same queries by a database, which is given all rows and computes each from scratch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from examples.nexmark.events import SOURCES, Kind
from examples.nexmark.generator import Generator, side_input
from examples.nexmark.queries import Query

if TYPE_CHECKING:
    import pyarrow as pa

Rows = Counter[tuple[Any, ...]]
"""Rows, and how often each is there."""


class Database:
    """DuckDB with a table for each source; rows have the tick in which they came as a further column."""

    def __init__(self) -> None:
        import duckdb
        import pyarrow as pa

        self._database = duckdb.connect()
        self._database.execute("SET TimeZone = 'UTC'")
        for kind in SOURCES:
            self._database.register("empty", Generator().table(kind, 0, 0))
            self._database.execute(f"CREATE TABLE {kind} AS SELECT *, 0::BIGINT AS tick FROM empty")
        keys, values = zip(*side_input(), strict=True)
        self._database.register("side_input", pa.table({"key": keys, "value": values}))

    def add(self, kind: Kind, tick: int, rows: pa.Table) -> None:
        """Rows of a source that come in a tick."""
        self._database.register("arrivals", rows)
        self._database.execute(f"INSERT INTO {kind} SELECT *, {tick} FROM arrivals")

    def answer(self, query: Query) -> Rows:
        """The answer to all rows that were added."""
        return Counter(self._database.sql(query.sql).fetchall())

    def columns(self, query: Query) -> list[str]:
        """The names of the columns of an answer."""
        return list(self._database.sql(query.sql).columns)
