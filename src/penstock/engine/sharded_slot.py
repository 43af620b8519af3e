"""A large slot as many dicts, so that no tick waits for one of them to be made larger.

A dict that grows is copied whole: 0.7 million keys stop a tick for some 20 ms, 3
million for 100 ms. Sixty-four small ones are copied one at a time. A read costs a
function call more, so only slots of hundreds of thousands of keys are divided.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

SHARDS = 64
_LAST = SHARDS - 1


class ShardedSlot(MutableMapping[Any, Any]):
    """A slot over `SHARDS` dicts by the hash of the key. It takes over `values`, bit by bit.

    What was in `values` stays there until it is written or `move` takes it: so the
    change costs no tick more than a few entries.
    """

    __slots__ = ("_gets", "_old", "_shards")

    def __init__(self, values: dict[Any, Any]) -> None:
        self._old: dict[Any, Any] = values
        self._shards: tuple[dict[Any, Any], ...] = tuple({} for _ in range(SHARDS))
        self._gets = tuple(shard.get for shard in self._shards)

    def get(self, key: Any, default: Any = None) -> Any:
        value = self._gets[hash(key) & _LAST](key)
        if value is None:
            return self._old.get(key, default)
        return value

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._old:
            self._old.pop(key, None)
        self._shards[hash(key) & _LAST][key] = value

    def __delitem__(self, key: Any) -> None:
        shard = self._shards[hash(key) & _LAST]
        if key in shard:
            del shard[key]
        else:
            del self._old[key]

    def __len__(self) -> int:
        return len(self._old) + sum(map(len, self._shards))

    def __iter__(self) -> Iterator[Any]:
        yield from self._old
        for shard in self._shards:
            yield from shard

    def move(self, count: int) -> None:
        """Take over up to `count` entries that are not yet in a shard."""
        old, shards = self._old, self._shards
        for _ in range(min(count, len(old))):
            key, value = old.popitem()
            shards[hash(key) & _LAST][key] = value
        if not old:
            # An emptied dict keeps the size it had.
            self._old = {}
