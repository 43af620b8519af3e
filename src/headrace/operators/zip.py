"""Operators that pair the rows of two ordered streams by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, Operator
from headrace.graph.operator_declarations import WHOLE, Facts, Need, Placement, Port, meet
from headrace.operators.lifetime import DEPENDS_ON_CUT, Lifetime, with_lifetimes
from headrace.operators.unservable import IN_ORDER

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


# --- zip operator: pair the rows of two ordered streams by position -------------------------------


@dataclass(frozen=True, slots=True)
class Zip(Operator):
    """Pairs of the first rows, the second rows, and so on.

    A row without a partner waits for one: across ticks if its input has lifetime STATIC, until the end of its
    tick for TICK; then it is dropped, and the next row of that input takes its turn. Pairs are emitted in the
    order of their positions, each as soon as it is complete. A tick without rows emits nothing.

    kept_right: positions of the columns of `right` in the output, after those of `left`.
    nondet:     reason why results may depend on the cut into ticks, if a lifetime is TICK.

    >>> from headrace.testing import show
    >>> show(lambda names, ages: names.zip(ages, suffix="_age"), names=["ann", "bob"], ages=[30, 20, 7])
    + (value='ann', value_age=30)
    + (value='bob', value_age=20)
    """

    kind: ClassVar[str] = "zip"
    kept_right: tuple[int, ...]
    lifetimes: tuple[Lifetime, Lifetime] = (Lifetime.STATIC, Lifetime.STATIC)
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("left"), Port("right"))

    def output(self, context: CheckContext) -> Columns:
        return context.all_joined_columns(self.kept_right)

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        both = meet(inputs)
        return both.but(append=True, ordered=True, det=both.det and self.nondet is None)

    def needs(self) -> tuple[Need, ...]:
        return position_needs(0) + position_needs(1)

    def guard(self) -> str | None:
        return self.nondet

    def depends_on_cut(self) -> str:
        return DEPENDS_ON_CUT if Lifetime.TICK in self.lifetimes else ""

    def placement(self) -> Placement:
        return WHOLE

    def describe(self) -> str:
        return with_lifetimes("", self.lifetimes)


def position_needs(port: int) -> tuple[Need, ...]:
    """Return the facts that an operator needs of an input that it reads by position."""
    return (
        Need(
            port,
            "append",
            "a row that is taken back would move all that stand behind it",
            "pair streams that only grow, or join() on a key",
        ),
        Need(
            port,
            "ordered",
            "rows are paired by their position",
            "declare the order in which rows come to be the one that is meant: .assume_ordered(nondet=...),\n"
            "or join() on a key",
        ),
    )


# --- zip-longest operator: pair the rows of two streams by position up to the longer one ----------


@dataclass(frozen=True, slots=True)
class ZipLongest(Operator):
    """Pairs of the rows of each tick by position, with nulls where one input is shorter.

    Both inputs are complete first, since only then the longer one is known. Each tick starts over. A tick
    without rows emits nothing.

    kept_right: positions of the columns of `right` in the output, after those of `left`.
    nondet:     reason why results may depend on the cut into ticks.

    >>> from headrace.testing import show
    >>> why = "a table is printed per tick"
    >>> show(lambda a, b: a.zip_longest(b, suffix="_b", nondet=why), a=[1, 2], b=["x"])
    + (value=1, value_b='x')
    + (value=2, value_b=None)
    """

    kind: ClassVar[str] = "zip_longest"
    kept_right: tuple[int, ...]
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        why = "nulls are given for rows that do not come"
        return (Port("left", blocking=True, why=why), Port("right", blocking=True, why=why))

    def output(self, context: CheckContext) -> Columns:
        return context.all_joined_columns(self.kept_right, may_lack=True)

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def placement(self) -> Placement:
        return WHOLE

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        both = meet(inputs)
        return both.but(append=True, ordered=True, det=both.det and self.nondet is None)

    def needs(self) -> tuple[Need, ...]:
        return position_needs(0) + position_needs(1)

    def guard(self) -> str | None:
        return self.nondet

    def depends_on_cut(self) -> str:
        return "Each tick is answered for itself, so which rows stand side by side in it decides."

    def describe(self) -> str:
        return f"nondet: {self.nondet}" if self.nondet else ""
