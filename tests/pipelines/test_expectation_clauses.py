"""Clauses of expectations in SQL: found wherever Spark's parser would see them, and blanked in place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.expectation_clauses import cut_expectations
from headrace.pipelines.expectations import OnViolation

FILE = Path("a.sql")

CASES = {
    "all columns go": (
        "CREATE MATERIALIZED VIEW a (CONSTRAINT x EXPECT (b > 1)) AS SELECT 1 AS b",
        "CREATE MATERIALIZED VIEW a AS SELECT 1 AS b",
        [("a", "x", "b > 1", OnViolation.WARN)],
    ),
    "between columns": (
        (
            "create or refresh streaming table if not exists d.`a b` (b DECIMAL(3, 1), constraint `x y` "
            "expect (b in (1, (2))) on violation drop row, c MAP<INT, STRUCT<d: INT, e: INT>>) as select 1"
        ),
        (
            "create streaming table if not exists d.`a b` (b DECIMAL(3, 1), c MAP<INT, STRUCT<d: INT, "
            "e: INT>>) as select 1"
        ),
        [("d.`a b`", "x y", "b in (1, (2))", OnViolation.DROP)],
    ),
    "before columns": (
        (
            "CREATE STREAMING TABLE a (CONSTRAINT x EXPECT (b > 1), CONSTRAINT y EXPECT (c) "
            "ON VIOLATION FAIL UPDATE, b INT, c BOOLEAN)"
        ),
        "CREATE STREAMING TABLE a (b INT, c BOOLEAN)",
        [("a", "x", "b > 1", OnViolation.WARN), ("a", "y", "c", OnViolation.FAIL)],
    ),
    "quotes and comments": (
        (
            "CREATE TEMPORARY VIEW a (CONSTRAINT `a``b` EXPECT (b <> ')''' AND c <> \"(\\\"\" /* ) */ -- )\n "
            "AND d)) AS SELECT 1"
        ),
        "CREATE TEMPORARY VIEW a AS SELECT 1",
        [("a", "a`b", "b <> ')''' AND c <> \"(\\\"\" /* ) */ -- )\n AND d", OnViolation.WARN)],
    ),
    "not in texts and comments": (
        (
            "/* CREATE MATERIALIZED VIEW a (CONSTRAINT x EXPECT (b)) /* */ ; */ SELECT 'CREATE "
            "MATERIALIZED VIEW a (CONSTRAINT x EXPECT (b))'; -- CREATE OR REFRESH STREAMING TABLE a\n"
            "SELECT 2 AS EXPECT"
        ),
        None,
        [],
    ),
    "other constraints and statements": (
        (
            "CREATE MATERIALIZED VIEW a (b INT, CONSTRAINT x CHECK (b > 1)) AS SELECT 1; REFRESH TABLE a; "
            "CREATE OR REPLACE TEMPORARY VIEW expect AS SELECT 1"
        ),
        None,
        [],
    ),
    "in a later statement": (
        "SET a = 'x;y'; CREATE MATERIALIZED VIEW a (CONSTRAINT x EXPECT (b)) AS SELECT 1; SELECT 1",
        "SET a = 'x;y'; CREATE MATERIALIZED VIEW a AS SELECT 1; SELECT 1",
        [("a", "x", "b", OnViolation.WARN)],
    ),
    "a raw text that ends in a backslash": (
        "CREATE MATERIALIZED VIEW a (CONSTRAINT x EXPECT (b <> r'\\')) AS SELECT 1",
        "CREATE MATERIALIZED VIEW a AS SELECT 1",
        [("a", "x", "b <> r'\\'", OnViolation.WARN)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_clauses_are_blanked_and_found(name: str) -> None:
    text, cut, expected = CASES[name]
    remaining, clauses = cut_expectations(text, FILE)
    assert "".join(remaining.split()) == "".join((cut or text).split())
    assert len(remaining) == len(text)
    assert [
        (each.dataset, each.expectation.name, each.expectation.condition, each.expectation.on_violation)
        for each in clauses
    ] == expected


PIECES = st.sampled_from(
    [
        *(
            "CREATE ",
            "OR REFRESH ",
            "MATERIALIZED VIEW ",
            "STREAMING TABLE ",
            "a ",
            "(",
            ")",
            ",",
            ";",
            "\n",
            "\r\n",
        ),
        *(
            "CONSTRAINT x EXPECT (b > 1)",
            " ON VIOLATION DROP ROW",
            "b INT",
            "'",
            '"',
            "`",
            "--",
            "/*",
            "*/",
            "é",
            "<",
        ),
    ]
)


@given(st.lists(PIECES, max_size=14).map("".join))
def test_what_remains_keeps_its_place_and_has_no_clause_left(text: str) -> None:
    try:
        remaining, clauses = cut_expectations(text, FILE)
    except Exception as error:
        assert type(error).__name__ == "BadDefinition"  # noqa: PT017
        return
    assert len(remaining) == len(text)
    assert all(now in (was, " ") for was, now in zip(text, remaining, strict=True))
    assert [at for at, sign in enumerate(text) if sign in "\r\n"] == [
        at for at, sign in enumerate(remaining) if sign in "\r\n"
    ]
    for each in clauses:
        line = text.splitlines()[each.expectation.location.line - 1] if "\r" not in text else "CONSTRAINT"
        assert "CONSTRAINT" in line
    assert cut_expectations(remaining, FILE) == (remaining, [])


def test_decorators_are_imported_without_spark() -> None:
    code = (
        "import sys, headrace.pipelines as p; p.expect_or_drop('x', 'y'); "
        "print(sorted({'pyspark', 'py4j', 'pyarrow', 'polars'} & sys.modules.keys()))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
