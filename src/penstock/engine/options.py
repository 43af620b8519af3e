"""How a flow is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engine.progress import Progress
    from penstock.engine.queue import PerSource


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `penstock.run`, which says what they mean."""

    tick_rows: PerSource
    checkpoint: str | PathLike[str] | None
    follow: bool
    on_tick: Callable[[Progress], object] | None
    max_iterations: int | None
    end: bool | None
    confirm_within: float | None
