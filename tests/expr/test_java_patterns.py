"""Regular expressions of Java and time patterns of Spark: what is refused, by name."""

from __future__ import annotations

import pytest

from headrace import col
from headrace import functions as f
from headrace.errors import EvaluationError, WrongType
from headrace.expr.check import check
from headrace.expr.java_patterns import java_pattern, java_replacement
from headrace.expr.time_patterns import format_pattern, parse_pattern
from tests.expr.random_expressions import SCHEMA


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("[a-z&&[^b]]", "intersection"),
        ("[a[b]]", "class within a class"),
        ("[]a]", "starts with a bracket"),
        (r"\Ga", r"the escape \G"),
        (r"\p{IsGreek}", "the property 'IsGreek'"),
        (r"(?i)\p{Lu}", "within"),
        ("(?u)a", "the flag 'u'"),
        (r"(?<=a+)b", "fixed-width"),
        (r"\1(a)", "before its end"),
        ("a**", "repetition of a repetition"),
        ("*a", "repeats nothing"),
        ("a{x}", "brace"),
        ("(a", "does not end"),
        ("a)", "closes nothing"),
        ("a\\", "unexpected end"),
        (r"\b{g}", "boundary"),
    ],
)
def test_what_python_cannot_express_is_refused_by_name(pattern: str, what: str) -> None:
    with pytest.raises(EvaluationError, match="has no counterpart here") as error:
        java_pattern(pattern)
    assert what in error.value.what


def test_a_constant_pattern_is_refused_when_the_flow_is_made() -> None:
    with pytest.raises(WrongType, match="intersection"):
        check(f.regexp_like(col.s, "[a&&b]"), SCHEMA)
    with pytest.raises(WrongType, match="no counterpart"):
        check(f.date_format(col.t, "YYYY"), SCHEMA)
    with pytest.raises(WrongType, match="must be a constant"):
        check(f.timestampdiff(col.s, col.t, col.t), SCHEMA)


def test_a_line_ends_as_in_java() -> None:
    assert [java_pattern("a$").search(text) is not None for text in ("a\r\n", "a\n", "a\u2028", "a\n\n")] == [
        True,
        True,
        True,
        False,
    ]
    assert java_pattern("^a.b$").search("a\rb") is None
    assert java_pattern(r"a\z").search("a\n") is None


@pytest.mark.parametrize("text", ["$", "$x", "a\\", "$2", "${name}"])
def test_a_replacement_that_names_no_group_raises(text: str) -> None:
    with pytest.raises(EvaluationError, match="the replacement"):
        java_replacement(java_pattern("(a)"), text)


@pytest.mark.parametrize("pattern", ["YYYY", "ww", "z", "yyyy[-yy]]", "GG", "'open", "SSSSSSSSSS", "u"])
def test_letters_without_a_counterpart_are_refused(pattern: str) -> None:
    with pytest.raises(EvaluationError, match="has no counterpart here"):
        format_pattern(pattern)


@pytest.mark.parametrize("pattern", ["EEE d", "Q yyyy", "y[y]"])
def test_patterns_that_only_format_do_not_parse(pattern: str) -> None:
    format_pattern(pattern)
    with pytest.raises(EvaluationError, match="has no counterpart here"):
        parse_pattern(pattern)
