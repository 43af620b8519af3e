"""Enumerate: the number of each row, before it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.flow.lifetime import Lifetime
from penstock.flow.ordered_operator import InOrder
from penstock.graph.node import ALTERABLE

if TYPE_CHECKING:
    from penstock.expr.tree import Expr


@dataclass(frozen=True, slots=True)
class Enumerate(InOrder):
    """Each row with its number in front: `start`, `start + 1`, ... in the order of the rows.

    Nothing waits. `per` key, each key has numbers of its own, so that `start=1` is a running
    count. With lifetime TICK they begin again in each tick. An empty tick says nothing.
    A number beyond 64 bits stops the tick: `EvaluationError`.

    >>> from penstock.testing import show
    >>> show(lambda words: words.enumerate(start=1, per="value"), words=["a", "b", "a"])
    + (index=1, value='a')
    + (index=1, value='b')
    + (index=2, value='a')
    """

    kind: ClassVar[str] = "enumerate"
    reads_order: ClassVar[str] = "a row's number counts the rows before it"
    start: int = 0
    per: tuple[Expr, ...] = ()
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def describe(self) -> str:
        return ", ".join([f"from {self.start}", *self.keys_and_lifetime()])
