"""Lifetimes: what an operator remembers of an input when a tick ends."""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeAlias

from penstock.errors import Place, WrongType
from penstock.flow.columns import shown


class Lifetime(Enum):
    """STATIC: all of it, for the whole run. TICK: nothing, each tick is answered for itself.

    An operator with an input of lifetime TICK answers of that input's rows of this
    tick (and of all rows so far of its STATIC inputs), in plain rows that are never
    taken back: what such a tick answered is not contradicted by the next.
    """

    STATIC = "static"
    TICK = "tick"


LifetimeName: TypeAlias = Literal["static", "tick"]
Lifetimes: TypeAlias = "LifetimeName | tuple[LifetimeName, LifetimeName]"

DEPENDS_ON_CUT = 'With lifetime="tick" it answers each tick for itself, so where ticks end shows.'


def lifetimes(given: object, ports: int, what: str, place: Place) -> tuple[Lifetime, ...]:
    """One lifetime per port, from one name for all or a tuple of names. Raises `WrongType`."""
    names = given if isinstance(given, tuple) else (given,) * ports
    try:
        found = tuple(Lifetime(name) for name in names)
    except ValueError:
        found = ()
    if len(found) != ports:
        several = f", or a tuple of {ports} of them, one per input" if ports > 1 else ""
        raise WrongType(
            f"{what} got lifetime {shown(given)}",
            where=[place],
            fix=f'"static" or "tick"{several}',
        )
    return found
