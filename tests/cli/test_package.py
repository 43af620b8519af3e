"""`headrace package`, and what it makes, run by PySpark's own spark-submit in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import duckdb
import pytest

from headrace.cli.package import path_warnings
from tests.cli.conftest import Run

SHIPPED = """
from typing import NamedTuple

import headrace as hr
from shops.names import Sale, where

flow = hr.Flow("where workers import from")
flow.sink("found", flow.source("sales", Sale).map(where).distinct())
"""

NAMES = """
from typing import NamedTuple


class Sale(NamedTuple):
    shop: str
    price: int


class Found(NamedTuple):
    headrace: str
    msgpack: str


def where(sale: Sale) -> Found:
    import msgpack
    import headrace

    return Found(headrace.__file__, msgpack.__file__)
"""


@pytest.fixture
def project(folder: Path) -> Path:
    (folder / "shops").mkdir()
    (folder / "shops" / "__init__.py").touch()
    (folder / "shops" / "names.py").write_text(NAMES)
    (folder / "shops" / "unused.txt").write_text("data of the package")
    (folder / "where.py").write_text(SHIPPED)
    return folder


# What this interpreter has already is left out here: copying it takes time and proves nothing.
LIGHT = ("--without", "pyarrow", "--without", "polars", "--without", "pandas", "--without", "numpy")


def test_the_zip_has_the_flows_modules_and_headrace_and_the_archive_what_is_compiled(
    headrace: Run, project: Path
) -> None:
    done = headrace(
        "package", "where.py:flow", "--source", "sales=json:in", "--sink", f"found=changelog:{project}/out",
        *LIGHT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == "sales: in is relative, so each host would use a different folder\n"
    with zipfile.ZipFile(project / "package" / "code.zip") as code:
        names = set(code.namelist())
    assert {"where.py", "shops/__init__.py", "shops/names.py", "shops/unused.txt"} <= names
    assert {"headrace/__init__.py", "headrace/spark/ticks/task.py", "headrace/cli/submitted_flow.py"} <= names
    assert not [name for name in names if name.startswith("flows") or name.endswith(".pyc")]
    with tarfile.open(project / "package" / "env.tar.gz") as environment:
        packed = environment.getnames()
    for needed in ("msgpack/", "xxhash/"):
        assert any(name.startswith(needed) and name.endswith((".so", ".pyd")) for name in packed)
    assert not [name for name in packed if name.startswith("pyarrow/")]
    for master in ("--master yarn", "--master k8s://", "--master spark://"):
        assert master in done.stdout
    one = headrace("package", "where.py:flow", "--source", "sales=json:/in", "--sink", "found=changelog:/out",
                   "--cluster", "yarn", *LIGHT)  # fmt: skip
    assert one.stdout.count("spark-submit") == 1


def test_a_flow_within_a_package_is_found_in_the_zip(headrace: Run, project: Path, tmp_path: Path) -> None:
    (project / "shops" / "flows.py").write_text(SHIPPED.replace("shops.names", ".names"))
    made = headrace(
        "package",
        "shops/flows.py:flow",
        "--source",
        "sales=json:/in",
        "--sink",
        "found=changelog:/out",
        *LIGHT,
    )
    assert made.returncode == 0, made.stderr
    assert "'shops.flows:flow'" in (project / "package" / "main.py").read_text()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code = "from headrace.cli.load_flow import load_flow; print(load_flow('shops.flows:flow').name)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=elsewhere, env={**os.environ, "PYTHONPATH": str(project / "package" / "code.zip")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("where workers import from\n", "")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--source", "sales=json:/in"], "a submitted flow needs a sink"),
        (["--source", "sales=json:/in", "--sink", "found=changelog:/out", "--follow"], "needs a checkpoint"),
        (["--sink", "found=changelog:/out"], "nothing is given for source 'sales'"),
        (
            ["--source", "sales=json:/in", "--sink", "found=changelog:/out", "--with", "no-such-package"],
            "package 'no-such-package' is not installed here",
        ),
    ],
)
def test_what_could_not_run_there_is_refused_here(
    headrace: Run, project: Path, arguments: list[str], text: str
) -> None:
    done = headrace("package", "where.py:flow", *arguments)
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr


def test_what_no_package_has_made_is_not_overwritten(headrace: Run, project: Path) -> None:
    command = (
        "package",
        "where.py:flow",
        "--source",
        "sales=json:/in",
        "--sink",
        "found=changelog:/out",
        *LIGHT,
    )
    (project / "env").mkdir()
    (project / "env" / "pyvenv.cfg").touch()
    done = headrace(*command, "--out", ".")
    assert (done.returncode, "env already exists and was not made by `headrace package`" in done.stderr) == (
        2,
        True,
    )
    assert (project / "env" / "pyvenv.cfg").exists()
    (project / "other").mkdir()
    (project / "other" / "main.py").write_text("print()")
    done = headrace(*command, "--out", "other")
    assert (done.returncode, "main.py already exists" in done.stderr) == (2, True)
    assert (project / "other" / "main.py").read_text() == "print()"


def test_topics_are_no_folders_and_passwords_are_pointed_out() -> None:
    ends = [
        ("a", "debezium+kafka:broker:9092/topic"),
        ("b", "in/a.json"),
        ("c", "postgresql://me:s3cret@host/d?table=t"),
        ("d", "delta:s3://bucket/t"),
        ("e", "-"),
    ]
    assert list(path_warnings(ends, "state")) == [
        "c: main.py contains its password; remove it and set PGPASSWORD instead",
        "b: in/a.json is relative, so each host would use a different folder",
        "checkpoint: state is relative, so each host would use a different folder",
    ]


@pytest.mark.spark
@pytest.mark.verify
def test_spark_submit_runs_it_in_an_empty_folder_with_what_was_shipped(headrace: Run, project: Path) -> None:
    made = headrace(
        "package", "where.py:flow", "--source", f"sales=json:{project}/in",
        "--sink", f"found=changelog:{project}/out", "--checkpoint", f"{project}/state", *LIGHT,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    # Elsewhere: nothing of the project may be found by its own path.
    package = project.parent / f"{project.name}-shipped"
    (project / "package").rename(package)
    empty = project.parent / f"{project.name}-empty"
    empty.mkdir()
    done = submit(package, empty)
    assert done.returncode == 0, done.stderr[-3000:]
    # Spark's launcher passes all that a driver writes on to its own standard output.
    assert "1 ticks up to 1: 3 rows in, 1 changes out\n" in done.stdout
    found = duckdb.connect().execute(f"from '{project}/out/*/*.parquet' select headrace, msgpack").fetchall()
    assert len(found) == 1
    assert "code.zip/headrace/" in found[0][0]
    assert "/env/msgpack/" in found[0][1]


def submit(package: Path, empty: Path) -> subprocess.CompletedProcess[str]:
    import pyspark

    from headrace.spark.jvm import find_java
    from headrace.spark.session import executor_environment

    home = Path(pyspark.__file__).parent
    # spark-submit asks for a module that the Java of the wheel lacks; tests of executors have the same need.
    java = executor_environment(find_java(), home, empty)
    settings = {
        "spark.pyspark.python": sys.executable,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    return subprocess.run(
        [
            home / "bin" / "spark-submit",
            *("--master", "local[2]", "--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
            *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
            *("--py-files", package / "code.zip", "--archives", f"{package / 'env.tar.gz'}#env"),
            package / "main.py",
        ],
        cwd=empty,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(empty),
            "SPARK_HOME": str(home),
            "JAVA_HOME": java["JAVA_HOME"],
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def test_a_main_that_holds_a_password_is_of_its_owner_alone(headrace: Run, project: Path) -> None:
    main = project / "package" / "main.py"
    before = os.umask(0o022)
    try:
        for sink, mode in (("changelog:/out", 0o644), ("postgresql://me:s3cret@h/d?table=t", 0o600)):
            ends = ("--source", "sales=json:/in", "--sink", f"found={sink}")
            done = headrace("package", "where.py:flow", *ends, *LIGHT)
            assert done.returncode == 0, done.stderr
            assert (sink in main.read_text(), main.stat().st_mode & 0o777) == (True, mode)
    finally:
        os.umask(before)
