"""Propagation of task errors to the driver as the original exceptions.

An exception in a Python task reaches the driver as text. So a Headrace error is encoded in that text, and
`told_errors` decodes it; an error raised by a native expression becomes an `EvaluationError`.
"""

from __future__ import annotations

import base64
import functools
import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.errors import BadRow, EvaluationError, HeadraceError, causes

if TYPE_CHECKING:
    from collections.abc import Generator

    import pyarrow as pa

_MARK = re.compile(r"headrace-error:([A-Za-z0-9+/=]+):")
# As Spark says it when it happened; a plan that Spark shows for another reason holds the text too.
# What, why and fix with tabs between, the last two where there are any.
_BAD_ROW = re.compile(r"\[USER_RAISED_EXCEPTION\] P201 BadRow: ([^\n\t]*)(?:\t([^\n\t]*)\t([^\n\t]*))?")
_STATE = re.compile(r" SQLSTATE: \w+$")
_MALFORMED = re.compile(r"\[MALFORMED_RECORD_IN_PARSING[^\]]*\] ([^\n]*)")

Task = Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


class TaskFailed(Exception):
    """Exception that carries a Headrace error out of a task, encoded in its text."""


def told(task: Task) -> Task:
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
def told_errors() -> Generator[None]:
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
