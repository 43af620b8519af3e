"""What a notebook shows of an error: the user's cell first, our frames on demand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.notebook.execution import run_cells

FLOW = """import headrace as hr
from headrace import col

flow = hr.Flow("f")
numbers = flow.source("n", int)
"""
FAILING = 'flow.sink("twice", numbers.select(x=col.missing))'
RAISING = """def halve(n: int) -> int:
    return 10 // n


flow.sink("halves", numbers.map(halve))
engine = hr.Engine(flow)
engine.tick(n=[0])"""


def traceback_of(cell: Any) -> str:
    (error,) = [output for output in cell.outputs if output.output_type == "error"]
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))


def test_an_error_shows_the_cell_and_none_of_our_frames_until_they_are_asked_for(tmp_path: Path) -> None:
    _, failed, raised, _, shown, still = run_cells(
        tmp_path, FLOW, FAILING, RAISING, "%xmode Verbose", "%tb", "1 / 0", failing=(1, 2, 4, 5)
    )
    text = traceback_of(failed)
    assert FAILING in text
    assert "UnknownColumn" in text
    assert "src/headrace" not in text
    assert re.search(r"\d+ frames of Headrace are left out; %xmode Verbose, then %tb, shows them\.$", text)
    text = traceback_of(raised)
    assert "engine.tick(n=[0])" in text
    assert "return 10 // n" in text, "the user's function that failed is the user's own"
    assert "src/headrace" not in text
    text = traceback_of(shown)
    assert "src/headrace" in text
    assert "ZeroDivisionError" in traceback_of(still)


def test_an_error_keeps_its_frames_for_a_debugger(tmp_path: Path) -> None:
    check = (
        "import sys, traceback\n"
        "frames = [frame.filename for frame in traceback.extract_tb(sys.last_value.__traceback__)]\n"
        "assert any('src/headrace' in name for name in frames), frames\n"
        "assert sys.last_value.__traceback__ is sys.last_traceback"
    )
    run_cells(tmp_path, FLOW, FAILING, check, failing=(1,))
