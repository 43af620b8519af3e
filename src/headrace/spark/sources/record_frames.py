"""Records in DataFrames: Kafka topics, and change data as native columns.

Executors read and write topics through Spark's connector. Change data becomes rows with a `weight` column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce, singledispatch
from typing import TYPE_CHECKING, Any

from headrace.errors import BadInput, UnwritableSink, WrongType
from headrace.expr.functions.cast_columns import without_zone
from headrace.expr.row_classes import KeyedRows, placeholder
from headrace.expr.spark_columns import quoted, spark_type
from headrace.expr.types import (
    TIMESTAMP,
    DataType,
    DateType,
    Field,
    ListType,
    MapType,
    Schema,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.io.change_data import (
    IMAGES,
    OLD_ROWS,
    ChangeData,
    Debezium,
    Operations,
    record_schema,
    refuse_rows_only,
)
from headrace.io.files.changelog import check_columns
from headrace.io.files.text_values import EpochUnit, with_integer_times
from headrace.io.kafka import Kafka, KafkaTopic, only_on_spark
from headrace.io.keyed_records import ORDERS, SET_OR_DELETE, record_source
from headrace.io.keyed_tables import build_bucketing
from headrace.io.outbox import Outbox, Rows
from headrace.io.sink import PartsWriter, SinkRequest, Writer, open_sink
from headrace.io.source import WEIGHT
from headrace.spark.sources.opening import Frame, Opening, sends_rows, source_frame

if TYPE_CHECKING:
    from collections.abc import Mapping
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
    reader = opening.session.read if opening.operator.bounded else opening.reader()
    with connector_needed(opening.session, f"source {opening.name!r}"):
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


@sends_rows.register
def _(source: ChangeData) -> bool:
    return sends_rows(source.records)


@record_source.register
def _(source: Frame, name: str, keyed: KeyedRows) -> Frame:
    """Each row of the DataFrame is a record that sets it or, with a weight of -1, deletes it."""
    from pyspark.sql import functions as f

    _need(name, source.frame.columns, keyed.rows.names, "the DataFrame")
    given = {each.name: f.col(quoted(each.name)) for each in keyed.rows.fields}
    row, none = f.struct(*given.values()), f.lit(None)
    columns = {each.name: none.cast(spark_type(each.type)) for each in keyed.records.fields}
    columns |= {"key": f.struct(*(given[each] for each in keyed.key)), "row": row}
    if WEIGHT in source.frame.columns and WEIGHT not in given:
        weight = f.col(WEIGHT)
        refusal = _bad(name, f"{WEIGHT}: {SET_OR_DELETE}, found ", weight, "")
        columns["row"] = f.when(weight == 1, row).otherwise(f.when(weight.isNull() | (weight != -1), refusal))
        columns["before"] = f.when((weight == -1) & _known_whole(keyed, given), row)
    if keyed.sequence is not None:
        sequence = given[keyed.sequence]
        refusal = _bad(name, f"{keyed.sequence}: it is ", sequence, f", but {ORDERS}")
        columns["sequence"] = f.when(sequence.isNull(), refusal).otherwise(sequence)
    return Frame(source.frame.select(*(column.alias(n) for n, column in columns.items())))


def _known_whole(keyed: KeyedRows, given: Mapping[str, Column]) -> Column:
    """Return whether more of a row is known than its key (see `RecordBuilder.whole_or_none`)."""
    from pyspark.sql import functions as f

    there = {x: given[x.name].isNotNull() for x in keyed.rows.fields if x.name not in keyed.key}
    some = reduce(lambda one, other: one | other, there.values()) if there else f.lit(True)
    return reduce(lambda one, other: one & other, [each for x, each in there.items() if not x.nullable], some)


@source_frame.register(ChangeData)
def _(source: ChangeData, opening: Opening, schema: Schema) -> DataFrame:
    refuse_rows_only(source, opening.name, opening.append)
    records = source_frame(source.records, opening, record_schema(source, schema))
    return to_weighted_rows(source, records, opening.name, schema)


@source_frame.register(Debezium)
def _(source: Debezium, opening: Opening, schema: Schema) -> DataFrame:
    refuse_rows_only(source, opening.name, opening.append)
    records = source_frame(source.records, opening, record_schema(source, schema))
    if isinstance(source.records, Kafka):
        records = without_tombstones(records)
    return to_weighted_rows(source, records, opening.name, schema)


def _plain(mark: Any) -> Any:
    return list(mark) if isinstance(mark, tuple) else mark


def without_tombstones(records: DataFrame) -> DataFrame:
    """Drop tombstones: the records of a topic without a value.

    In columns, a tombstone cannot be told from a value of another form.
    """
    from pyspark.sql import functions as f

    return records.filter(f.col(RECORD).isNotNull())


@singledispatch
def to_weighted_rows(source: ChangeData, records: DataFrame, name: str, schema: Schema) -> DataFrame:
    """Convert change records to weighted rows. Invalid records raise `BadRow` when read."""
    raise NotImplementedError(type(source))


@to_weighted_rows.register(Operations)
def _(source: Operations, records: DataFrame, name: str, schema: Schema) -> DataFrame:
    from pyspark.sql import functions as f

    _need(name, records.columns, [source.column], "the DataFrame")
    operation = f.col(quoted(source.column))
    weights = {1: source.insert, -1: source.delete, 0: source.ignore}
    known = ", ".join(repr(word) for words in weights.values() for word in words)
    refusal = _bad(name, f"{source.column}: ", operation, f" is none of {known}").cast("long")
    weight = reduce(
        lambda chain, item: chain.when(operation.isin(*item[1]), f.lit(item[0]).cast("long")),
        [(value, words) for value, words in weights.items() if words],
        f.when(f.lit(False), f.lit(0).cast("long")),
    ).otherwise(refusal)
    return records.withColumn(WEIGHT, weight).filter(f.col(WEIGHT) != 0)


@to_weighted_rows.register(Debezium)
def _(source: Debezium, records: DataFrame, name: str, schema: Schema) -> DataFrame:
    from pyspark.sql import functions as f

    within = "payload." if "payload" in records.columns else ""
    held: Any = records.schema["payload"].dataType if within else records.schema
    parts = ("before", "after", "op")
    _need(name, _names(held), parts, within[:-1] or "the DataFrame")
    both = within != "" and set(parts) <= set(records.columns)
    before, after, op = (
        f.coalesce(f.col(within + part), f.col(part)) if both else f.col(within + part) for part in parts
    )
    for part in ("before", "after"):
        _need(name, _names(held[part].dataType), schema.names, part)

    def value(row: Column, x: Field, part: str) -> Column:
        found = row[x.name]
        mark = placeholder(x.type, source.unavailable)
        if mark is None:
            return found
        text = "the record does not tell the value, because it did not change: "
        unknown = _bad(name, f"{part}: {x.name}: {text}", found, f"; {OLD_ROWS}").cast(spark_type(x.type))
        is_mark = lambda each: each.eqNullSafe(f.lit(_plain(mark)).cast(spark_type(x.type)))  # noqa: E731
        if isinstance(x.type, MapType):
            is_mark = lambda each: f.map_keys(each).eqNullSafe(f.lit([mark[0][0]]))  # noqa: E731
        held = before[x.name]
        known = f.when(held.isNull() | is_mark(held), unknown).otherwise(held)
        return f.when(is_mark(found), known).otherwise(found)

    def image(row: Column, weight: int, part: str) -> Column:
        columns = [
            integers_to_timestamps(x.type, value(row, x, part), source.epoch).alias(x.name)
            for x in schema.fields
        ]
        made = f.array(f.struct(*columns, f.lit(weight).cast("long").alias(WEIGHT)))
        missing = _bad(name, f"{part}: it is null or missing, and op ", op, " needs it")
        return f.when(row.isNull(), missing).otherwise(made)

    goes, comes = image(before, -1, "before"), image(after, 1, "after")
    forms = {(True, True): f.concat(goes, comes), (True, False): goes, (False, True): comes}
    words = {form: [o for o, images in IMAGES.items() if images == form] for form in set(IMAGES.values())}
    known = ", ".join(map(repr, IMAGES))
    changes = reduce(
        lambda chain, form: chain.when(op.isin(*words[form]), forms[form]),
        forms,
        f.when(f.lit(False), forms[True, True]),
    ).otherwise(_bad(name, "op: ", op, f" is none of {known}"))
    nothing = f.coalesce(op.isin(*words[False, False]), f.lit(False))
    exploded = records.filter(~nothing).select(f.explode(changes).alias("change"))
    change = f.col("change")
    return exploded.select(*(change.getField(n).alias(n) for n in (*schema.names, WEIGHT)))


def integers_to_timestamps(data_type: DataType, column: Column, epoch: EpochUnit | None) -> Column:
    """Convert a column of integer times to timestamps if `epoch` is set."""
    return (
        column
        if epoch is None or with_integer_times(data_type) == data_type
        else _restored(data_type, column, epoch)
    )


@singledispatch
def _restored(data_type: DataType, column: Column, epoch: EpochUnit) -> Column:
    raise NotImplementedError(type(data_type))


@_restored.register(DateType)
def _(data_type: DateType, column: Column, epoch: EpochUnit) -> Column:
    from pyspark.sql import functions as f

    return f.date_from_unix_date(column.cast("int"))


@_restored.register(TimestampType)
def _(data_type: TimestampType, column: Column, epoch: EpochUnit) -> Column:
    from pyspark.sql import functions as f

    if epoch == "millis":
        return f.timestamp_millis(column)
    if epoch == "micros":
        return f.timestamp_micros(column)
    # In whole numbers: a double is off by up to 128 nanoseconds, which may be the microsecond before.
    whole = column - f.pmod(column, f.lit(1000))
    return f.timestamp_micros(f.call_function("div", whole, f.lit(1000)))


@_restored.register(TimestampNtzType)
def _(data_type: TimestampNtzType, column: Column, epoch: EpochUnit) -> Column:
    return without_zone(_restored(TIMESTAMP, column, epoch))


@_restored.register(ListType)
def _(data_type: ListType, column: Column, epoch: EpochUnit) -> Column:
    from pyspark.sql import functions as f

    return f.transform(column, lambda element: integers_to_timestamps(data_type.element, element, epoch))


@_restored.register(MapType)
def _(data_type: MapType, column: Column, epoch: EpochUnit) -> Column:
    from pyspark.sql import functions as f

    return f.map_from_entries(integers_to_timestamps(data_type.entries, f.map_entries(column), epoch))


@_restored.register(StructType)
def _(data_type: StructType, column: Column, epoch: EpochUnit) -> Column:
    from pyspark.sql import functions as f

    made = f.struct(
        *(integers_to_timestamps(x.type, column[x.name], epoch).alias(x.name) for x in data_type.fields)
    )
    return f.when(column.isNotNull(), made)


def _bad(source: str, before: str, found: Column, after: str) -> Column:
    """Return the expression that raises `BadRow`, in the form recognised by `ticks.errors`."""
    from pyspark.sql import functions as f

    shown = f.regexp_replace(f.substring(f.coalesce(found.cast("string"), f.lit("null")), 1, 60), r"\s", " ")
    return f.raise_error(f.concat(f.lit(f"P201 BadRow: source {source!r}: {before}"), shown, f.lit(after)))


def _names(kind: Any) -> list[str]:
    return list(getattr(kind, "names", ()))


def _need(source: str, there: list[str], wanted: Any, where: str) -> None:
    missing = [name for name in wanted if name not in there]
    if missing:
        raise WrongType(
            f"source {source!r}: {where} of its change data has no column {missing[0]!r}",
            why=f"it has {', '.join(there) or 'none'}.",
            fix="select and cast in the DataFrame, or change the row type of the flow's source",
            source=source,
            column=missing[0],
        )
