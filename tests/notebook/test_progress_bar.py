"""The progress of runs in notebooks, terminals and logs."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from tests.notebook.execution import run_cells, text_of

FLOW = """\
import headrace as hr
from headrace import col
flow = hr.Flow("numbers")
flow.sink("large", flow.source("n", int).filter(col.value > 990))
"""
RUN = 'hr.run(flow, {"n": range(1000)}, {"large": lambda *_: None}, tick_rows=100%s).ticks'


def test_a_notebook_shows_a_bar_if_a_run_is_long_or_it_is_wanted(tmp_path: Path) -> None:
    slow = "import headrace.engine.progress_display as display\ndisplay.SECONDS_WITHOUT_BAR = 0\n"
    made = run_cells(
        tmp_path,
        FLOW,
        RUN % "",
        RUN % ", progress=True",
        slow + RUN % "",
        RUN % ", progress=False",
        'await hr.arun(flow, {"n": range(10)}, progress=True)',
    )
    bars = ["application/vnd.jupyter.widget-view+json" in str(cell.outputs) for cell in made[1:]]
    assert bars == [False, True, True, False, True]
    shown = text_of(made[2])
    assert shown.startswith("numbers: ")
    assert shown.endswith("10")
    assert "RunResult" in text_of(made[5])


def test_a_script_shows_nothing_unless_it_is_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    flow = hr.Flow("numbers")
    flow.sink("all", flow.source("n", int))
    hr.run(flow, {"n": range(10)})
    assert capfd.readouterr().err == ""
    hr.run(flow, {"n": range(10)}, tick_rows=5, progress=True)
    lines = capfd.readouterr().err.splitlines()
    assert [line.split("   ")[0] for line in lines] == ["tick 1", "tick 2"]
