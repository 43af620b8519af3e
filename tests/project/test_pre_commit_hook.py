"""The hook for pre-commit is what the framework reads, and its entry checks the files that it is given."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def hook() -> dict[str, Any]:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    return hook


def test_the_hook_is_complete(hook: dict[str, Any]) -> None:
    required = {"id", "name", "entry", "language"}
    known = {"description", "additional_dependencies", "types_or", "require_serial"}
    assert required <= hook.keys() <= required | known
    assert (hook["id"], hook["language"]) == ("headrace-check", "python")
    assert hook["types_or"] == ["python", "sql"]


def test_the_package_that_the_hook_installs_has_its_command(hook: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert hook["entry"].split()[0] in project["scripts"]
    assert hook["additional_dependencies"] == [".[cli]"]
    assert "cli" in project["optional-dependencies"]


def test_the_entry_checks_the_files_that_it_is_given(hook: dict[str, Any], tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "cli" / "checked" / "orders.py", tmp_path)
    for file in ("revenue.sql", "revenue.plan"):
        shutil.copy(ROOT / "examples" / "queries" / file, tmp_path)
    (tmp_path / "setup.py").write_text("version = 1\n")
    _, *arguments = hook["entry"].split()
    files = ["setup.py", "orders.py", "revenue.sql"]
    done = subprocess.run(
        [sys.executable, "-m", "headrace.cli", *arguments, *files],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "nothing to check in setup.py:" in done.stdout
    assert "orders.py:27: error: P010 UnknownColumn" in done.stdout
    assert "3 files checked: 7 errors, 6 warnings" in done.stdout
