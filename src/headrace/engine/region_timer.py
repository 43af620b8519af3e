"""Timing of one tick's regions: each part's function is wrapped for this tick only."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headrace.engine.progress import RegionTime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.engine.machine import PartFunction
    from headrace.engine.program import Program
    from headrace.expr.types import Rows


class RegionTimer:
    """Measurements of one tick of a program. found: the regions that ran, in order."""

    def __init__(self, program: Program) -> None:
        self._parts = program.parts
        self.found: list[RegionTime] = []

    def timed(self, parts: list[PartFunction]) -> list[PartFunction]:
        """Wrap the functions of a program's parts so that their calls are measured."""
        return [(self._timed(at, function), ins, outs) for at, (function, ins, outs) in enumerate(parts)]

    def _timed(self, at: int, function: Callable[..., tuple[Rows, ...]]) -> Callable[..., tuple[Rows, ...]]:
        def measured(*inputs: Rows) -> tuple[Rows, ...]:
            began = time.perf_counter()
            made = function(*inputs)
            self._add(at, began, sum(map(len, inputs)), sum(map(len, made)))
            return made

        return measured

    def time_tick(
        self, tick: Callable[[Mapping[str, Rows]], dict[str, Rows]], inputs: Mapping[str, Rows]
    ) -> dict[str, Rows]:
        """Run and measure the tick of a flow that is a single part."""
        began = time.perf_counter()
        made = tick(inputs)
        self._add(0, began, sum(map(len, inputs.values())), sum(map(len, made.values())))
        return made

    def _add(self, at: int, began: float, rows_in: int, rows_out: int) -> None:
        seconds = time.perf_counter() - began
        self.found.append(RegionTime(self._parts[at].nodes, seconds, rows_in, rows_out))
