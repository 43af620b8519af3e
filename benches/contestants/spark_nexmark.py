"""Nexmark queries as plain Structured Streaming, where it has a form for them, and as batch queries.

Written as somebody would who knows Spark: q5 takes the hottest of a window from a
list that a second aggregate gathers, which is cheaper than a join of two streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Streams: TypeAlias = "Mapping[str, DataFrame]"
"""DataFrames of persons, auctions and bids: streaming ones, or static."""

LATENESS = "4 seconds"


def q0(of: Streams) -> DataFrame:
    return of["bids"].select("auction", "bidder", "price", "date_time", "extra")


def q2(of: Streams) -> DataFrame:
    return of["bids"].filter("auction % 123 = 0").select("auction", "price")


def q3(of: Streams) -> DataFrame:
    from pyspark.sql import functions as f

    persons = of["persons"].filter(f.col("state").isin("OR", "ID", "CA")).alias("p")
    auctions = of["auctions"].filter("category = 10").alias("a")
    return auctions.join(persons, f.expr("a.seller = p.id")).selectExpr("name", "city", "state", "a.id")


def q5(of: Streams) -> DataFrame:
    from pyspark.sql import functions as f

    bids = of["bids"].withWatermark("date_time", LATENESS)
    windows = f.window("date_time", "10 seconds", "2 seconds")
    counts = bids.groupBy(windows, "auction").agg(f.count("*").alias("num"))
    each = f.struct("num", "auction")
    gathered = counts.groupBy("window").agg(f.max("num").alias("most"), f.collect_list(each).alias("all"))
    hottest = f.filter("all", lambda one: one["num"] == f.col("most"))
    return gathered.select("window", f.explode(hottest).alias("hot")).select(
        "hot.auction", "window.start", "window.end", "hot.num"
    )


def q7(of: Streams) -> DataFrame:
    from pyspark.sql import functions as f

    bids = of["bids"].withWatermark("date_time", LATENESS)
    highest = bids.groupBy(f.window("date_time", "10 seconds")).agg(f.max("price").alias("highest"))
    # A stream may have one event time, so the window is told by its last microsecond.
    windows = highest.select("highest", f.window_time("window").alias("time")).alias("w")
    of_window = f.expr(
        "b.price = w.highest AND b.date_time BETWEEN w.time - INTERVAL '9.999999' SECOND"
        " AND w.time + INTERVAL '0.000001' SECOND"
    )
    shown = bids.alias("b").join(windows, of_window)
    return shown.selectExpr("b.auction", "b.price", "b.bidder", "b.date_time", "b.extra")


def q8(of: Streams) -> DataFrame:
    from pyspark.sql import functions as f

    window = f.window("date_time", "10 seconds")
    persons = of["persons"].withWatermark("date_time", LATENESS).select("id", "name", window.alias("window"))
    sellers = of["auctions"].withWatermark("date_time", LATENESS).select("seller", window.alias("window"))
    known = persons.dropDuplicates(["id", "name", "window"]).alias("p")
    opened = sellers.dropDuplicates(["seller", "window"]).alias("s")
    both = known.join(opened, f.expr("p.id = s.seller AND p.window = s.window"))
    return both.selectExpr("p.id", "p.name", "p.window.start")


def q4(of: Streams) -> DataFrame:
    """Only as a batch: an aggregate of an aggregate that changes is refused as a stream."""
    from pyspark.sql import functions as f

    valid = f.expr("b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires")
    pairs = of["bids"].alias("b").join(of["auctions"].alias("a"), valid)
    final = pairs.groupBy("a.id", "a.category", "a.seller", "a.expires").agg(f.max("b.price").alias("price"))
    return final.groupBy("category").agg(f.avg("price").alias("average"))


STREAMED: Mapping[str, Callable[[Streams], DataFrame]] = {
    "q0": q0, "q2": q2, "q3": q3, "q5": q5, "q7": q7, "q8": q8
}  # fmt: skip
RECOMPUTED: Mapping[str, Callable[[Streams], DataFrame]] = {"q4": q4}
