"""Limits on the size of plans, and positions in them for errors."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.compute.errors import BadPlan, MessageTooLarge

# --- limits -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """Limits of a plan.

    size:    bytes of the plan, or of an expression or schema by itself.
    nodes:   operators of a flow. inputs: what they read, together.
    terms:   of all expressions of a plan together.
    columns: of one row type, or fields of one struct.
    nesting: of types in types.
    depth:   of one expression: operations whose operand is an operation, and so on.
    digits:  of a whole number or a decimal.
    """

    size: int = 1 << 20
    nodes: int = 2_000
    inputs: int = 10_000
    terms: int = 50_000
    columns: int = 2_000
    nesting: int = 12
    depth: int = 200
    digits: int = 1_000


LIMITS = PlanLimits()
"""Default limits: far above hand-written plans, yet read, checked and compiled in seconds."""


def check_size(what: str, size: int, limit: int) -> None:
    """Raise `MessageTooLarge` if `size` exceeds `limit`; `what` is a noun phrase for the content."""
    if size > limit:
        raise MessageTooLarge(
            f"{what} has {size} bytes, more than the {limit} allowed",
            why="What is read for others is bounded, so that nobody can fill this process.",
            fix="send less: large constants belong into a collection",
            size=size,
            limit=limit,
        )


# --- positions ----------------------------------------------------------------------


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
