"""`python -m tests.conformance`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.__main__ import main

CASE: dict[str, Any] = {
    "name": "doubled",
    "nodes": {
        "a": {"op": "source"},
        "f": {"op": "map", "args": {"fn": "lambda x: 2 * x"}},
        "out": {"op": "sink"},
    },
    "edges": [["a", "f"], ["f", "out"]],
    "inputs": ["a"],
    "outputs": ["out"],
    "ticks": [{"a": [1, 2]}],
    "expected": [{"out": [2, 4]}],
    "order": "exact",
}

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_line_per_case_and_a_count(folder: Path, capsys: Captured) -> None:
    (folder / "cases.json").write_text(json.dumps([CASE]))
    assert main(["ticks", "cases.json"]) == 0
    assert capsys.readouterr() == ("ok    doubled\ncases: 1, ok: 1, failed: 0, in words: 0\n", "")


def test_a_case_that_fails_is_the_exit_code(folder: Path, capsys: Captured) -> None:
    wrong = {**CASE, "name": "tripled", "expected": [{"out": [3, 6]}]}
    (folder / "cases.json").write_text(json.dumps([wrong, {"name": "no case"}, CASE]))
    assert main(["ticks", "cases.json"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "FAIL  tripled: tick 1, 'out': expected [3, 6], found [2, 4]",
        "FAIL  no case: BadCase: nodes is missing",
        "ok    doubled",
        "cases: 3, ok: 1, failed: 2, in words: 0",
    ]


def test_cases_in_words_are_counted_apart(folder: Path, capsys: Captured) -> None:
    trace = {
        "name": "the end",
        "kind": "trace",
        "layer": 1,
        "complete": True,
        "events": ["D:ask1", "U:ans1=done"],
        "valid": True,
        "spec_violations": [],
        "valid_docs_spec": True,
        "docs_spec_violations": [],
    }
    words = {"name": "told", "kind": "behaviour", "given": "a source", "expected": "its values"}
    (folder / "cases.json").write_text(json.dumps([trace, words]))
    assert main(["pull", "cases.json"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok    the end",
        "words told",
        "cases: 2, ok: 1, failed: 0, in words: 1",
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["ticks", "none.json"], "none.json cannot be read: No such file or directory"),
        (["tocks", "none.json"], "there is no kind of cases 'tocks'"),
        (["ticks"], "usage: python -m tests.conformance {ticks,errors,propagation,pull,compute} FILE"),
    ],
)
def test_a_file_or_a_kind_that_there_is_not_is_an_error(
    arguments: list[str], text: str, capsys: Captured
) -> None:
    assert main(arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith(text)
