"""Regular expressions that a row holds: Python's matches of their translation are Java's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

import headrace as hr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PATTERNS = [
    *(
        "a",
        ".",
        "a.b",
        "^a",
        "a$",
        "(?m)^a",
        "(?m)a$",
        r"\Aa",
        r"a\Z",
        r"a\z",
        "(?s)a.b",
        "(?i)ss|é",
        "[^a-c]",
        r"\bb",
    ),
    *(
        r"\d+",
        r"\D",
        r"\w+",
        r"\W",
        r"\s",
        r"\S+",
        r"\h",
        r"\v",
        r"\R",
        r"\p{L}+",
        r"\p{Lu}",
        r"\P{L}",
        r"\pN",
    ),
    *(
        r"\p{Alpha}",
        r"\p{Punct}",
        r"[\p{Upper}\d]",
        r"[\W_]",
        r"[\w-.]",
        "[a-]",
        "[-a]",
        r"[\]\[]",
        "a{2}",
        "a{1,}?",
    ),
    *(
        "a++a",
        "(?>a|ab)b",
        r"(a)(b)?\1",
        r"(?<x>[ab])\k<x>",
        "(?=a)..",
        "(?<=a)b",
        "(?<!a)b",
        "(?i:A)b",
        "a|b|",
        "",
    ),
    *(
        r"\Qa.b\E",
        r"\x61",
        r"\u0062",
        r"\t",
        r"\x{e9}",
        r"\.",
        "(a|b)+",
        "(a*)b",
        "x*",
        "(?-i)a",
        "a(?i)B",
        r"\0141",
    ),
    *(r"\B", "a?b??", "(?:a|(b))*", "[^\n]+", "é"),
]
TEXTS = [
    *(
        "",
        "a",
        "aab",
        "ab",
        "a\nb",
        "b\r\na",
        "a\n",
        "a\r\n",
        "a\r",
        "a\u2028b",
        "aa bb",
        "a.b-c_d",
        "Straße SS ss",
        "éÉ",
    ),
    *(
        "12 ١٢ a1",
        "A\u0130i\u0131I",
        "[a]",
        "ab\tab",
        "\u00a0x\u0085y",
        "abab",
        "b",
        "aaa",
        "x\x0by",
        "Σς ab",
    ),
]


class Pair(NamedTuple):
    id: int
    s: str
    p: str


def test_regular_expressions_mean_what_they_mean_in_java(spark: SparkSession) -> None:
    from headrace.io.arrow import table_to_rows
    from headrace.queries.catalyst_plan import parse_schema

    pairs = [Pair(at, s, p) for at, (p, s) in enumerate((p, s) for p in PATTERNS for s in TEXTS)]
    spark.createDataFrame(pairs, "id bigint, s string, p string").coalesce(1).createOrReplaceTempView("pairs")
    text = (
        "SELECT id, s, p, regexp_like(s, p) AS l, regexp_extract_all(s, p, 0) AS e,"
        " regexp_replace(s, p, '<$0>') AS r, split(s, p) AS t, split(s, p, 2) AS u,"
        " regexp_instr(s, p) AS i FROM pairs"
    )
    frame = spark.sql(text)
    expected = set(table_to_rows(frame.toArrow(), parse_schema(frame.schema.jsonValue())))
    engine = hr.Engine(hr.sql(text, tables={"pairs": Pair}, spark=spark))
    mine = {row[:-1] for row in engine.tick(pairs=pairs)["answer"].raw}
    assert sorted(mine - expected) == []
    assert len(mine) == len(expected)
