"""Sources and sinks as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import BadUri
from penstock.io import (
    Changelog,
    CsvFiles,
    JsonFiles,
    ParquetFiles,
    Print,
    TableFiles,
    parse_sink,
    parse_source,
)


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        ("json:in", JsonFiles("in")),
        ("CSV:/a/b c/*.txt", CsvFiles("/a/b c/*.txt")),
        ("parquet:in?files_per_tick=3", ParquetFiles("in", files_per_tick=3)),
        ("in/a.jsonl?dead_letter=bad%20rows", JsonFiles("in/a.jsonl", dead_letter="bad rows")),
        ("in/part-?.csv.gz", CsvFiles("in/part-?.csv.gz")),
        (r"C:\data\a.parquet", ParquetFiles(r"C:\data\a.parquet")),
        ("json:a=b", JsonFiles("a=b")),
    ],
)
def test_sources(uri: str, source: object) -> None:
    assert parse_source(uri) == source


@pytest.mark.parametrize(
    ("uri", "sink"),
    [
        ("changelog:out", Changelog("out")),
        ("table:out", TableFiles("out")),
        ("table:out?key=a,b&buckets=4", TableFiles("out", key=("a", "b"), buckets=4)),
        ("-", Print()),
        ("print:", Print()),
    ],
)
def test_sinks(uri: str, sink: object) -> None:
    assert parse_sink(uri) == sink


@pytest.mark.parametrize(
    ("parse", "uri", "text"),
    [
        (parse_source, "kafka:topic", "P302 BadUri: 'kafka:topic' names no source"),
        (parse_source, "in", "P302 BadUri: 'in' does not say which kind of files it is"),
        (parse_source, "json:", "P302 BadUri: 'json:' names no path"),
        (parse_source, "json:a?files_per_tick=0", "files_per_tick is a number from 1, not '0'"),
        (parse_source, "json:a?key=x", "has the option 'key', which is none"),
        (parse_source, "json:a?b=1&c", "its options are not name=value&name=value"),
        (parse_sink, "out", "P302 BadUri: 'out' names no sink"),
        (parse_sink, "changelog:", "names no path"),
        (parse_sink, "table:a?buckets=many", "buckets is a number from 1, not 'many'"),
        (parse_sink, "print:a", "print: takes no path"),
    ],
)
def test_what_is_wrong_is_said(parse: Callable[[str], Any], uri: str, text: str) -> None:
    with pytest.raises(BadUri) as raised:
        parse(uri)
    assert text in str(raised.value)
    assert raised.value.facts["uri"] == uri
