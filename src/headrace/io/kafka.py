"""Kafka topics as sources and sinks, through Spark's Kafka connector, which Spark ships separately.

    pyspark or spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0

Positions of a source are Spark's offsets, so each record is read exactly once. A sink may receive a tick
twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from headrace.errors import BadInput
from headrace.io.outbox import DeliveredSink
from headrace.io.sink import SinkRequest, Writer, column_names, open_sink
from headrace.io.source import Feed, Guarantee, Reader, Source, open_source, set_fields


def _joined(words: Iterable[str] | str) -> str:
    return words if isinstance(words, str) else ",".join(words)


@dataclass(frozen=True, init=False)
class Kafka(Source):
    """Source of rows from the values of a topic's records: `Kafka("broker:9092", "bids")`.

    servers: one, several, or several in one text with commas.
    topic:   one or several.
    value:   "json": an object whose fields are the columns of the flow's source; "avro": records of `avro`.
    avro:    the schema of the values, as JSON text; needs the package spark-avro.
    options: of Spark's connector (`startingOffsets`, `maxOffsetsPerTrigger`, `kafka.security.protocol`,
             ...), passed on unchanged. They may hold secrets and are never shown.

    A value that is not JSON of these columns ends the run, within the limits of Spark's `from_json`: it
    rounds digits that do not fit a decimal, reads a number for a timestamp as seconds, accepts any value
    for text, and ignores text after an object. Records without a value (tombstones) are skipped by
    `Debezium(Kafka(...))`; elsewhere all of their columns are null, an error unless all are nullable.
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
        set_fields(
            self,
            servers=_joined(servers),
            topic=_joined(topic),
            value=value,
            avro=avro,
            options=dict(options or {}),
        )

    def connection(self) -> dict[str, str]:
        """Return the options for Spark's connector."""
        return {**self.options, "kafka.bootstrap.servers": self.servers, "subscribe": self.topic}


@dataclass(frozen=True, init=False)
class KafkaTopic(DeliveredSink):
    """Sink that writes every change as a record: a JSON object of the columns, `weight` and `tick`.

    key:     columns of the record's key, a JSON object; None: records have no key.
    options: of Spark's connector, passed on unchanged; they may hold secrets and are never shown.
    """

    guarantee: ClassVar[Guarantee] = Guarantee(
        "at least once",
        "Spark's connector writes without transactions: after a crash or a failed task, records of the "
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
        columns = None if key is None else column_names(key)
        set_fields(self, servers=_joined(servers), topic=topic, columns=columns, options=dict(options or {}))

    def connection(self) -> dict[str, str]:
        """Return the options for Spark's connector."""
        return {**self.options, "kafka.bootstrap.servers": self.servers, "topic": self.topic}


# --- in this process ---------------------------------------------------------------------------


def only_on_spark(what: str) -> BadInput:
    return BadInput(
        what,
        why="this run does not use Spark",
        fix="run the flow with headrace.spark.run(...), or `headrace run --on spark`",
    )


@open_source.register
def _(source: Kafka, feed: Feed) -> Reader:
    raise only_on_spark(f"source {feed.name!r}: only Spark reads Kafka topics")


@open_sink.register
def _(sink: KafkaTopic, request: SinkRequest) -> Writer:
    raise only_on_spark(f"sink {request.name!r}: only Spark writes Kafka topics")
