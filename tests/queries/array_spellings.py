"""Calls of functions of lists in their Spark spelling, on columns of one table, with random rows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import date
from typing import Any, NamedTuple

from headrace.expr.types import Int32


class Pair(NamedTuple):
    a: Int32 | None
    b: str | None


class V(NamedTuple):
    id: int
    i: Int32 | None
    n: int | None
    s: str | None
    x: float | None
    day: date | None
    ks: list[Int32]
    ns: list[int | None] | None
    ms: list[int | None] | None
    xs: list[float | None] | None
    ss: list[str | None] | None
    nss: list[list[int | None] | None] | None
    p: Pair | None


def rows(seed: int) -> list[V]:
    choice = random.Random(seed)

    def perhaps(draw: Callable[[], Any]) -> Any:
        return draw() if choice.random() < 0.8 else None

    def some(draw: Callable[[], Any]) -> list[Any]:
        return [draw() for _ in range(choice.randrange(5))]

    def number() -> int:
        return choice.choice([0, 1, 1, 2, -1, 3, 5])

    def real() -> float:
        return choice.choice([0.0, 1.5, math.nan, math.inf, -2.0])

    def text() -> str:
        return choice.choice(["", "a", "b", "a,b", "x,y,z", "é"])

    def numbers() -> list[int | None]:
        return some(lambda: perhaps(number))

    return [
        V(
            id,
            perhaps(number),
            perhaps(number),
            perhaps(text),
            perhaps(real),
            perhaps(lambda: date(2024, 1, choice.randrange(28, 32))),
            some(number),
            perhaps(numbers),
            perhaps(numbers),
            perhaps(lambda: some(lambda: perhaps(real))),
            perhaps(lambda: some(lambda: perhaps(text))),
            perhaps(lambda: some(lambda: perhaps(numbers))),
            perhaps(lambda: Pair(perhaps(number), perhaps(text))),
        )
        for id in range(60)
    ]


EXPRESSIONS = {
    "elements": [
        "split(concat(s, ',x'), ',')[0]",
        "split(s, ',')[0]",
        "get(split(s, ','), 1)",
        "get(ns, i)",
        "array(n, 1)[1]",
        "if(size(ns) > 0, ns[0], 7)",
        "if(size(ns) > 0, element_at(ns, -1), 7)",
        "try_element_at(ns, 2)",
        "try_element_at(ns, -2)",
        "try_element_at(ks, nullif(i, 0))",
        "size(ns)",
        "cardinality(ks)",
        "array_size(ns)",
        "array_contains(ns, 1)",
        "array_contains(ns, n)",
        "array_contains(ks, n)",
        "array_contains(xs, x)",
        "array_contains(xs, x / 0.5D)",
        "array_contains(nss, array(1L))",
        "array_position(ns, i)",
        "array_position(xs, x)",
        "array_min(ns)",
        "array_max(xs)",
        "array_min(ss)",
        "array_max(nss)",
        "array_max(array(p, named_struct('a', 1, 'b', 'x')))",
        "arrays_overlap(ns, ms)",
        "arrays_overlap(xs, array(0.0D))",
        "arrays_overlap(ns, array(7L))",
        "array_join(ss, '-')",
        "array_join(ss, s)",
        "array_join(ss, '-', s)",
        "array_join(ns, ',', '?')",
    ],
    "casts": [
        "CAST(ns AS STRING)",
        "CAST(xs AS STRING)",
        "CAST(ss AS STRING)",
        "CAST(nss AS STRING)",
        "CAST(array(day) AS STRING)",
        "CAST(p AS STRING)",
        "CAST(named_struct('q', ns, 'r', p, 's', s) AS STRING)",
        "CAST(map(id, ns, id + 1, ms) AS STRING)",
        "CAST(map(array(id), p) AS STRING)",
        "CAST(p AS STRUCT<c: BIGINT, d: STRING>)",
        "CAST(array(p, p) AS ARRAY<STRUCT<c: STRING, d: STRING>>)",
        "CAST(named_struct('q', p, 'r', ns) AS STRUCT<u: STRUCT<v: DOUBLE, w: STRING>, x: STRING>)",
        "if(i > 1, p, named_struct('a', n, 'b', 'x'))",
        "aggregate(ks, (0 AS t, 0 AS c), (a, k) -> (a.t + k, a.c + 1), a -> a.t + a.c)",
    ],
    "lists": [
        "array_append(ns, i)",
        "array_append(ks, i)",
        "array_prepend(ks, 1)",
        "array_insert(ns, 2, i)",
        "array_insert(ns, 4, n)",
        "array_insert(ns, -1, n)",
        "array_insert(ns, -2, n)",
        "array_insert(ns, -4, n)",
        "array_insert(ks, nullif(i, 0), n)",
        "array_remove(ns, i)",
        "array_remove(xs, double('nan'))",
        "array_compact(ns)",
        "array_compact(xs)",
        "array_repeat(s, i)",
        "slice(ns, 1, 2)",
        "slice(ns, -2, 2)",
        "slice(ns, 2, 1)",
        "slice(ns, nullif(i, 0), abs(i))",
        "flatten(nss)",
        "flatten(array(ns, ms))",
        "reverse(ns)",
        "concat(ns, ms)",
        "concat(ks, ns, array(1))",
        "sort_array(ns)",
        "sort_array(ns, false)",
        "sort_array(xs)",
        "sort_array(ss, false)",
        "array_sort(ns)",
        "array_sort(nss)",
        "sequence(1, i)",
        "sequence(1L, coalesce(n, 1L) + 2, 2)",
        "sequence(5, 1, -2)",
        "sequence(day, date'2024-01-30')",
        "sequence(date'2024-01-25', day, INTERVAL 2 DAY)",
        "sequence(date'2024-01-25', day, INTERVAL 1 WEEK)",
        "arrays_zip(ns, ss)",
        "arrays_zip(ns, ks, ss).ss",
        "cast(ns AS ARRAY<STRING>)",
        "cast(ks AS ARRAY<DOUBLE>)",
        "cast(nss AS ARRAY<ARRAY<DOUBLE>>)",
        "transform(array(), e -> 1)",
    ],
    "sets": [
        "array_distinct(ns)",
        "array_distinct(xs)",
        "array_distinct(nss)",
        "array_distinct(array(p, p))",
        "array_distinct(array(-0.0D, x, 0.0D))",
        "array_union(ns, ms)",
        "array_union(ks, ms)",
        "array_union(array(-0.0D), xs)",
        "array_intersect(ns, ms)",
        "array_intersect(xs, array(0.0D, double('nan')))",
        "array_except(ns, ms)",
        "array_except(xs, array(0.0D))",
    ],
    "functions of elements": [
        "transform(ns, e -> e + 1)",
        "transform(ns, (e, at) -> e + at + n)",
        "transform(nss, e -> transform(e, f -> f + size(e)))",
        "transform(nss, e -> transform(e, e -> e + 1))",
        "transform(array(p, p), e -> e.a)",
        "filter(ns, e -> e > 1)",
        "filter(ns, (e, at) -> e > at)",
        "filter(ss, e -> e LIKE '%a%' AND e <> s)",
        "exists(ns, e -> e > 1)",
        "exists(ks, e -> e > n)",
        "exists(transform(ks, e -> struct(e AS a, n AS b)), e -> e.a = e.b)",
        "forall(ns, e -> e > 0)",
        "forall(ks, e -> e > 0)",
        "aggregate(ns, 0L, (a, e) -> a + e)",
        "aggregate(ns, 0L, (a, e) -> a + coalesce(e, 0), a -> a * 2)",
        "reduce(ks, '', (a, e) -> a || cast(e AS STRING))",
        "aggregate(ks, struct(1 AS c, 0L s), (a, e) -> struct(a.c + 1 AS c, a.s + e AS s), a -> a.s / a.c)",
        "aggregate(ks, cast(array() AS ARRAY<INT>), (a, e) -> array_prepend(a, e))",
        "zip_with(ns, ss, (a, b) -> coalesce(cast(a AS STRING), b))",
        "zip_with(ns, ms, (a, b) -> a + b)",
        "array_sort(array_compact(ns), (a, b) -> cast(b - a AS INT))",
        "array_sort(ns, (a, b) -> CASE WHEN a IS NULL THEN 1 WHEN b IS NULL THEN -1 ELSE 0 END)",
    ],
}
