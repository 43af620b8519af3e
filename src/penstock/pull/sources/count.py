"""count: whole numbers, one after the other."""

from __future__ import annotations

import itertools

from penstock.pull.pieces import Source
from penstock.pull.sources.drawn import drawn


def count(last: int | None = None, start: int = 0) -> Source:
    """`start`, `start + 1`, ... to `last`, which is included; without `last` for ever.

    Done after `last`, at once where it is before `start`; a stop is confirmed at once.
    `count(0)` is 0 alone; the original takes a last of 0 for none, and counts for ever.

    >>> from penstock.pull import collect, pull
    >>> pull(count(3), collect()).run()
    [0, 1, 2, 3]
    """
    if last is None:
        return drawn("count", lambda: itertools.count(start))
    return drawn("count", lambda: iter(range(start, last + 1)))
