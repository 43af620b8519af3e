"""What an end of a run promises after a crash, as data that can be shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Literal, TypeAlias

Level: TypeAlias = Literal["exactly once", "at least once", "this run only"]


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What becomes of a tick when a run with a checkpoint is killed and started again.

    level: "exactly once": each tick's changes arrive, and none twice.
           "at least once": those of the last committed tick may arrive again.
           "this run only": what came before the start of this run is not there.
    why:   what that rests on, a sentence without a point.
    """

    level: Level
    why: str

    def __str__(self) -> str:
        return f"{self.level}: {self.why}"


TOLD = Guarantee(
    "at least once",
    "after a crash the last committed tick may be told again, with the same number and changes",
)


@singledispatch
def guarantee_of(end: object) -> Guarantee:
    """The guarantee of a source or sink of a run, whatever was given. Raises `TypeError` for neither."""
    found: Any = getattr(end, "guarantee", None)
    if not isinstance(found, Guarantee):
        if callable(end):
            return TOLD
        raise TypeError(f"{type(end).__name__} is neither a source nor a sink")
    return found


@guarantee_of.register(list)
def _(end: list[Any]) -> Guarantee:
    return Guarantee("this run only", "a list lives in this process")
