"""last: the last value."""

from __future__ import annotations

from typing import Any

from penstock.pull.module import Module
from penstock.pull.pieces import Sink
from penstock.pull.sinks.whole import Taking, whole


def last(*, default: Any = None, batch: int = 1) -> Sink:
    """The last value; `default` of an empty stream. Where the stream fails, `Run.partial` holds it.

    batch: values asked for by one request; see `Asking`.

    >>> from penstock.pull import pull, values
    >>> pull(values([1, 2, 3]), last()).run()
    3
    """

    def begin(_module: Module) -> Taking:
        found = default

        def take(values: list[Any]) -> None:
            nonlocal found
            found = values[-1]

        return take, lambda: found

    return whole("last", begin, batch=batch)
