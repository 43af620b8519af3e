"""Entries of state as columns, in memory or in files that are mapped and read in place.

An entry is a slot's number, an encoded key, and an encoded value, or null for a removed key. Entries are
sorted by code, a 64-bit hash of slot and key that is the same in every process. Keys are compared where codes
are equal. A file is an Arrow file of one uncompressed batch. It never changes, so it is checked once per
process, and stays mapped.

This isn't `penstock.arrangement`, since Polars would make views of all keys and values of a file to read one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc
from xxhash import xxh3_64_intdigest

from penstock.state.chain import Part
from penstock.state.mapped_files import MappedFiles, files_of_shard

Columns: TypeAlias = "pa.RecordBatch"
Codes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint64]]"
Places: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"

SCHEMA = pa.schema(
    [("code", pa.uint64()), ("slot", pa.uint16()), ("key", pa.large_binary()), ("value", pa.large_binary())]
)
LAST_CODE = 2**64 - 1
ABSENT: Final = object()
"""Result of a search for a key that a file says nothing about; None if it says that the key was removed."""

_pc: Any = pc
_FEW = 100
"""Number of keys that are compared faster in Python."""

code_of = xxh3_64_intdigest
"""Function from a key and its slot's seed to the code."""


def seed_of(slot: str) -> int:
    """Return the number that sets the codes of a slot's keys apart from those of others."""
    return xxh3_64_intdigest(slot.encode("utf-8", "surrogatepass"))


# --- in memory ----------------------------------------------------------------------------------


def columns_of(slot: int, seed: int, keys: Sequence[bytes], values: Sequence[bytes | None]) -> Columns:
    """Return entries of one slot as columns, in the given order."""
    codes = np.fromiter((code_of(key, seed) for key in keys), np.uint64, len(keys))
    slots = np.full(len(keys), slot, np.uint16)
    arrays = [_numbers(codes), _numbers(slots), _bytes(keys), _bytes(values)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


# `pyarrow.array` and `to_numpy` would import pandas where it is installed.


def _numbers(values: Any) -> pa.Array:
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _bytes(values: Sequence[bytes | None]) -> pa.Array:
    there = np.fromiter((value is not None for value in values), np.bool_, len(values))
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(value or b"") for value in values], out=offsets[1:])
    valid = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    data = pa.py_buffer(b"".join([value or b"" for value in values]))
    return pa.Array.from_buffers(pa.large_binary(), len(values), [valid, pa.py_buffer(offsets), data])


def _to_numpy(array: Any, dtype: Any) -> Any:
    if not len(array):
        return np.empty(0, dtype)
    if dtype is np.bool_:
        bits = np.unpackbits(np.frombuffer(array.buffers()[1], np.uint8), bitorder="little")
        return bits[array.offset : array.offset + len(array)].view(np.bool_)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def codes_of(entries: Columns) -> Codes:
    return _to_numpy(entries.column(0), np.uint64)


def merged(batches: Sequence[Columns], *, whole: bool) -> Columns:
    """Merge entries into a sorted batch; of equal keys the last one stands.

    whole: nothing lies below, so removed keys are left out.
    """
    entries = _together(batches)
    places = _last_of_each(codes_of(entries), entries.column(1), entries.column(2))
    if whole and entries.column(3).null_count:
        places = places[_to_numpy(entries.column(3).is_valid(), np.bool_)[places]]
    if len(places) == len(entries) and bool((places[1:] > places[:-1]).all()):
        return entries
    return entries.take(_numbers(places))


def _together(batches: Sequence[Columns]) -> Columns:
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in SCHEMA], schema=SCHEMA)
    columns = zip(*(batch.columns for batch in batches), strict=True)
    return pa.RecordBatch.from_arrays([pa.concat_arrays(list(of)) for of in columns], schema=SCHEMA)


def _last_of_each(codes: Codes, slots: pa.Array, keys: pa.Array) -> Places:
    """Return the places of the last entry of each key, in the order of codes."""
    order = np.arange(len(codes))
    if bool((codes[1:] < codes[:-1]).any()):
        order = np.argsort(codes, kind="stable")  # which merges what is sorted
        codes = codes[order]
    alike = np.flatnonzero(codes[1:] == codes[:-1])
    if not len(alike):
        return order
    kept = np.ones(len(order), np.bool_)
    if len(alike) > _FEW and _all_equal(slots, keys, order[alike], order[alike + 1]):
        kept[alike] = False
        return order[kept]
    # Few, or several keys have one code.
    last: dict[tuple[int, bytes], int] = {}
    at = np.union1d(alike, alike + 1)
    rows = _numbers(order[at])
    pairs = zip(slots.take(rows).to_pylist(), keys.take(rows).to_pylist(), strict=True)
    for place, key in zip(at.tolist(), pairs, strict=True):
        if key in last:
            kept[last[key]] = False
        last[key] = place
    return order[kept]


def _all_equal(slots: pa.Array, keys: pa.Array, ones: Places, others: Places) -> bool:
    """Return whether the entries at some places have the keys of those at others."""
    first, second = _numbers(ones), _numbers(others)
    in_one_slot = _pc.equal(slots.take(first), slots.take(second))
    return _pc.all(_pc.and_(in_one_slot, _pc.equal(keys.take(first), keys.take(second)))).as_py()


