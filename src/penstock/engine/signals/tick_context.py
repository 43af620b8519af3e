"""What all parts of a tick agree on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TickContext:
    """tick: the number of the tick at work."""

    tick: int = 0
