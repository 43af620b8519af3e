"""Delivery guarantees of sources and sinks, described as data for display."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Literal, TypeAlias

Level: TypeAlias = Literal["exactly once", "at least once", "this run only"]


@dataclass(frozen=True, slots=True)
class Guarantee:
    """Delivery guarantee across a kill and restart of a run with a checkpoint.

    level: "exactly once": every change arrives, and none twice.
           "at least once": changes of the last committed tick may arrive again.
           "this run only": changes from before the start of this run are missing.
    why:   the reason, a clause without a full stop.
    """

    level: Level
    why: str

    def __str__(self) -> str:
        return f"{self.level}: {self.why}"


AT_LEAST_ONCE = Guarantee(
    "at least once",
    "after a crash the last committed tick may be delivered again, with the same number and changes",
)


@singledispatch
def guarantee_of(end: object) -> Guarantee:
    """Return the delivery guarantee of a source or sink. Raises `TypeError` for anything else."""
    found: Any = getattr(end, "guarantee", None)
    if not isinstance(found, Guarantee):
        if callable(end):
            return AT_LEAST_ONCE
        raise TypeError(f"{type(end).__name__} is neither a source nor a sink")
    return found


@guarantee_of.register(list)
def _(end: list[Any]) -> Guarantee:
    return Guarantee("this run only", "a list lives in this process")
