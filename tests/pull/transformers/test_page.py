"""`docs/pull-transformers.md`: its examples answer what stands there, and no transformer is missing."""

from __future__ import annotations

import doctest
from pathlib import Path

import penstock.pull
from penstock.pull import transformers

PAGE = Path(__file__).resolve().parents[3] / "docs" / "pull-transformers.md"

ON_OTHER_PAGES = {"flat_map", "flatten"}


def test_the_examples_answer_what_stands_there() -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=flags)
    assert tried
    assert not failed


def test_every_transformer_is_described() -> None:
    text = PAGE.read_text()
    home = transformers.__name__ + "."
    exported = {
        name
        for name in penstock.pull.__all__
        if getattr(penstock.pull, name).__module__.startswith(home) and name[0].islower()
    }
    assert len(exported) > 20
    assert {name for name in exported if f"`{name}(" not in text} == ON_OTHER_PAGES
