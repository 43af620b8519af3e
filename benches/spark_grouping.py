"""Three ways to sum up the rows of a DataFrame before they are Python values.

"arrow" is what Penstock does: a Python stage takes Arrow batches and sums them up with
Arrow's hash tables. "spark" is a grouped DataFrame before the Python stage: it pays for a
shuffle, unless all runs in one task, and in a micro-batch of several sources each would be
read once more. "rows" makes Python values of all rows first. "through" only hands
the rows to Python: what any of them costs at least but "spark".

    python benches/spark_grouping.py [--rows 20000,1000000] [--groups 1000,100000] [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import penstock as ps
from benches.measure import Table
from penstock import col
from penstock.spark.placing.combining import insert_partial_operators
from penstock.spark.placing.native import grouping_behind, native_parts

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

REPEATS = 7


class Row(NamedTuple):
    key: int
    value: int


def summed(
    tables: Callable[[pa.Table], int],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task that tells how many groups it has made."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        found = list(batches)
        count = tables(pa.Table.from_batches(found)) if found else 0
        yield pa.RecordBatch.from_pydict({"n": [count]})

    return task


def ways(frame: DataFrame) -> dict[str, Callable[[], Any]]:
    from pyspark.sql import functions as f

    flow = ps.Flow("sums")
    flow.sink("out", flow.source("rows", Row).group_by("key").agg(total=ps.sum(col.value), n=ps.count()))
    grouping = grouping_behind(native_parts(insert_partial_operators(flow.graph()), ["rows"])["rows"])
    assert grouping is not None
    renamed = frame.selectExpr("key AS `key 0`", "value AS `argument 1`")
    grouped = frame.groupBy("key").agg(f.sum("value").alias("total"), f.count("*").alias("n"))
    arrow, rows = summed(lambda t: len(grouping.groups(t))), summed(lambda t: len(grouping._row_by_row(t)))
    through = summed(len)
    return {
        "through": lambda: renamed.mapInArrow(through, "n long").toArrow(),
        "arrow": lambda: renamed.mapInArrow(arrow, "n long").toArrow(),
        "spark": lambda: grouped.mapInArrow(through, "n long").toArrow(),
        "rows": lambda: renamed.mapInArrow(rows, "n long").toArrow(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="20000,1000000")
    parser.add_argument("--groups", default="1000,100000")
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    given = parser.parse_args()
    if given.quick:
        given.rows, given.groups = "20000", "1000"
    spark = ps.spark.session()
    table = Table("Milliseconds (median)", "rows, groups", "through", "arrow", "spark", "rows", "arrow/spark")
    with tempfile.TemporaryDirectory() as folder:
        for rows in map(int, given.rows.split(",")):
            for groups in map(int, given.groups.split(",")):
                path = f"{folder}/{rows}-{groups}"
                spark.range(rows).selectExpr(f"id * 7919 % {groups} AS key", "id AS value").write.parquet(
                    path
                )
                took: dict[str, list[float]] = {}
                runs = ways(spark.read.schema("key long, value long").parquet(path))
                for _ in range(REPEATS):
                    for name, run in runs.items():
                        start = time.perf_counter()
                        run()
                        took.setdefault(name, []).append(time.perf_counter() - start)
                found = {name: statistics.median(seconds[1:]) * 1000 for name, seconds in took.items()}
                cells = [f"{found[name]:,.0f}" for name in ("through", "arrow", "spark", "rows")]
                table.add(f"{rows:,}, {groups:,}", *cells, found["arrow"] / found["spark"])
    table.show()
    spark.stop()


if __name__ == "__main__":
    main()
