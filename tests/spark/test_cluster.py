"""On `local-cluster`, whose executors are JVMs of their own, flows mean what they mean in-process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.spark.jvm import find_java
from headrace.spark.session import Executors, executor_environment, executor_settings

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
MASTER = "local-cluster[2,1,512]"


def output_of(*command: str, **executor_environment: str) -> str:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env={**os.environ, **executor_environment, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.verify
def test_every_tick_is_what_it_is_in_process_on_executors_with_the_java_of_the_wheel() -> None:
    wheel = find_java({"JAVA_HOME": "", "PATH": ""})
    told = json.loads(output_of("tests.spark.cluster_program", MASTER, JAVA_HOME=str(wheel.home)))
    assert told["same"] == dict.fromkeys(told["same"], True)
    assert told["ways"] == ["stages"], "one task would not be where the other executor's shards are"
    assert told["executors"] == 2


@pytest.mark.verify
def test_the_flights_example_prints_the_same_as_in_process(shared: Path) -> None:
    asked = ("examples.flights.run", "--data", str(shared / "data"), "--days", "3")
    here = output_of(*asked)
    assert "The worst of" in here
    assert output_of(*asked, "--on", "spark", "--master", MASTER) == here


def test_a_master_says_how_many_executors_there_are() -> None:
    assert Executors.of("local-cluster[2, 3, 1024]") == Executors(2, 3, 1024)
    assert Executors(2, 3, 1024).tasks_at_a_time == 6
    assert Executors.of("local[2]") is None
    assert Executors.of("spark://host:7077") is None


def test_executors_start_without_the_module_that_a_small_java_lacks(tmp_path: Path) -> None:
    import pyspark

    java = find_java()
    variables = executor_environment(java, Path(pyspark.__file__).parent, tmp_path)
    program = Path(variables["JAVA_HOME"], "bin", "java")
    said = subprocess.run(
        [program, "-Da=b c", "--add-modules=jdk.incubator.vector", "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert "a = b c" in said
    assert "incubator" not in said
    assert executor_settings(Executors(2, 1, 512), ["-Da=b c"]) == {
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "'-Da=b c'",
    }
