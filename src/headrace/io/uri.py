"""URIs of sources and sinks for the command line.

json:PATH  csv:PATH  parquet:PATH              sources; a plain path by its ending
    ?dead_letter=FOLDER&files_per_tick=N
csv:PATH?sep=;&quote='&escape=\\&encoding=latin-1&header=false&null=NA&null=-
debezium+json:PATH?epoch=millis                sources of change data, with the options of files
deltachanges+parquet:PATH
operations+csv:PATH?column=op&insert=I&delete=D&ignore=...
delta:PATH?version=N&versions_per_tick=N       source: a Delta table
kafka:SERVERS/TOPIC?OPTION=VALUE&...           source or sink, on Spark; also debezium+kafka:...
clock:10s                                      source: the time, at most this often
changelog:PATH?compact_after=N                 sink: all changes
csv:PATH?sep=;&...                             sink: all changes, as CSV with the options of the source
table:PATH?key=a,b&buckets=N                   sink: the current rows
delta:PATH?key=a,b&app=NAME                    sink: the current rows with a key, otherwise all changes
postgresql://USER@HOST:PORT/DATABASE?table=T&key=a,b&schema=S    sink, likewise
print:  or  -                                  sink: lines on standard output
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from headrace.errors import BadUri, did_you_mean
from headrace.io.change_data import UNAVAILABLE, Debezium, DeltaChanges, Operations, Upserts
from headrace.io.delta import DeltaChangelog, DeltaRows, DeltaTable
from headrace.io.files.changelog import Changelog, CsvChangelog
from headrace.io.files.csv_dialect import CsvDialect
from headrace.io.files.csv_files import CsvFiles
from headrace.io.files.file_source import Files
from headrace.io.files.json_files import JsonFiles
from headrace.io.files.parquet_files import ParquetFiles
from headrace.io.files.table_files import TableFiles
from headrace.io.in_process import Print, TickTime
from headrace.io.kafka import Kafka, KafkaTopic
from headrace.io.postgres import PostgresChangelog, PostgresTable, without_password
from headrace.io.sink import SinkTarget
from headrace.io.source import Source

# One letter is not a scheme: C:\data is a path.
_SCHEME = re.compile(r"[A-Za-z0-9]{2,}(\+[A-Za-z0-9]+)?")
_OPTIONS = re.compile(r"\?(?=[^?=]*=)")


@dataclass(frozen=True, slots=True)
class Uri:
    """Parsed URI. Options are taken one by one; the remaining ones are refused.

    shown:  the whole URI without secrets.
    scheme: in lower case, empty for a plain path.
    """

    shown: str
    scheme: str
    path: str
    options: dict[str, list[str]]

    @classmethod
    def of(cls, text: str) -> Uri:
        """Parse a URI. Raises `BadUri` for options that are not name=value."""
        begin = _OPTIONS.search(text)  # the ? before it is of a pattern: in/part-?.json
        head, query = (text[: begin.start()], text[begin.end() :]) if begin else (text, "")
        scheme, colon, path = head.partition(":")
        if not colon or not _SCHEME.fullmatch(scheme):
            scheme, path = "", head
        # Options of Kafka may hold secrets under many names.
        is_kafka = scheme.lower().rpartition("+")[2] == "kafka"
        shown = f"{head}?..." if query and is_kafka else without_password(text)
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        except ValueError:
            raise BadUri(f"{shown!r}: options must be name=value&name=value", uri=shown) from None
        options: dict[str, list[str]] = {}
        for name, value in pairs:
            options.setdefault(name, []).append(value)
        return cls(shown, scheme.lower(), path, options)

    def error(self, problem: str, fix: str = "") -> BadUri:
        return BadUri(f"{self.shown!r}{problem}", fix=fix, uri=self.shown)

    @property
    def ending(self) -> str:
        name = Path(self.path)
        return Path(name.stem).suffix if name.suffix == ".gz" else name.suffix

    def need_path(self) -> str:
        if not self.path:
            raise self.error(" has no path")
        return self.path

    def take(self, name: str, *others: str) -> str | None:
        """Take an option by any of its names. Raises `BadUri` if it is given twice."""
        found = self.take_all(name, *others)
        if len(found) > 1:
            raise self.error(f" gives {name} twice", f"{name}=one,two for several")
        return found[0] if found else None

    def take_all(self, *names: str) -> list[str]:
        """Take an option that may be given several times, by any of its names."""
        return [value for name in names for value in self.options.pop(name, [])]

    def need(self, name: str) -> str:
        found = self.take(name)
        if not found:
            raise self.error(f" has no option {name}", f"write ...?{name}=...")
        return found

    def words(self, name: str) -> tuple[str, ...] | None:
        """Take a comma-separated option."""
        found = self.take(name)
        words = None if found is None else tuple(found.split(","))
        if words is not None and not all(words):
            raise self.error(f": {name} has an empty word", f"write {name}=one,two, or leave it out")
        return words

    def number(self, name: str, least: int = 1) -> int | None:
        text = self.take(name)
        if text is None:
            return None
        if not text.isdecimal() or int(text) < least:
            raise self.error(f": {name} must be an integer of at least {least}, not {text!r}")
        return int(text)

    def truth(self, name: str) -> bool | None:
        text = self.take(name)
        if text is not None and text.lower() not in ("true", "false"):
            raise self.error(f": {name} must be true or false, not {text!r}")
        return None if text is None else text.lower() == "true"

    def refuse_rest(self, *known: str) -> None:
        """Raise `BadUri` if any option has not been taken."""
        if self.options:
            unknown = next(iter(self.options))
            longer = next((name for name in known if unknown.lower().startswith(name)), unknown)  # separator
            guess = did_you_mean(unknown, known) or did_you_mean(longer, known)
            raise self.error(
                f": unknown option {unknown!r}",
                (f"{guess}\n" if guess else "")
                + (f"known options: {', '.join(known)}" if known else "leave it out"),
            )

    def rest(self) -> Mapping[str, str]:
        """Take all remaining options, to pass them on."""
        return {name: self.take(name) or "" for name in list(self.options)}


_ENDINGS: Mapping[str, str] = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".parquet": "parquet",
}


def parse_source(uri: str) -> Source:
    """Parse the URI of a source. Raises `BadUri` listing the valid forms."""
    found = Uri.of(uri)
    form, plus, kind = found.scheme.rpartition("+")
    make = _SOURCES.get(kind if found.scheme else _ENDINGS.get(found.ending, ""))
    wrap = _FORMS.get(form) if plus else _plain
    if make is None or wrap is None:
        is_misspelt = found.scheme and make is None
        guess = did_you_mean(kind, _SOURCES, lambda near: f"{near}:...") if is_misspelt else ""
        raise found.error(
            " is not the URI of a source" if found.scheme else " does not name the file format",
            guess
            or f"write {', '.join(f'{name}:...' for name in _SOURCES)}, "
            f"{', '.join(f'{name}+json:PATH' for name in _FORMS)}, "
            f"or a path that ends in {', '.join(_ENDINGS)}",
        )
    return wrap(found, make)


def parse_sink(uri: str) -> SinkTarget:
    """Parse the URI of a sink. Raises `BadUri` listing the valid forms."""
    found = Uri.of("print:" if uri == "-" else uri)
    make = _SINKS.get(found.scheme)
    if make is None:
        raise found.error(
            " is not the URI of a sink",
            "write changelog:PATH, csv:PATH, table:PATH?key=COLUMN,..., delta:PATH?key=COLUMN,..., "
            "postgresql://USER@HOST/DATABASE?table=TABLE&key=COLUMN,..., kafka:SERVERS/TOPIC, print: or -",
        )
    return make(found)


# --- sources -------------------------------------------------------------------------------

Make = Callable[[Uri, tuple[str, ...]], Source]


def _files(kind: type[Files], take: Callable[[Uri], dict[str, Any]], *names: str) -> Make:
    """Return a factory of file sources. take: parses the options of the format, by name."""

    def make(uri: Uri, known: tuple[str, ...]) -> Source:
        dead_letter, per_tick = uri.take("dead_letter"), uri.number("files_per_tick")
        limit = uri.number("max_value_bytes", 1 << 20)
        options = take(uri)
        uri.refuse_rest(*known, *names, "dead_letter", "files_per_tick", "max_value_bytes")
        path = uri.need_path()
        return kind(path, dead_letter=dead_letter, files_per_tick=per_tick, max_value_bytes=limit, **options)

    return make


_CSV = ("sep", "delimiter", "quote", "escape", "encoding", "charset", "header", "null", "nullValue")


def _csv_options(uri: Uri) -> dict[str, Any]:
    given: dict[str, Any] = {
        "sep": uri.take("sep", "delimiter"),
        "quote": uri.take("quote"),
        "escape": uri.take("escape"),
        "encoding": uri.take("encoding", "charset"),
        "header": uri.truth("header"),
        "null": tuple(uri.take_all("null", "nullValue")),
    }
    return {name: value for name, value in given.items() if value is not None}


def _no_options(uri: Uri) -> dict[str, Any]:
    return {}


def _delta_rows(uri: Uri, known: tuple[str, ...]) -> Source:
    version, per_tick = uri.number("version", 0), uri.number("versions_per_tick")
    uri.refuse_rest(*known, "version", "versions_per_tick")
    return DeltaRows(uri.need_path(), version=version, versions_per_tick=per_tick)


def _topic_of(uri: Uri) -> tuple[str, str]:
    servers, _, topic = uri.path.removeprefix("//").rpartition("/")
    if not servers or not topic:
        raise uri.error(" lacks servers or topic", "write kafka:HOST:PORT,HOST:PORT/TOPIC")
    return servers, topic


def _kafka(uri: Uri, known: tuple[str, ...]) -> Source:
    return Kafka(*_topic_of(uri), options=uri.rest())


def _clock(uri: Uri, known: tuple[str, ...]) -> Source:
    uri.refuse_rest(*known)
    every = uri.need_path()
    return TickTime(every, soonest=every)


_SOURCES: Mapping[str, Make] = {
    "json": _files(JsonFiles, _no_options),
    "csv": _files(CsvFiles, _csv_options, *_CSV),
    "parquet": _files(ParquetFiles, _no_options),
    "delta": _delta_rows,
    "kafka": _kafka,
    "clock": _clock,
}


def _plain(uri: Uri, make: Make) -> Source:
    return make(uri, ())


def _debezium(uri: Uri, make: Make) -> Source:
    epoch: Any = uri.take("epoch")
    unavailable = uri.take("unavailable")
    return Debezium(make(uri, ("epoch", "unavailable")), epoch=epoch, unavailable=unavailable or UNAVAILABLE)


def _delta_changes(uri: Uri, make: Make) -> Source:
    return DeltaChanges(make(uri, ()))


def _upserts(uri: Uri, make: Make) -> Source:
    return Upserts(make(uri, ()))


def _operations(uri: Uri, make: Make) -> Source:
    column = uri.need("column")
    insert, delete, ignore = (uri.words(name) or () for name in ("insert", "delete", "ignore"))
    if not insert and not delete:
        raise uri.error(" defines no operation", "write ...?column=op&insert=I&delete=D")
    return Operations(make(uri, ("column", "insert", "delete", "ignore")), column, insert, delete, ignore)


_FORMS: Mapping[str, Callable[[Uri, Make], Source]] = {
    "debezium": _debezium,
    "deltachanges": _delta_changes,
    "operations": _operations,
    "upserts": _upserts,
}


# --- sinks ---------------------------------------------------------------------------------


def _changelog(uri: Uri) -> SinkTarget:
    compact_after = uri.number("compact_after")
    uri.refuse_rest("compact_after")
    return Changelog(uri.need_path(), compact_after)


def _csv_changelog(uri: Uri) -> SinkTarget:
    options = _csv_options(uri)
    uri.refuse_rest(*_CSV)
    return CsvChangelog(uri.need_path(), CsvDialect(**options))


def _table(uri: Uri) -> SinkTarget:
    key, buckets = uri.words("key"), uri.number("buckets")
    uri.refuse_rest("key", "buckets")
    return TableFiles(uri.need_path(), key, buckets or 16)


def _delta(uri: Uri) -> SinkTarget:
    key, app = uri.words("key"), uri.take("app") or "headrace"
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
    "csv": _csv_changelog,
    "table": _table,
    "delta": _delta,
    "postgres": _postgres,
    "postgresql": _postgres,
    "kafka": _kafka_topic,
    "print": _print,
}
