"""Large values stored in chunks, so that a read or write costs only the entries it touches.

A dict of many entries is spread over chunks by key hash. As entries are added, chunks are added one at a time
by splitting an existing one, and removed likewise (linear hashing, Litwin 1980). A long list is a sequence of
chunks of similar length, split and joined as they grow and shrink. A chunk is loaded on first access, and
written if its encoding has changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, MutableMapping, MutableSequence
from datetime import date
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate, chain
from math import isqrt
from typing import Any, ClassVar, TypeAlias, cast
from zlib import crc32

from headrace.state.codec import decode, key_encoder

FROM = 512
"""Number of entries from which a value is stored in chunks. At an eighth of it, the value is stored whole
again.
"""
_ENTRIES = 64
_LEAST_RUN = 128
_SHORT = 64

LoadPiece: TypeAlias = Callable[[int], bytes | None]
Thaw: TypeAlias = Callable[[Any], Any]
Header: TypeAlias = tuple[Any, ...]
"""Plain data that says where the entries are: of a dict ("dict", pieces, entries), of a list
("list", next piece, piece, length, piece, length, ...)."""


def is_small(value: Divided) -> bool:
    """Return whether a divided value has shrunk enough to be stored whole again."""
    return len(value) < FROM // 8


class Divided(ABC):
    """Base of divided values: the loaded chunks, and their encoding when loaded."""

    __slots__ = ("_before", "_load", "_loaded", "_thaw")
    _empty: ClassVar[type[Any]]
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, load: LoadPiece, thaw: Thaw) -> None:
        self._load = load
        self._thaw = thaw
        self._loaded: dict[int, Any] = {}
        self._before: dict[int, bytes | None] = {}

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def header(self) -> Header:
        """Return the header stored in place of the value."""

    @abstractmethod
    def whole(self) -> Any:
        """Return the complete value, as a dict or list."""

    def changes(self, encode: Callable[[Any], bytes]) -> Iterator[tuple[int, bytes | None]]:
        """Yield the chunks that differ from their stored form; None for an empty one."""
        before = self._before
        for number, piece in self._loaded.items():
            after = encode(piece) if piece else None
            if after != before.get(number):
                yield number, after

    def _piece(self, number: int) -> Any:
        piece = self._loaded.get(number)
        if piece is None:
            data = self._before[number] = self._load(number)
            piece = self._loaded[number] = self._empty() if data is None else self._thaw(decode(data))
        return piece


def _nothing(number: int) -> None:
    return None


# --- dicts --------------------------------------------------------------------------------------


class ChunkedDict(Divided, MutableMapping[Any, Any]):
    """Dict in chunks, iterated chunk by chunk."""

    __slots__ = ("_hash", "_length", "_pieces")
    _empty = dict

    def __init__(self, load: LoadPiece, thaw: Thaw, pieces: int, length: int) -> None:
        super().__init__(load, thaw)
        self._pieces = pieces
        self._length = length
        self._hash = _hashing()

    @classmethod
    def of(cls, values: dict[Any, Any]) -> ChunkedDict:
        """Create from a dict that has not been stored in chunks yet."""
        made = cls(_nothing, dict, max(1, len(values) // _ENTRIES), len(values))
        for key, value in values.items():
            made._piece(made._number(key))[key] = value
        return made

    def header(self) -> Header:
        return ("dict", self._pieces, self._length)

    def whole(self) -> dict[Any, Any]:
        return dict(self.items())

    def get(self, key: Any, default: Any = None) -> Any:
        return self._piece(self._number(key)).get(key, default)

    def __getitem__(self, key: Any) -> Any:
        return self._piece(self._number(key))[key]

    def __contains__(self, key: object) -> bool:
        return key in self._piece(self._number(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        piece = self._piece(self._number(key))
        if key not in piece:
            self._length += 1
        piece[key] = value
        if self._length > self._pieces * _ENTRIES:
            self._split()

    def __delitem__(self, key: Any) -> None:
        del self._piece(self._number(key))[key]
        self._length -= 1
        if self._length * 4 < self._pieces * _ENTRIES and self._pieces > 1:
            self._join()

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(map(self._piece, range(self._pieces)))

    def items(self) -> Any:
        return chain.from_iterable(self._piece(number).items() for number in range(self._pieces))

    def values(self) -> Any:
        return chain.from_iterable(self._piece(number).values() for number in range(self._pieces))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict | ChunkedDict) and len(self) == len(other) and self.whole() == other

    def _number(self, key: Any) -> int:
        # Of the pieces there were at the last doubling, those before the rest have been split since.
        hashed, half = self._hash(key), 1 << (self._pieces.bit_length() - 1)
        number = hashed & (2 * half - 1)
        return number if number < self._pieces else hashed & (half - 1)

    def _split(self) -> None:
        new = self._pieces
        source = self._piece(new - (1 << (new.bit_length() - 1)))
        self._pieces += 1
        moved = {key: source[key] for key in source if self._number(key) == new}
        self._piece(new).update(moved)
        for key in moved:
            del source[key]

    def _join(self) -> None:
        self._pieces -= 1
        last = self._pieces
        piece = self._piece(last)
        self._piece(last - (1 << (last.bit_length() - 1))).update(piece)
        piece.clear()


def _hashing() -> Callable[[Any], int]:
    """Create a hash function that is stable across processes; equal keys have equal hashes."""
    encode = key_encoder()

    def of_encoding(key: Any) -> int:
        return crc32(encode(key))

    # Short texts and days recur in rows.
    recurring = lru_cache(1 << 10)(of_encoding)

    def hashing(key: Any) -> int:
        kind = type(key)
        if kind is date or (kind is str and len(key) <= _SHORT):
            return recurring(key)
        # Decimals hash as the numbers they equal. Python's hash of NaN differs from object to object.
        if kind is int or kind is float or kind is bool or kind is Decimal:
            return hash(key) & 0xFFFFFFFF if key == key else 0
        if kind is tuple:
            found = 0
            for part in cast("tuple[Any, ...]", key):
                found = (found * 1_000_003 ^ hashing(part)) & 0xFFFFFFFF
            return found ^ found >> 15
        # What is neither has one encoding.
        return of_encoding(key)

    return hashing


# --- lists ---------------------------------------------------------------------------------------


class ChunkedList(Divided, MutableSequence[Any]):
    """List in runs, each stored as a chunk."""

    __slots__ = ("_length", "_lengths", "_next", "_runs", "_starts")
    _empty = list

    def __init__(self, load: LoadPiece, thaw: Thaw, following: int, runs: Iterable[tuple[int, int]]) -> None:
        super().__init__(load, thaw)
        self._next = following
        self._runs: list[int] = []
        self._lengths: list[int] = []
        for number, length in runs:
            self._runs.append(number)
            self._lengths.append(length)
        self._length = sum(self._lengths)
        self._starts: list[int] | None = None

    @classmethod
    def of(cls, values: list[Any]) -> ChunkedList:
        """Create from a list that has not been stored in chunks yet."""
        made = cls(_nothing, list, 0, ())
        made._fill(values)
        return made

    def header(self) -> Header:
        runs = chain.from_iterable(zip(self._runs, self._lengths, strict=True))
        return ("list", self._next, *runs)

    def whole(self) -> list[Any]:
        return list(self)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(map(self._piece, self._runs))

    def append(self, value: Any) -> None:
        if not self._runs:
            self._fill([value])
            return
        self._piece(self._runs[-1]).append(value)
        self._grown(len(self._runs) - 1)

    def insert(self, index: int, value: Any) -> None:
        index = max(0, index + self._length) if index < 0 else index
        if index >= self._length:
            self.append(value)
            return
        at, within = self._place(index)
        self._piece(self._runs[at]).insert(within, value)
        self._grown(at)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return list(self)[index]
        at, within = self._place(self._within(index))
        return self._piece(self._runs[at])[within]

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            values = list(self)
            values[index] = value
            self._fill(values)
            return
        at, within = self._place(self._within(index))
        self._piece(self._runs[at])[within] = value

    def __delitem__(self, index: Any) -> None:
        if isinstance(index, slice):
            values = list(self)
            del values[index]
            self._fill(values)
            return
        at, within = self._place(self._within(index))
        del self._piece(self._runs[at])[within]
        self._lengths[at] -= 1
        self._length -= 1
        self._starts = None
        if self._lengths[at] < self._run() // 4:
            self._join(at)

    def extend(self, values: Iterable[Any]) -> None:
        for value in values:
            self.append(value)

    def sort(self, *, key: Any = None) -> None:
        """Sort in place, loading all chunks."""
        self._fill(sorted(self, key=key))

    def clear(self) -> None:
        self._fill([])

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, list | ChunkedList) and len(self) == len(other) and self.whole() == list(other)
        )

    def _run(self) -> int:
        # Long lists have longer runs, so that the header, which is always read, stays short.
        return max(_LEAST_RUN, isqrt(self._length))

    def _within(self, index: int) -> int:
        found = index + self._length if index < 0 else index
        if not 0 <= found < self._length:
            raise IndexError("list index out of range")
        return found

    def _place(self, index: int) -> tuple[int, int]:
        if self._starts is None:
            self._starts = [0, *accumulate(self._lengths)]
        at = bisect_right(self._starts, index) - 1
        return at, index - self._starts[at]

    def _grown(self, at: int) -> None:
        self._lengths[at] += 1
        self._length += 1
        self._starts = None
        if self._lengths[at] > 2 * self._run():
            values = self._piece(self._runs[at])
            middle = len(values) // 2 if at + 1 < len(self._runs) else self._run()
            after = self._new(values[middle:])
            del values[middle:]
            self._runs.insert(at + 1, after)
            self._lengths[at : at + 1] = [middle, len(self._loaded[after])]

    def _join(self, at: int) -> None:
        beside = at + 1 if at + 1 < len(self._runs) else at - 1
        if beside < 0 or self._lengths[at] + self._lengths[beside] > self._run():
            return
        first, second = sorted((at, beside))
        piece = self._piece(self._runs[second])
        self._piece(self._runs[first]).extend(piece)
        piece.clear()
        self._lengths[first : second + 1] = [self._lengths[first] + self._lengths[second]]
        del self._runs[second]

    def _new(self, values: list[Any]) -> int:
        number = self._next
        self._next += 1
        self._loaded[number] = values
        return number

    def _fill(self, values: list[Any]) -> None:
        """Replace the content, in new chunks."""
        for number in self._runs:
            self._piece(number).clear()
        self._length = len(values)
        run = self._run()
        parts = [values[at : at + run] for at in range(0, len(values), run)]
        self._lengths = [len(part) for part in parts]
        self._runs = [self._new(part) for part in parts]
        self._starts = None


def opened(header: Header, load: LoadPiece, thaw: Thaw | None) -> Divided:
    """Open the value with this stored header. thaw: makes the mutable form of a chunk."""
    kind, *rest = header
    if kind == "dict":
        return ChunkedDict(load, thaw or dict, *rest)
    following, *runs = rest
    return ChunkedList(load, thaw or list, following, zip(runs[::2], runs[1::2], strict=True))


def is_divided(value: Any) -> bool:
    """Return whether a value is in chunks, or large enough to be divided."""
    kind = type(value)
    return len(value) >= FROM if kind is list or kind is dict else kind is ChunkedList or kind is ChunkedDict


def divided(value: Any) -> Divided | None:
    """Divide a large dict or list into chunks; None for any other value."""
    if not is_divided(value):
        return None
    if type(value) is dict:
        return ChunkedDict.of(cast("dict[Any, Any]", value))
    return ChunkedList.of(cast("list[Any]", value)) if type(value) is list else value


def piece_numbers(header: Header) -> Iterable[int]:
    """Chunk numbers of a stored value."""
    return range(header[1]) if header[0] == "dict" else header[2::2]
