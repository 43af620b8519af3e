"""Patterns on RE2 match what they match in Python, and are refused where RE2 has no equal."""

from __future__ import annotations

import random

import pytest

from headrace.errors import EvaluationError
from headrace.expr import bounds
from headrace.expr.functions import string_search
from headrace.expr.java_patterns import java_pattern
from headrace.expr.linear_patterns import LinearMatch, linear_pattern

pytest.importorskip("re2", reason="google-re2 is not installed")

ATOMS = [
    *"abAKksxéß\u017f-\n\r.",
    *(r"\d", r"\w", r"\s", r"\W", r"\h", r"\R", r"\.", r"\p{L}", r"\p{Upper}"),
    *("[a-c]", "[^a]", "[^é]", "[aK]", "[sS]", "[kKk]", "[s-sS]", r"[\W]", r"[^\sa]", r"\Q.*\E"),
]
LETTERS = "aabbcAéßKk\u212a\u017fs1 .x\n\r-_\x85\u2028😀"
ENDS = ["", "", "\n", "\r\n", "\r", "\u2028"]


def a_pattern(draw: random.Random, depth: int = 0) -> str:
    kind = draw.random()
    if depth > 3 or kind < 0.45:
        return draw.choice(ATOMS)
    one = a_pattern(draw, depth + 1)
    if kind < 0.6:
        return one + a_pattern(draw, depth + 1)
    if kind < 0.68:
        return f"({one})"
    if kind < 0.78:
        return f"({draw.choice(['?:', '?<name>', ''])}{one}|{a_pattern(draw, depth + 1)})"
    if kind < 0.9:
        return f"(?:{one})" + draw.choice(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?"])
    return draw.choice([f"^{one}", f"{one}$", rf"{one}\z", rf"{one}\Z", f"(?i){one}", f"(?s:{one})"])


def all_matches(pattern: string_search.Pattern, text: str) -> list[tuple[int, int, list[str | None]]]:
    found = string_search._matches_in(pattern, text)  # pyright: ignore[reportPrivateUsage]
    groups = range(pattern.groups + 1)
    return [(match.start(), match.end(), [match[at] for at in groups]) for match in found]


@pytest.mark.seeds(2000, together=500)
def test_the_matches_are_those_of_python(seeds: range) -> None:
    compared = 0
    for seed in seeds:
        draw = random.Random(seed)
        pattern = a_pattern(draw)
        try:
            usual = java_pattern(pattern)
            linear = linear_pattern(pattern)
        except EvaluationError:
            continue
        assert (linear.groups, linear.groupindex) == (usual.groups, dict(usual.groupindex))
        for _ in range(10):
            text = "".join(draw.choices(LETTERS, k=draw.randrange(9))) + draw.choice(ENDS)
            assert all_matches(linear, text) == all_matches(usual, text), (pattern, text)
            compared += 1
    assert compared > 5 * len(seeds)


@pytest.mark.seeds(200, together=200)
def test_like_matches_what_it_matches_elsewhere(seeds: range) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        pattern = "".join(draw.choices(["a", "b", "%", "_", "\\%", "\\_", "é", "."], k=draw.randrange(6)))
        usual, linear = string_search.like_matcher(pattern), bounds.like_matcher(pattern)
        for _ in range(20):
            text = "".join(draw.choices("aab%_é.\n", k=draw.randrange(7)))
            assert (usual(text) is None) == (linear(text) is None), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (r"a(?=b)", "a look-around"),
        (r"(?<!a)b", "a look-around"),
        (r"(?>a)b", "an atomic group"),
        (r"a++", "a possessive repetition"),
        (r"(a)\1", "a back reference"),
        (r"(?<n>a)\k<n>", "a back reference"),
        (r"\bword", r"a boundary of words (\b)"),
        (r"(?m)^a", "(?m) with ^"),
        (r"(?m)a$", "(?m) with $"),
        (r"a$b", "a $ before its end"),
        (r"(?:a$)*", "a repeated $"),
        (r"(?:a*)*", "a repetition of what may be empty"),
        (r"a{1001}", "a part that is too large"),
        (r"(?:(?:\p{L}{100}){100}){10}", "a part that is too large"),
    ],
)
def test_what_re2_cannot_follow_is_refused_by_name(pattern: str, what: str) -> None:
    with pytest.raises(EvaluationError) as refused:
        linear_pattern(pattern)
    assert refused.value.what.startswith(f"the regular expression {pattern!r} has {what}")
    assert "linear time" in refused.value.what


def test_a_pattern_that_is_too_long_is_refused() -> None:
    with pytest.raises(EvaluationError, match="2,000 is the limit"):
        linear_pattern("a" * 2_001)


def test_what_is_wrong_in_java_is_refused_as_elsewhere() -> None:
    with pytest.raises(EvaluationError, match="a bracket that closes nothing"):
        linear_pattern("a)")


def test_matching_is_linear_in_the_text() -> None:
    # A backtracking engine takes time exponential in this length.
    assert linear_pattern("(a|aa)+$").search("a" * 100_000 + "b") is None
    found = linear_pattern("(a|b)*?c").search("ab" * 50_000 + "c")
    assert isinstance(found, LinearMatch)
    assert found.end() == 100_001


def test_half_of_a_surrogate_pair_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="half of a surrogate pair"):
        linear_pattern("a").search("\ud800")
