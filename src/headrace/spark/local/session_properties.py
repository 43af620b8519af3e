"""Session properties, read without context or JVM so that Spark Connect works too."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNKNOWN = 2
"""Assumed number of concurrent tasks if unknown."""


def is_remote(spark: SparkSession) -> bool:
    """Return whether the session uses Spark Connect, with its driver in another process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local(spark: SparkSession) -> bool:
    """Return whether all tasks run in one JVM and so share its machine."""
    master = str(spark.conf.get("spark.master", ""))
    return master == "local" or master.startswith("local[")


def tasks_at_a_time(spark: SparkSession) -> int:
    """Return the number of concurrent tasks, if known."""
    if not is_remote(spark):
        return spark.sparkContext.defaultParallelism
    said = str(spark.conf.get("spark.default.parallelism", ""))
    if said.isdigit():
        return int(said)
    inside = re.fullmatch(r"local\[(\d+|\*)(?:,.*)?\]", str(spark.conf.get("spark.master", "")))
    if inside is None:
        return _UNKNOWN
    return (os.cpu_count() or 1) if inside[1] == "*" else int(inside[1])
