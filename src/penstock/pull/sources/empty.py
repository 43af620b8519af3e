"""empty: no value at all."""

from __future__ import annotations

from penstock.pull.pieces import Source
from penstock.pull.sources.drawn import drawn


def empty() -> Source:
    """Done, to every ask; a stop is confirmed at once.

    >>> from penstock.pull import collect, pull
    >>> pull(empty(), collect()).run()
    []
    """
    return drawn("empty", lambda: iter(()))
