"""Size limits of the plans that a process reads, builds and compiles for its clients."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.compute.errors import MessageTooLarge


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
