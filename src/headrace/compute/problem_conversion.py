"""Conversion of errors to `Problem`s and back, so that another process raises the same class.

The code identifies the class, so no text is parsed. Paths of another machine are shown but never opened here:
an error shows the line of its source location, so a path from the network could expose any local file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, cast

from headrace.compute.errors import ComputeError
from headrace.compute.frontier import LAST_TIME
from headrace.compute.protocol.dataflow import Id
from headrace.compute.protocol.responses import Problem
from headrace.errors import HeadraceError, Origin, causes


def problem_of(error: HeadraceError, *, id: Id | None = None, time: int | None = None) -> Problem:
    """Convert an error to a `Problem`. id, time: defaults for facts that the error lacks.

    Facts that are not plain values are converted to text.
    """
    facts = dict(error.facts)
    if isinstance(facts.get("id"), str):
        id = facts.pop("id")
    if _is_time(facts.get("time")):
        time = facts.pop("time")
    return Problem(
        code=error.code,
        message=error.what,
        retryable=isinstance(error, ComputeError) and error.retryable,
        why=error.why,
        fix=error.fix,
        id=id,
        time=time,
        facts=tuple((name, _plain(value)) for name, value in facts.items()),
        where=error.where,
        origin=origin_of(error),
    )


def origin_of(error: BaseException) -> Origin:
    """Determine the origin of an error. Unexpected and out-of-memory errors are attributed to the process."""
    if any(isinstance(cause, MemoryError) for cause in causes(error)):
        return Origin.PROCESS
    return error.origin if isinstance(error, HeadraceError) else Origin.PROCESS


def problem_of_any(error: BaseException, *, id: Id | None = None, time: int | None = None) -> Problem:
    """Convert any exception to a `Problem`; an unexpected one is described by its type and text."""
    if isinstance(error, HeadraceError):
        return problem_of(error, id=id, time=time)
    return Problem(
        ComputeError.code,
        f"{type(error).__name__}: {error}",
        why="This is a mistake in Headrace.",
        fix="please report it, with the log of the process that met it",
        id=id,
        time=time,
        origin=origin_of(error),
    )


def error_of(problem: Problem) -> HeadraceError:
    """Convert a problem from another process back to an error."""
    found = error_class(problem.code)
    facts = {name: value for name, value in problem.facts if _is_fact(found, name)}
    facts |= {
        name: value for name, value in (("id", problem.id), ("time", problem.time)) if value is not None
    }
    if found.code != problem.code:
        facts |= {"code": problem.code, "retryable": problem.retryable}
    return found(problem.message, where=problem.where, why=problem.why, fix=problem.fix, **facts)


def _is_fact(found: type[HeadraceError], name: str) -> bool:
    # Facts become attributes, and their names may come from an untrusted process.
    reserved = name in ("what", "where", "why", "fix", "facts", "self") or hasattr(found, name)
    return name.isidentifier() and not name.startswith("_") and not reserved


def _is_time(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LAST_TIME


def _plain(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(_plain(part) for part in cast("tuple[Any, ...]", value))
    return value if type(value) in _PLAIN else str(value)


_PLAIN = frozenset({type(None), bool, int, float, str, bytes, Decimal})


def error_class(code: str) -> type[HeadraceError]:
    """Return the class of an error code; `ComputeError` for an unknown code."""
    return next((found for found in _classes(HeadraceError) if found.code == code), ComputeError)


def _classes(base: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    yield base
    for below in base.__subclasses__():
        yield from _classes(below)


def file_name(path: str) -> str:
    """Return the name of a file without its folders.

    >>> file_name("/home/somebody/q4.py"), file_name("<q4.py>")
    ('q4.py', 'q4.py')
    """
    return re.split(r"[/\\]", path)[-1].removeprefix("<").removesuffix(">")


def mark_remote_file(path: str) -> str:
    """Mark a file as being on another machine: a name in `<>` is never opened here.

    >>> mark_remote_file("/etc/passwd")
    '<passwd>'
    """
    return f"<{file_name(path)}>"
