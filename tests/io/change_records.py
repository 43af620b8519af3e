"""Changes of a table of books, in the forms in which databases tell them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple


class Book(NamedTuple):
    id: int
    title: str | None
    added: datetime
    tags: list[str]


Steps = list[tuple[Book | None, Book | None]]
"""Per change of a row what it was and what it is."""


def book(number: int, title: str | None = None) -> Book:
    return Book(number, title, datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=number), ["a"] * number)


BOOKS: Steps = [
    (None, book(1, "one")),
    (None, book(2)),
    (book(1, "one"), book(1, "eins")),
    (None, book(3, "three")),
    (book(2), None),
    (book(1, "eins"), book(1, "un")),
    (None, book(2, "two")),
]


def now(steps: Steps) -> list[Book]:
    rows: dict[int, Book] = {}
    for was, is_ in steps:
        if was is not None:
            del rows[was.id]
        if is_ is not None:
            rows[is_.id] = is_
    return list(rows.values())


def in_millis(row: Book | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {**row._asdict(), "added": int(row.added.timestamp() * 1000)}


def in_iso(row: Book) -> dict[str, Any]:
    return {**row._asdict(), "added": row.added.isoformat()}


def debezium(steps: Steps) -> list[dict[str, Any]]:
    ops = {(False, True): "c", (True, True): "u", (True, False): "d"}
    return [
        {
            "before": in_millis(was),
            "after": in_millis(is_),
            "op": ops[was is not None, is_ is not None],
            "source": {"table": "books"},
            "ts_ms": 1,
        }
        for was, is_ in steps
    ]


def operations(steps: Steps, words: tuple[str, str] = ("insert", "delete"), column: str = "op") -> list[Any]:
    told: list[Any] = []
    for was, is_ in steps:
        told += [{**in_iso(was), column: words[1]}] if was else []
        told += [{**in_iso(is_), column: words[0]}] if is_ else []
    return told


def lines(records: list[Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)
