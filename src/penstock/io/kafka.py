"""Topics of Kafka, for Spark's connector, which comes with no installation of Spark.

    pyspark or spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0

A position of a source is Spark's own offset, so each record counts once. A sink can
be told a tick twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from penstock.errors import BadInput
from penstock.io.guarantee import Guarantee
from penstock.io.outbox import Delivered
from penstock.io.sink import Drain, Writer, open_sink
from penstock.io.source import Feed, Reader, Source, open_source


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

    A value that is no JSON of these columns ends the run, as far as Spark's `from_json` minds: it rounds
    digits that a decimal has no room for, takes a number for a timestamp as seconds, any value for
    text, and passes over what stands behind an object. Records without a value (tombstones) are
    nothing to `Debezium(Kafka(...))`, and elsewhere a record whose columns are all null: an error,
    unless all of them may be.
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


# --- in this process ---------------------------------------------------------------------------


def only_on_spark(what: str) -> BadInput:
    return BadInput(
        what,
        why="there is no Spark in this run",
        fix="run the flow with penstock.spark.run(...), or `penstock run --on spark`",
    )


@open_source.register
def _(source: Kafka, feed: Feed) -> Reader:
    raise only_on_spark(f"source {feed.name!r}: a topic of Kafka is read by Spark")


@open_sink.register
def _(sink: KafkaTopic, drain: Drain) -> Writer:
    raise only_on_spark(f"sink {drain.name!r}: a topic of Kafka is written by Spark")
