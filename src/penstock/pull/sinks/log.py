"""log: write each value for somebody to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.pull.module import Module
from penstock.pull.pieces import Sink
from penstock.pull.sinks.whole import Taking, nothing, whole
from penstock.pull.synchronous import synchronous


def log(label: str = "", *, to: Callable[[str], object] = print, batch: int = 1) -> Sink:
    """Write each value as one text: `to("label: value")`, the value as `repr` shows it. The result is None.

    to: what writes a text, as `print` or `logging.info`. What it raises fails upstream and is the result.
    batch: values asked for by one request; see `Asking`.

    >>> from penstock.pull import pull, values
    >>> pull(values([1, "b"]), log("in")).run()
    in: 1
    in: 'b'
    """
    before = f"{label}: " if label else ""
    write = synchronous("log", to, fix="for_each() of a function that writes what it is given").calling(to)

    def begin(_module: Module) -> Taking:
        def take(values: list[Any]) -> None:
            for value in values:
                write(f"{before}{value!r}")

        return take, nothing

    return whole("log", begin, batch=batch)
