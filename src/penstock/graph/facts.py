"""What is known of a stream, and what an operator says of itself.

Facts are found by analysis and never by an operator's name: an operator states
what it needs of its inputs and what it gives, as data and small functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.expr.tree import Expr


@dataclass(frozen=True, slots=True)
class Facts:
    """Five facts of an edge. Stronger is True; unrelated inputs meet by `and`.

    bounded: all of its rows come with the first tick.
    append:  no row is ever taken back; weights are +1.
    ordered: the order of rows means something and is kept.
    once:    no row is delivered twice.
    det:     the accumulated rows depend on the accumulated input alone.
    """

    bounded: bool = False
    append: bool = True
    ordered: bool = False
    once: bool = True
    det: bool = True

    def but(self, **facts: bool) -> Facts:
        """These facts with some of them replaced."""
        return replace(self, **facts)

    @property
    def held(self) -> tuple[str, ...]:
        """Names of the facts that hold, in the order of their declaration."""
        return tuple(name for name in FACT_NAMES if getattr(self, name))


FACT_NAMES = ("bounded", "append", "ordered", "once", "det")


def meet(facts: Iterable[Facts]) -> Facts:
    """The facts that hold of every one of `facts`; all of them of none."""
    result = Facts(bounded=True, append=True, ordered=True, once=True, det=True)
    for f in facts:
        result = Facts(*(getattr(result, n) and getattr(f, n) for n in FACT_NAMES))
    return result


class Delay(Enum):
    """When what enters a port is seen."""

    NONE = "same tick"
    TICK = "next tick"
    LAZY = "next tick, which does not start for it"


@dataclass(frozen=True, slots=True)
class Port:
    """An input of an operator.

    `blocking`: a further row could take back an answer, so the input is
    complete for the tick before the operator answers. `why` is the reason, a
    clause that finishes "waits for it because ...".
    """

    name: str
    blocking: bool = False
    delay: Delay = Delay.NONE
    why: str = ""


@dataclass(frozen=True, slots=True)
class Need:
    """A fact that an operator needs of one of its inputs, with reason and way out.

    `why` finishes "it is needed because ...". `only_in_loop`: asked only of an
    operator that is part of a cycle; where every way round passes a delay, the
    user's reason for that (`Operator.guard`) does instead. `across_ticks`: of
    the cycles, only in those that pass a delay.
    """

    port: int
    fact: str
    why: str
    fix: str
    only_in_loop: bool = False
    across_ticks: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """Which rows of an operator's inputs must be in one place.

    Build with `ANYWHERE`, `WHOLE` or `keyed(...)`.
    keys: per port, the expressions over that port's columns whose equal values
    belong together, or None where every row of the port is needed in every place;
    None as a whole where the whole input, or nothing, belongs together.
    """

    whole: bool = False
    keys: tuple[tuple[Expr, ...] | None, ...] | None = None


ANYWHERE = Placement()
WHOLE = Placement(whole=True)


def keyed(*keys: tuple[Expr, ...] | None) -> Placement:
    """Rows meet where the key expressions of their ports are equal; those of a port of None, everywhere."""
    return Placement(keys=keys)
