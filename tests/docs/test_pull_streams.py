"""The reference of pull-streams names every public piece, and its rules are those of the code."""

from __future__ import annotations

import re

import pytest

import headrace.pull
from headrace import testing
from headrace.pull import dataflow
from headrace.pull.rules.checker import PROFILES, Profile, rules
from tests.docs.pages import DOCS
from tests.docs.pull_rules import BEGIN, BROKEN_BY, END, PAGE, broken, page_with_part
from tests.golden import assert_golden

ALSO_BROKEN = {"S5": ("S2",), "I1": ("I6",)}

HOW_TO_TEST = DOCS / "how-to" / "test-a-flow.md"


def _names_in(text: str) -> set[str]:
    return {name for code in re.findall(r"`+([^`]+)`+", text) for name in re.findall(r"\w+", code)}


def test_every_piece_is_described() -> None:
    page = PAGE.read_text("utf-8").partition(BEGIN)[0]
    pieces = {name for name in headrace.pull.__all__ if name[0].islower()}
    assert {name for name in pieces if not re.search(rf"\b{name}\(", page)} == set()
    assert {*headrace.pull.__all__} - pieces - _names_in(page) == set()


def test_every_name_of_the_dataflow_form_is_on_the_page() -> None:
    section = PAGE.read_text("utf-8").partition("## Dataflow form")[2].partition("\n## ")[0]
    assert {*dataflow.__all__} - _names_in(section) == set()


def test_the_rules_are_those_of_the_code() -> None:
    page = PAGE.read_text("utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    assert_golden(PAGE, page_with_part(page))


@pytest.mark.parametrize("profile", PROFILES)
def test_each_trace_breaks_its_rule_and_no_other(profile: Profile) -> None:
    found = {rule: broken(BROKEN_BY[rule], profile) for rule in rules(profile)}
    assert found == {rule: sorted({rule, *ALSO_BROKEN.get(rule, ())}) for rule in rules(profile)}


def test_there_is_no_trace_without_a_rule() -> None:
    assert list(BROKEN_BY) == list(dict.fromkeys(rule for profile in PROFILES for rule in rules(profile)))


def test_the_tools_for_tests_are_on_the_pages() -> None:
    pages = _names_in(HOW_TO_TEST.read_text("utf-8")) | _names_in(PAGE.read_text("utf-8"))
    assert {*testing.__all__} - pages == set()
