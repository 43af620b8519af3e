"""Pages that are made from the code are up to date, and complete."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from headrace.expr.functions import CATALOGUE
from headrace.operators import all_operators
from tests.docs import commands_page, errors_page, functions_page, operators_page
from tests.docs.extras import extras_of
from tests.docs.pages import DOCS, ROOT
from tests.golden import assert_golden
from tests.operators.examples import EXAMPLES

PAGES: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands_page.page,
    "reference/errors.md": errors_page.page,
    "reference/functions.md": functions_page.page,
    "reference/operators/index.md": operators_page.page,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_the_code_says(name: str) -> None:
    assert_golden(DOCS / name, PAGES[name]())


def test_every_error_has_a_code_of_its_own_and_a_way_out() -> None:
    classes = errors_page.error_classes()
    assert len({c.code for c in classes}) == len(classes)
    bases = {c for c in classes if c.code.endswith("00")}
    messages = errors_page.messages()
    assert [c.__name__ for c in classes - bases if "Fix: " not in messages.get(c.code, "")] == []


def test_the_page_on_installing_names_the_extras_of_each_tutorial() -> None:
    rows = re.findall(r"\(\.\./tutorials/(\S+)\) \| (.*) \|", (DOCS / "how-to/install.md").read_text("utf-8"))
    told = {name: sorted(re.findall(r"`(\w+)`", extras)) for name, extras in rows}
    pages = (DOCS / "tutorials").glob("*.md")
    assert told == {page.name: sorted(extras_of(page) or ()) for page in pages}


def test_every_function_has_an_example() -> None:
    assert not [name for name, function in CATALOGUE.items() if function.meaning and not function.example]


def test_every_operator_with_an_example_is_in_the_table() -> None:
    assert set(EXAMPLES) <= set(all_operators())


@pytest.mark.parametrize("cell", ["left out: nobody reads it", "| |", "|  |"])
def test_no_operator_is_without_an_answer(cell: str) -> None:
    assert cell not in operators_page.page()


def test_every_environment_variable_is_told() -> None:
    page = (DOCS / "reference" / "configuration.md").read_text("utf-8")
    source = "".join(p.read_text("utf-8") for p in (ROOT / "src").rglob("*.py"))
    assert {name for name in re.findall(r"\bHEADRACE_[A-Z]+\b", source) if name not in page} == set()
