"""Distinct: each row once, however often it came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.graph.facts import Facts, Placement, Port, keyed
from penstock.graph.node import Operator

if TYPE_CHECKING:
    from penstock.expr.tree import Expr


@dataclass(frozen=True, slots=True)
class Distinct(Operator):
    """A row leaves when its first copy comes, and is taken back with its last copy.

    columns: every column of the input, as expressions.

    >>> from penstock.testing import show
    >>> show(lambda numbers: numbers.distinct(), numbers=[1, 2, 1])
    + 1
    + 2
    """

    kind: ClassVar[str] = "distinct"
    columns: tuple[Expr, ...]

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(ordered=False, once=True)

    def placement(self) -> Placement:
        return keyed(self.columns)
