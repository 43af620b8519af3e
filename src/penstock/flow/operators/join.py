"""Joins: rows of two streams that agree on a key.

A join is bilinear: the change of the answer is the change on one side against
what the other side holds, so inner and semi joins stream from both sides. A
left or anti join says something about rows that are *not* there; one more
right row can take such an answer back, so its right input is complete first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from penstock.expr.tree import Expr
from penstock.flow.lifetime import DEPENDS_ON_CUT, Lifetime, tick_needs, with_lifetimes
from penstock.graph.facts import WHOLE, Facts, Need, Placement, Port, keyed, meet
from penstock.graph.node import ALTERABLE, Operator


class How(Enum):
    """Which rows a join answers with."""

    INNER = "inner"
    LEFT = "left"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def speaks_of_absence(self) -> bool:
        """Whether a further right row can take an answer back."""
        return self in (How.LEFT, How.ANTI)

    @property
    def has_right_columns(self) -> bool:
        return self in (How.INNER, How.LEFT)


@dataclass(frozen=True, slots=True)
class Join(Operator):
    """Pairs with equal keys for which `residual` is true.

    left_keys, right_keys: as many expressions on either side, over that side's
    columns, of equal types. Null equals nothing, NaN equals NaN. Without keys every
    row is paired with every other.
    residual: over the left columns followed by the right ones, named as in
    `pair_names`; only true counts; None means true.
    kept_right: positions of the right columns that the output has after the left ones.

    Multiplicities multiply (inner, left); semi and anti keep those of the left.
    A left row without a partner appears once per copy, with nulls (left), or as it is (anti).
    A tick without changes answers nothing.

    lifetimes: of left and right. Where one is TICK a tick answers its own rows of that
               side with all rows so far of the other. (STATIC, TICK) there is for inner
               joins alone; `Stream.join` makes the others of it, or of `every_tick`.
               Semi and anti joins keep the order of left rows that are of a tick.
    nondet:    why it is right that answers depend on the cut into ticks, where a
               lifetime is TICK.

    Right and full joins are made of left and anti joins (`penstock.flow.outer_joins`).

    >>> from penstock import left, right
    >>> from penstock.testing import show
    >>> show(lambda a, b: a.join(b, on=left.value == right.value, how="semi"), a=[1, 2], b=[2, 2])
    + 2
    """

    kind: ClassVar[str] = "join"
    how: How
    left_keys: tuple[Expr, ...]
    right_keys: tuple[Expr, ...]
    residual: Expr | None
    pair_names: tuple[str, ...]
    kept_right: tuple[int, ...]
    lifetimes: tuple[Lifetime, Lifetime] = (Lifetime.STATIC, Lifetime.STATIC)
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        why = "a further right row could take an answer back"
        blocking = self.how.speaks_of_absence
        return (Port("left"), Port("right", blocking=blocking, why=why if blocking else ""))

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        left, right = inputs
        both = meet(inputs).but(ordered=False)
        if Lifetime.TICK in self.lifetimes:
            in_turn = self.lifetimes[0] is Lifetime.TICK and not self.how.has_right_columns
            return both.but(
                append=True, ordered=in_turn and left.ordered, det=both.det and self.nondet is None
            )
        if self.how.speaks_of_absence:
            return both.but(append=left.append and right.append and right.bounded)
        return both

    def needs(self) -> tuple[Need, ...]:
        return tick_needs(self.lifetimes)

    def guard(self) -> str | None:
        return self.nondet

    def depends_on_cut(self) -> str:
        return DEPENDS_ON_CUT if Lifetime.TICK in self.lifetimes else ""

    def refused_in_changing_loop(self, goes_round: Sequence[bool]) -> str:
        if self.how is How.SEMI and self.residual is not None and goes_round[1]:
            return "which of its right rows let a left row pass is not kept by rounds"
        return ""

    def placement(self) -> Placement:
        return keyed(self.left_keys, self.right_keys) if self.left_keys else WHOLE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for at, (left, right) in enumerate(zip(self.left_keys, self.right_keys, strict=True)):
            yield f"left key {at}", left
            yield f"right key {at}", right
        if self.residual is not None:
            yield "residual", self.residual

    def describe(self) -> str:
        pairs = zip(self.left_keys, self.right_keys, strict=True)
        on = " and ".join(f"{left} = {right}" for left, right in pairs)
        more = "" if self.residual is None else f" and {self.residual}"
        which = f"{self.how.value} on {on}{more}" if on else f"{self.how.value} of all with all"
        return with_lifetimes(which, self.lifetimes)
