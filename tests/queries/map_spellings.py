"""Calls of functions of maps in their Spark spelling, on columns of one table, with random rows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

from headrace.expr.types import DecimalType, Int32


class Pair(NamedTuple):
    a: Int32
    b: str | None


class V(NamedTuple):
    id: int
    i: Int32 | None
    s: str | None
    x: float | None
    day: date | None
    m: dict[str, Int32 | None] | None
    k: dict[str, Int32]
    o: dict[str, int | None] | None
    f: dict[float, float | None] | None
    d: dict[date, Annotated[Decimal, DecimalType(5, 2)]] | None
    mm: dict[Int32, dict[str, int] | None] | None
    ms: list[dict[str, Int32] | None] | None
    ks: list[str]
    pairs: list[Pair]
    pns: list[Pair | None] | None


def rows(seed: int) -> list[V]:
    choice = random.Random(seed)

    def perhaps(draw: Callable[[], Any]) -> Any:
        return draw() if choice.random() < 0.8 else None

    def number() -> int:
        return choice.choice([0, 1, 2, -1, 3])

    def real() -> float:
        return choice.choice([0.0, 1.5, math.nan, -2.0])

    def text() -> str:
        return choice.choice(["", "a", "b", "c", "a:1", "é"])

    def day() -> date:
        return date(2024, 1, choice.randrange(28, 32))

    def mapping(key: Callable[[], Any], value: Callable[[], Any]) -> dict[Any, Any]:
        return {key(): value() for _ in range(choice.randrange(4))}

    def numbers() -> dict[str, int]:
        return mapping(text, number)

    def pairs(pair: Callable[[], Any]) -> list[Any]:
        # Keys that differ, so that a map can be made of them.
        return [pair() and Pair(at, perhaps(text)) for at in range(choice.randrange(3))]

    return [
        V(
            id,
            perhaps(number),
            perhaps(text),
            perhaps(real),
            perhaps(day),
            perhaps(lambda: mapping(text, lambda: perhaps(number))),
            numbers(),
            perhaps(lambda: mapping(text, lambda: perhaps(number))),
            perhaps(lambda: mapping(real, lambda: perhaps(real))),
            perhaps(lambda: mapping(day, lambda: Decimal(number()) / 4)),
            perhaps(lambda: mapping(number, lambda: perhaps(numbers))),
            perhaps(lambda: [perhaps(numbers) for _ in range(choice.randrange(3))]),
            list(numbers()),
            pairs(lambda: True),
            perhaps(lambda: pairs(lambda: perhaps(lambda: True))),
        )
        for id in range(60)
    ]


EXPRESSIONS = {
    "parts": [
        "m['a']",
        "m[s]",
        "m.a",
        "k['a']",
        "f[x]",
        "f[-0.0D]",
        "f[double('nan')]",
        "d[day]",
        "mm[i]['a']",
        "mm[id]",
        "element_at(m, s)",
        "element_at(k, 'b')",
        "try_element_at(m, s)",
        "element_at(f, i)",
        "try_element_at(ms, 1)['a']",
        "map('a', i, 'b', id)[s]",
        "map_keys(m)",
        "map_keys(f)",
        "map_values(m)",
        "map_values(k)",
        "map_values(mm)",
        "map_entries(m)",
        "map_entries(d)",
        "get(map_entries(m), 0).value",
        "map_contains_key(m, s)",
        "map_contains_key(f, x)",
        "map_contains_key(map('a', 1), s)",
        "map_contains_key(d, date'2024-01-29')",
        "size(m)",
        "cardinality(k)",
        "size(map())",
        "m IS NULL",
        "m IS NOT NULL",
    ],
    "made of others": [
        "map('a', i)",
        "map(id, s, id + 1, 'x')",
        "map(coalesce(x, 0), x)",
        "map('b', 1, 'a', id)",
        "map('b', 1, 'a', 2.5)",
        "map(id, m)",
        "map(1, 'a', 2, null)",
        "map(struct(id, s), array(x))",
        "map(array(x), 1)",
        "map(-0.0D, id, 1, -0.0D)",
        "map(1, map('a', array(date'2024-01-01')))",
        "map_from_arrays(ks, transform(ks, e -> length(e)))",
        "map_from_arrays(map_keys(m), map_values(m))",
        "map_from_arrays(array(id, -1), array(s, 'x'))",
        "map_from_entries(pairs)",
        "map_from_entries(pns)",
        "map_from_entries(map_entries(m))",
        "map_from_entries(array(struct(id, s)))",
        "map_concat(m, map('z', i))",
        "map_concat(map('y', 1), k, map('z', 2L))",
        "map_concat(map(id, m), map(-1, k))",
        "map_concat(f, map(7, 1))",
        "str_to_map(s)",
        "str_to_map(s || ',p:2,q')",
        "str_to_map('a=1;b=2;' || id, ';', '=')",
        "str_to_map('x:1;y.2', '[;|]', '[:.]')",
        "str_to_map('a:1', ',', s)",
        "coalesce(m, map('q', 9))",
        "if(id % 2 = 0, m, k)",
        "CASE WHEN id > 9 THEN m ELSE map() END",
        "array(m, k)",
        "struct(m, id)",
        "struct(m, id).m['a']",
        "transform(ms, e -> e['a'])",
        "filter(ms, e -> map_contains_key(e, 'a'))",
        "transform(ks, e -> map(e, id))",
        "aggregate(pairs, map(-1, 'x'), (t, e) -> map_concat(t, map(e.a, e.b)))",
        "aggregate(map_entries(k), 0, (t, e) -> t + e.value)",
        "concat(ms, array(k))",
        "flatten(array(ms, array(k)))",
        "slice(ms, 1, 1)",
        "array_compact(ms)",
        "array_repeat(m, 2)",
        "array_sort(map_keys(m))",
    ],
    "casts": [
        "cast(m AS MAP<STRING, BIGINT>)",
        "cast(k AS MAP<STRING, STRING>)",
        "cast(d AS MAP<STRING, DOUBLE>)",
        "cast(mm AS MAP<BIGINT, MAP<STRING, STRING>>)",
        "cast(f AS MAP<STRING, STRING>)",
        "cast(ms AS ARRAY<MAP<STRING, DOUBLE>>)",
        "cast(null AS MAP<STRING, INT>)",
        "cast(map() AS MAP<STRING, INT>)",
        "cast(map_filter(f, (k, v) -> k > 0 AND v = 1.5) AS MAP<STRING, DECIMAL(10, 2)>)",
    ],
    "functions of entries": [
        "transform_keys(m, (k, v) -> k || '!')",
        "transform_keys(k, (k, v) -> struct(k, v, id))",
        "transform_keys(f, (k, v) -> k + 1)",
        "transform_values(m, (k, v) -> v + i)",
        "transform_values(m, (k, v) -> k || cast(v AS STRING))",
        "transform_values(mm, (k, v) -> transform_values(v, (k2, v2) -> v2 * k))",
        "transform_values(mm, (k, v) -> size(v))",
        "map_filter(m, (k, v) -> v > 0)",
        "map_filter(m, (k, v) -> k = s)",
        "map_filter(f, (k, v) -> k = v)",
        "map_filter(mm, (k, v) -> exists(map_keys(v), e -> e = s))",
        "map_zip_with(m, o, (k, a, b) -> coalesce(a, 0) + coalesce(b, 0))",
        "map_zip_with(m, k, (k, a, b) -> struct(k, a, b))",
        "map_zip_with(f, map(0, 'a', 7, s), (k, a, b) -> a > k OR b = s)",
        "map_zip_with(mm, mm, (k, a, b) -> a['a'] + b['b'])",
    ],
}
