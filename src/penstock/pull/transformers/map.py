"""map: a function of each value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.pull.pieces import Transformer
from penstock.pull.synchronous import refuse_async


def map(function: Callable[[Any], Any]) -> Transformer:
    """`function(value)` for each value, in order. Fused with its neighbours.

    What the function raises fails the source with it; when that has confirmed, downstream gets it.

    >>> from penstock.pull import collect, pull, values
    >>> pull(values([1, 2, 3]), map(lambda x: x * x), collect()).run()
    [1, 4, 9]
    """
    refuse_async("map", function, fix="async_map(function) awaits it", passes_on=True)
    # Not the builtin: a StopIteration of the function would pass for the end of a batch.
    return Transformer.of_kernel("map", lambda: lambda items: (function(item) for item in items))
