"""`docs/pull-rules.md` says what the rules are: its sentences, its examples and its comparison."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from penstock.pull.rules.checker import PROFILES, Profile, check, rules
from penstock.pull.rules.trace_file import read_trace
from tests.cli.test_trace import BROKEN

PATH = Path(__file__).resolve().parents[3] / "docs" / "pull-rules.md"
PAGE = PATH.read_text(encoding="utf-8")
RULES = {
    rule: (sentence, set(broken.split()), trace)
    for rule, sentence, broken, trace in re.findall(
        r"\*\*(\w+)\.\*\* ([^\n]+)\n\n```trace ([^\n]+)\n(.*?)```", PAGE, re.DOTALL
    )
}
ROWS = re.findall(r"^\| ([^|]+) \| `([^`]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
HOLES = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)


def broken(trace: str, profile: Profile) -> list[str]:
    return sorted({violation.rule for violation in check(read_trace(trace), profile)})


def test_the_page_has_every_rule_and_no_other() -> None:
    assert list(RULES) == [rule for profile in PROFILES for rule in rules(profile)]


@pytest.mark.parametrize("profile", PROFILES)
def test_sentences_are_those_of_the_code_and_examples_break_what_they_say(profile: Profile) -> None:
    for rule, sentence in rules(profile).items():
        told, breaks, trace = RULES[rule]
        assert told == sentence
        assert rule in breaks
        assert broken(trace, profile) == sorted(breaks), rule


def test_the_comparison_is_true() -> None:
    assert len(ROWS) > 10
    for about, trace, *told in ROWS:
        found = [", ".join(broken(trace, profile)) or "ok" for profile in PROFILES]
        assert found == told, about


def test_what_strict_says_where_it_says_less_than_the_checker_that_it_follows_is_true() -> None:
    assert len(HOLES) == 6
    for trace, told, _ in HOLES:
        assert ", ".join(broken(trace, "strict")) == told, trace


def test_what_the_page_shows_is_what_comes_out() -> None:
    assert doctest.testfile(str(PATH), module_relative=False).failed == 0
    assert BROKEN in PAGE
