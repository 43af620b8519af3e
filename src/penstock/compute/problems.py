"""Errors on their way between processes: an exception becomes a `Problem`, and is the same class again.

Which class it was is told by its code, so no text is parsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.compute.errors import ComputeError
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import Problem
from penstock.errors import PenstockError


def problem_of(error: PenstockError, *, id: Id | None = None, time: int | None = None) -> Problem:
    """The problem that says what an error says. `id` and `time`: where its facts do not tell them."""
    facts: dict[str, Any] = error.facts
    of, at = facts.get("id", id), facts.get("time", time)
    return Problem(
        code=error.code,
        message=error.what,
        retryable=isinstance(error, ComputeError) and error.retryable,
        why=error.why,
        fix=error.fix,
        id=of if isinstance(of, str) else id,
        time=at if isinstance(at, int) else time,
    )


def error_of(problem: Problem) -> PenstockError:
    """The error to be raised for a problem that somebody else met."""
    facts = {name: value for name, value in (("id", problem.id), ("time", problem.time)) if value is not None}
    return error_class(problem.code)(problem.message, why=problem.why, fix=problem.fix, **facts)


def error_class(code: str) -> type[PenstockError]:
    """The class with a code; `ComputeError` where this version of Penstock knows none."""
    return next((found for found in _classes(PenstockError) if found.code == code), ComputeError)


def _classes(base: type[PenstockError]) -> Iterator[type[PenstockError]]:
    yield base
    for below in base.__subclasses__():
        yield from _classes(below)
