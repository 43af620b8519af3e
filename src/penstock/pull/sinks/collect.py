"""collect: all values as a list."""

from __future__ import annotations

from typing import Any

from penstock.pull.asking import Asking
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.pieces import Sink
from penstock.pull.protocol import End


def collect(*, batch: int = 1) -> Sink:
    """All values, as a list. Where the stream fails, `Run.partial` holds those before.

    batch: values asked for by one request; see `Asking`.

    >>> from penstock.pull import pull, values
    >>> pull(values("abc"), collect()).run()
    ['a', 'b', 'c']
    """

    def open(module: Module, edge: Edge) -> None:
        found: list[Any] = []

        def over(end: End) -> None:
            if end is True:
                module.done(found)
            else:
                module.fail(end, found)

        Asking(edge, found.extend, over, batch=batch).start()

    return Sink.of("collect", open)
