"""Collections in a Delta table, readable by other programs too.

An append is one commit of the table, at exactly the version after the one whose uppers were checked; if
another process commits in between, the uppers are checked again. So appends are exclusive. All
collections share one table, partitioned by collection, so an append to several collections is atomic.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import random
from threading import RLock

from headrace.compute.collections.delta_table import (
    LAST_NUMBER,
    SCHEMA,
    ArrowTable,
    CollectionFile,
    CollectionTable,
    MultiplicitySums,
    changes_to_table,
    choose_files_to_merge,
    merge_files,
    pa,
    shared_hashes,
    updates_up_to,
    updates_with_hashes,
)
from headrace.compute.collections.rows import (
    RowCodec,
    StoredChange,
    check_chunk,
    check_counts,
    check_positive,
    decode_row,
    decode_rows,
    hash_row_key,
    split_into_chunks,
)
from headrace.compute.collections.store import (
    CollectionAppend,
    CollectionBounds,
    Collections,
    check_changes,
    check_expected,
    check_id,
    check_readable,
    check_same_collection,
    unknown_collection_error,
)
from headrace.compute.frontier import START, Frontier
from headrace.compute.protocol.commands import Id
from headrace.compute.protocol.responses import Counted, Update
from headrace.expr.types import Row

_CATALOGUE = 0
_NOTHING = SCHEMA.empty_table()
_TRIES = 200
_SHORTEST, _LONGEST = 0.005, 0.1
"""Minimum and maximum polling interval of `wait`, in seconds."""
_CLEANING = 600.0
"""Interval in seconds between removals of replaced files."""


@dataclass(frozen=True, slots=True)
class _Record:
    number: int
    description: bytes
    bounds: CollectionBounds


class DeltaCollections(Collections):
    """Store in a Delta table, created if missing, in a folder or anywhere else `deltalake` supports.

    An append takes some ten milliseconds, since it creates files, so appends should be large and infrequent.
    It survives the end of the process, but is not synced to disk. Files replaced by compaction are deleted
    an hour later, so a snapshot that is read for longer may fail with `StoreUnavailable`.
    """

    def __init__(self, path: str) -> None:
        self._lock = RLock()
        self._table = CollectionTable(path)
        self._catalogue: tuple[list[CollectionFile], dict[Id, tuple[int, bytes]]] = [], {}
        self._seen = self._table.version
        self._pause = _SHORTEST
        self._cleaned = time.monotonic()

    def _known(self) -> dict[Id, tuple[int, bytes]]:
        """Return each collection's number and description by id, at the current version."""
        files = self._table.files(_CATALOGUE)
        if files != self._catalogue[0]:
            sums = MultiplicitySums(RowCodec(), self._table.path)
            for file in files:
                for batch in self._table.batches(file, ["weight", "row"], 1_000):
                    for weight, data in zip(
                        batch.column("weight").to_pylist(), batch.column("row").to_pylist()
                    ):
                        sums.add(data, weight)
            self._catalogue = files, {id: (number, text) for (id, number, text), _ in sums.rows()}
        return self._catalogue[1]

    def _get(self, id: Id) -> _Record:
        found = self._known().get(id)
        if found is None:
            raise unknown_collection_error(id)
        number, description = found
        bounds = CollectionBounds(
            self._table.frontier("since", number), self._table.frontier("upper", number)
        )
        return _Record(number, description, bounds)

    def create(self, id: Id, description: bytes, upper: Frontier = START) -> None:
        check_id(id)

        def attempt() -> bool:
            known = self._known()
            if id in known:
                check_same_collection(id, description, known[id][1])
                return True
            number = self._table.last_collection_number() + 1
            frontiers = {_upper(number): upper, _since(number): START, LAST_NUMBER: Frontier(number)}
            return self._table.commit(self._catalogued((id, number, description), 1), frontiers)

        self._try(attempt)

    def drop(self, id: Id) -> None:
        def attempt() -> bool:
            known = self._known()
            if id not in known:
                return True
            number, description = known[id]
            return self._table.commit(self._catalogued((id, number, description), -1))

        self._try(attempt)
        self._try(self._sweep)

    def _catalogued(self, row: Row, weight: int) -> ArrowTable:
        append = CollectionAppend("catalogue", START, Frontier(1), [(row, 0, weight)])
        return changes_to_table(_CATALOGUE, RowCodec().changes(append))

    def _sweep(self) -> bool:
        """Delete the files of dropped or unreadable collections."""
        there = {number: id for id, (number, _) in self._known().items()}
        for number in self._table.collection_numbers():
            if number not in there and number != _CATALOGUE:
                return self._table.commit(_NOTHING, instead_of=f"collection = {number}") and self._sweep()
        return True

    def all(self) -> dict[Id, bytes]:
        with self._lock:
            self._table.refresh()
            return {id: description for id, (_, description) in self._known().items()}

    def bounds(self, ids: Sequence[Id]) -> list[CollectionBounds]:
        with self._lock:
            self._table.refresh()
            return [self._get(id).bounds for id in ids]

    def _try(self, attempt: Callable[[], bool]) -> None:
        """Retry an attempt on the newest version until it commits or turns out to be unnecessary."""
        for tries in range(_TRIES):
            with self._lock:
                self._table.refresh()
                if attempt():
                    return
            time.sleep(random() * 0.002 * min(tries + 1, 20))
        raise self._table.unavailable_error(f"others were faster {_TRIES} times")

    def append(self, appends: Sequence[CollectionAppend]) -> None:
        codec = RowCodec()
        changes = [codec.changes(append) for append in appends]
        self._try(lambda: self._append(appends, changes))

    def _append(self, appends: Sequence[CollectionAppend], changes: Sequence[list[StoredChange]]) -> bool:
        uppers: dict[int, Frontier] = {}
        pending: dict[int, list[StoredChange]] = defaultdict(list)
        for append, ours in zip(appends, changes):
            there = self._get(append.id)
            number = there.number
            check_expected(append.id, append.expected, uppers.get(number, there.bounds.upper))
            uppers[number] = append.upper
            if not there.bounds.since.ended:
                before = pending[number]
                check_counts(append.id, ours, partial(self._counts, number, before))
                before += ours
        moved = {_upper(number): upper for number, upper in uppers.items()}
        if not any(pending.values()) and all(append.upper == append.expected for append in appends):
            return True
        return self._table.commit(
            pa.concat_tables([_NOTHING, *(changes_to_table(*ours) for ours in pending.items())]), moved
        )

    def _counts(
        self, number: int, before: Sequence[StoredChange], keys: Collection[bytes]
    ) -> Mapping[bytes, int]:
        """Return the multiplicity of each row by row key, including pending changes."""
        codec = RowCodec()
        counts: dict[bytes, int] = defaultdict(int)
        for weight, row in updates_with_hashes(
            self._table, self._table.files(number), map(hash_row_key, keys)
        ):
            counts[codec.key(decode_row(row, self._table.path))] += weight
        for change in before:
            counts[change.key] += change.weight
        return counts

    def compact(self, id: Id, since: Frontier) -> None:
        def advance() -> bool:
            there = self._get(id)
            return since <= there.bounds.since or self._table.commit(_NOTHING, {_since(there.number): since})

        def merge() -> bool:
            there = self._get(id)
            return self._merge(there.number, there.bounds.since)

        self._try(advance)
        self._try(merge)
        self._try(self._sweep)
        if time.monotonic() - self._cleaned > _CLEANING:
            self._cleaned = time.monotonic()
            self._table.delete_replaced_files()

    def _merge(self, number: int, since: Frontier) -> bool:
        files = self._table.files(number)
        if since.ended:
            return not files or self._table.commit(_NOTHING, instead_of=f"collection = {number}")
        run = choose_files_to_merge(files, since.time or 0)
        if not run:
            return True
        where = f"collection = {number} AND time >= {run[0].first} AND time <= {run[-1].last}"
        return self._table.commit(merge_files(self._table, number, run, RowCodec()), instead_of=where)

    def snapshot(self, id: Id, at: int, chunk: int = 10_000) -> Iterator[list[Counted]]:
        with self._lock:
            self._table.refresh()
            there = self._get(id)
            check_readable(id, there.bounds, at)
            files = [file for file in self._table.files(there.number) if file.first <= at]
        return self._snapshot(id, files, at, check_chunk(chunk))

    def _snapshot(self, id: Id, files: list[CollectionFile], at: int, chunk: int) -> Iterator[list[Counted]]:
        shared = shared_hashes(self._table, files, at)
        sums = MultiplicitySums(RowCodec(), self._table.path)
        for file in files:
            for whole in self._table.batches(file, ["time", "weight", "hash", "row"], chunk):
                batch = updates_up_to(whole, file, at)
                data = batch.column("row").to_pylist()
                weights, hashes = (batch.column(name).to_pylist() for name in ("weight", "hash"))
                rows: list[Counted] = []
                for row, each, weight, hash in zip(
                    decode_rows(data, self._table.path), data, weights, hashes, strict=True
                ):
                    if hash in shared:
                        sums.add(each, weight)
                    else:
                        rows.append((row, weight))
                if rows:
                    yield check_positive(id, rows, self._table.path)
        for rows in split_into_chunks(list(sums.rows()), chunk):
            yield check_positive(id, rows, self._table.path)

    def changes(
        self, id: Id, lower: Frontier, upper: Frontier, chunk: int = 10_000
    ) -> Iterator[list[Update]]:
        with self._lock:
            self._table.refresh()
            there = self._get(id)
            check_changes(id, there.bounds, lower, upper)
            files = [
                file
                for file in self._table.files(there.number)
                if not lower.has_passed(file.last) and upper.has_passed(file.first)
            ]
        return self._changes(files, lower, upper, check_chunk(chunk))

    def _changes(
        self, files: list[CollectionFile], lower: Frontier, upper: Frontier, chunk: int
    ) -> Iterator[list[Update]]:
        for file in files:
            for batch in self._table.batches(file, ["time", "weight", "row"], chunk):
                times, weights = (batch.column(name).to_pylist() for name in ("time", "weight"))
                rows = decode_rows(batch.column("row").to_pylist(), self._table.path)
                found = [
                    (row, time, weight)
                    for row, time, weight in zip(rows, times, weights, strict=True)
                    if upper.has_passed(time) and not lower.has_passed(time)
                ]
                if found:
                    yield found

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self._happened():
            left = until - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(self._pause, left))
            self._pause = min(_LONGEST, self._pause * 1.1)
        self._pause = _SHORTEST
        return True

    def _happened(self) -> bool:
        with self._lock:
            if self._table.next_is_there():
                self._table.refresh()
            happened = self._table.version != self._seen
            self._seen = self._table.version
            return happened

    def close(self) -> None:
        pass


def _upper(number: int) -> str:
    return f"upper {number}"


def _since(number: int) -> str:
    return f"since {number}"
