"""Interface by which functions generate their Python: sources, their guards, and the bounds they keep to."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.expr.typing_rules import Term


@dataclass(frozen=True, slots=True)
class CodeBounds:
    """Bounds that generated code keeps to: those of `headrace.expr.bounds` for each value, and these.

    tick_rows: rows that a tick may make, in all operators together. rounds: of a loop, in a tick.
    """

    tick_rows: int = 1 << 62
    rounds: int = 1 << 62


_bounds: ContextVar[CodeBounds | None] = ContextVar("bounds of generated code", default=None)


@contextmanager
def bounded_code(bounds: CodeBounds = CodeBounds()) -> Generator[None]:
    """Generate code inside this block in which no row may cost much."""
    token = _bounds.set(bounds)
    try:
        yield
    finally:
        _bounds.reset(token)


def code_bounds() -> CodeBounds | None:
    """Return the bounds of the code that is generated now, if it has any."""
    return _bounds.get()


def is_bounded() -> bool:
    """Return whether the code that is generated now is to be bounded."""
    return _bounds.get() is not None


ATOM = re.compile(r"[A-Za-z_]\w*|\(?-?[\d.]+(e[+-]?\d+)?\)?|b?'[^'\\]*'")
"""Source of a name or a short constant, which is cheap to repeat."""


def is_constant(source: str) -> bool:
    """Return whether a source is a number or string literal, which must not be compared by `is`."""
    return bool(ATOM.fullmatch(source)) and not source.isidentifier()


@dataclass(frozen=True, slots=True)
class GuardedSource:
    """Python source of a value, valid if no guard is None.

    guards:    sources to compare with None, in order; the first use of a temporary binds it.
    canonical: whether any NaN in it is the canonical one.
    """

    source: str
    guards: tuple[str, ...] = ()
    canonical: bool = True


class Emitter(Protocol):
    """Writes Python source for checked expressions within one scope."""

    @property
    def bounded(self) -> bool:
        """Whether no row may cost much (see `headrace.expr.bounds`)."""
        ...

    def prepare(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """Return what prepares a value, such as a pattern, in this code."""
        ...

    def fresh(self) -> str:
        """Return an unused name for a temporary."""
        ...

    def constant(self, value: object) -> str:
        """Return the name of `value` in generated code."""
        ...

    def name_value(self, source: str) -> tuple[str, str]:
        """Return sources for the first use and for all later uses of a value evaluated once."""
        ...

    def code(self, term: Term) -> GuardedSource:
        """Return the code of a term."""
        ...

    def value(self, term: Term) -> str:
        """Return source of the value: None for null, floats canonical."""
        ...

    def canonical(self, code: GuardedSource) -> str:
        """Return source of the value, valid if no guard is None, with the canonical NaN."""
        ...

    def truth_test(self, term: Term) -> str:
        """Return source that is truthy exactly if a bool is true."""
        ...

    def falsity_test(self, term: Term) -> str:
        """Return source that is truthy exactly if a bool is false."""
        ...

    def is_null(self, term: Term) -> str:
        """Return source that tests for null. A term that is never null is evaluated only for its errors."""
        ...

    def is_not_null(self, term: Term) -> str:
        """Return source that tests for non-null. A term that is never null is evaluated, as in `is_null`."""
        ...