def in_order(batches: Sequence[Columns], slot: int) -> tuple[pa.Array, Places]:
    """Return the keys of a slot in order, with the places of their last entries in all batches together."""
    own = [_to_numpy(batch.column(1), np.uint16) == slot for batch in batches]
    places = np.flatnonzero(np.concatenate(own))
    codes = np.concatenate([codes_of(batch) for batch in batches])[places]
    filtered = [
        batch.column(2).take(_numbers(np.flatnonzero(mine))) for batch, mine in zip(batches, own, strict=True)
    ]
    keys = pa.concat_arrays(filtered)
    last = _last_of_each(codes, _numbers(np.full(len(places), slot, np.uint16)), keys)
    keys = keys.take(_numbers(last))
    order = _pc.array_sort_indices(keys)
    return keys.take(order), places[last[_to_numpy(order, np.uint64)]]


def between(entries: Columns, after: int, upto: int) -> Columns:
    """Return the sorted entries with after < code <= upto."""
    codes = codes_of(entries)
    start = int(np.searchsorted(codes, np.uint64(after), "right")) if after >= 0 else 0
    stop = int(np.searchsorted(codes, np.uint64(upto), "right"))
    return entries.slice(start, stop - start)


# --- in files -----------------------------------------------------------------------------------


def batches_of(entries: Columns, most_bytes: int) -> Iterable[Columns]:
    """Divide sorted entries into pieces of about so many bytes; those of one code stay together."""
    count = -(-entries.nbytes // most_bytes)
    if count <= 1:
        return (entries,) if len(entries) else ()
    ends = [(LAST_CODE * (at + 1)) // count for at in range(count)]
    pieces = (between(entries, after, upto) for after, upto in zip([-1, *ends[:-1]], ends, strict=True))
    return (piece for piece in pieces if len(piece))


class EntryFile:
    """The entries of a file, searched in place.

    content: of the whole file. Raises `ArrowException` or `ValueError` if it isn't one of entries.
    """

    __slots__ = ("_keys", "_slots", "_valid", "_values", "codes", "entries")

    def __init__(self, content: pa.Buffer) -> None:
        reader = ipc.open_file(content)
        if reader.schema != SCHEMA or reader.num_record_batches != 1:
            raise ValueError("it has other columns")
        self.entries = entries = reader.get_batch(0)
        codes, slots, keys, values = (column.buffers() for column in entries.columns)
        self.codes: Sequence[int] = _view(codes[1], "Q")[: len(entries)]
        self._slots: Sequence[int] = _view(slots[1], "H")
        self._keys = _view(keys[1], "q"), _view(keys[2], "B")
        self._values = _view(values[1], "q"), _view(values[2], "B")
        self._valid = _view(values[0], "B") if entries.column(3).null_count else None

    def find_many(self, asked: Columns, places: Places) -> tuple[Any, list[bytes | None]]:
        """Search for the keys at some places of `asked`, in the order of codes.

        Return for each whether the file has an entry of it, and the values of those that it has.
        """
        held, codes = codes_of(self.entries), codes_of(asked)[places]
        at = np.searchsorted(held, codes)
        found = held[np.minimum(at, len(held) - 1)] == codes
        at, sought = _numbers(at[found]), _numbers(places[found])
        values: Any = self.entries.column(3).take(at).to_pylist()
        equal = [
            _to_numpy(_pc.equal(self.entries.column(n).take(at), asked.column(n).take(sought)), np.bool_)
            for n in (1, 2)
        ]
        for n in np.flatnonzero(~(equal[0] & equal[1])).tolist():
            # Several keys have the code.
            _, slot, key, _ = (column[sought[n].as_py()].as_py() for column in asked.columns)
            values[n] = self.find(at[n].as_py(), slot, key)
        found[found] = [value is not ABSENT for value in values]
        return found, [value for value in values if value is not ABSENT]

    def find(self, at: int, slot: int, key: bytes) -> object:
        """Return the value of a key with the code at a place, which is the first with this code.

        None if the file says that the key was removed, or `ABSENT`.
        """
        codes, slots, (offsets, keys) = self.codes, self._slots, self._keys
        code, end = codes[at], len(codes)
        while at < end and codes[at] == code:
            if slots[at] == slot and keys[offsets[at] : offsets[at + 1]] == key:
                return self.value(at)
            at += 1
        return ABSENT

    def value(self, at: int) -> bytes | None:
        valid = self._valid
        if valid is not None and not valid[at >> 3] >> (at & 7) & 1:
            return None
        offsets, values = self._values
        return bytes(values[offsets[at] : offsets[at + 1]])


def _view(buffer: Any, kind: Any) -> Any:
    # Comparing bytes with a view of another kind than theirs takes ten times as long.
    return memoryview(b"" if buffer is None else buffer).cast(kind)


EntryFiles: TypeAlias = MappedFiles[EntryFile]


def entry_files(folder: Path, shard: str = "") -> EntryFiles:
    """Return the mapped files of a shard, or of nobody else. Their names are relative to `folder`."""
    read = _read_entries
    return files_of_shard(folder, shard, read) if shard else MappedFiles(folder, read)


def _read_entries(content: pa.Buffer, part: Part) -> EntryFile:
    return EntryFile(content)


def write_entries(files: EntryFiles, name: str, entries: Columns) -> Part:
    """Write sorted entries to a new file. Call `make_durable` before a commit names it."""
    out = pa.BufferOutputStream()
    with ipc.new_file(out, SCHEMA) as writer:
        writer.write_batch(entries)
    return files.write(name, out.getvalue(), len(entries), int(codes_of(entries)[-1]))
