"""Union: the rows of several streams of one row type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.graph.facts import Facts, Port, meet
from penstock.graph.node import Operator


@dataclass(frozen=True, slots=True)
class Union(Operator):
    """All rows of all inputs, duplicates kept (`UNION ALL`; follow with `distinct` for a set).

    In a flow of given ticks the rows of a tick come port by port; elsewhere their order
    means nothing. A tick without rows answers nothing.

    >>> from penstock.testing import show
    >>> show(lambda a, b: a.union(b), a=[1, 2], b=[2])
    + 1
    + 2
    + 2
    """

    kind: ClassVar[str] = "union"
    linear: ClassVar[bool] = True
    count: int

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),) * self.count

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return meet(inputs).but(ordered=False)
