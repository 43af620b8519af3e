"""Versions of a table as sums of changes at times, in immutable files sorted by key hash.

    <tick>-<attempt>-<first time>-<last time>-<changes>-<digest>.arrow    hash, time, weight, encoded row

The rows at a time are the sum of the changes up to it, so a version costs no more than its changes: there are
too many times for a folder each. Tasks write one file per tick; merging makes one of several, and moves
changes at times that no reader distinguishes to the last of these times. What counts is what the commit of
the last tick names. Since files are sorted, a key is found by bisection, and tasks share a scan by ranges of
hashes. Files are mapped into memory: one that was removed is still there for those who had opened it.
"""

from __future__ import annotations

import heapq
import os
import uuid
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.ipc as ipc

from headrace.expr.value_keys import nested_key
from headrace.file_system import sync_file
from headrace.state.chain import damaged
from headrace.state.codec import decode, key_encoder, value_encoder

ChangeEntry: TypeAlias = tuple[int, bytes, int, int]
"""Key hash, encoded row, time, weight."""

_ENDING = ".arrow"
_CHANGES_OF_A_BATCH = 65_536
_FORM = pa.schema([("hash", pa.int64()), ("time", pa.int64()), ("weight", pa.int64()), ("row", pa.binary())])
LAST_HASH = 2**63 - 1


class RowKeyEncoder:
    """Function from rows to key bytes, equal for equal keys. Used by one thread.

    key: positions of the columns; empty for the whole row.
    """

    def __init__(self, key: Sequence[int]) -> None:
        self._key = tuple(key)
        self._encode = key_encoder()

    def of_row(self, row: Sequence[Any]) -> bytes:
        return self.of_values(tuple(row[at] for at in self._key) if self._key else tuple(row))

    def of_values(self, values: tuple[Any, ...]) -> bytes:
        return self._encode(nested_key(values))


def hash_of(key: bytes) -> int:
    """Hash of a key, from 0 to `LAST_HASH`. Different keys may share a hash."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big") >> 1


# -- written ------------------------------------------------------------------------------------------


def write_entries(
    folder: Path, tick: int, attempt: str, entries: Iterable[ChangeEntry], *, durable: bool
) -> str:
    """Write sorted entries to a new file and return its name, or "" if there are none."""
    aside = folder / f".{attempt}"
    count, first, last = 0, LAST_HASH, 0
    with pa.OSFile(str(aside), "wb") as out, ipc.new_file(out, _FORM) as writer:
        for batch in _batches(entries):
            times = batch.column("time").to_pylist()
            first, last = min(first, min(times)), max(last, max(times))
            count += len(batch)
            writer.write_batch(batch)
    if not count:
        aside.unlink()
        return ""
    if durable:
        sync_file(aside)
    name = f"{tick:012d}-{attempt}-{first}-{last}-{count}-{_digest(aside)}{_ENDING}"
    os.replace(aside, folder / name)
    return name


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, lambda: blake2b(digest_size=8)).hexdigest()


def _batches(entries: Iterable[ChangeEntry]) -> Iterator[pa.RecordBatch]:
    waiting: list[ChangeEntry] = []
    for entry in entries:
        waiting.append(entry)
        if len(waiting) >= _CHANGES_OF_A_BATCH:
            yield _batch(waiting)
            waiting = []
    if waiting:
        yield _batch(waiting)


def _batch(entries: list[ChangeEntry]) -> pa.RecordBatch:
    hashes, rows, times, weights = zip(*entries, strict=True)
    columns = [
        pa.array(hashes, pa.int64()),
        pa.array(times, pa.int64()),
        pa.array(weights, pa.int64()),
        pa.array(rows, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_FORM)


def consolidated_entries(changes: Iterable[Sequence[Any]], key: Sequence[int]) -> list[ChangeEntry]:
    """Sort and consolidate changes, with weight and time last, into entries."""
    filing, encode = RowKeyEncoder(key), value_encoder()
    total: dict[tuple[bytes, int], int] = {}
    hashes: dict[bytes, int] = {}
    for change in changes:
        row = tuple(change[:-2])
        encoded = encode(row)
        if encoded not in hashes:
            hashes[encoded] = hash_of(filing.of_row(row))
        total[encoded, change[-1]] = total.get((encoded, change[-1]), 0) + change[-2]
    return sorted((hashes[row], row, time, weight) for (row, time), weight in total.items() if weight)


# -- read ---------------------------------------------------------------------------------------------


class ChangeFile:
    """File of changes, opened on first read. Several threads may read it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.path = folder / name
        _, _, first, last, count, self._digest = name.removesuffix(_ENDING).split("-")
        self.first, self.last, self.count = int(first), int(last), int(count)

    @cached_property
    def _batches(self) -> list[pa.RecordBatch]:
        with pa.memory_map(str(self.path)) as source:
            reader = ipc.open_file(source)
            return [reader.get_batch(at) for at in range(reader.num_record_batches)]

    @cached_property
    def _starts(self) -> list[int]:
        return [_numbers(batch, 0)[0] for batch in self._batches]

    def check(self) -> None:
        """Raise `CheckpointDamaged` if the file was altered."""
        try:
            found = _digest(self.path)
        except OSError as error:
            raise damaged(self.path, str(error)) from error
        if found != self._digest:
            raise damaged(self.path, "its content does not match the digest in its name")

    def open(self) -> None:
        """Map the file, so that it stays readable after its removal."""
        _ = self._batches

    def entries(self, low: int = 0, high: int = LAST_HASH) -> Iterator[ChangeEntry]:
        """Yield the entries with low <= hash <= high, sorted."""
        batches = self._batches
        for number in range(max(0, bisect_left(self._starts, low) - 1), len(batches)):
            if self._starts[number] > high:
                return
            batch = batches[number]
            hashes = _numbers(batch, 0)
            begin, end = bisect_left(hashes, low), bisect_right(hashes, high)
            if begin == end:
                continue
            rows = cast("list[bytes]", batch.column(3).slice(begin, end - begin).to_pylist())
            yield from zip(
                hashes[begin:end],
                rows,
                _numbers(batch, 1)[begin:end],
                _numbers(batch, 2)[begin:end],
                strict=True,
            )


