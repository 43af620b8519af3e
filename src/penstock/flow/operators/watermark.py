"""Watermark: the time below which no row of a stream will come any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.flow.operators.on_time import NEEDS
from penstock.graph.facts import WHOLE, Facts, Need, Placement, Port
from penstock.graph.node import Operator

if TYPE_CHECKING:
    from penstock.flow.watermark_policy import WatermarkPolicy


@dataclass(frozen=True, slots=True)
class Watermark(Operator):
    """One row per tick in which the watermark rose: where it stands. Null is the end of time.

    It reads the rows before they are parted in rows on time and late ones. Of a
    bounded input it is null after the first tick.
    """

    kind: ClassVar[str] = "watermark_time"
    clock: WatermarkPolicy

    def ports(self) -> tuple[Port, ...]:
        return (Port("rows"), Port("end"))

    def needs(self) -> tuple[Need, ...]:
        return NEEDS

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(bounded=False, once=True)

    def placement(self) -> Placement:
        return WHOLE

    def describe(self) -> str:
        return str(self.clock)
