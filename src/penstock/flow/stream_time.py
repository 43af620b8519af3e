"""Methods of streams about event time: watermarks and windows."""

from __future__ import annotations

from penstock.flow.stream_base import B, G, O, StreamBase, T_co


class StreamTime(StreamBase[T_co, B, G, O]):
    """Event time."""

    __slots__ = ()
