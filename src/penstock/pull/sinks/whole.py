"""Whole: sinks that read to the end, and have then one result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.pull.asking import Asking
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.pieces import Sink
from penstock.pull.protocol import End

Taking = tuple[Callable[[list[Any]], object], Callable[[], Any]]
"""`take(values)` is called with each batch, in order; `result()` once, at the end."""


def whole(name: str, begin: Callable[[Module], Taking], *, batch: int) -> Sink:
    """A sink that begins anew in each run. Where the stream fails, the result until then is `Run.partial`."""

    def open(module: Module, edge: Edge) -> None:
        take, result = begin(module)

        def over(end: End) -> None:
            if end is True:
                module.done(result())
            else:
                module.fail(end, result())

        Asking(edge, take, over, batch=batch).start()

    return Sink.of(name, open)


def drop(_values: list[Any]) -> None:
    """Take values and do nothing with them."""


def nothing() -> None:
    """The result of a sink that has none."""
