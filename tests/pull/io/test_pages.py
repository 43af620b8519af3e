"""`docs/pull-sinks.md` and `docs/pull-io.md`: their examples run, and no piece is missing."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

import penstock.pull
from penstock.pull import io, sinks

DOCS = Path(__file__).resolve().parents[3] / "docs"

PAGES = {"pull-sinks.md": sinks, "pull-io.md": io}


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_answer_what_stands_there(page: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, tried = doctest.testfile(str(DOCS / page), module_relative=False, optionflags=flags)
    assert tried
    assert not failed


@pytest.mark.parametrize("page", PAGES)
def test_every_piece_is_described(page: str) -> None:
    text = (DOCS / page).read_text()
    home = PAGES[page].__name__ + "."
    exported = {
        name
        for name in penstock.pull.__all__
        if getattr(penstock.pull, name).__module__.startswith(home) and name[0].islower()
    }
    assert exported
    assert {name for name in exported if f"`{name}(" not in text} == set()
