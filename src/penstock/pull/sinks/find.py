"""find: the first value that passes a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.pull.asking import Asking
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.pieces import Sink
from penstock.pull.protocol import End
from penstock.pull.synchronous import AWAIT_BEFORE, synchronous


def find(test: Callable[[Any], object] = bool, *, default: Any = None, batch: int = 1) -> Sink:
    """The first value for which `test(value)` is true; `default` where there is none.

    Having found it, it aborts upstream; the result is there when upstream has confirmed.
    What the test raises fails upstream and is the result.

    batch: values asked for by one request: so many may be drawn beyond the one that is found.

    >>> from penstock.pull import pull, values
    >>> pull(values([1, 7, 9]), find(lambda value: value > 5)).run()
    7
    """
    checked = synchronous("find", test, fix=AWAIT_BEFORE)

    def open(module: Module, edge: Edge) -> None:
        def take(values: list[Any]) -> None:
            for value in values:
                if checked(test(value)):
                    asking.stop()
                    module.done(value)
                    return

        def over(end: End) -> None:
            if end is True:
                module.done(default)
            else:
                module.fail(end)

        asking = Asking(edge, take, over, batch=batch)
        asking.start()

    return Sink.of("find", open)
