"""Slots: mappings that load what is asked for and know at the end what changed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, TypeAlias

from penstock.state.codec import decode
from penstock.state.files import Entry

Thaw: TypeAlias = Callable[[Any], Any]
Load: TypeAlias = Callable[[str, bytes], bytes | None]


class LoadedSlot(MutableMapping[Any, Any], ABC):
    """A slot over a store: a value that is asked for is loaded, and stays in memory for now.

    In memory None says that the key is known to be absent. There is no iteration:
    nobody may depend on the size of the state.
    """

    __slots__ = ("_live", "name")

    def __init__(self, name: str, live: dict[Any, Any]) -> None:
        self.name = name
        self._live = live

    @abstractmethod
    def _fetch(self, key: Any) -> Any:
        """Load the value of a key into memory; None where there is none."""

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            value = self._live[key]
        except KeyError:
            value = self._fetch(key)
        return default if value is None else value

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self._live[key] = value

    def __delitem__(self, key: Any) -> None:
        if self.get(key) is None:
            raise KeyError(key)
        self._live[key] = None

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"slot {self.name} cannot be iterated: a tick's cost must not follow the state")

    def __len__(self) -> int:
        raise TypeError(f"slot {self.name} has no length: a tick's cost must not follow the state")


class Slot(LoadedSlot):
    """The values of one slot that a tick has touched, over a store that holds the rest.

    Reading loads a value and remembers its bytes; whatever is in memory at the
    end of the tick and encodes differently has changed, also if it was changed
    in place.
    """

    __slots__ = ("_before", "_encode", "_key", "_load", "_thaw")

    def __init__(
        self,
        name: str,
        load: Load,
        thaw: Thaw | None,
        encode_key: Callable[[object], bytes],
        encode: Callable[[object], bytes],
    ) -> None:
        super().__init__(name, {})
        self._load = load
        self._thaw = thaw
        self._key = encode_key
        self._encode = encode
        self._before: dict[Any, bytes | None] = {}

    def _fetch(self, key: Any) -> Any:
        data = self._load(self.name, self._key(key))
        self._before[key] = data
        value = None if data is None else decode(data)
        if value is not None and self._thaw is not None:
            value = self._thaw(value)
        self._live[key] = value
        return value

    def changes(self) -> Iterator[Entry]:
        """The entries that differ from the store, in no order."""
        name, before, encode, encode_key = self.name, self._before, self._encode, self._key
        for key, value in self._live.items():
            after = None if value is None else encode(value)
            if key not in before or after != before[key]:
                yield name, encode_key(key), after

    def discard(self) -> None:
        """Forget what was loaded and changed."""
        self._live.clear()
        self._before.clear()
