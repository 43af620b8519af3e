"""What pyright and mypy say of flows: right uses pass, misuses are caught on their lines.

And what they say, as strict as they can be, of programs that use Headrace as it is installed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
MISUSES = HERE / "rejected" / "misuses.py"
ACCEPTED = sorted((HERE / "accepted").glob("*.py"))
RIGHT = [
    *ACCEPTED,
    ROOT / "tests" / "analysis" / "closing_price.py",
    ROOT / "tests" / "analysis" / "every_feature.py",
    # Airflow, which the example of it imports, has an environment of its own.
    *sorted(file for file in (ROOT / "examples").rglob("*.py") if file.parent.name != "airflow"),
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


@pytest.fixture(
    scope="module",
    params=[pyright, pytest.param(mypy, marks=pytest.mark.verify)],
    ids=lambda checker: checker.__name__,
)
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


# --- as it is installed ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = ["wheel", str(ROOT), "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(folder)]
    done = subprocess.run([sys.executable, "-m", "pip", *build], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel, and the packages of this one."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([python, "-c", purelib], text=True).strip())
    with zipfile.ZipFile(wheel) as files:
        files.extractall(packages)
    # Path files within that folder are not followed, so this checkout is not found by it.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return python


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program of the README, and what else users write."""
    folder = tmp_path_factory.mktemp("programs")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    (folder / "auctions.py").write_text("".join(blocks))
    for file in ACCEPTED:
        (folder / file.name).write_text(file.read_text())
    return folder


def test_the_wheel_says_that_it_is_typed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        assert "headrace/py.typed" in files.namelist()


@pytest.mark.verify
def test_mypy_is_content_with_strict_programs(installed: Path, programs: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(installed), "."]
    assert checked_in(programs, command) == "Success: no issues found in 3 source files\n"


def test_pyright_is_content_with_strict_programs(installed: Path, programs: Path) -> None:
    (programs / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    command = [sys.executable, "-m", "pyright", "--pythonpath", str(installed), "."]
    assert checked_in(programs, command).startswith("0 errors, 0 warnings")


def checked_in(folder: Path, command: list[str]) -> str:
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    for name in ("PYTHONPATH", "MYPYPATH"):
        environment.pop(name, None)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr
