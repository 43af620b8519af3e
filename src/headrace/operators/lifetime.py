"""Lifetimes of operator state: the whole run or one tick."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, overload

from headrace.errors import SourceLocation, WrongType
from headrace.graph.node import Operator
from headrace.graph.operator_declarations import Need
from headrace.operators.column_arguments import render_argument

if TYPE_CHECKING:
    from headrace.lowering.reference import Bags, OperatorInput


class Lifetime(Enum):
    """Lifetime of an operator's memory of an input. STATIC: the whole run. TICK: the current tick only.

    An operator with an input of lifetime TICK uses only this tick's rows of that input (and all rows so far
    of its STATIC inputs). Its output is plain rows that are never retracted.
    """

    STATIC = "static"
    TICK = "tick"


LifetimeName: TypeAlias = Literal["static", "tick"]
Lifetimes: TypeAlias = "LifetimeName | tuple[LifetimeName, LifetimeName]"

DEPENDS_ON_CUT = 'With lifetime="tick" it answers each tick for itself, so where ticks end shows.'


class TickDependent(Operator):
    """Base of operators whose output may depend on how rows are divided into ticks.

    nondet: field defined by each subclass: the user's reason why it may.
    """

    __slots__ = ()
    nondet: str | None

    def guard(self) -> str | None:
        return self.nondet

    def describe(self) -> str:
        return f"nondet: {self.nondet}" if self.nondet else ""


class WithLifetime(TickDependent):
    """Base of operators with one input and a lifetime. lifetime: field defined by each subclass."""

    __slots__ = ()
    lifetime: Lifetime

    def depends_on_cut(self) -> str:
        return DEPENDS_ON_CUT if self.lifetime is Lifetime.TICK else ""


@overload
def parse_lifetimes(
    given: object, ports: Literal[1], what: str, location: SourceLocation
) -> tuple[Lifetime]: ...
@overload
def parse_lifetimes(
    given: object, ports: Literal[2], what: str, location: SourceLocation
) -> tuple[Lifetime, Lifetime]: ...
def parse_lifetimes(given: object, ports: int, what: str, location: SourceLocation) -> Any:
    """Parse one lifetime per port, from one name for all or a tuple of names. Raises `WrongType`."""
    names: tuple[object, ...] = (given,) * ports
    if isinstance(given, tuple):
        names = cast("tuple[object, ...]", given)
    try:
        found = tuple(Lifetime(name) for name in names)
    except ValueError:
        found = ()
    if len(found) != ports:
        several = f", or a tuple of {ports} of them, one per input" if ports > 1 else ""
        raise WrongType(
            f"{what} got lifetime {render_argument(cast('object', given))}",
            where=[location],
            fix=f'"static" or "tick"{several}',
        )
    return found


def tick_needs(given: tuple[Lifetime, ...]) -> tuple[Need, ...]:
    """Return the facts that an operator with these lifetimes requires of its inputs; none if all are STATIC.

    Inputs of lifetime TICK must be append streams. A STATIC input beside them may have retractions, but only
    between ticks, not in a loop within one.
    """
    if Lifetime.TICK not in given:
        return ()
    return tuple(
        _tick_need(port) if which is Lifetime.TICK else _beside(port) for port, which in enumerate(given)
    )


def _tick_need(port: int) -> Need:
    return Need(
        port,
        "append",
        "a tick is answered from its own rows alone,\nand could not take back what an earlier tick answered",
        'keep the input over the ticks, lifetime="static",\n'
        "or let .every_tick(nondet=...) show all of its rows in each tick, as plain rows",
    )


def _beside(port: int) -> Need:
    return Need(
        port,
        "append",
        "what a tick answered in an earlier round of the loop is not taken back",
        "feed the loop from streams that only grow",
        only_in_loop=True,
    )


def rows_by_lifetime(lifetimes: Sequence[Lifetime], inputs: Sequence[OperatorInput]) -> Bags:
    """Return an operator's input rows by lifetime: those of the tick, or all present rows."""
    sides = zip(inputs, lifetimes, strict=True)
    return [read.rows(of_tick=lifetime is Lifetime.TICK) for read, lifetime in sides]


def with_lifetimes(text: str, given: tuple[Lifetime, ...]) -> str:
    """Append the lifetimes to a description, unless all are STATIC."""
    if Lifetime.TICK not in given:
        return text
    suffix = f"lifetime {', '.join(which.value for which in given)}"
    return f"{text}, {suffix}" if text else suffix


def check_reason(nondet: object, location: SourceLocation) -> None:
    """Raise `WrongType` unless `nondet=` is a textual reason or None."""
    if nondet is None or (isinstance(nondet, str) and nondet.strip()):
        return
    raise WrongType(
        f"nondet is a reason in words, got {render_argument(nondet)}",
        where=[location],
        why="Who reads the flow wants to know why its answers may depend on ticks.",
        fix='nondet="an offer counts from the day after it was made"',
    )


def describe_lifetime(lifetime: Lifetime) -> list[str]:
    """Render a lifetime for `describe`; the default is omitted."""
    return ["per tick"] if lifetime is Lifetime.TICK else []
