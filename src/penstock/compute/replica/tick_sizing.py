"""How many rows a tick may take so that it is over in a few milliseconds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

LEAST = 16
MOST = 8192
_LONG = 0.005
_SHORT = 0.002


class TickSizer:
    """Learns from ticks how many rows go into a few milliseconds. most: so many."""

    def __init__(self) -> None:
        self.most = 512

    def parts(self, rows: Sequence[T]) -> Iterator[Sequence[T]]:
        """Rows in parts of `most`, as it is when a part is asked for."""
        at = 0
        while at < len(rows):
            part = rows[at : at + self.most]
            at += len(part)
            yield part

    def took(self, rows: int, seconds: float) -> None:
        """A tick of so many rows took so long."""
        if seconds > _LONG and rows > LEAST:
            self.most = max(LEAST, min(self.most, rows) // 2)
        elif seconds < _SHORT and rows >= self.most:
            self.most = min(MOST, self.most * 2)
