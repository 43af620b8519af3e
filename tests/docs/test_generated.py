"""Pages that are made from the code are up to date, and complete."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.docs import commands_page, errors_page
from tests.docs.pages import DOCS, ROOT
from tests.golden import assert_golden

PAGES: dict[str, Callable[[], str]] = {
    "reference/commands.md": commands_page.page,
    "reference/errors.md": errors_page.page,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_the_code_says(name: str) -> None:
    assert_golden(DOCS / name, PAGES[name]())


def test_every_error_has_a_code_of_its_own_and_a_way_out() -> None:
    classes = errors_page.error_classes()
    assert len({c.code for c in classes}) == len(classes)
    bases = {c for c in classes if c.code.endswith("00")}
    assert [c.__name__ for c in classes - bases if not errors_page.says_a_way_out(c)] == []


def test_every_environment_variable_is_told() -> None:
    page = (DOCS / "reference" / "configuration.md").read_text("utf-8")
    source = "".join(p.read_text("utf-8") for p in (ROOT / "src").rglob("*.py"))
    assert {name for name in re.findall(r"\bPENSTOCK_[A-Z]+\b", source) if name not in page} == set()
