"""What pyright and mypy say of flows: right uses pass, misuses are caught on their lines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
MISUSES = HERE / "rejected" / "misuses.py"
RIGHT = [
    HERE / "accepted" / "right_uses.py",
    ROOT / "tests" / "analysis" / "closing_price.py",
    ROOT / "tests" / "analysis" / "every_feature.py",
    *sorted((ROOT / "examples").rglob("*.py")),
]

Complaints = dict[tuple[Path, int], str]


def pyright(files: list[Path]) -> Complaints:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    found = json.loads(run([*command, *map(str, files)]))
    assert found["summary"]["filesAnalyzed"] >= len(files)
    return {
        (Path(d["file"]), d["range"]["start"]["line"] + 1): d["message"]
        for d in found["generalDiagnostics"]
        if d["severity"] == "error"
    }


def mypy(files: list[Path]) -> Complaints:
    options = ["--follow-imports=silent", "--no-error-summary", "--no-pretty", "--show-absolute-path"]
    text = run([sys.executable, "-m", "mypy", *options, *map(str, files)])
    lines = re.finditer(r"^(.+?):(\d+)(?::\d+)?: error: (.*)$", text, re.MULTILINE)
    return {(Path(m[1]), int(m[2])): m[3] for m in lines}


def run(command: list[str]) -> str:
    """Standard output of a checker: 0 and 1 are its answers, everything else is a failure of its own."""
    environment = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=[pyright, mypy], ids=lambda checker: checker.__name__)
def checked(request: pytest.FixtureRequest) -> tuple[str, Complaints]:
    """A checker's name, and all that it says; it runs once."""
    return request.param.__name__, request.param([*RIGHT, MISUSES])


def test_right_uses_and_examples_are_accepted(checked: tuple[str, Complaints]) -> None:
    _, complaints = checked
    assert {place: text for place, text in complaints.items() if place[0] != MISUSES} == {}


def test_misuses_are_rejected_on_exactly_their_lines(checked: tuple[str, Complaints]) -> None:
    checker, complaints = checked
    found = {line: text for (file, line), text in complaints.items() if file == MISUSES}
    expected = {
        at: line
        for at, line in enumerate(MISUSES.read_text().splitlines(), start=1)
        if re.search(rf"# rejected(?: by {checker})?$", line)
    }
    assert len(expected) >= 12
    missed = {line: expected[line] for line in expected.keys() - found.keys()}
    false_alarms = {line: found[line] for line in found.keys() - expected.keys()}
    assert (missed, false_alarms) == ({}, {})
