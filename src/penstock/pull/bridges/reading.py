"""Reading: a sink that asks when the code beside the pipeline wants values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.pieces import Sink
from penstock.pull.protocol import End


class Reading:
    """Of one run. `arrived` holds lists of values; they and the requests under way are at most a window.

    woken: called when there is something new: a list, or the end.
    """

    def __init__(self, name: str, batch: int) -> None:
        self.sink = Sink.of(name, self._open)
        self.arrived: deque[list[Any]] = deque()
        self.woken: Callable[[], object] | None = None
        self.over = False
        self._batch = batch
        self._under_way = 0
        self._module: Module | None = None

    def _open(self, module: Module, edge: Edge) -> None:
        self._module = module
        self._edge = edge
        if self.over:
            module.done()
        else:
            self._ask()

    def fill(self) -> None:
        """Make as many requests as the window allows."""
        if self._module is not None:
            self._module.enter(self._ask)

    def _ask(self) -> None:
        while not self.over and self._under_way + len(self.arrived) < self._edge.window:
            self._under_way += 1
            self._edge.batch(self._batch, self._got)

    def _got(self, end: End | None, values: Any = None, /) -> None:
        self._under_way -= 1
        if end is None:
            self.arrived.append(values)
        elif not self.over:
            self._finish(end)
        woken, self.woken = self.woken, None
        if woken is not None:
            woken()

    def _finish(self, end: End) -> None:
        assert self._module is not None
        self.over = True
        if end is True:
            self._module.done()
        else:
            self._module.fail(end)

    def stop(self) -> None:
        """Abort, unless the stream has ended."""
        if not self.over:
            self.over = True
            if self._module is not None:
                self._module.enter(self._module.done)
