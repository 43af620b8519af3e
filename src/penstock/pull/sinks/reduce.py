"""reduce: one value of all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import NoValue
from penstock.pull.asking import Asking
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.pieces import Sink
from penstock.pull.protocol import End
from penstock.pull.synchronous import AWAIT_BEFORE, synchronous

_NOTHING: Any = object()


def reduce(function: Callable[[Any, Any], Any], initial: Any = _NOTHING, *, batch: int = 1) -> Sink:
    """`function(so_far, value)` applied to the values in order; the last answer is the result.

    It begins with `initial`, or with the first value. Without either (an empty stream) the run fails with
    `NoValue` (the original gave nothing at all). Where the stream fails, `Run.partial` holds
    the answer until then. What the function raises fails upstream and is the result.

    batch: values asked for by one request; see `Asking`.

    >>> from penstock.pull import pull, values
    >>> pull(values([1, 2, 3]), reduce(lambda total, value: total + value, 10)).run()
    16
    """
    checked = synchronous("reduce", function, fix=AWAIT_BEFORE)

    def open(module: Module, edge: Edge) -> None:
        so_far = initial

        def take(values: list[Any]) -> None:
            nonlocal so_far
            for value in values:
                so_far = value if so_far is _NOTHING else function(so_far, value)
            checked(so_far)

        def over(end: End) -> None:
            if end is not True:
                module.fail(end, None if so_far is _NOTHING else so_far)
            elif so_far is _NOTHING:
                raise NoValue(
                    "reduce() of an empty stream",
                    where=[module.location],
                    why="There is no first value to begin with, and no initial one was given.",
                    fix="say what nothing comes to: reduce(function, initial)",
                )
            else:
                module.done(so_far)

        Asking(edge, take, over, batch=batch).start()

    return Sink.of("reduce", open)
