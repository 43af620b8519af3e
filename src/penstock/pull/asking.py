"""Asking: how a sink reads, with as many requests in flight as keep the pipeline at work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.pull.edge import Edge
from penstock.pull.protocol import End


class Asking:
    """Asks `edge` until it ends or `stop` is called, and hands on what comes, in order.

    take: called with each list of 1 to `batch` values. over: called once, with the end.
    batch: values asked for by one request. More than one is faster; but everything upstream
           works that many values ahead of the sink.
    """

    def __init__(
        self,
        edge: Edge,
        take: Callable[[list[Any]], object],
        over: Callable[[End], object],
        *,
        batch: int = 1,
    ) -> None:
        self._edge = edge
        self._take = take
        self._over = over
        self._batch = batch
        self._stopped = False

    def start(self) -> None:
        """Have the first requests made."""
        for _ in range(self._edge.window):
            self._ask()

    def stop(self) -> None:
        """Make no further request, hand on nothing more."""
        self._stopped = True

    def _ask(self) -> None:
        self._edge(None, self._got, self._batch)

    def _got(self, end: End | None, values: Any = None, /) -> None:
        if self._stopped:
            return
        if end is not None:
            self._stopped = True
            self._over(end)
            return
        self._take(values)
        if not self._stopped:
            self._edge(None, self._got, self._batch)
