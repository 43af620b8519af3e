"""The page of a run on Spark: ticks with their cost, and rows of sinks wherever they are written."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.ui.conftest import Started, put
from tests.ui.test_server import Client

pytestmark = [pytest.mark.spark, pytest.mark.verify]


def ticks_until(client: Client, tick: int) -> list[dict[str, Any]]:
    """Wait for the event of a tick, and return all ticks until then."""
    ticks: list[dict[str, Any]] = []
    with closing(client.send("/api/events")) as connection:
        assert connection.sock is not None
        connection.sock.settimeout(240)
        for line in connection.getresponse():
            if line.startswith(b"data: "):
                ticks += json.loads(line[6:]).get("ticks", ())
            if ticks and ticks[-1]["tick"] >= tick:
                return ticks
    raise AssertionError("the run has ended")


def test_ticks_rows_and_reasons_are_those_of_the_run(start: Callable[..., Started], folder: Path) -> None:
    put(folder, 2, ("a", 200), ("c", 5))
    started = start(
        "run", "flows.py:flow", "--on", "spark", "--source", "sales=json:in?files_per_tick=1", "--follow",
        "--sink", "totals=changelog:out", "--sink", "dear=-", "--no-progress", "--shards", "2",
        "--checkpoint", "state", "--ui",
    )  # fmt: skip
    client = Client(started.url)

    def ask(path: str) -> dict[str, Any]:
        return json.loads(client.ask(path).body)

    ticks = ticks_until(client, 2)
    assert [(tick["rows_in"], tick["way"]) for tick in ticks] == [(3, "one task"), (2, "one task")]
    assert ticks[0]["cost"]["workers"] > 0
    rows = {tuple(row["values"]) for row in ask("/api/rows?view=totals")["rows"]}
    while rows != {("a", "204"), ("b", "2"), ("c", "5")}:  # the changelog is read a moment later
        rows = {tuple(row["values"]) for row in ask("/api/rows?view=totals")["rows"]}
    assert [row["values"] for row in ask("/api/rows?view=dear")["rows"]] == [["a", "200"]]
    assert ask("/api/state")["shards"] == 2
    why = ask(f"/api/why?view=dear&row={quote(json.dumps({'shop': 'a', 'price': 200}))}")
    assert [row["values"] for row in why["sources"]["sales"]["rows"]] == [["a", "200"]]
