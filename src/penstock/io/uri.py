"""Sources and sinks as text, for the command line.

json:PATH  csv:PATH  parquet:PATH              sources; a plain path by its ending
    ?dead_letter=FOLDER&files_per_tick=N
debezium+json:PATH?epoch=millis                sources of change data, with the options of files
deltachanges+parquet:PATH
operations+csv:PATH?column=op&insert=I&delete=D&ignore=...
delta:PATH?version=N&versions_per_tick=N       source: a Delta table
kafka:SERVERS/TOPIC?OPTION=VALUE&...           source or sink, on Spark; debezium+kafka:... too
changelog:PATH  table:PATH?key=a,b&buckets=N   sinks
delta:PATH?key=a,b&app=NAME                    sink: with a key the current rows, else all changes
postgresql://USER@HOST:PORT/DATABASE?table=T&key=a,b&schema=S    sink, likewise
print:  or  -                                  sink: lines on standard output
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from penstock.errors import BadUri
from penstock.io.change_data import Debezium, DeltaChanges, Operations
from penstock.io.changelog import Changelog
from penstock.io.csv_files import CsvFiles
from penstock.io.delta import DeltaChangelog, DeltaRows, DeltaTable
from penstock.io.files import Files
from penstock.io.json_files import JsonFiles
from penstock.io.kafka import Kafka, KafkaTopic
from penstock.io.parquet_files import ParquetFiles
from penstock.io.postgres import PostgresChangelog, PostgresTable
from penstock.io.print_rows import Print
from penstock.io.sink import SinkTarget
from penstock.io.source import Source
from penstock.io.table_files import TableFiles
from penstock.io.uri_parts import Uri

_ENDINGS: Mapping[str, str] = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}


def parse_source(uri: str) -> Source:
    """The source that a URI names. Raises `BadUri`, saying which there are."""
    found = Uri.of(uri)
    form, plus, kind = found.scheme.rpartition("+")
    make = _SOURCES.get(kind if found.scheme else _ENDINGS.get(found.ending, ""))
    wrap = _FORMS.get(form) if plus else _plain
    if make is None or wrap is None:
        raise found.error(
            " names no source" if found.scheme else " does not say which kind of files it is",
            f"write {', '.join(f'{name}:...' for name in _SOURCES)}, "
            f"{', '.join(f'{name}+json:PATH' for name in _FORMS)}, "
            f"or a path that ends in {', '.join(_ENDINGS)}",
        )
    return wrap(found, make)


def parse_sink(uri: str) -> SinkTarget:
    """The sink that a URI names. Raises `BadUri`, saying which there are."""
    found = Uri.of("print:" if uri == "-" else uri)
    make = _SINKS.get(found.scheme)
    if make is None:
        raise found.error(
            " names no sink",
            "write changelog:PATH, table:PATH?key=COLUMN,..., delta:PATH?key=COLUMN,..., "
            "postgresql://USER@HOST/DATABASE?table=TABLE&key=COLUMN,..., kafka:SERVERS/TOPIC, print: or -",
        )
    return make(found)


# --- sources -------------------------------------------------------------------------------

Make = Callable[[Uri, tuple[str, ...]], Source]


def _files(kind: type[Files]) -> Make:
    def make(uri: Uri, known: tuple[str, ...]) -> Source:
        dead_letter, per_tick = uri.take("dead_letter"), uri.number("files_per_tick")
        uri.refuse_rest(*known, "dead_letter", "files_per_tick")
        return kind(uri.need_path(), dead_letter=dead_letter, files_per_tick=per_tick)

    return make


def _delta_rows(uri: Uri, known: tuple[str, ...]) -> Source:
    version, per_tick = uri.number("version", 0), uri.number("versions_per_tick")
    uri.refuse_rest(*known, "version", "versions_per_tick")
    return DeltaRows(uri.need_path(), version=version, versions_per_tick=per_tick)


def _topic_of(uri: Uri) -> tuple[str, str]:
    servers, _, topic = uri.path.removeprefix("//").rpartition("/")
    if not servers or not topic:
        raise uri.error(" names no servers and topic", "write kafka:HOST:PORT,HOST:PORT/TOPIC")
    return servers, topic


def _kafka(uri: Uri, known: tuple[str, ...]) -> Source:
    return Kafka(*_topic_of(uri), options=uri.rest())


_SOURCES: Mapping[str, Make] = {
    "json": _files(JsonFiles),
    "csv": _files(CsvFiles),
    "parquet": _files(ParquetFiles),
    "delta": _delta_rows,
    "kafka": _kafka,
}


def _plain(uri: Uri, make: Make) -> Source:
    return make(uri, ())


def _debezium(uri: Uri, make: Make) -> Source:
    epoch: Any = uri.take("epoch")
    return Debezium(make(uri, ("epoch",)), epoch=epoch)


def _delta_changes(uri: Uri, make: Make) -> Source:
    return DeltaChanges(make(uri, ()))


def _operations(uri: Uri, make: Make) -> Source:
    column = uri.need("column")
    insert, delete, ignore = (uri.words(name) or () for name in ("insert", "delete", "ignore"))
    if not insert and not delete:
        raise uri.error(" says for no operation what it means", "write ...?column=op&insert=I&delete=D")
    return Operations(make(uri, ("column", "insert", "delete", "ignore")), column, insert, delete, ignore)


_FORMS: Mapping[str, Callable[[Uri, Make], Source]] = {
    "debezium": _debezium,
    "deltachanges": _delta_changes,
    "operations": _operations,
}


# --- sinks ---------------------------------------------------------------------------------


def _changelog(uri: Uri) -> SinkTarget:
    uri.refuse_rest()
    return Changelog(uri.need_path())


def _table(uri: Uri) -> SinkTarget:
    key, buckets = uri.words("key"), uri.number("buckets")
    uri.refuse_rest("key", "buckets")
    return TableFiles(uri.need_path(), key, buckets or 16)


def _delta(uri: Uri) -> SinkTarget:
    key, app = uri.words("key"), uri.take("app") or "penstock"
    uri.refuse_rest("key", "app")
    path = uri.need_path()
    return DeltaTable(path, key, app=app) if key else DeltaChangelog(path, app=app)


def _postgres(uri: Uri) -> SinkTarget:
    table, key, schema = uri.need("table"), uri.words("key"), uri.take("schema")
    query = urlencode(uri.rest())
    url = f"{uri.scheme}:{uri.path}" + (f"?{query}" if query else "")
    return PostgresTable(url, table, key, schema) if key else PostgresChangelog(url, table, schema)


def _kafka_topic(uri: Uri) -> SinkTarget:
    key = uri.words("key")
    return KafkaTopic(*_topic_of(uri), key=key, options=uri.rest())


def _print(uri: Uri) -> SinkTarget:
    uri.refuse_rest()
    if uri.path:
        raise BadUri(f"{uri.shown!r}: print: takes no path", fix="write print: or -", uri=uri.shown)
    return Print()


_SINKS: Mapping[str, Callable[[Uri], SinkTarget]] = {
    "changelog": _changelog,
    "table": _table,
    "delta": _delta,
    "postgres": _postgres,
    "postgresql": _postgres,
    "kafka": _kafka_topic,
    "print": _print,
}
