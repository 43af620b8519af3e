"""Kafka topics, read and written by Spark's executors through Spark's connector."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.errors import BadInput, UnwritableSink
from headrace.expr.types import Schema
from headrace.io.files.changelog import check_columns
from headrace.io.kafka import Kafka, KafkaTopic, only_on_spark
from headrace.io.keyed_tables import build_bucketing
from headrace.io.outbox import Outbox, Rows
from headrace.io.sink import PartsWriter, SinkRequest, Writer, open_sink
from headrace.io.source import WEIGHT
from headrace.spark.sources.opening import Opening, sends_rows, source_frame

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession


RECORD = "headrace record"
"""Column of a source with the bytes of each record; null for a tombstone."""

_PATTERN = re.compile(r"([\\*?\[\]{}])")


def _no_pattern(path: Path) -> str:
    """Escape glob characters in a path, since Spark treats every path as a pattern."""
    return _PATTERN.sub(r"\\\1", str(path))


# --- reading -------------------------------------------------------------------------------


@sends_rows.register
def _(source: Kafka) -> bool:
    return True


@source_frame.register(Kafka)
def _(source: Kafka, opening: Opening, schema: Schema) -> DataFrame:
    reader = opening.spark.read if opening.operator.bounded else opening.reader()
    with connector_needed(opening.spark, f"source {opening.name!r}"):
        records = reader.format("kafka").options(**source.connection()).load()
    return rows_of_records(source, records, schema)


def rows_of_records(source: Kafka, records: DataFrame, schema: Schema) -> DataFrame:
    """Parse the values of records (column `value`, bytes) into rows."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    from headrace.expr.spark_columns import spark_schema

    value = f.col("value")
    if source.avro is not None:
        row = from_avro(value, source.avro, {"mode": "FAILFAST"})
    else:
        row = f.from_json(value.cast("string"), spark_schema(schema), {"mode": "FAILFAST"})
    made = records.select(row.alias("row"), value.alias(RECORD))
    return made.select(*(f.col("row").getField(name).alias(name) for name in schema.names), RECORD)


@contextmanager
def connector_needed(spark: SparkSession, what: str) -> Iterator[None]:
    """Raise `BadInput`, with the way to install it, if Spark's connector is missing."""
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        if not is_missing(error):
            raise
        raise BadInput(
            f"{what} needs Spark's connector for Kafka, which is not on the class path",
            why="No installation of Spark brings it along.",
            fix=f"start Spark with --packages {package(spark.version)}, or with "
            f'headrace.spark.session(config={{"spark.jars.packages": "{package(spark.version)}"}})',
        ) from error


def is_missing(error: Exception) -> bool:
    """Return whether Spark's error says that the connector was not found."""
    text = str(error).lower()
    return "find" in text and "kafka" in text


def connector_is_there(spark: SparkSession) -> bool:
    """Return whether the connector is on the class path."""
    from pyspark.errors import PySparkException

    try:
        spark.read.format("kafka").option("kafka.bootstrap.servers", "-").option("subscribe", "-").load()
    except PySparkException as error:
        return not is_missing(error)
    return True


def package(version: str) -> str:
    """Return the Maven coordinates of the connector for a version of Spark."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"


# --- writing -------------------------------------------------------------------------------


class TopicWriter(PartsWriter):
    """Writer of outbox parts to a topic, as a Spark job."""

    def __init__(
        self, sink: KafkaTopic, request: SinkRequest, spark: SparkSession, form: str = "kafka"
    ) -> None:
        assert request.spool is not None, "tasks stage in an outbox"
        self._sink = sink
        self._name = request.name
        self._spark = spark
        self._form = form
        self._outbox = Outbox(request.spool, request.schema)

    def recover(self, tick: int) -> None:
        self.publish(tick)
        self._outbox.clear()

    def prepare(self, tick: int, rows: Rows) -> None:
        self._outbox.keep(tick, rows)

    def assemble(self, tick: int, names: Iterable[str]) -> None:
        self._outbox.assemble(tick, names)

    def publish(self, tick: int) -> None:
        if not self._outbox.holds(tick):
            return
        from pyspark.errors import PySparkException

        parts = self._spark.read.parquet(*map(_no_pattern, self._outbox.parts(tick)))
        with connector_needed(self._spark, f"sink {self._name!r}"):
            try:
                writer = self.records(parts, tick).write.format(self._form).mode("append")
                writer.options(**self._sink.connection()).save()
            except PySparkException as error:
                if is_missing(error):
                    raise
                raise UnwritableSink(
                    f"sink {self._name!r} cannot write to topic {self._sink.topic!r} of {self._sink.servers}",
                    why=str(error).strip().splitlines()[0],
                    fix="correct the servers, the topic or the options",
                    sink=self._name,
                ) from error
        self._outbox.drop(tick)

    def records(self, parts: DataFrame, tick: int) -> DataFrame:
        """Return the records of a tick: `key`, `value`."""
        from pyspark.sql import functions as f

        def as_json(columns: list[Column]) -> Column:
            return f.to_json(f.struct(*columns), {"ignoreNullFields": "false"})

        schema = self._outbox.schema
        columns = [f.col(f"`{name.replace('`', '``')}`") for name in schema.names]
        value = as_json([*columns, f.col(WEIGHT), f.lit(tick).cast("long").alias("tick")])
        key = self._sink.columns
        named = None if key is None else [columns[schema.names.index(name)] for name in key]
        none = f.lit(None).cast("string")
        return parts.select((none if named is None else as_json(named)).alias("key"), value.alias("value"))


@open_sink.register
def _(sink: KafkaTopic, request: SinkRequest) -> Writer:
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None or request.spool is None:
        raise only_on_spark(f"sink {request.name!r}: a topic of Kafka is written by Spark")
    check_columns(request.name, request.schema)
    if sink.columns is not None:
        build_bucketing(request.name, request.schema, sink.columns, 1)
    if not connector_is_there(spark):
        with connector_needed(spark, f"sink {request.name!r}"):
            spark.read.format("kafka").load()
    return TopicWriter(sink, request, spark)
