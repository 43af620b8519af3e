"""`penstock conform`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.conftest import Run

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


def test_a_line_per_case_and_a_count(penstock: Run, folder: Path) -> None:
    (folder / "cases.json").write_text(json.dumps([CASE]))
    done = penstock("conform", "ticks", "cases.json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok    doubled\n1 case, 1 ok, 0 failed\n", "")


def test_a_case_that_fails_is_the_exit_code(penstock: Run, folder: Path) -> None:
    wrong = {**CASE, "name": "tripled", "expected": [{"out": [3, 6]}]}
    (folder / "cases.json").write_text(json.dumps([wrong, {"name": "no case"}, CASE]))
    done = penstock("conform", "ticks", "cases.json")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "FAIL  tripled: tick 1, 'out': expected [3, 6], found [2, 4]",
        "FAIL  no case: BadCase: nodes is missing",
        "ok    doubled",
        "3 cases, 1 ok, 2 failed",
    ]


def test_cases_in_words_are_counted_apart(penstock: Run, folder: Path) -> None:
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
    done = penstock("conform", "pull", "cases.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["ok    the end", "words told", "2 cases, 1 ok, 0 failed, 1 in words"]


def test_a_file_or_a_kind_that_there_is_not_is_an_error(penstock: Run, folder: Path) -> None:
    for arguments, text in (
        (("ticks", "none.json"), "P901 BadCase: none.json cannot be read: No such file or directory"),
        (("tocks", "none.json"), "P901 BadCase: there is no kind of cases 'tocks'"),
    ):
        done = penstock("conform", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(text)


def test_the_help_says_that_files_are_trusted(penstock: Run) -> None:
    done = penstock("conform", "--help")
    assert done.returncode == 0
    assert "trust" in done.stdout
