"""What is known of a stream, and what an operator says of itself.

Facts are found by analysis and never by an operator's name: an operator states
what it needs of its inputs and what it gives, as data and small functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
    `completeness`: it only tells which rows of the other inputs are complete, so where all input is there at
    once the operator can do without it.
    """

    name: str
    blocking: bool = False
    delay: Delay = Delay.NONE
    why: str = ""
    completeness: bool = False


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


class EqualRows(Enum):
    """The key that is made of all columns of a port's rows."""

    ALL_COLUMNS = "all columns"


EQUAL_ROWS = EqualRows.ALL_COLUMNS
PortKey: TypeAlias = "tuple[Expr, ...] | EqualRows | None"


@dataclass(frozen=True, slots=True)
class Placement:
    """Which rows of an operator's inputs must meet, so that it can answer them.

    Build with `ANYWHERE`, `WHOLE` or `keyed(...)`.
    whole: all of them.
    keys:  per port, the expressions over that port's columns whose equal values belong together, `EQUAL_ROWS`
           for all its columns, or None where every row of the port is needed beside all others; None as a
           whole where the whole input, or nothing, belongs together.
    """

    whole: bool = False
    keys: tuple[PortKey, ...] | None = None


ANYWHERE = Placement()
WHOLE = Placement(whole=True)


def keyed(*keys: PortKey) -> Placement:
    """Rows meet where the keys of their ports are equal; those of a port of None, everywhere.

    Without any key expression all rows have the same key: then it is `WHOLE`.
    """
    return Placement(keys=keys) if any(keys) else WHOLE


Lineage: TypeAlias = "Mapping[str, Expr]"
"""By output column, the expression over a port's columns that has the same value."""


@dataclass(frozen=True, slots=True)
class Unservable:
    """A reason why answers are no function of the rows at a time, with a way out.

    A flow behind replicas begins with the rows of some time, each with its count, in any order and cut into
    any ticks. why: a sentence. fix: what the user can write instead.
    """

    why: str
    fix: str


# -- state -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyedSlot:
    """A slot whose keys are values of the operator's keys for the input `port`.

    bare:    a single value is not in a tuple.
    of_pair: the operator's key is the first part of each key.
    """

    port: int = 0
    bare: bool = True
    of_pair: bool = False


@dataclass(frozen=True, slots=True)
class PendingSlot:
    """A slot with input rows under `()` that wait for the next tick."""


@dataclass(frozen=True, slots=True)
class CalendarSlots:
    """Three slots, `<prefix>calendar`, `counts` and `due`: at what time which keys of `keys` are over."""

    prefix: str
    keys: KeyedSlot


@dataclass(frozen=True, slots=True)
class SessionSlots:
    """Three slots of sessions, which are numbered through."""

    keys: KeyedSlot


SlotLayout: TypeAlias = KeyedSlot | PendingSlot | CalendarSlots | SessionSlots


def calendar(prefix: str, keys: KeyedSlot) -> dict[str, SlotLayout]:
    """The slots of a calendar, each with its layout."""
    layout = CalendarSlots(prefix, keys)
    return dict.fromkeys((f"{prefix}calendar", f"{prefix}counts", f"{prefix}due"), layout)
