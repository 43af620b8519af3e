"""Sources that cannot be reached while a query is analysed: a database that is gone, a server without answer.

Such a query is not wrong. Its table keeps its rows until a run in which the source is there again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_NETWORK = "java.net."
_SQL = "java.sql.SQLException"
_MISTAKE = "42"
"""Class of SQL states of statements that are wrong, or not allowed."""


def reason_unreachable(error: Exception) -> str:
    """Return the words of a source that cannot be reached; empty for any other error."""
    if isinstance(error, (ConnectionError, TimeoutError)):
        return f"{type(error).__name__}: {error}"
    for cause in _causes(error):
        kinds = list(_classes(cause))
        refused = _SQL in kinds and not str(cause.getSQLState() or "").startswith(_MISTAKE)
        if refused or any(kind.startswith(_NETWORK) for kind in kinds):
            return str(cause.toString())
    return ""


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
