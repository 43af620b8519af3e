"""Every public method of streams, aggregate and window function is on a reference page."""

from __future__ import annotations

import inspect
import re

import pytest

import headrace as hr
from headrace.flow.grouped_streams import Grouped, WindowGroups
from headrace.flow.stream import Stream
from headrace.operators import aggregates, moment_aggregates, value_aggregates, window_functions
from headrace.operators.event_time import window_shapes
from tests.docs.pages import DOCS

REFERENCE = DOCS / "reference"
NOT_FOR_USERS = {"check_row_type", "filter_by_clock", "output_of"}
ELSEWHERE = {
    "operators/ticks.md": "defer_tick defer_tick_lazy defer_signal persist every_tick multiset_delta",
    "operators/signals.md": "latest",
    "keyed-tables.md": "upsert history misfits",
}
PAGE_OF = {name: page for page, names in ELSEWHERE.items() for name in names.split()}
PAGES = ["rows", "joins", "aggregates", "sets", "order", "folds", "event-time"]
TEXT = "".join((REFERENCE / "operators" / f"{page}.md").read_text("utf-8") for page in PAGES)

METHODS = sorted(
    {
        name
        for cls in (Stream, Grouped, WindowGroups)
        for name, member in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and member.__module__.startswith("headrace.flow.")
    }
    - NOT_FOR_USERS
)
AGGREGATES = sorted(
    name
    for module in (aggregates, window_shapes, moment_aggregates, value_aggregates, window_functions)
    for name, member in inspect.getmembers(module, inspect.isfunction)
    if member.__module__ == module.__name__ and name in hr.__all__
)


def shows(text: str, name: str) -> bool:
    return re.search(rf"(\b|\.){name}\(", text) is not None


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_streams_is_on_a_page(name: str) -> None:
    page = REFERENCE / PAGE_OF[name] if name in PAGE_OF else None
    if page is not None and not page.exists():
        pytest.skip(f"{page.name} is still to be written")
    assert shows(page.read_text("utf-8") if page else TEXT, name)


@pytest.mark.parametrize("name", AGGREGATES)
def test_every_aggregate_and_window_function_is_on_a_page(name: str) -> None:
    assert shows(TEXT, name)
