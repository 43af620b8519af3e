"""Refusals: where in a plan something is wrong, and what."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from penstock.compute.errors import BadPlan

_LONGEST_NAME = 1_000


class Position:
    """Where in a plan one is reading: the parts from the outside in, for errors.

    >>> position = Position()
    >>> with position.at("operator 3"), position.at("columns"):
    ...     str(position)
    'operator 3, columns'
    """

    def __init__(self) -> None:
        self._parts: list[str] = []

    @contextmanager
    def at(self, part: str) -> Generator[None]:
        """Inside, one is in `part` of what one was in before."""
        self._parts.append(part)
        yield
        # Not where it raises: the error tells where that was.
        self._parts.pop()

    def __str__(self) -> str:
        return ", ".join(self._parts)

    def name(self, text: str) -> str:
        """The name of a column, a source, a sink. Raises `BadPlan` for text that cannot be one."""
        if not text or len(text) > _LONGEST_NAME or any(c < " " for c in text):
            raise self.refuse(f"{text[:40]!r} is no name")
        return text

    def refuse(self, what: str, why: str = "") -> BadPlan:
        """The error for what is wrong here."""
        part = str(self)
        return BadPlan(
            f"{what} in {part}" if part else what,
            why=why,
            fix="make plans with penstock.compute.plans.encode, of the same version",
            part=part,
        )
