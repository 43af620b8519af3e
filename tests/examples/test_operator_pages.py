"""The examples on the pages about operators run as they stand there."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["operators-folds.md"])
def test_examples_on_a_page_answer_what_stands_there(page: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, tried = doctest.testfile(str(DOCS / page), module_relative=False, optionflags=flags)
    assert tried
    assert not failed
