"""Kafka, through Spark's connector, which comes with no installation of Spark.

    pyspark or spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0

Topics are read and written by Spark's executors; a position of a source is Spark's
own offset, so each record counts once. Its sink can be told a tick twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.errors import BadInput, UnwritableSink
from penstock.expr.types import Schema
from penstock.io.bucketing import bucketing
from penstock.io.changelog import check_columns
from penstock.io.guarantee import Guarantee
from penstock.io.outbox import Delivered, Outbox, Rows
from penstock.io.sink import Drain, PartsWriter, Writer, open_sink
from penstock.io.source import WEIGHT, Source
from penstock.spark.sources import Opening, frame_of, sends_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


RECORD = "penstock record"
"""The column of a source that holds the bytes of the record, null for a tombstone."""


def _joined(words: Iterable[str] | str) -> str:
    return words if isinstance(words, str) else ",".join(words)


@dataclass(frozen=True, init=False)
class Kafka(Source):
    """The records of a topic: `Kafka("broker:9092", "bids")`, their values as rows.

    servers: one, several, or several in one text with commas.
    topic:   one or several.
    value:   "json": an object whose fields are the columns of the flow's source; "avro": records of `avro`.
    avro:    the schema of the values, as JSON text; needs the package spark-avro.
    options: of Spark's connector (`startingOffsets`, `maxOffsetsPerTrigger`, `kafka.security.protocol`,
             ...), passed on as they are. They may hold secrets and are shown nowhere.

    A value that is no JSON of these columns ends the run. Records without a value (tombstones) are
    nothing to `Debezium(Kafka(...))`, and an error elsewhere.
    """

    guarantee: ClassVar[Guarantee] = Guarantee("exactly once", "Spark keeps the offsets of each tick")
    servers: str
    topic: str
    value: Literal["json", "avro"]
    avro: str | None
    options: Mapping[str, str] = field(repr=False, compare=False)

    def __init__(
        self,
        servers: Iterable[str] | str,
        topic: Iterable[str] | str,
        *,
        value: Literal["json", "avro"] = "json",
        avro: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        if value not in ("json", "avro") or (value == "avro") != (avro is not None):
            raise BadInput(
                f"the values of topic {_joined(topic)!r} are {value!r}, with {'a' if avro else 'no'} schema",
                fix='give value="json", or value="avro" with avro="{...}"',
            )
        for name, given in (
            ("servers", _joined(servers)),
            ("topic", _joined(topic)),
            ("value", value),
            ("avro", avro),
            ("options", dict(options or {})),
        ):
            object.__setattr__(self, name, given)

    def connection(self) -> dict[str, str]:
        """The options of Spark's connector."""
        return {**self.options, "kafka.bootstrap.servers": self.servers, "subscribe": self.topic}


@dataclass(frozen=True, init=False)
class KafkaTopic(Delivered):
    """Every change as a record of a topic: its value a JSON object of the columns, `weight` and `tick`.

    key:     columns that make the record's key, as a JSON object; None: records have no key.
    options: of Spark's connector, passed on as they are; they may hold secrets and are shown nowhere.
    """

    guarantee: ClassVar[Guarantee] = Guarantee(
        "at least once",
        "Spark's connector writes without transactions: after a crash or a failed task records of the "
        "last tick may come twice, with the same tick",
    )
    servers: str
    topic: str
    columns: tuple[str, ...] | None
    options: Mapping[str, str] = field(repr=False, compare=False)

    def __init__(
        self,
        servers: Iterable[str] | str,
        topic: str,
        *,
        key: Iterable[str] | str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        columns = (key,) if isinstance(key, str) else None if key is None else tuple(key)
        for name, given in (
            ("servers", _joined(servers)),
            ("topic", topic),
            ("columns", columns),
            ("options", dict(options or {})),
        ):
            object.__setattr__(self, name, given)

    def connection(self) -> dict[str, str]:
        """The options of Spark's connector."""
        return {**self.options, "kafka.bootstrap.servers": self.servers, "topic": self.topic}


# --- reading -------------------------------------------------------------------------------


@sends_rows.register
def _(source: Kafka) -> bool:
    return True


@frame_of.register(Kafka)
def _(source: Kafka, opening: Opening, schema: Schema) -> DataFrame:
    reader = opening.spark.read if opening.operator.bounded else opening.reader()
    with connector_needed(opening.spark, f"source {opening.name!r}"):
        records = reader.format("kafka").options(**source.connection()).load()
    return rows_of_records(source, records, schema)


def rows_of_records(source: Kafka, records: DataFrame, schema: Schema) -> DataFrame:
    """The values of records, which have a column `value` of bytes, as rows."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    from penstock.spark.types import spark_schema

    value = f.col("value")
    if source.avro is not None:
        row = from_avro(value, source.avro, {"mode": "FAILFAST"})
    else:
        row = f.from_json(value.cast("string"), spark_schema(schema), {"mode": "FAILFAST"})
    made = records.select(row.alias("row"), value.alias(RECORD))
    return made.select(*(f.col("row").getField(name).alias(name) for name in schema.names), RECORD)


@contextmanager
def connector_needed(spark: SparkSession, what: str) -> Iterator[None]:
    """Where Spark looks for its connector: says what to do if there is none. Raises `BadInput`."""
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as error:
        if "kafka" not in str(error).lower() or "find" not in str(error).lower():
            raise
        raise BadInput(
            f"{what} needs Spark's connector for Kafka, which is not on the class path",
            why="No installation of Spark brings it along.",
            fix=f"start Spark with --packages {package(spark.version)}, "
            f'or penstock.spark.session(config={{"spark.jars.packages": "{package(spark.version)}"}})',
        ) from error


def package(version: str) -> str:
    """The connector's package for a version of Spark."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"


# --- writing -------------------------------------------------------------------------------


class TopicWriter(PartsWriter):
    """Writes the parts of an outbox to a topic, by a job of Spark's."""

    def __init__(self, sink: KafkaTopic, drain: Drain, spark: SparkSession, form: str = "kafka") -> None:
        assert drain.spool is not None, "tasks stage in an outbox"
        self._sink = sink
        self._name = drain.name
        self._spark = spark
        self._form = form
        self._outbox = Outbox(drain.spool, drain.schema)

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

        parts = self._spark.read.parquet(*map(str, self._outbox.parts(tick)))
        with connector_needed(self._spark, f"sink {self._name!r}"):
            try:
                writer = self.records(parts, tick).write.format(self._form).mode("append")
                writer.options(**self._sink.connection()).save()
            except PySparkException as error:
                if "find" in str(error).lower() and "kafka" in str(error).lower():
                    raise
                raise UnwritableSink(
                    f"sink {self._name!r} cannot write to topic {self._sink.topic!r} of {self._sink.servers}",
                    why=str(error).strip().splitlines()[0],
                    fix="correct the servers, the topic or the options",
                    sink=self._name,
                ) from error
        self._outbox.drop(tick)

    def records(self, parts: DataFrame, tick: int) -> DataFrame:
        """The records of a tick: `key`, `value`."""
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
def _(sink: KafkaTopic, drain: Drain) -> Writer:
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None:
        raise BadInput(
            f"sink {drain.name!r}: a topic of Kafka is written by Spark, and none is running",
            fix="run the flow with penstock.spark.run(...), or give a function as the sink",
            sink=drain.name,
        )
    check_columns(drain.name, drain.schema)
    if sink.columns is not None:
        bucketing(drain.name, drain.schema, sink.columns, 1)
    return TopicWriter(sink, drain, spark)