def _numbers(batch: pa.RecordBatch, column: int) -> Sequence[int]:
    array: Any = batch.column(column)
    numbers = memoryview(array.buffers()[1]).cast("q")
    return cast("Sequence[int]", numbers[array.offset : array.offset + len(array)])


def sum_changes(
    files: Iterable[ChangeFile], low: int, high: int, time: int
) -> list[tuple[tuple[Any, ...], int]]:
    """Sum the changes up to a time, for hashes from `low` to `high`. Returns rows with non-zero counts."""
    total: Counter[bytes] = Counter()
    for file in files:
        if file.first <= time:
            whole = file.last <= time
            for _, row, at, weight in file.entries(low, high):
                if whole or at <= time:
                    total[row] += weight
    rows: dict[tuple[Any, ...], int] = {}
    for encoded, count in total.items():
        if count:
            row = decode(encoded)
            rows[row] = rows.get(row, 0) + count
    return [counted for counted in rows.items() if counted[1]]


# -- merged -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MergeTask:
    """Task that merges several files into one and returns its name, or nothing if no changes are left.

    There is one part.
    """

    folder: Path
    names: tuple[str, ...]
    least: int
    tick: int
    durable: bool

    def __call__(self, part: int) -> Iterator[bytes]:
        files = (ChangeFile(self.folder, name) for name in self.names)
        entries = _advanced(heapq.merge(*(file.entries() for file in files)), self.least)
        attempt = uuid.uuid4().hex[:12]
        name = write_entries(self.folder, self.tick, attempt, entries, durable=self.durable)
        if name:
            yield name.encode()


def _advanced(entries: Iterable[ChangeEntry], least: int) -> Iterator[ChangeEntry]:
    """Consolidate sorted entries, moving times before `least` up to it."""
    current: tuple[int, bytes] | None = None
    weights: dict[int, int] = {}
    for hashed, row, time, weight in entries:
        if current != (hashed, row):
            yield from _of_row(current, weights)
            current, weights = (hashed, row), {}
        at = max(time, least)
        weights[at] = weights.get(at, 0) + weight
    yield from _of_row(current, weights)


def _of_row(of: tuple[int, bytes] | None, weights: dict[int, int]) -> Iterator[ChangeEntry]:
    if of is not None:
        yield from ((*of, time, weight) for time, weight in sorted(weights.items()) if weight)
