"""`import headrace` is cheap: it brings in nothing that not every user has or needs."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

import headrace

HEAVY = {
    "click",
    "duckdb",
    "msgpack",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "pyspark",
    "rich",
    "typer",
}
SRC = Path(__file__).resolve().parents[2] / "src"

PROGRAM = """
import json, sys, time
start = time.perf_counter()
import headrace
{use}
print(json.dumps({{"seconds": time.perf_counter() - start, "modules": sorted(sys.modules)}}))
"""
FLOW = "headrace.Flow, headrace.Stream, headrace.col, headrace.sum, headrace.DecimalType"


def imported(path: str = "", use: str = "") -> dict:
    # Only the package's own folder is added: a workstation may well have no Java at all.
    env = {"PATH": path, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", PROGRAM.format(use=use)]
    return json.loads(subprocess.run(command, env=env, capture_output=True, check=True).stdout)


@pytest.mark.parametrize("use", ["", FLOW])
def test_importing_headrace_and_writing_a_flow_load_no_heavy_package(use: str) -> None:
    modules = imported(use=use)["modules"]
    assert "headrace" in modules
    assert ("headrace.flow.flow" in modules) == bool(use)
    assert [m for m in modules if m.split(".")[0] in HEAVY] == []


def test_an_engine_loads_neither_sources_nor_sinks() -> None:
    modules = imported(use="from headrace import Engine")["modules"]
    assert "headrace.engine.engine" in modules
    assert [m for m in modules if m.startswith("headrace.io")] == []


def test_pull_streams_load_asyncio_when_something_needs_it() -> None:
    assert "asyncio" not in imported(use="import headrace.pull")["modules"]
    assert "asyncio" in imported(use="from headrace.pull import connect")["modules"]


def test_importing_headrace_needs_no_java_and_no_program_on_the_path(tmp_path: Path) -> None:
    assert imported(path=str(tmp_path), use=FLOW)["modules"]


def test_each_public_name_is_found_and_no_other() -> None:
    for name in headrace.__all__:
        assert getattr(headrace, name) is not None
    assert set(headrace.__all__) <= set(dir(headrace))
    with pytest.raises(AttributeError, match="module 'headrace' has no attribute 'nothing'"):
        headrace.nothing  # noqa: B018


def test_the_median_time_of_the_import_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    median = statistics.median(imported()["seconds"] for _ in range(5))
    writing = statistics.median(imported(use=FLOW)["seconds"] for _ in range(5))
    with capsys.disabled():
        print(f"\nimport headrace: {median * 1000:.0f} ms, with a flow {writing * 1000:.0f} ms")
    assert median > 0 < writing
