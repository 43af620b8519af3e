"""Methods of streams that go row by row."""

from __future__ import annotations

from penstock.flow.stream_base import B, G, O, StreamBase, T_co


class StreamRows(StreamBase[T_co, B, G, O]):
    """Row by row: no state, no waiting."""

    __slots__ = ()
