"""keys: the keys of a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.pull.pieces import Source
from penstock.pull.sources.drawn import drawn


def keys(mapping: Mapping[Any, Any]) -> Source:
    """The keys of a mapping, in its order. Ends and laziness: as `values`.

    >>> from penstock.pull import collect, pull
    >>> pull(keys({"a": 1, "b": 2}), collect()).run()
    ['a', 'b']
    """
    return drawn("keys", lambda: iter(mapping.keys()))
