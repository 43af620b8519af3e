"""Sources and sinks as text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
import headrace.spark
from headrace.compute.collections.opening import open_collections
from headrace.errors import BadInput, BadUri
from headrace.file_system import local_path
from headrace.io import (
    Changelog,
    CsvChangelog,
    CsvDialect,
    CsvFiles,
    Debezium,
    DeltaChangelog,
    DeltaChanges,
    DeltaRows,
    DeltaTable,
    JsonFiles,
    Kafka,
    KafkaTopic,
    Memory,
    Operations,
    ParquetFiles,
    PostgresChangelog,
    PostgresTable,
    Print,
    TableFiles,
    Upserts,
    parse_sink,
    parse_source,
)
from headrace.pull import from_file, from_lines, to_file, to_lines
from headrace.spark.resharding import reshard
from headrace.state import inspection
from headrace.state.rewind import rewind


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        ("json:in", JsonFiles("in")),
        ("CSV:/a/b c/*.txt", CsvFiles("/a/b c/*.txt")),
        ("parquet:in?files_per_tick=3", ParquetFiles("in", files_per_tick=3)),
        ("in/a.jsonl?dead_letter=bad%20rows", JsonFiles("in/a.jsonl", dead_letter="bad rows")),
        ("in/part-?.csv.gz", CsvFiles("in/part-?.csv.gz")),
        ("csv:in/part-?.csv?sep=;&null=?", CsvFiles("in/part-?.csv", sep=";", null="?")),
        (r"C:\data\a.parquet", ParquetFiles(r"C:\data\a.parquet")),
        ("json:a=b", JsonFiles("a=b")),
        (
            r"csv:in/orders?delimiter=;&quote='&escape=\&charset=latin1&header=false&null=NA&null=-",
            CsvFiles(
                "in/orders",
                sep=";",
                quote="'",
                escape="\\",
                encoding="latin-1",
                header=False,
                null=("NA", "-"),
            ),
        ),
        (r"in/a.csv?sep=\t&nullValue=", CsvFiles("in/a.csv", sep="\t", null="")),
        (
            "debezium+json:in?epoch=micros&unavailable=gone&dead_letter=d",
            Debezium(JsonFiles("in", dead_letter="d"), epoch="micros", unavailable="gone"),
        ),
        ("upserts+json:in?files_per_tick=2", Upserts(JsonFiles("in", files_per_tick=2))),
        ("deltachanges+parquet:in?files_per_tick=2", DeltaChanges(ParquetFiles("in", files_per_tick=2))),
        (
            "operations+csv:in?column=op&insert=I,U&delete=D",
            Operations(CsvFiles("in"), "op", ("I", "U"), "D"),
        ),
        ("delta:t?version=0&versions_per_tick=1", DeltaRows("t", version=0, versions_per_tick=1)),
        ("kafka:a:1,b:2/bids?startingOffsets=earliest", Kafka("a:1,b:2", "bids")),
        ("debezium+kafka:a:1/bids", Debezium(Kafka("a:1", "bids"))),
    ],
)
def test_sources(uri: str, source: object) -> None:
    assert parse_source(uri) == source


@pytest.mark.parametrize(
    ("uri", "sink"),
    [
        ("changelog:out", Changelog("out")),
        ("changelog:out?compact_after=100", Changelog("out", compact_after=100)),
        ("csv:out", CsvChangelog("out")),
        ("csv:out?delimiter=;&null=-", CsvChangelog("out", CsvDialect(sep=";", null=("-",)))),
        ("table:out", TableFiles("out")),
        ("table:out?key=a,b&buckets=4", TableFiles("out", key=("a", "b"), buckets=4)),
        ("-", Print()),
        ("print:", Print()),
        ("delta:t", DeltaChangelog("t")),
        ("delta:t?key=a,b&app=x", DeltaTable("t", ("a", "b"), app="x")),
        ("postgres://u@h:1/d?table=t", PostgresChangelog("postgres://u@h:1/d", "t")),
        (
            "postgresql://u:p@h/d?sslmode=require&table=t&key=a,b&schema=s",
            PostgresTable("postgresql://u:p@h/d?sslmode=require", "t", ("a", "b"), "s"),
        ),
        (
            "postgresql:///d?host=/a%2Bb%26c&table=t",
            PostgresChangelog("postgresql:///d?host=/a%2Bb%26c", "t"),
        ),
        ("kafka:a:1/bids?key=auction", KafkaTopic("a:1", "bids", key="auction")),
    ],
)
def test_sinks(uri: str, sink: object) -> None:
    assert parse_sink(uri) == sink


@pytest.mark.parametrize(
    ("parse", "uri", "text"),
    [
        (parse_source, "amqp:topic", "P302 BadUri: 'amqp:topic' is not the URI of a source"),
        (parse_source, "other+json:a", "is not the URI of a source"),
        (parse_source, "kafka:topic", "lacks servers or topic"),
        (parse_source, "delta:a?version=x", "version must be an integer of at least 0, not 'x'"),
        (parse_source, "debezium+json:a?epoch=days", "epoch is 'days'"),
        (
            parse_source,
            "debezium+json:a?b=1",
            "known options: epoch, unavailable, dead_letter, files_per_tick, max_value_bytes",
        ),
        (parse_source, "operations+csv:a?insert=I", "has no option column"),
        (parse_source, "operations+csv:a?column=op", "defines no operation"),
        (parse_sink, "postgres://u:s3cret@h/d", "'postgres://u:***@h/d' has no option table"),
        (parse_sink, "postgres://u:s3cret@h/d?table=t&x=1", "unknown option 'x'"),
        (parse_sink, "delta:a?buckets=4", "unknown option 'buckets'"),
        (parse_sink, "kafka:h:1?secret=s3cret", "'kafka:h:1?...' lacks servers or topic"),
        (parse_sink, "postgres://u:s3cret/x@h/d?table=t", "'postgres://u:***@h/d' is not the URL"),
        (parse_sink, "postgres://u:s3cret?x@h/d?table=t", "'postgres://u:***@h/d' is not the URL"),
        (parse_sink, "postgres://u:s3cret#x@h/d?table=t", "'postgres://u:***@h/d' is not the URL"),
        (parse_source, "debezium+kafka:h:1?secret=s3cret", "'debezium+kafka:h:1?...' lacks servers"),
        (parse_sink, "table:a?key=x&key=y", "'table:a?key=x&key=y' gives key twice"),
        (parse_sink, "postgres://u:12/s3cret@h/d?table=t", "'postgres://u:***@h/d' is not the URL"),
        (parse_sink, "delta:t?key=", "key has an empty word"),
        (parse_sink, "table:t?key=a,,b", "key has an empty word"),
        (parse_source, "in", "P302 BadUri: 'in' does not name the file format"),
        (parse_source, "json:", "P302 BadUri: 'json:' has no path"),
        (parse_source, "json:a?files_per_tick=0", "files_per_tick must be an integer of at least 1, not '0'"),
        (parse_source, "json:a?key=x", "unknown option 'key'"),
        (
            parse_source,
            "csv:a?delimitter=;",
            "'delimitter'\n\nFix: did you mean 'delimiter'?\n",
        ),
        (parse_source, "csv:a?separator=;", "did you mean 'sep'?"),
        (parse_source, "csv:a?sep=;;", "options of CSV files: sep is ';;'"),
        (parse_source, "csv:a?sep=;&delimiter=,", "gives sep twice"),
        (parse_source, "csv:a?header=no", "header must be true or false, not 'no'"),
        (parse_sink, "csv:a?compact_after=9", "known options: sep, delimiter, quote, escape, encoding"),
        (parse_source, "json:a?b=1&c", "options must be name=value&name=value"),
        (parse_sink, "out", "P302 BadUri: 'out' is not the URI of a sink"),
        (parse_sink, "changelog:", "has no path"),
        (
            parse_sink,
            "changelog:hdfs://u:s3cret/x@h/d",
            "the scheme 'hdfs' of 'hdfs://***@h/d' is not supported",
        ),
        (parse_sink, "table:a?buckets=many", "buckets must be an integer of at least 1, not 'many'"),
        (parse_sink, "print:a", "print: takes no path"),
    ],
)
def test_what_is_wrong_is_said(parse: Callable[[str], Any], uri: str, text: str) -> None:
    with pytest.raises((BadUri, BadInput)) as raised:
        parse(uri)
    assert text in str(raised.value)
    assert "s3cret" not in repr((str(raised.value), raised.value.facts, raised.value.__cause__))


class Row(NamedTuple):
    value: int


FLOW = hr.Flow("rows")
FLOW.sink("out", FLOW.table("rows", Row))
ONE = {"rows": [Row(1)]}
PLACES: dict[str, Callable[[Any], Any]] = {
    "source": JsonFiles,
    "source on the command line": lambda place: parse_source(f"csv:{place}"),
    "change data on the command line": lambda place: parse_source(f"debezium+json:{place}"),
    "dead letters": lambda place: ParquetFiles("in", dead_letter=place),
    "changelog": Changelog,
    "changelog on the command line": lambda place: parse_sink(f"changelog:{place}"),
    "table": TableFiles,
    "table on the command line": lambda place: parse_sink(f"table:{place}?key=a"),
    "checkpoint": lambda place: hr.run(FLOW, ONE, {"out": Memory()}, checkpoint=place),
    "checkpoint on Spark": lambda place: headrace.spark.run(FLOW, sources=ONE, follow=True, checkpoint=place),
    "checkpoint to look at": lambda place: inspection.inspect(place),
    "checkpoint to look a key up in": lambda place: inspection.rows_of_key(place, "1", 1),
    "checkpoint to go back in": lambda place: rewind(place, 1),
    "checkpoint to divide": lambda place: reshard(place, 2, FLOW),
    "collections": lambda place: open_collections(str(place)),
    "collections in SQLite": lambda place: open_collections(f"sqlite:{place}"),
    "lines": from_lines,
    "bytes": from_file,
    "lines to write": to_lines,
    "bytes to write": to_file,
}


@pytest.mark.parametrize("place", ["s3://bucket/t", "hdfs:/t", "dbfs:t", Path("gs://bucket/t")], ids=str)
@pytest.mark.parametrize("use", PLACES)
def test_a_scheme_that_is_not_supported_is_refused_by_name_and_nothing_is_made(
    use: str, place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadUri) as raised:
        PLACES[use](place)
    assert raised.value.code == "P302"
    assert str(place).partition(":")[0] in raised.value.what
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "FILE://localhost{}", "{}"])
def test_a_file_url_is_a_path(form: str, tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    place = form.format(str(folder).replace(" ", "%20") if form != "{}" else folder)
    hr.run(FLOW, ONE, {"out": Changelog(f"{place}/out")}, checkpoint=f"{place}/state")
    assert {each.name for each in folder.iterdir()} == {"out", "state"}
    assert inspection.inspect(f"{place}/state").tick == 1
    assert parse_source(f"json:{place}/in") == JsonFiles(str(folder / "in"))


@pytest.mark.parametrize(
    "given", ["in", "./a:b", "/a:b", "../a:b", "in/*.json", "a b:c", "1a:b", r"C:\a", "", "a/b:c"]
)
def test_a_path_is_left_as_it_is(given: str) -> None:
    assert local_path(given, "it") == given


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_delta_table_may_be_a_url_that_the_package_knows(form: str, tmp_path: Path) -> None:
    place = form.format(tmp_path / "t")
    hr.run(FLOW, ONE, {"out": DeltaTable(place, "value")})
    found = Memory()
    hr.run(FLOW, {"rows": DeltaRows(place)}, {"out": found})
    assert found.rows() == [Row(1)]


def test_further_options_of_kafka_are_passed_on_and_not_shown() -> None:
    source = parse_source("kafka:a:1/bids?startingOffsets=earliest&kafka.sasl.jaas.config=s3cret")
    assert isinstance(source, Kafka)
    assert source.connection() == {
        "startingOffsets": "earliest",
        "kafka.sasl.jaas.config": "s3cret",
        "kafka.bootstrap.servers": "a:1",
        "subscribe": "bids",
    }
    assert "s3cret" not in repr(source)


def test_a_port_of_the_environment_that_is_none_is_named_as_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "abc")
    with pytest.raises(BadUri, match="is not the URL of a PostgreSQL server, or PGPORT is not a number"):
        parse_sink("postgresql://h/d?table=t")
