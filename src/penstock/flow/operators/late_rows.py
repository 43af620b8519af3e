"""Late rows: the rows of an ordered stream that come after the watermark has passed them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.flow.operators.on_time import NEEDS
from penstock.graph.facts import WHOLE, Need, Placement, Port
from penstock.graph.node import Operator

if TYPE_CHECKING:
    from penstock.flow.watermark_policy import WatermarkPolicy


@dataclass(frozen=True, slots=True)
class LateRows(Operator):
    """The rows that `on_time` keeps back: both together are all rows, each of them once.

    A tick without rows answers nothing. Rows keep their order.

    >>> from penstock import col
    >>> from penstock.testing import show
    >>> show(lambda at: at.watermark(col.value, lateness=2).late(), at=[1, 5, 3, 2, 6])
    + 2
    """

    kind: ClassVar[str] = "late_rows"
    clock: WatermarkPolicy

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def needs(self) -> tuple[Need, ...]:
        return NEEDS

    def placement(self) -> Placement:
        return WHOLE

    def describe(self) -> str:
        return str(self.clock)
