"""Options of a run that nobody can mean are refused before there is a session."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")
from headrace import Flow
from headrace.errors import BadInput
from headrace.spark import run


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("mode", "Batch"),
        ("way", "one_task"),
        ("loops", "round"),
        ("shards", "3"),
        ("keep_ticks", "3"),
    ],
)
def test_an_option_that_is_misspelled_is_refused(option: str, given: Any) -> None:
    flow = Flow("numbers")
    flow.sink("numbers", flow.source("numbers", int))
    found: list[Any] = []
    with pytest.raises(BadInput, match=f"{option} is {given!r}"):
        run(flow, sources={"numbers": [1]}, sinks={"numbers": found}, **{option: given})
    assert not found
