"""docs/reference/sources-and-sinks.md and keyed-tables.md: no source, sink or URI scheme is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace.io
from headrace.io.sink import SinkTarget
from headrace.io.source import Source
from headrace.io.uri import _FORMS, _SINKS, _SOURCES

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
TEXT = "".join((REFERENCE / page).read_text("utf-8") for page in ("sources-and-sinks.md", "keyed-tables.md"))
BASES = {"ChangeData", "SinkTarget", "Source"}
ENDS = [
    name
    for name in headrace.io.__all__
    if isinstance(end := getattr(headrace.io, name), type) and issubclass(end, (Source, SinkTarget))
]


@pytest.mark.parametrize("name", [name for name in ENDS if name not in BASES])
def test_every_source_and_sink_is_on_the_page(name: str) -> None:
    assert f"`{name}(" in TEXT


@pytest.mark.parametrize("scheme", sorted({*_SOURCES, *_SINKS} - {"postgres"}))
def test_every_scheme_is_on_the_page(scheme: str) -> None:
    assert f"`{scheme}:" in TEXT


@pytest.mark.parametrize("form", _FORMS)
def test_every_form_of_change_data_is_on_the_page(form: str) -> None:
    assert f"`{form}+" in TEXT
