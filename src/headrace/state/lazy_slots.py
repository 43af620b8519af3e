"""Slots: mappings that load values on demand and track changes.

A large value may be stored in chunks (`chunked_values.py`). Its entry is then a header, which begins with a
byte that begins no other value, and each chunk has its own entry. The chunk's key is the value's key, then
the same byte, which ends no key, then the chunk number. So in key order, a value is followed by its chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from struct import Struct
from time import perf_counter
from typing import Any, Literal, Protocol, TypeAlias, cast

from headrace.state.chunked_values import Header, Thaw, divided, is_divided, is_small, opened, piece_numbers
from headrace.state.codec import decode

Divides: TypeAlias = Literal["nothing", "value", "fields"]

MARK = b"\xc1"
"""First byte of the header of a value in chunks, which begins no other value."""
_NUMBER = Struct(">BI")


class Store(Protocol):
    """Source of a slot's entries, by slot name and encoded key; None for a missing entry."""

    def load(self, slot: str, key: bytes, /) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class Form:
    """Storage form of a slot's values.

    thaw:    makes a decoded value mutable again; of one in chunks, each chunk. None where it need not be.
    divides: what is stored in chunks where it is large: the value, if it is a dict or list; or
             those of its fields that are, if it is a list of a few fields.
    """

    thaw: Thaw | None = None
    divides: Divides = "nothing"


class _Loaded(dict[Any, Any]):
    """Values in memory. A missing key is fetched."""

    __slots__ = ("_fetch",)

    def __init__(self, fetch: Callable[[Any], Any]) -> None:
        super().__init__()
        self._fetch = fetch

    def __missing__(self, key: Any) -> Any:
        return self._fetch(key)


def _never(value: Any) -> bool:
    return False


def _any_in_pieces(fields: Any) -> bool:
    return fields is not None and any(map(is_divided, fields))


_IN_PIECES = {"nothing": _never, "value": is_divided, "fields": _any_in_pieces}


class StateSlot(MutableMapping[Any, Any]):
    """Values of one slot touched by a tick, over a store that holds the rest.

    Reading loads a value and keeps its bytes. Any value in memory whose encoding differs at the end of the
    tick has changed, even if it was mutated in place. `seconds_loading` adds up the time that loads took.

    In memory, None marks a key known to be absent. Iteration is not supported, because nothing may depend on
    the size of the state.
    """

    __slots__ = ("_before", "_encode", "_form", "_key", "_live", "_store", "get", "name", "seconds_loading")

    def __init__(
        self,
        name: str,
        store: Store,
        form: Form,
        encode_key: Callable[[object], bytes],
        encode: Callable[[object], bytes],
    ) -> None:
        self.name = name
        self._live = live = _Loaded(self._fetch)
        # Generated code calls it for each row; a key that is in memory costs no Python call.
        self.get = live.__getitem__  # pyright: ignore[reportAttributeAccessIssue]
        self._store = store
        self._form = form
        self._key = encode_key
        self._encode = encode
        self._before: dict[Any, bytes | None] = {}
        self.seconds_loading = 0.0

    @property
    def in_memory(self) -> Mapping[Any, Any]:
        """Return the values in memory."""
        return self._live

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

    def _fetch(self, key: Any) -> Any:
        start = perf_counter()
        encoded = self._key(key)
        value = self._take(key, encoded, self._store.load(self.name, encoded))
        self.seconds_loading += perf_counter() - start
        return value

    def _take(self, key: Any, encoded: bytes, data: bytes | None) -> Any:
        """Keep a value that was loaded, and return it."""
        self._before[key] = data
        if data is None:
            value = None
        elif data[:1] == MARK:
            value = self._open(data, encoded)
        else:
            value = decode(data)
            if self._form.thaw is not None:
                value = self._form.thaw(value)
        self._live[key] = value
        return value

    def _open(self, data: bytes, key: bytes) -> Any:
        kept = value_of_header(data)
        if isinstance(kept, ChunkedPlaceholder):
            return opened(kept.header, self._loading(key, 0), self._form.thaw)
        parts = {
            at: opened(field.header, self._loading(key, at), None)
            for at, field in enumerate(kept)
            if isinstance(field, ChunkedPlaceholder)
        }
        # Nothing in the place of what is in pieces: thawing makes an empty list or dict of it.
        plain = tuple(() if at in parts else field for at, field in enumerate(kept))
        value = list(plain if self._form.thaw is None else self._form.thaw(plain))
        for at, part in parts.items():
            value[at] = part
        return value

    def _loading(self, key: bytes, field: int) -> Callable[[int], bytes | None]:
        load, name = self._store.load, self.name
        return lambda number: load(name, piece_key(key, field, number))

    def changes(self) -> tuple[list[bytes], list[bytes | None]]:
        """Return the keys of the entries that differ from the store, unordered, and their values."""
        before, encode, encode_key = self._before, self._encode, self._key
        in_pieces = _IN_PIECES[self._form.divides]
        keys: list[bytes] = []
        values: list[bytes | None] = []
        for key, value in self._live.items():
            if key not in before and in_pieces is not _never:
                before[key] = self._store.load(self.name, encode_key(key))
            data = before.get(key)
            if in_pieces(value) or (data is not None and data[:1] == MARK):
                changes = self._changes_in_pieces(encode_key(key), value, data)
                keys += changes
                values += changes.values()
                continue
            after = None if value is None else encode(value)
            if after != data or key not in before:
                keys.append(encode_key(key))
                values.append(after)
        return keys, values

    def _changes_in_pieces(self, key: bytes, value: Any, before: bytes | None) -> dict[bytes, bytes | None]:
        after, pieces = self._parts(value, key)
        if before is not None and before[:1] == MARK:
            still = set(piece_keys(after, key))
            gone = [piece for piece in piece_keys(before, key) if piece not in still]
            pieces = {**dict.fromkeys(gone), **pieces}
        return pieces if after == before else {key: after, **pieces}

    def _parts(self, value: Any, key: bytes) -> tuple[bytes | None, dict[bytes, bytes | None]]:
        """Encode a value: its own entry, and the entries of its changed chunks."""
        if value is None:
            return None, {}
        pieces: dict[bytes, bytes | None] = {}
        if self._form.divides == "value":
            stored = self._stored(value, key, 0, pieces)
            if not isinstance(stored, ChunkedPlaceholder):
                return self._encode(stored), pieces
            return MARK + self._encode(("value", stored.header)), pieces
        fields = [self._stored(field, key, at, pieces) for at, field in enumerate(value)]
        if not any(isinstance(field, ChunkedPlaceholder) for field in fields):
            return self._encode(fields), pieces
        entries = [(True, f.header) if isinstance(f, ChunkedPlaceholder) else (False, f) for f in fields]
        return MARK + self._encode(("fields", entries)), pieces

    def _stored(self, value: Any, key: bytes, field: int, pieces: dict[bytes, bytes | None]) -> Any:
        found = divided(value)
        if found is None:
            return value
        if is_small(found):
            return found.whole()
        if found is not value:
            # Not opened from its chunks: one that it leaves empty may be stored of the value it replaces.
            pieces.update({piece_key(key, field, n): None for n in piece_numbers(found.header())})
        for number, data in found.changes(self._encode):
            pieces[piece_key(key, field, number)] = data
        return ChunkedPlaceholder(found.header())

    def discard(self) -> None:
        """Discard loaded and changed values."""
        self._live.clear()
        self._before.clear()


