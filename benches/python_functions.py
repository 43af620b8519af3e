"""Functions in Python within queries, by row, of pandas and of Arrow: costs of a row, by the rows of a tick.

    python -m benches.python_functions [--sizes 1 100 10000] [--spark-rows 100000]

Each function adds one to an integer that is null in every tenth row. In-process: CPU microseconds a row of
`Engine.tick`, medians over ticks, beside those of the same query in SQL (`a + 1`), which calls no function.
On Spark: CPU seconds of all processes for one batch, the second of two.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import pyarrow as pa

import headrace as hr
from benches.measure import Table
from benches.measure.processes import processor_seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pc: Any = importlib.import_module("pyarrow.compute")  # its functions are made when it is imported


class Item(NamedTuple):
    id: int
    a: int | None


TEXT = "SELECT id, {}(a) AS made FROM items"
PLAIN = "SELECT id, a + 1 AS made FROM items"


def by_row(a: int | None) -> int | None:
    return None if a is None else a + 1


def of_series(a: pd.Series) -> pd.Series:
    return a + 1


def of_all_series(pieces: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for a in pieces:
        yield a + 1


def of_array(a: pa.Array) -> pa.Array:
    return pc.add(a, 1)


def of_all_arrays(pieces: Iterator[pa.Array]) -> Iterator[pa.Array]:
    for a in pieces:
        yield pc.add(a, 1)


def queries(spark: SparkSession) -> dict[str, str]:
    """The query of each kind of function, once its function is registered."""
    from pyspark.sql import functions

    f: Any = functions
    made = {
        "by row": f.udf(by_row, "bigint", useArrow=True),
        "pandas": f.pandas_udf(of_series, "bigint"),
        "pandas, iterator": f.pandas_udf(of_all_series, "bigint"),
        "Arrow": f.arrow_udf(of_array, "bigint"),
        "Arrow, iterator": f.arrow_udf(of_all_arrays, "bigint"),
    }
    for at, function in enumerate(made.values()):
        spark.udf.register(f"f{at}", function)
    return {"in SQL": PLAIN} | {name: TEXT.format(f"f{at}") for at, name in enumerate(made)}


def items(count: int) -> list[Item]:
    return [Item(at, None if at % 10 == 0 else at) for at in range(count)]


def in_process(flow: hr.Flow, size: int) -> float:
    """CPU microseconds a row: the median of ticks that take about two seconds."""
    engine, rows = hr.Engine(flow), items(size + 1)[1:]
    engine.tick(items=rows)
    took: list[float] = []
    ends = time.process_time() + 2
    while time.process_time() < ends:
        start = time.process_time_ns()
        engine.tick(items=rows)
        took.append((time.process_time_ns() - start) / 1e3 / size)
    return statistics.median(took)


def on_spark(spark: SparkSession, flow: hr.Flow, rows: list[Item]) -> float:
    """CPU seconds of the second of two batches."""

    def run() -> float:
        answer = hr.io.Memory()
        before = processor_seconds()
        hr.spark.run(
            flow, spark, sources={"items": hr.io.Rows([rows])}, sinks={"answer": answer}, mode="batch"
        )
        assert len(answer.rows()) == len(rows)
        return processor_seconds() - before

    run()
    return run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 100, 10_000])
    parser.add_argument("--spark-rows", type=int, default=100_000)
    given = parser.parse_args()
    spark = hr.spark.session()
    flows = {
        name: hr.sql(text, sources={"items": Item}, spark=spark) for name, text in queries(spark).items()
    }
    table = Table("us a row, rows of a tick", "", *map(str, given.sizes))
    for name, flow in flows.items():
        table.add(name, *(in_process(flow, size) for size in given.sizes))
    table.show()
    if given.spark_rows:
        seconds = {name: on_spark(spark, flow, items(given.spark_rows)) for name, flow in flows.items()}
        table = Table(f"on Spark, {given.spark_rows:,} rows", "", "CPU s", "us a row more than in SQL")
        for name, took in seconds.items():
            table.add(name, took, (took - seconds["in SQL"]) * 1e6 / given.spark_rows)
        table.show()
    spark.stop()


if __name__ == "__main__":
    main()
