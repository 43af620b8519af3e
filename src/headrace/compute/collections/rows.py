"""Encoding of rows in a store, and the changes of an append: checked, consolidated, ordered by time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar, cast

from headrace.compute.collections.store import CollectionAppend
from headrace.compute.errors import NegativeMultiplicity, StoreDamaged
from headrace.compute.frontier import LAST_TIME
from headrace.compute.protocol.commands import Id
from headrace.compute.protocol.responses import Counted
from headrace.errors import CheckpointDamaged
from headrace.expr.code_runtime import NAN
from headrace.expr.types import Row
from headrace.state.codec import decode, decode_each, key_encoder, value_encoder

_MINUS_ZERO = b"\xcb\x80\x00\x00\x00\x00\x00\x00\x00"
_MINUS_NAN = b"\xcb\xff\xf8\x00\x00\x00\x00\x00\x00"
HASH_BITS = 40
_MANY = 256
"""Number of rows whose hashes are compared together."""
T = TypeVar("T")


class StoredChange(NamedTuple):
    """One update, ready to be stored.

    key: identity of the row, the same for equal rows such as 1.0 and 1.00.
    row: encoded row.
    """

    time: int
    key: bytes
    row: bytes
    weight: int


class RowCodec:
    """Encoder of rows. Used by one thread at a time."""

    def __init__(self) -> None:
        self._key, self._value = key_encoder(), value_encoder()

    def key(self, row: Row) -> bytes:
        """Encode the identity of a row.

        0.0 equals -0.0, decimal 1.0 equals 1.00, and all NaNs are equal; values of different types differ.
        Raises `NotPlainData`.
        """
        return self._with_key(row)[0]

    def _with_key(self, row: Row) -> tuple[bytes, Row]:
        """Return a row's key and its canonical form, in which all zeros and all NaNs are the same."""
        data = self._key(row)
        if _MINUS_ZERO in data or _MINUS_NAN in data:
            row = _canonical(row)
            data = self._key(row)
        return data, row

    def changes(self, append: CollectionAppend) -> list[StoredChange]:
        """Return an append's changes, consolidated to one per row and time and ordered by time.

        Raises ValueError for a regressing frontier, a time outside, or a weight of more than 63 bits;
        `NotPlainData` for a row that cannot be stored.
        """
        check_frontiers(append)
        weights: dict[tuple[int, bytes], int] = {}
        rows: dict[bytes, bytes] = {}
        for row, time, weight in append.updates:
            if append.expected.has_passed(time) or not append.upper.has_passed(time):
                raise ValueError(f"{append.id}: {time} is outside of {append.expected} to {append.upper}")
            key, row = self._with_key(row)
            weights[time, key] = weights.get((time, key), 0) + weight
            if key not in rows:
                rows[key] = self._value(row)
        if any(not -LAST_TIME <= weight <= LAST_TIME for weight in weights.values()):
            raise ValueError(f"{append.id}: a weight of more than 63 bits")
        found = [
            StoredChange(time, key, rows[key], weight) for (time, key), weight in weights.items() if weight
        ]
        found.sort(key=lambda change: change.time)
        return found


def check_frontiers(append: CollectionAppend) -> None:
    if append.upper < append.expected:
        raise ValueError(f"{append.id}: from {append.expected} back to {append.upper}")


def _canonical(value: Any) -> Any:
    """Normalize the floats in a value: -0.0 to 0.0, and every NaN to the same one."""
    if isinstance(value, float):
        return value + 0.0 if value == value else NAN
    if isinstance(value, tuple | list):
        return tuple(_canonical(v) for v in cast("Iterable[Any]", value))
    if isinstance(value, frozenset):
        return frozenset(_canonical(v) for v in cast("Iterable[Any]", value))
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {_canonical(k): _canonical(v) for k, v in items}
    return value


