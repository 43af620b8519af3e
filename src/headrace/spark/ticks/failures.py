"""Failures of a run on Spark: errors raised in tasks, and deaths of processes.

An exception in a Python task reaches the driver as text. So a Headrace error is encoded in that text, and
`decoded_errors` decodes it; an error raised by a native expression becomes an `EvaluationError`.

A process that dies is the JVM, an executor, or a Python worker. Spark retries the tasks of a dead worker or
executor, as often as its settings say; a `local[n]` master does not. If that fails, the user learns which
process died and how to continue, instead of stack traces in three languages."""

from __future__ import annotations

import base64
import functools
import logging
import pickle
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import BadRow, EvaluationError, HeadraceError, SparkProcessDied, causes
from headrace.spark.jvm import last_lines

if TYPE_CHECKING:
    from collections.abc import Generator

    import pyarrow as pa
    from pyspark.sql import SparkSession

_MARK = re.compile(r"headrace-error:([A-Za-z0-9+/=]+):")
# As Spark says it when it happened; a plan that Spark shows for another reason holds the text too.
# What, why and fix with tabs between, the last two where there are any.
_BAD_ROW = re.compile(r"\[USER_RAISED_EXCEPTION\] P201 BadRow: ([^\n\t]*)(?:\t([^\n\t]*)\t([^\n\t]*))?")
_STATE = re.compile(r" SQLSTATE: \w+$")
_MALFORMED = re.compile(r"\[MALFORMED_RECORD_IN_PARSING[^\]]*\] ([^\n]*)")

Task = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


class TaskFailed(Exception):
    """Exception that carries a Headrace error out of a task, encoded in its text."""


