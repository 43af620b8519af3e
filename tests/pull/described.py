"""Names the cases of the conformance file that are described in words and that a test stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., object])

TESTED: dict[str, str] = {}
"""Name of a case -> the test that stands for it."""

LEFT_OUT: dict[str, str] = {}
"""Name of a case -> why there is nothing to test: a module that is not here, or another language."""


def case(*names: str) -> Callable[[Test], Test]:
    """Say which described cases a test stands for."""

    def mark(test: Test) -> Test:
        here = f"{test.__module__}.{test.__qualname__}"
        for name in names:
            assert TESTED.setdefault(name, here) == here, f"{name!r} has a test already: {TESTED[name]}"
        return test

    return mark


def left_out(name: str, why: str) -> None:
    """Say why a described case has no test."""
    LEFT_OUT[name] = why
