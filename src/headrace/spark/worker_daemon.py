"""Spark's daemon of Python workers. It imports the code of ticks once for all workers that it forks."""

from __future__ import annotations

from pyspark.daemon import manager

import headrace.spark.ticks.task  # noqa: F401  # pyright: ignore[reportUnusedImport]

if __name__ == "__main__":
    manager()
