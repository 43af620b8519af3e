"""Calls of functions of JSON in their Spark spelling, on columns of one table, with hostile random texts."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

from headrace.expr.types import DecimalType, Int32
from tests.expr.random_json import json_path, json_text


class Pair(NamedTuple):
    a: Int32 | None
    b: str | None


class V(NamedTuple):
    id: int
    t: str | None
    path: str | None
    name: str | None
    n: int | None
    x: float | None
    d: Annotated[Decimal, DecimalType(38, 10)] | None
    day: date | None
    at: datetime | None
    r: bytes | None
    b: bool | None
    p: Pair | None
    ps: list[Pair | None] | None


def rows(seed: int, count: int) -> list[V]:
    choice = random.Random(seed)

    def perhaps(*values: Any) -> Any:
        return choice.choice(values) if choice.random() < 0.8 else None

    def text() -> str:
        return perhaps("", "a", 'q"\\/', "\x00\x1f\x7f\u2028", "é😀", "\n\t\r\b\f")

    def pair() -> Pair | None:
        return perhaps(Pair(1, "x"), Pair(None, None), Pair(-5, text()))

    return [
        V(
            id,
            json_text(choice, choice.choice((0, 0.3, 1.0))) if choice.random() < 0.95 else None,
            json_path(choice) if choice.random() < 0.9 else None,
            perhaps("a", "b", "", "é", "😀"),
            perhaps(0, -1, 2**62),
            perhaps(0.0, 1.5, 1e10, 1e-5, float("nan"), float("inf"), float("-inf")),
            perhaps(*map(Decimal, ("0E-10", "1.0000000000", "-12345678901234567890.5000000000", "1E-10"))),
            perhaps(date(1, 1, 1), date(2024, 2, 29)),
            perhaps(datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 1, 2, 3, 999_999, UTC)),
            perhaps(b"", b"\xff\x00", b"a" * 100),
            perhaps(True, False),
            pair(),
            perhaps([], [pair(), pair()]),
        )
        for id in range(count)
    ]


PARTS = [
    "get_json_object(t, '$')",
    "get_json_object(t, '$.a')",
    "get_json_object(t, '$.a.b[0]')",
    "get_json_object(t, '$[*].a')",
    "get_json_object(t, '$[0][*]')",
    "get_json_object(t, '$.b[*][*]')",
    "get_json_object(t, path)",
    "get_json_object('[[1, 2], [3]]', path)",
    "get_json_object(t, concat('$.', name))",
    "json_array_length(t)",
    "json_array_length(get_json_object(t, '$.a'))",
    "json_object_keys(t)",
    "size(json_object_keys(get_json_object(t, '$.b')))",
]

_SCHEMAS = [
    "a INT, b STRING, c ARRAY<INT>",
    "a STRUCT<a: INT, b: STRING, c: ARRAY<STRING>>, b ARRAY<STRUCT<a: INT, b: DOUBLE>>, c DECIMAL(5, 2)",
    "a BOOLEAN, b BIGINT, c DECIMAL(38, 10), `é` STRING, `😀` INT",
    "a STRUCT<a: STRUCT<a: STRUCT<a: STRING>>>, b STRUCT<b: INT>, _corrupt_record STRING",
    "a ARRAY<ARRAY<INT>>, b ARRAY<DOUBLE>, c ARRAY<STRUCT<a: INT>>",
    "ARRAY<STRUCT<a: STRING, b: ARRAY<INT>>>",
    "ARRAY<STRING>",
    "ARRAY<ARRAY<DOUBLE>>",
]
_SCHEMAS_OF_MAPS = [
    "MAP<STRING, INT>",
    "MAP<STRING, STRING>",
    "MAP<STRING, MAP<STRING, DOUBLE>>",
    "MAP<STRING, STRUCT<a: INT, b: MAP<STRING, INT>>>",
    "MAP<STRING, ARRAY<INT>>",
    "a MAP<STRING, INT>, b MAP<STRING, STRING>, c ARRAY<MAP<STRING, INT>>, _corrupt_record STRING",
    "a MAP<STRING, STRUCT<a: INT, b: STRING>>, b STRUCT<a: MAP<STRING, ARRAY<STRING>>, b: INT>",
    "ARRAY<MAP<STRING, STRING>>",
    "ARRAY<STRUCT<a: MAP<STRING, BOOLEAN>>>",
]
READ = [
    *(f"from_json(t, '{schema}')" for schema in _SCHEMAS),
    "from_json(t, 'a INT, b STRING').b",
    "from_json(t, 'a INT').a = 1",
]
MAPS = [
    *(f"from_json(t, '{schema}')" for schema in _SCHEMAS_OF_MAPS),
    "from_json(t, 'MAP<STRING, STRING>')[name]",
    "size(from_json(t, 'MAP<STRING, STRING>'))",
    "to_json(from_json(t, 'MAP<STRING, STRING>'))",
    "to_json(map(coalesce(t, ''), n))",
    "to_json(map(coalesce(name, 'x'), ps))",
    "to_json(array(map(coalesce(n, 7), p), map()))",
    "to_json(named_struct('a', map(coalesce(x, 1.5D), x), 'b', map(coalesce(d, 0), at)))",
    "to_json(map(coalesce(day, DATE'1969-12-31'), map(coalesce(at, TIMESTAMP'1969-12-31 23:00:00'), b)))",
    "to_json(map(coalesce(b, true), CAST(NULL AS INT)))",
]
"""Calls that read maps, of texts that repeat no names, and those that write them."""
WRITTEN = [
    "to_json(named_struct('t', t, 'n', n, 'd', d, 'day', day, 'at', at, 'r', r, 'b', b, 'p', p, 'ps', ps))",
    "to_json(named_struct('x', x, 'xs', array(x, 0.1D, -1.5D)))",
    "to_json(p)",
    "to_json(ps)",
    "to_json(array(n, 1))",
    "to_json(array(array(t), array()))",
    "to_json(named_struct('a\"\\\\é😀', 1))",
    "from_json(to_json(p), 'a INT, b STRING')",
    "to_json(from_json(t, 'a STRING, c ARRAY<STRING>'))",
]
