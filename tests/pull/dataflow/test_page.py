"""`docs/pull-dataflow.md`: its examples answer what stands there, and no module is missing."""

from __future__ import annotations

import doctest
from pathlib import Path

from penstock.pull import dataflow

PAGE = Path(__file__).resolve().parents[3] / "docs" / "pull-dataflow.md"


def test_examples_answer_what_stands_there() -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=flags)
    assert tried
    assert not failed


def test_every_public_name_is_told() -> None:
    page = PAGE.read_text()
    assert [name for name in dataflow.__all__ if name not in page] == []
