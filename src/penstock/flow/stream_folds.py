"""Methods of streams that fold rows into values, and that put rows in order."""

from __future__ import annotations

from penstock.flow.stream_base import B, G, O, StreamBase, T_co


class StreamFolds(StreamBase[T_co, B, G, O]):
    """Folds, order, lattices."""

    __slots__ = ()
