"""Errors of queries: messages of Spark or a source, without secrets, located at the user's line.

A query whose source cannot be reached, such as a database that is gone or a server without answer, is not
wrong. Its table keeps its rows until a run in which the source is there again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace.errors import HeadraceError
from headrace.pipelines.definitions import QueryDefinition
from headrace.pipelines.errors import QueryRefused
from headrace.pipelines.input_identity import without_secrets

_NETWORK = frozenset(
    f"java.net.{name}" for name in ("SocketException", "SocketTimeoutException", "UnknownHostException")
)
_SQL = "java.sql.SQLException"
_STATES = ("08", "57P", "HYT")
"""Beginnings of SQL states: connections that fail, a server that stops or starts, time that is up."""
_NO_DRIVER = "No suitable driver"
"""State of connections in the words of the JDK where no driver knows the URL."""


def message_of(error: Exception) -> str:
    """Return the message of an error without secrets, plans and stacks."""
    return without_secrets(_message_of(error))


def _message_of(error: Exception) -> str:
    if isinstance(error, HeadraceError):
        return str(error)
    if isinstance(error, Py4JJavaError):
        cause: Any = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        return str(cause.toString()).partition("\n")[0]
    if isinstance(error, PySparkException) and error.getCondition() == "PYTHON_DATA_SOURCE_ERROR":
        last = (error.getMessageParameters() or {})["msg"].rstrip().rpartition("\n")[2]
        return last.partition(": ")[2] or last
    message = str(error).partition("\n\nJVM stacktrace")[0].partition(";\n")[0].strip()
    if isinstance(error, PySparkException) and message:
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def refusal_of(query: QueryDefinition, error: Exception) -> HeadraceError:
    """Return the error of a query that could not be analysed."""
    if isinstance(error, HeadraceError):
        return error
    from headrace.pipelines.definition_files import location_in

    said, unreachable = source_message(error)
    message, said = message_of(error), without_secrets(said)
    if said not in message:
        message = f"{message} {said}"
    own = Path(query.location.file)
    where = [query.location] if query.text is not None else [location_in(own, error)]
    if where[0].line == 1:
        where = [query.location]
    fix = "run again when the source can be reached" if unreachable else "correct the query"
    return QueryRefused(
        f"the query of {query.target} cannot be analysed",
        where=where,
        why=message,
        fix="create the folder, or correct its path" if "PATH_NOT_FOUND" in message else fix,
        dataset=str(query.target),
        unreachable=unreachable,
    )


def source_message(error: Exception) -> tuple[str, bool]:
    """Return the message of a query's source, empty if it gave none, and whether it was unavailable."""
    if isinstance(error, (ConnectionError, TimeoutError)):
        return f"{type(error).__name__}: {error}", True
    for cause in _causes(error):
        kinds = set(_classes(cause))
        if kinds & _NETWORK or (_SQL in kinds and _is_of_connection(cause)):
            return str(cause.toString()), True
    said = (str(cause.toString()) for cause in _causes(error) if _SQL in _classes(cause))
    return next(said, ""), False


def _is_of_connection(cause: Any) -> bool:
    state, message = str(cause.getSQLState() or "").strip(), str(cause.getMessage())
    return state.startswith(_STATES) and not message.startswith(_NO_DRIVER)


def _causes(error: Exception) -> Iterator[Any]:
    """Yield the Java errors behind a PySpark error, outermost first."""
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None:
        yield cause
        cause = cause.getCause()


def _classes(value: Any) -> Iterator[str]:
    kind = value.getClass()
    while kind is not None:
        yield kind.getName()
        kind = kind.getSuperclass()
