"""The example notebooks: they run, show what they say, and are stored without outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.notebook.execution import ROOT, execute, html_of, text_of
from tests.notebook.test_html import Seen

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def executed(name: str, folder: Path) -> list[Any]:
    notebook = nbformat.read(ROOT / "examples" / "notebooks" / f"{name}.ipynb", 4)
    return [cell for cell in execute(notebook, folder).cells if cell.cell_type == "code"]


def rows(cell: Any) -> list[str]:
    return Seen(html_of(cell)).texts


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_they_are_stored_without_outputs(path: Path) -> None:
    cells = nbformat.read(path, 4).cells
    nbformat.validate(nbformat.read(path, 4))
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


def test_a_first_flow(tmp_path: Path) -> None:
    stream, flow, explained, watched, first, second, large = executed("first_flow", tmp_path)
    assert rows(stream)[:2] == ["orders, of flow ", "revenue"]
    assert {"revenue", "source 'orders'", "sink 'revenue'"} <= {*rows(flow)}
    assert "deterministic and live" in text_of(explained)
    assert "jupyter.widget-view" in str(watched.outputs)
    assert rows(first) == ["city", "orders", "cents", "+", "Bath", "1", "500", "+", "York", "1", "200"]
    minus = "\N{MINUS SIGN}"
    gone = [minus, "Bath", "1", "500", "+", "Bath", "2", "600", minus, "York", "1", "200"]
    assert rows(second)[3:] == gone
    assert rows(large)[3:] == ["+", "1", "Bath", "500"]


def test_sessions_and_late_rows(tmp_path: Path) -> None:
    _, drawing, none, closed, late, counted, last = executed("sessions_and_late_rows", tmp_path)
    assert "sink 'late'" in rows(drawing)
    assert rows(none)[-1] == "no rows"
    assert [rows(closed)[at] for at in (6, 9, 10, 12, 15, 16)] == ["bob", "1", "/", "ann", "3", "/shoes"]
    assert "/checkout" in rows(late)
    assert "'watermark_1': 1" in text_of(counted)
    assert "bob" in rows(last)


def test_files_and_checkpoints(tmp_path: Path) -> None:
    _, first, second, nothing, table = executed("files_and_checkpoints", tmp_path)
    ran = [dict(zip(*[iter(rows(cell)[1:])] * 2, strict=True)) for cell in (first, second, nothing)]
    assert [each["rows in"] for each in ran] == ["2", "1", "0"]
    assert [each["last tick"] for each in ran] == ["1", "2", "2"]
    assert text_of(table) == "[{'shop': 'bath', 'cents': 600}, {'shop': 'york', 'cents': 200}]"
