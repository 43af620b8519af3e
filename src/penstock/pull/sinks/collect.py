"""collect: all values as a list."""

from __future__ import annotations

from typing import Any

from penstock.pull.module import Module
from penstock.pull.pieces import Sink
from penstock.pull.sinks.whole import Taking, whole


def collect(*, batch: int = 1) -> Sink:
    """All values, as a list. Where the stream fails, `Run.partial` holds those before.

    It holds them all in memory; `to_file` and `for_each` do not.

    batch: values asked for by one request; see `Asking`.

    >>> from penstock.pull import pull, values
    >>> pull(values("abc"), collect()).run()
    ['a', 'b', 'c']
    """

    def begin(_module: Module) -> Taking:
        found: list[Any] = []
        return found.extend, lambda: found

    return whole("collect", begin, batch=batch)
