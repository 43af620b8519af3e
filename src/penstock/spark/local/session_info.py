"""Properties of a session, read in ways that Spark Connect has too, without context or JVM."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNKNOWN = 2
"""Tasks at a time if unknown."""


def is_remote(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect: its driver is another process, perhaps elsewhere."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local(spark: SparkSession) -> bool:
    """Whether all tasks run in one JVM, so that they share its machine."""
    master = str(spark.conf.get("spark.master", ""))
    return master == "local" or master.startswith("local[")


def tasks_at_a_time(spark: SparkSession) -> int:
    """Number of tasks that Spark runs at a time, as far as known."""
    if not is_remote(spark):
        return spark.sparkContext.defaultParallelism
    said = str(spark.conf.get("spark.default.parallelism", ""))
    if said.isdigit():
        return int(said)
    inside = re.fullmatch(r"local\[(\d+|\*)(?:,.*)?\]", str(spark.conf.get("spark.master", "")))
    if inside is None:
        return _UNKNOWN
    return (os.cpu_count() or 1) if inside[1] == "*" else int(inside[1])
