"""Position in a plan, for the errors raised while decoding."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from headrace.compute.errors import BadPlan

_LONGEST_NAME = 1_000


class PlanPosition:
    """Current position in a plan, for errors: its parts, outermost first.

    >>> position = PlanPosition()
    >>> with position.enter("operator 3"), position.enter("columns"):
    ...     str(position)
    'operator 3, columns'
    """

    def __init__(self) -> None:
        self._parts: list[str] = []

    @contextmanager
    def enter(self, part: str) -> Generator[None]:
        """Enter `part` of the current position."""
        self._parts.append(part)
        yield
        # Not after an exception: its error needs the position.
        self._parts.pop()

    def __str__(self) -> str:
        return ", ".join(self._parts)

    def check_name(self, text: str) -> str:
        """Check the name of a column, source or sink. Raises `BadPlan` for text that cannot be one."""
        if not text or len(text) > _LONGEST_NAME or any(c < " " for c in text):
            raise self.build_error(f"{text[:40]!r} is no name")
        return text

    def build_error(self, what: str, why: str = "") -> BadPlan:
        """Create the error for a mistake at this position."""
        part = str(self)
        return BadPlan(
            f"{what} in {part}" if part else what,
            why=why,
            fix="encode plans with the same version of headrace.compute.plans",
            part=part,
        )