def with_encoded_errors(task: Task) -> Task:
    """Wrap a task so that the driver can restore the Headrace errors it raises."""

    @functools.wraps(task)
    def telling(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with failing_as_told():
            yield from task(batches)

    return telling


@contextmanager
def failing_as_told() -> Generator[None]:
    """Encode Headrace errors raised in a Spark worker, so that the driver can restore them."""
    try:
        yield
    except HeadraceError as error:
        raise TaskFailed(f"{error}\n\nheadrace-error:{_sealed(error)}:") from None


def _sealed(error: HeadraceError) -> str:
    from pyspark import cloudpickle

    try:
        content = cloudpickle.dumps(error)
    except Exception:  # a fact that cannot travel; the text still can
        content = cloudpickle.dumps(type(error)(error.what, where=error.where, why=error.why, fix=error.fix))
    return base64.b64encode(content).decode()


@contextmanager
def decoded_errors() -> Generator[None]:
    """Restore task errors as `HeadraceError`s around the reading of batch rows.

    Other failures of Spark pass unchanged.
    """
    try:
        yield
    except Exception as error:
        # Spark complains of the connection that an interrupt has cut.
        for cause in causes(error, implicit=True):
            if isinstance(cause, KeyboardInterrupt):
                raise cause from None
        ours = error_of(error) if _is_of_spark(error) else None
        if ours is None:
            raise
        raise ours from error


def _is_of_spark(error: Exception) -> bool:
    from pyspark.errors import PySparkException

    # Where Arrow is handed over, some failures of the JVM come as Py4J has them.
    return isinstance(error, PySparkException) or type(error).__module__.startswith("py4j.")


def error_of(error: Exception) -> HeadraceError | None:
    """Return the Headrace error encoded in a Spark failure, if there is one."""
    text = str(error)
    sealed = _MARK.search(text)
    if sealed:
        return pickle.loads(base64.b64decode(sealed[1]))
    bad_row = _BAD_ROW.search(text)
    if bad_row:
        what, why, fix = (_STATE.sub("", part or "") for part in bad_row.groups())
        return BadRow(what, why=why, fix=fix)
    malformed = _MALFORMED.search(text)
    if malformed:
        return BadRow("a record cannot be parsed", why=malformed[1])
    from pyspark.errors import ArithmeticException, DateTimeException, NumberFormatException

    if isinstance(error, ArithmeticException | DateTimeException | NumberFormatException):
        return EvaluationError(
            text.strip().splitlines()[0], why="Spark raised this while it computed an expression."
        )
    return None


_PATIENCE = 10.0
"""Seconds to wait for a JVM to exit after its connection broke."""

_WORKER = re.compile(r"Python worker exited unexpectedly|Python worker .*crashed")
_EXECUTOR = re.compile(r"ExecutorLostFailure \((executor \S+) [^)]*\) Reason: ([^\n]*)")
_FETCH = re.compile(r"has failed the maximum allowable number of times[^\n]*")
_STOPPED = re.compile(r"SparkContext was shut down|stopped SparkContext|Master removed our application[^\n]*")
_TIMES = re.compile(r"failed (\d+) times")


@dataclass(frozen=True, slots=True)
class Death:
    """Report of a process death. what: a sentence. why: the message of Spark or the system."""

    what: str
    why: str
    process: str


@contextmanager
def explained_deaths(spark: SparkSession, tick: Callable[[], int | None]) -> Generator[None]:
    """Raise `SparkProcessDied` for failures caused by a dead process.

    tick: last committed tick; None if nothing is committed.
    """
    try:
        with quiet(spark):
            yield
    except HeadraceError:
        raise
    except Exception as error:
        death = _death(spark, error)
        if death is None:
            raise
        raise _process_died(death, tick()) from None


@contextmanager
def quiet(spark: SparkSession) -> Generator[None]:
    """Suppress the broken-connection messages of PySpark's threads: the run reports the failure itself."""
    server: Any = getattr(getattr(spark, "_sc", None), "_accumulatorServer", None)
    with _at_work.lock:
        _at_work.runs += 1
        if server is not None:
            server.handle_error = partial(_tell_others, server)
        logging.root.addFilter(_is_other)
    yield
    # Not after a failure: those threads may come to it later than this one.
    with _at_work.lock:
        _at_work.runs -= 1
        if not _at_work.runs:
            logging.root.removeFilter(_is_other)
            if server is not None:
                vars(server).pop("handle_error", None)


class _AtWork:
    """Number of runs in this process that need quiet: they may share a session, in separate threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runs = 0


_at_work = _AtWork()


def _is_other(record: logging.LogRecord) -> bool:
    from py4j.protocol import Py4JNetworkError

    return not (record.exc_info and isinstance(record.exc_info[1], Py4JNetworkError))


def _tell_others(server: Any, *of: Any) -> None:
    if not isinstance(sys.exception(), EOFError | ConnectionError):
        type(server).handle_error(server, *of)


def _process_died(death: Death, tick: int | None) -> SparkProcessDied:
    if tick is None:
        fix = "run it again; if it dies again, give it more memory"
    else:
        fix = (
            f"run it again with the same checkpoint: it resumes after tick {tick}, and nothing is lost or "
            "duplicated. If it dies again, give it more memory, or smaller ticks"
        )
    return SparkProcessDied(
        death.what,
        why=death.why,
        fix=fix,
        process=death.process,
        tick=tick,
    )


def _death(spark: SparkSession, error: Exception) -> Death | None:
    text = str(error)
    if _WORKER.search(text):
        return Death(
            "a Python worker of Spark died while it ran a task",
            f"Spark ran the task {_times(text)}, and its worker was gone. The system ends the "
            "largest process when memory runs out; a crash within a C library does the same. "
            "On a master `local[2]` no task is run again, on `local[2,4]` it is, up to 4 times.",
            "worker",
        )
    if lost := _EXECUTOR.search(text):
        why = f"Spark ran the task {_times(text)}; the last time {lost[1]} was lost: {lost[2]}."
        return Death("an executor of Spark died while it ran a task", why, "executor")
    if fetch := _FETCH.search(text):
        return Death(
            "an executor of Spark died with rows that others wait for",
            f"Spark: a stage {fetch[0]}",
            "executor",
        )
    if _is_connection(error):
        return Death("the JVM of Spark died", _last_words(spark), "jvm")
    if stopped := _STOPPED.search(text):
        return Death("Spark was stopped while it ran a tick", f"Spark: {stopped[0]}.", "context")
    return None


def _times(text: str) -> str:
    found = _TIMES.search(text)
    times = int(found[1]) if found else 1
    return "once" if times == 1 else f"{times} times"


def _is_connection(error: BaseException | None) -> bool:
    from py4j.protocol import Py4JError, Py4JNetworkError

    # Py4J raises the bare class where it got no answer at all, and a subclass for what Java says.
    return error is not None and any(
        isinstance(cause, Py4JNetworkError | ConnectionError | EOFError) or type(cause) is Py4JError
        for cause in causes(error, implicit=True)
    )


def _last_words(spark: SparkSession) -> str:
    gateway: Any = getattr(getattr(spark, "_sc", None), "_gateway", None)
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return "The connection to it broke."
    try:
        code = process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        return f"The connection to process {process.pid} broke; the process is still there."
    ended = f"Process {process.pid} ended with code {code}."
    if code < 0:
        ended = f"Process {process.pid} was ended by {signal.Signals(-code).name}."
    if code == -signal.SIGKILL:
        ended += " The system does that to the largest process when memory runs out."
    log: Path | None = getattr(gateway, "log", None)
    return f"{ended} It said at the end:\n{last_lines(log)}" if log is not None else ended
