"""Query 4 as plain Structured Streaming, to see what Spark says to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AUCTIONS = (
    "id long, item string, description string, initial_bid long, reserve long, "
    "date_time timestamp, expires timestamp, seller long, category long"
)
BIDS = "auction long, bidder long, price long, channel string, url string, date_time timestamp"


class Refusal(NamedTuple):
    """Spark's own words on why a query cannot run in an output mode; no condition where it ran."""

    mode: str
    condition: str | None
    message: str


def averages(spark: SparkSession, folder: Path, files_per_batch: int = 1) -> DataFrame:
    """The average closing price per category, over the files that arrive in `folder`."""
    from pyspark.sql import functions

    def arriving(name: str, schema: str) -> DataFrame:
        files = spark.readStream.schema(schema).option("maxFilesPerTrigger", files_per_batch)
        return files.json(str(folder / name)).withWatermark("date_time", "10 seconds")

    auctions = arriving("auctions", AUCTIONS).alias("a")
    bids = arriving("bids", BIDS).alias("b")
    valid = functions.expr("b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires")
    by_auction = bids.join(auctions, valid).groupBy("a.id", "a.category")
    final = by_auction.agg(functions.max("b.price").alias("price"))
    return final.groupBy("category").agg(functions.avg("price").alias("average"))


def refusals(spark: SparkSession, folder: Path) -> Iterator[Refusal]:
    """Start the query in each output mode and take down what Spark answers."""
    from pyspark.errors import PySparkException

    for mode in ("update", "append", "complete"):
        try:
            writer = averages(spark, folder).writeStream.outputMode(mode)
            writer.format("noop").trigger(availableNow=True).start().awaitTermination()
        except PySparkException as refused:
            condition = refused.getCondition() or type(refused).__name__
            first_line = str(refused).splitlines()[0]
            yield Refusal(mode, condition, first_line.removeprefix(f"[{condition}] ").removesuffix(";"))
        else:
            yield Refusal(mode, None, "")


def averages_unchecked(spark: SparkSession, folder: Path, files_per_batch: int) -> dict[int, float]:
    """What the query answers in update mode if Spark's check is turned off.

    An average that was answered once is never corrected: the second aggregate
    takes each new maximum of an auction for one more auction.
    """
    check = "spark.sql.streaming.statefulOperator.checkCorrectness.enabled"
    answers: dict[int, float] = {}

    def keep(batch: DataFrame, _: int) -> None:
        answers.update((row.category, row.average) for row in batch.collect())

    spark.conf.set(check, "false")
    try:
        writer = averages(spark, folder, files_per_batch).writeStream.outputMode("update").foreachBatch(keep)
        writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.conf.unset(check)
    return answers