_blake = partial(blake2b, digest_size=HASH_BITS // 8)


def hash_row_key(key: bytes) -> int:
    """Hash a row key to `HASH_BITS` bits. Collisions are resolved by comparing keys."""
    return int.from_bytes(_blake(key).digest(), "big")


def other_hashes(rows: Sequence[bytes], places: int | Sequence[int], hashes: Sequence[int]) -> Sequence[int]:
    """Return the positions of rows that do not match their stored hash. places: with collection numbers."""
    if len(rows) < _MANY:
        each = zip(rows, (places,) * len(rows) if isinstance(places, int) else places, hashes, strict=True)
        hashed = (hash - (place >> HASH_BITS << HASH_BITS) != hash_row_key(row) for row, place, hash in each)
        return [at for at, other in enumerate(hashed) if other]
    import numpy as np

    digests = np.zeros((len(rows), 8), np.uint8)
    joined = b"".join([_blake(row).digest() for row in rows])
    digests[:, -(HASH_BITS // 8) :] = np.frombuffer(joined, np.uint8).reshape(len(rows), -1)
    numbers = np.array(places, np.int64) >> HASH_BITS << HASH_BITS
    return np.flatnonzero(digests.view(">i8")[:, 0] + numbers != np.array(hashes, np.int64)).tolist()


def decode_row(data: bytes, location: str) -> Row:
    """Decode one row. Raises `StoreDamaged`."""
    return decode_rows([data], location)[0]


def decode_rows(encoded_rows: Sequence[bytes], location: str) -> list[Row]:
    """Decode several rows. Raises `StoreDamaged`."""
    try:
        rows = list(decode(_head_of_array(len(encoded_rows)) + b"".join(encoded_rows)))
    except CheckpointDamaged:
        try:
            rows = decode_each(encoded_rows)  # says what is wrong, or that rows are cut where others begin
        except CheckpointDamaged as error:
            raise damaged_store_error(location, error.why) from error
    for kind in set[type[Any]](map(type, rows)):
        if kind is not tuple:
            raise damaged_store_error(location, f"a row is a {kind.__name__}")
    return rows


def _head_of_array(length: int) -> bytes:
    """Return the msgpack array header that lets separately encoded values be decoded in one call."""
    return b"\xdd" + length.to_bytes(4, "big")


def check_chunk(most: int) -> int:
    if most < 1:
        raise ValueError(f"chunks of {most} rows")
    return most


def check_positive(id: Id, rows: list[Counted], location: str) -> list[Counted]:
    """Return the rows if all their counts are positive.

    Raises `StoreDamaged` if a count is zero or negative.
    """
    if min(map(itemgetter(1), rows)) <= 0:
        row, count = next(each for each in rows if each[1] <= 0)
        raise damaged_store_error(location, f"a row of {id!r} is there {count} times: {row!r:.200}")
    return rows


def split_into_chunks(rows: list[T], most: int) -> Iterator[list[T]]:
    """Split rows into lists of at most `most`."""
    check_chunk(most)
    return (rows[start : start + most] for start in range(0, len(rows), most))


def damaged_store_error(location: str, why: str) -> StoreDamaged:
    return StoreDamaged(
        f"the collections in {location} cannot be read",
        why=why,
        fix="restore it from a backup, or name another location",
    )


def changed_row_error(location: str, row: Row) -> StoreDamaged:
    """Return the error for a row that does not match its hash."""
    return damaged_store_error(location, f"the bytes of a row have changed; it reads {row!r:.200}")


def check_counts(
    id: Id, changes: Collection[StoredChange], counts: Callable[[Collection[bytes]], Mapping[bytes, int]]
) -> None:
    """Raise `NegativeMultiplicity` if a row's multiplicity would drop below zero at some time.

    counts: multiplicity of rows before the append, by key.
    """
    taken = {change.key for change in changes if change.weight < 0}
    if not taken:
        return
    there = dict(counts(taken))
    for change in changes:
        if change.key not in taken:
            continue
        before = there.get(change.key, 0)
        left = before + change.weight
        if left < 0:
            row = decode(change.row)
            raise NegativeMultiplicity(
                f"a row of {id!r} is retracted more often than inserted: {row!r:.200}",
                why=f"It has {before} {'copy' if before == 1 else 'copies'} at time {change.time}, and the "
                f"write retracts {-change.weight}; nothing was written.",
                fix="delete a row at most as often as it was inserted",
                id=id,
                row=row,
            )
        there[change.key] = left
