"""Flows on Spark: `session()` for a local Spark, `run(...)` for a flow on it."""

from penstock.spark.session import session

__all__ = ["session"]
