"""How far event time is known to have passed: the rule from times seen to the watermark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.flow.spans import shown_span

if TYPE_CHECKING:
    from penstock.flow.spans import Span


@dataclass(frozen=True, slots=True)
class WatermarkPolicy:
    """The watermark: the greatest time seen in `column` less `lateness`, down to a multiple of `every`.

    A row is late if its time is below the watermark that the rows before it
    make. Multiples are counted from 1970, or from 0; without `every` nothing is
    rounded.
    """

    column: str
    lateness: Span
    every: Span | None = None

    def __str__(self) -> str:
        steps = "" if self.every is None else f" in steps of {shown_span(self.every)}"
        return f"{self.column} less {shown_span(self.lateness)}{steps}"
