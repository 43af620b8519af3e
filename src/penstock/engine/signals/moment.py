"""What all parts of a tick agree on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Moment:
    """tick: the number of the tick at work. now: its time, in the clock of the flow; None without one."""

    tick: int = 0
    now: Any = None
