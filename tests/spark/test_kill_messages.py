"""What the user reads when a process of Spark died and no repetition helped: what, why, how to go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import BadInput, SparkProcessDied
from headrace.spark.ticks.failures import explained_deaths
from tests.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"

# As Spark says it, without its stacks.
WORKER = """An error occurred while calling o95.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 0.0 \
failed 1 times, most recent failure: Lost task 1.0 in stage 0.0 (TID 1) (127.0.0.1 executor driver): \
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting \
'spark.sql.execution.pyspark.udf.faulthandler.enabled' to 'true' for the better Python traceback."""
EXECUTOR = """An error occurred while calling o99.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 0.0 \
failed 4 times, most recent failure: Lost task 1.3 in stage 0.0 (TID 6) (127.0.0.1 executor 6): \
ExecutorLostFailure (executor 6 exited caused by one of the running tasks) Reason: Command exited with \
code 137
Driver stacktrace:"""
FETCH = """Job aborted due to stage failure: ResultStage 7 (toArrow at tick.py:178) has failed the maximum \
allowable number of times: 4. Most recent failure reason: Connection reset by peer
more"""


def session_with(process: Any = None, log: Path | None = None) -> Any:
    return SimpleNamespace(_sc=SimpleNamespace(_gateway=SimpleNamespace(proc=process, log=log)))


def said(error: Exception, spark: Any, tick: int | None) -> str:
    with pytest.raises(SparkProcessDied) as raised, explained_deaths(spark, lambda: tick):
        raise error
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    return f"{raised.value}\n"


@pytest.mark.parametrize(
    ("name", "text", "tick"),
    [
        ("worker", WORKER, 12),
        ("worker_in_a_batch", WORKER, None),
        ("executor", EXECUTOR, 0),
        ("fetch", FETCH, 3),
    ],
)
def test_what_died_and_how_to_go_on_is_told(name: str, text: str, tick: int | None) -> None:
    assert_golden(GOLDEN / f"{name}_died.txt", said(RuntimeError(text), session_with(), tick))


def test_a_jvm_that_was_killed_is_told_with_its_last_words(tmp_path: Path) -> None:
    from py4j.protocol import Py4JError, Py4JNetworkError

    log = tmp_path / "jvm.log"
    log.write_text('Setting default log level to "WARN".\n12:00:00 ERROR Executor: out of memory\n')
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    process.kill()
    for error in (
        Py4JNetworkError("Answer from Java side is empty"),
        ConnectionRefusedError(111, "refused"),
        Py4JError("An error occurred while calling o150.status"),
    ):
        text = said(error, session_with(process, log), 7).replace(str(process.pid), "4711")
        assert_golden(GOLDEN / "jvm_died.txt", text)


def test_other_failures_pass_as_they_are() -> None:
    for error in (ValueError("a mistake"), BadInput("no", fix="yes"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised, explained_deaths(session_with(), lambda: 1):
            raise error
        assert raised.value is error
