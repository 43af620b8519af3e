"""Checks of random queries under random changes: the answer is that of Spark's batch query.

Two sessions serve all queries. One has empty tables, over which queries are planned. The other one answers,
over rows in one partition, and interprets expressions: compiling code for each query would take longer.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

import headrace as hr
from tests.queries.random_queries import QueryWriter
from tests.queries.random_tables import TABLES, random_row
from tests.queries.spark_answers import TICKS, check_answer, empty_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANSWERING = {
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_FROM_TEXT = 8
"""Every so many queries, one is planned by `hr.sql`, which makes tables of its own; others are DataFrames."""

_BETWEEN = 3
"""Every so many queries, the answer of one is compared between two ticks too."""

_STATISTICS = re.compile(r"\b(var|stddev|covar|corr|skewness|kurtosis|regr)(_|\b)")
"""Functions that Spark computes with rounding errors of many steps, and Headrace with one."""


class QueryChecker:
    """Checker of random queries on a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self.planning, self.answering = spark.newSession(), spark.newSession()
        for setting, value in _ANSWERING.items():
            self.answering.conf.set(setting, value)
        # Without it, Spark drops a hint to rebalance.
        self.planning.conf.set("spark.sql.adaptive.enabled", "true")
        for session in (self.planning, self.answering):
            _register_functions(session)
        self._empty: dict[str, Any] = {}
        for table, row_class in TABLES.items():
            self._empty[table] = empty_frame(self.planning, row_class)
            self._empty[table].createOrReplaceTempView(table)

    def check(self, seed: int) -> str:
        """Check one query, and return its text."""
        text = QueryWriter(seed).query()
        try:
            self.check_text(text, seed)
        except BaseException as error:
            error.add_note(text)
            raise
        return text

    def check_text(self, text: str, seed: int) -> None:
        """Check a query under the random changes of a seed."""
        used = {table: TABLES[table] for table in TABLES if re.search(rf"\b(FROM|JOIN|,) {table}\b", text)}
        if seed % _FROM_TEXT:
            frame = self.planning.sql(text)
            flow = hr.from_dataframe(frame, tables={table: self._empty[table] for table in used})
        else:
            flow = hr.sql(text, tables=used, spark=self.planning)
        check_answer(
            self.answering,
            flow,
            lambda _: self.answering.sql(text),
            used,
            random_row,
            seed,
            nearly=bool(_STATISTICS.search(text)),
            between=1 + seed // _BETWEEN % (TICKS - 1) if seed % _BETWEEN == 0 else None,
        )


# -- functions in Python -------------------------------------------------------------------------


def _plus_one(x: int | None) -> int | None:
    return None if x is None else x + 1


def _plus_three(x: pd.Series) -> pd.Series:
    return x + 3


def _plus_four(x: pa.Array) -> pa.Array:
    return pc.add(x, 4)


def _register_functions(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    spark.udf.register("plus_one", F.udf(_plus_one, "bigint", useArrow=True))
    spark.udf.register("plus_two", F.udf(lambda x: _plus_one(_plus_one(x)), "bigint", useArrow=False))
    spark.udf.register("plus_three", F.pandas_udf(_plus_three, "bigint"))
    spark.udf.register("plus_four", F.arrow_udf(_plus_four, "bigint"))