# --- values in pieces, as entries ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChunkedPlaceholder:
    """Placeholder for a value or field whose content is stored in chunks."""

    header: Header


def piece_key(key: bytes, field: int, number: int) -> bytes:
    """Return the key of a value's chunk. field: the field it belongs to; 0 for the value itself."""
    return key + MARK + _NUMBER.pack(field, number)


def value_of_header(data: bytes) -> ChunkedPlaceholder | tuple[Any, ...]:
    """Decode a header: of a divided value, or of a list of fields, some of them divided."""
    kind, content = decode(data[1:])
    if kind == "value":
        return ChunkedPlaceholder(content)
    return tuple(ChunkedPlaceholder(field) if is_headed else field for is_headed, field in content)


def is_piece(key: bytes, whole: bytes) -> bool:
    """Return whether an entry is a chunk of the value stored under the key `whole`."""
    return len(key) > len(whole) and key.startswith(whole + MARK)


def whole_values(entries: Iterable[tuple[str, bytes, bytes]]) -> Iterator[tuple[str, bytes, Stored]]:
    """Group the ordered entries of a shard by value: slot, key, value with its chunks."""
    slot, key = "", b""
    stored: Stored | None = None
    for in_slot, at, data in entries:
        if stored is not None and in_slot == slot and is_piece(at, key):
            stored.pieces[at] = data
            continue
        if stored is not None:
            yield slot, key, stored
        slot, key, stored = in_slot, at, Stored(at, data)
    if stored is not None:
        yield slot, key, stored


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored value: its entry, and those of its chunks."""

    key: bytes
    data: bytes
    pieces: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])

    @property
    def size(self) -> int:
        """Total bytes of keys and values."""
        return len(self.key) + len(self.data) + sum(len(k) + len(v) for k, v in self.pieces.items())

    def value(self) -> Any:
        """Return the decoded value, with its chunks joined."""
        return put_together(self.data, self.key, self.pieces)


def put_together(data: bytes, key: bytes, pieces: dict[bytes, bytes]) -> Any:
    """Decode a value, joining its chunks."""
    if data[:1] != MARK:
        return decode(data)
    kept = value_of_header(data)

    def whole(part: ChunkedPlaceholder, field: int) -> Any:
        return opened(part.header, lambda number: pieces.get(piece_key(key, field, number)), None).whole()

    if isinstance(kept, ChunkedPlaceholder):
        return whole(kept, 0)
    return tuple(
        whole(part, at) if isinstance(part, ChunkedPlaceholder) else part for at, part in enumerate(kept)
    )


def piece_keys(data: bytes | None, key: bytes) -> Iterable[bytes]:
    """Return the keys of a stored value's chunks; none if it is stored whole."""
    if data is None or data[:1] != MARK:
        return ()
    kept = value_of_header(data)
    parts = ((0, kept),) if isinstance(kept, ChunkedPlaceholder) else tuple(enumerate(kept))
    return (
        piece_key(key, field, number)
        for field, part in parts
        if isinstance(part, ChunkedPlaceholder)
        for number in cast("Iterable[int]", piece_numbers(part.header))
    )
