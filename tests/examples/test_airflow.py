"""The DAG of `examples/airflow`: what it makes of a run's end, and that Airflow reads it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DAG = ROOT / "examples/airflow/shop_pipeline.py"

PYTHON = "HEADRACE_AIRFLOW"
"""Variable with the path of a Python that has Airflow; without it, one is installed in the cache."""
AIRFLOW = "apache-airflow==3.3.2"


class Refused(Exception):
    """Stand for Airflow's exception after which a task is not tried again."""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[str]]:
    """Run the DAG's task with a command that prints lines and ends with an exit code."""

    def decorated(**_: object) -> Callable[[Any], Callable[[], None]]:
        return lambda function: lambda: None

    for name, members in {
        "airflow": {},
        "airflow.sdk": {"dag": decorated, "task": decorated},
        "airflow.sdk.exceptions": {"AirflowFailException": Refused},
    }.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)

    def ran(*lines: str, code: int = 0) -> list[str]:
        command = tmp_path / "headrace"
        printed = "".join(f"echo '{line}'\n" for line in lines)
        command.write_text(f'#!/bin/sh\necho "$@" > arguments\n{printed}exit {code}\n')
        command.chmod(0o755)
        monkeypatch.setenv("SHOP_PROJECT", str(tmp_path))
        monkeypatch.setenv("SHOP_HEADRACE", str(command))
        spec = importlib.util.spec_from_file_location("shop_pipeline", DAG)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.run_pipeline()

    return ran


def test_the_task_logs_the_run_and_returns_the_changed_tables(
    run: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ['{"table": "a", "changed": true}', '{"table": "b", "changed": false}', "printed by a function"]
    assert run(*lines) == ["a"]
    assert capsys.readouterr().out.splitlines() == lines
    assert (tmp_path / "arguments").read_text().startswith("pipeline run --log-format json --metrics-file ")


def test_a_failed_run_is_tried_again_and_a_refused_one_is_not(run: Callable[..., list[str]]) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        run(code=1)
    with pytest.raises(Refused):
        run(code=2)


_PARSE = """
import sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
(task,) = bag.dags["shop_pipeline"].tasks
print("parsed", bag.import_errors, task.task_id, task.retries, bag.dags["shop_pipeline"].max_active_runs)
"""


@pytest.mark.verify(ci=False)
def test_airflow_reads_the_dag(tmp_path: Path) -> None:
    done = subprocess.run(
        [python_with_airflow(), "-c", _PARSE, str(DAG.parent)],
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path), "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1:] == ["parsed {} run_pipeline 3 1"], done.stderr


def python_with_airflow() -> str:
    if given := os.environ.get(PYTHON):
        return given
    cache = Path(os.environ.get("HEADRACE_CACHE", ROOT / ".cache/headrace"))
    folder = cache / f"{AIRFLOW}-{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin/python"
    if not (folder / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        command = [str(python), "-m", "pip", "install", "--quiet", AIRFLOW]
        installed = subprocess.run(command, capture_output=True, text=True)
        if installed.returncode:
            pytest.skip(f"Airflow cannot be installed: {installed.stderr[-500:]}")
        (folder / "installed").touch()
    return str(python)
