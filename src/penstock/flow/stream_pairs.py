"""Methods of streams that bring several streams together, by place or as products."""

from __future__ import annotations

from penstock.flow.stream_base import B, G, O, StreamBase, T_co


class StreamPairs(StreamBase[T_co, B, G, O]):
    """Several streams: products, pairs by place, one after the other."""

    __slots__ = ()
