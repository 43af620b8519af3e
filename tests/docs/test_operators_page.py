"""docs/reference/operators/index.md is what the planners say today, of every operator."""

from __future__ import annotations

import pytest

from tests.docs.operators_page import PAGE, all_operators, page
from tests.operators.examples import EXAMPLES


def test_the_page_is_up_to_date() -> None:
    assert page() == PAGE.read_text("utf-8"), "run python -m tests.docs.operators_page"


def test_every_operator_with_an_example_is_in_the_table() -> None:
    assert set(EXAMPLES) <= set(all_operators())


@pytest.mark.parametrize("cell", ["left out: nobody reads it", "| |", "|  |"])
def test_no_operator_is_without_an_answer(cell: str) -> None:
    assert cell not in page()
