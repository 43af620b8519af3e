"""iterate: whatever Python can iterate, also asynchronously."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import Any

from penstock.pull.pieces import Source
from penstock.pull.sources.awaited import awaited
from penstock.pull.sources.drawn import begin_of, drawn


def iterate(items: Iterable[Any] | AsyncIterable[Any]) -> Source:
    """What an iterable or an asynchronous iterable gives, drawn one by one as it is asked for.

    Begun at the first ask of a run, anew in each. An iterator gives its values once: a second run
    of it fails with `AlreadyUsed`. What it raises is the answer after the values before it.

    A stop closes a generator, which means that its `finally` has run before the stop is confirmed;
    an `anext` that is under way is cancelled first. Other iterators (an open file) are left as they are.
    Asynchronous ones work on one value at a time, and need an event loop. An iterable of both kinds is
    iterated synchronously.

    >>> from penstock.pull import collect, pull, take
    >>> pull(iterate(line.upper() for line in ["a", "b"]), collect()).run()
    ['A', 'B']
    >>> async def ticks():
    ...     for tick in range(3):
    ...         yield tick
    >>> pull(iterate(ticks()), take(2), collect()).run()
    [0, 1]
    """
    if isinstance(items, Iterable):
        return drawn("iterate", begin_of(items, "iterate"))
    return awaited(items)
