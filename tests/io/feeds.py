"""Feeds for tests of readers: a row type, files in a folder, what comes out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from headrace.expr.row_classes import schema_of
from headrace.io import BadRecord, Feed, Source, open_source


class Point(NamedTuple):
    x: int
    label: str | None


class Alike(NamedTuple):
    """Columns that differ by case alone."""

    x: int
    label: str | None
    Label: str | None


class Everything(NamedTuple):
    flag: bool | None
    number: int | None
    real: float | None
    price: Decimal | None
    text: str | None
    octets: bytes | None
    day: date | None
    moment: datetime | None
    point: Point | None
    points: list[Point] | None
    numbers: list[int | None] | None


class Flat(NamedTuple):
    flag: bool | None
    number: int | None
    real: float | None
    price: Decimal | None
    text: str | None
    day: date | None
    moment: datetime | None


def feed(rows: type[Any], name: str = "points", **options: Any) -> Feed:
    return Feed(name, schema_of(rows), **options)


def batches(source: Source, to: Feed, limit: int | None = None) -> Iterator[list[Any]]:
    """What a reader gives until it has nothing more, bad records after the rows."""
    reader = open_source(source, to)
    try:
        while (batch := reader.read(limit)) is not None:
            yield [*batch.rows, *batch.bad]
    finally:
        reader.close()


def read(source: Source, to: Feed) -> list[tuple[Any, ...] | BadRecord]:
    return [record for batch in batches(source, to) for record in batch]


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path
