"""A dict in pieces, none of which grows large: no operation on it takes long, however much it holds.

A dict of millions of entries stops for tens of milliseconds when it grows, and as long to have its keys
listed. Here one piece at a time is divided in two as entries come (linear hashing), and a scan lists one
piece at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

PIECE = 16_384
"""About how many entries a piece has at most."""
_SPREAD = 0x9E3779B97F4A7C15
"""Numbers that are all multiples of a power of two must not meet in one piece."""


class IncrementalDict(Generic[K, V]):
    """A dict of `K` to `V`, without None as a value.

    pieces: all of them. The one of a key is `pieces[place(key)]`, until something is added.

    Invariant: pieces before `_divided` and those from `_half` on are filed by the larger mask, the others by
    the smaller one.
    """

    __slots__ = ("_divided", "_half", "_large", "_scans", "_small", "most", "pieces")

    def __init__(self, most: int = PIECE) -> None:
        self.most = most
        self.pieces: list[dict[K, V]] = [{}]
        self._half: int = 1
        self._small = 0
        self._large = 1
        self._divided = 0
        self._scans = 0

    def place(self, key: K) -> int:
        """The number of the piece that has or would have a key."""
        h = hash(key) * _SPREAD >> 60
        at = h & self._small
        return at if at >= self._divided else h & self._large

    def piece(self, key: K) -> dict[K, V]:
        """The piece that has or would have a key; for reading, and for changing what is there."""
        return self.pieces[self.place(key)]

    def get(self, key: K) -> V | None:
        return self.pieces[self.place(key)].get(key)

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def divide(self) -> None:
        """Divide the next piece if it is full. To be called after each `most` additions, or oftener."""
        if not self._scans and len(self.pieces[self._divided]) > self.most:
            self._divide_next()

    def keys_by_piece(self) -> Iterator[list[K]]:
        """All keys that stay there, in lists of about a piece; others may be left out or not.

        Entries may come and go meanwhile. Pieces are not divided until it is exhausted or closed.
        """
        self._scans += 1
        try:
            for piece in self.pieces:
                yield list(piece)
        finally:
            self._scans -= 1

    def _divide_next(self) -> None:
        full = self.pieces[self._divided]
        stays: dict[K, V] = {}
        goes: dict[K, V] = {}
        for key, value in full.items():
            h = hash(key) * _SPREAD >> 60
            (stays if h & self._large == self._divided else goes)[key] = value
        self.pieces[self._divided] = stays
        self.pieces.append(goes)
        self._divided += 1
        if self._divided == self._half:
            self._half *= 2
            self._small = self._large
            self._large = self._large * 2 + 1
            self._divided = 0
