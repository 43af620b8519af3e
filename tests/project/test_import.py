"""`import penstock` is cheap: it brings in nothing that not every user has or needs."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"click", "duckdb", "msgpack", "numpy", "pandas", "polars", "pyarrow", "pyspark", "rich", "typer"}
SRC = Path(__file__).resolve().parents[2] / "src"

PROGRAM = """
import json, sys, time
start = time.perf_counter()
import penstock
print(json.dumps({"seconds": time.perf_counter() - start, "modules": sorted(sys.modules)}))
"""


def imported(path: str = "") -> dict:
    # Only the package's own folder is added: a workstation may well have no Java at all.
    env = {"PATH": path, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", PROGRAM]
    return json.loads(subprocess.run(command, env=env, capture_output=True, check=True).stdout)


def test_importing_penstock_loads_no_heavy_package() -> None:
    modules = imported()["modules"]
    assert "penstock" in modules
    assert [m for m in modules if m.split(".")[0] in HEAVY] == []


def test_importing_penstock_needs_no_java_and_no_program_on_the_path(tmp_path: Path) -> None:
    assert imported(path=str(tmp_path))["modules"]


def test_the_median_time_of_the_import_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    median = statistics.median(imported()["seconds"] for _ in range(5))
    with capsys.disabled():
        print(f"\nimport penstock: {median * 1000:.0f} ms (median of 5; the promise is under 100 ms)")
    assert median > 0
