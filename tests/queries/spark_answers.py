"""Flows under random changes: in the end the answer is that of Spark over the rows that are there."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import penstock as ps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock import Flow

Draw = Callable[[random.Random, str], Any]
"""Draws a row of a table."""


def random_ticks(
    choice: random.Random, tables: Mapping[str, str], draw: Draw
) -> tuple[list[dict[str, list[ps.Change[Any]]]], dict[str, list[Any]]]:
    """Ticks in which rows come and go, and the rows that are there in the end."""
    there: dict[str, list[Any]] = {table: [] for table in tables}
    ticks: list[dict[str, list[ps.Change[Any]]]] = []
    for _ in range(5):
        tick: dict[str, list[ps.Change[Any]]] = {}
        for table, rows in there.items():
            new = [draw(choice, table) for _ in range(choice.randrange(5))]
            rows += new
            choice.shuffle(rows)
            gone = choice.randrange(1 + len(rows) // 2)
            tick[table] = [ps.insert(row) for row in new] + [ps.delete(row) for row in rows[:gone]]
            del rows[:gone]
        ticks.append(tick)
    return ticks, there


def check_answer(
    spark: SparkSession,
    flow: Flow,
    query: Callable[[Mapping[str, DataFrame]], DataFrame],
    tables: Mapping[str, str],
    draw: Draw,
    seed: int,
) -> None:
    """Run a flow over random changes, and compare its answer with Spark's.

    query: makes Spark's answer of the tables. tables: the columns of each, as Spark's DDL.
    """
    from pyspark.sql.types import StructType

    engine, answer = ps.Engine(flow), Counter[Any]()
    ticks, there = random_ticks(random.Random(seed), tables, draw)
    for tick in ticks:
        given = {table: rows for table, rows in tick.items() if table in engine.program.graph.sources}
        for change in engine.tick(**given)["answer"]:
            answer[comparable(change.row)] += change.weight
        assert min(answer.values(), default=0) >= 0
    frames: dict[str, DataFrame] = {}
    for table, rows in there.items():
        frame = spark.createDataFrame([tuple(row) for row in rows], StructType.fromDDL(tables[table]))
        frames[table] = frame.coalesce(1)
        frames[table].createOrReplaceTempView(table)
    expected = Counter(comparable(row) for row in query(frames).collect())
    assert +answer == expected


def comparable(value: Any) -> Any:
    """Return a value of a row, hashable and equal where Spark's and Penstock's are the same."""
    if isinstance(value, tuple | list):
        return tuple(map(comparable, cast("tuple[Any, ...]", value)))
    if isinstance(value, datetime):
        return value.astimezone().replace(tzinfo=None)  # Spark shows the time of this machine
    return "NaN" if value != value else value
