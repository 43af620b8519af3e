"""Sources that cannot be reached while a query is analysed: a database that is gone, a server without answer.

Such a query is not wrong. Its table keeps its rows until a run in which the source is there again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_NETWORK = frozenset(
    f"java.net.{name}" for name in ("SocketException", "SocketTimeoutException", "UnknownHostException")
)
_SQL = "java.sql.SQLException"
_STATES = ("08", "57P", "HYT")
"""Beginnings of SQL states: connections that fail, a server that stops or starts, time that is up."""
_NO_DRIVER = "No suitable driver"
"""What the JDK says, with a state of connections, where no driver knows the URL."""


def words_of_source(error: Exception) -> tuple[str, bool]:
    """Return what a source of a query said, empty if none did, and whether it could not be reached."""
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
    """Yield the errors of Java behind one of PySpark, the first one first."""
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None:
        yield cause
        cause = cause.getCause()


def _classes(value: Any) -> Iterator[str]:
    kind = value.getClass()
    while kind is not None:
        yield kind.getName()
        kind = kind.getSuperclass()
