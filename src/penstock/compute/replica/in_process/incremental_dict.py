"""Dict in buckets of bounded size, so that every operation is short however many entries it has.

A dict of millions of entries pauses for tens of milliseconds when it grows or its keys are listed. Here one
bucket at a time is split as entries are added (linear hashing), and a scan lists one bucket at a time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

BUCKET = 16_384
"""Approximate limit on the entries of a bucket."""
_SPREAD = 0x9E3779B97F4A7C15
"""Multiplier that spreads hashes which are multiples of a power of two."""


class IncrementalDict(Generic[K, V]):
    """Dict from `K` to `V`, without None as a value.

    buckets: all buckets. The bucket of a key is `buckets[bucket_number(key)]`, until an entry is added.

    Invariant: buckets before `_divided` and those from `_half` on are filed by the larger mask, the others by
    the smaller one.
    """

    __slots__ = ("_divided", "_half", "_large", "_scans", "_small", "buckets", "most")

    def __init__(self, most: int = BUCKET) -> None:
        self.most = most
        self.buckets: list[dict[K, V]] = [{}]
        self._half: int = 1
        self._small = 0
        self._large = 1
        self._divided = 0
        self._scans = 0

    def bucket_number(self, key: K) -> int:
        """Return the bucket number of a key, present or not."""
        h = hash(key) * _SPREAD >> 60
        at = h & self._small
        return at if at >= self._divided else h & self._large

    def bucket(self, key: K) -> dict[K, V]:
        """Return a key's bucket, for reading and for changing existing entries."""
        return self.buckets[self.bucket_number(key)]

    def get(self, key: K) -> V | None:
        return self.buckets[self.bucket_number(key)].get(key)

    def __len__(self) -> int:
        return sum(map(len, self.buckets))

    def divide(self) -> None:
        """Split the next bucket if it is full. Call it at least once per `most` additions."""
        if not self._scans and len(self.buckets[self._divided]) > self.most:
            self._divide_next()

    def keys_by_bucket(self) -> Iterator[list[K]]:
        """Yield the keys of each bucket; keys added or removed meanwhile may be missing.

        Entries may be added and removed meanwhile. No bucket is split until it is exhausted or closed.
        """
        self._scans += 1
        try:
            for bucket in self.buckets:
                yield list(bucket)
        finally:
            self._scans -= 1

    def _divide_next(self) -> None:
        full = self.buckets[self._divided]
        stays: dict[K, V] = {}
        goes: dict[K, V] = {}
        for key, value in full.items():
            h = hash(key) * _SPREAD >> 60
            (stays if h & self._large == self._divided else goes)[key] = value
        self.buckets[self._divided] = stays
        self.buckets.append(goes)
        self._divided += 1
        if self._divided == self._half:
            self._half *= 2
            self._small = self._large
            self._large = self._large * 2 + 1
            self._divided = 0
