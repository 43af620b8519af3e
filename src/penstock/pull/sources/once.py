"""once: a single value."""

from __future__ import annotations

from typing import Any

from penstock.pull.pieces import Source
from penstock.pull.sources.drawn import drawn


def once(value: Any) -> Source:
    """One value, then done. A stop is confirmed at once.

    None is a value like any other; the original makes `once(null)` an empty stream, which is `empty()`.

    >>> from penstock.pull import collect, pull
    >>> pull(once(None), collect()).run()
    [None]
    """
    return drawn("once", lambda: iter((value,)))
