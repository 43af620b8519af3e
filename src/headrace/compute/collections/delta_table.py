"""Delta table that holds collections: its files, frontiers, and commits at an exact version.

    collection  int64   the number of the collection; the table is partitioned by it
    time, weight        int64
    hash        int64   of the row, to find it without reading rows
    row         binary

Number 0 is the catalogue: its rows are (id, number, description). Frontiers are transaction ids in the
table's log: "upper 3", "since 3"; -1 is the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.compute  # pyright: ignore[reportMissingTypeStubs]
from deltalake.exceptions import DeltaError

from headrace.compute.collections.rows import (
    RowCodec,
    StoredChange,
    damaged_store_error,
    decode_row,
    hash_row_key,
)
from headrace.compute.errors import StoreUnavailable
from headrace.compute.frontier import LAST_TIME, Frontier
from headrace.errors import HeadraceError
from headrace.expr.types import Row
from headrace.tables.delta_table import DeltaLakeTable

# pyarrow has no type stubs: the type checker sees its modules as `Any`.
ArrowTable: TypeAlias = Any
ArrowBatch: TypeAlias = Any
pa: Any = pyarrow
compute: Any = pyarrow.compute  # pyright: ignore[reportUnknownMemberType]

LAYOUT = "collections of Headrace, layout 1"
SCHEMA: Any = pa.schema(
    [
        ("collection", pa.int64()),
        ("time", pa.int64()),
        ("weight", pa.int64()),
        ("hash", pa.int64()),
        ("row", pa.binary()),
    ]
)
_CONFIGURATION = {
    "delta.dataSkippingStatsColumns": "time",
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 2 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}
KEPT_HOURS = 1
"""Hours for which replaced files are kept, so that snapshots in progress can still read them."""
LAST_NUMBER = "last"
"""Transaction id under which the log records the highest number assigned so far."""
_END = -1


@dataclass(frozen=True, slots=True)
class CollectionFile:
    """File of a collection, with times from `first` to `last`."""

    path: str
    first: int
    last: int
    rows: int
    size: int


class CollectionTable:
    """Delta table that holds collections, as of the last `refresh`; created if missing."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._table = DeltaLakeTable(path, self._error)
        with self._table.reporting(""):
            if not self._table.exists():
                self._create()
            description = self._table.description
        if description != LAYOUT:
            raise damaged_store_error(path, f"it is a Delta table that says {description!r}, not {LAYOUT!r}")
        self._listed: tuple[int, dict[int, list[CollectionFile]]] | None = None

    def _create(self) -> None:
        try:
            self._table.create(
                SCHEMA, partitioned_by=["collection"], description=LAYOUT, properties=_CONFIGURATION
            )
        except DeltaError:
            if not self._table.exists():  # else somebody was faster
                raise

    def _error(self, _what: str, why: str, _fix: str, error: Exception) -> HeadraceError:
        """Return the error of a folder that cannot be reached, or of a table that is damaged."""
        if isinstance(error, OSError):
            return self.unavailable_error(why)
        return damaged_store_error(self.path, why)

    def unavailable_error(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"the collections in {self.path} cannot be used now",
            why=why,
            fix="check its folder and disk",
        )

    @property
    def version(self) -> int:
        return self._table.seen

    def refresh(self) -> None:
        with self._table.reporting(""):
            self._table.refresh()

    def frontier(self, kind: str, number: int) -> Frontier:
        with self._table.reporting(""):
            time = self._table.seen_transaction(f"{kind} {number}")
        if time is None:
            raise damaged_store_error(self.path, f"the {kind} of collection {number} is missing")
        return Frontier(None if time == _END else time)

    def last_collection_number(self) -> int:
        """Return the highest number ever assigned to a collection."""
        with self._table.reporting(""):
            return self._table.seen_transaction(LAST_NUMBER) or 0

    def collection_numbers(self) -> list[int]:
        """Return the numbers of the collections that have files."""
        return sorted(self._by_number())

    def files(self, number: int) -> list[CollectionFile]:
        """List a collection's files, ordered by time; consecutive files overlap in at most one time."""
        return self._by_number().get(number, [])

    def _by_number(self) -> dict[int, list[CollectionFile]]:
        if self._listed is None or self._listed[0] != self.version:
            self._listed = self.version, self._list()
        return self._listed[1]

    def _list(self) -> dict[int, list[CollectionFile]]:
        found: dict[int, list[CollectionFile]] = {}
        with self._table.reporting(""):
            listed = self._table.seen_files()
        for file in listed:
            one = CollectionFile(
                file["path"], file["min.time"], file["max.time"], file["num_records"], file["size_bytes"]
            )
            found.setdefault(file["partition.collection"], []).append(one)
        for files in found.values():
            files.sort(key=lambda one: (one.first, one.last, one.path))
        return found

    def batches(self, file: CollectionFile, columns: list[str], most: int) -> Iterator[ArrowBatch]:
        """Read the rows of a file in the order of writing."""
        with self._table.reporting(""):
            yield from self._table.batches_of_file(file.path, columns, most)

    def commit(
        self,
        rows: ArrowTable,
        frontiers: Mapping[str, Frontier] | None = None,
        *,
        instead_of: str | None = None,
    ) -> bool:
        """Commit the next version; return False, without writing, if another process has committed it.

        frontiers: new frontiers by kind and number. instead_of: condition on the rows to replace.
        """
        transactions = {
            app: _END if frontier.time is None else frontier.time
            for app, frontier in (frontiers or {}).items()
        }
        try:
            return self._table.commit_next(rows, transactions, instead_of=instead_of)
        except self._table.errors as error:
            raise self.unavailable_error(str(error)) from error

    def delete_replaced_files(self) -> None:
        """Delete files that were replaced more than `KEPT_HOURS` ago."""
        with self._table.reporting(""):
            self._table.vacuum(KEPT_HOURS)

    def next_is_there(self) -> bool:
        """Return whether a newer version exists. Cheap for a local folder."""
        with self._table.reporting(""):
            return self._table.newer_is_there()


_BATCH = 50_000


def changes_to_table(number: int, changes: Sequence[StoredChange]) -> ArrowTable:
    """Convert an append's changes to one collection into an Arrow table."""
    return pa.table(
        [
            [number] * len(changes),
            [change.time for change in changes],
            [change.weight for change in changes],
            [hash_row_key(change.key) for change in changes],
            [change.row for change in changes],
        ],
        schema=SCHEMA,
    )


def updates_up_to(batch: ArrowBatch, file: CollectionFile, time: int) -> ArrowBatch:
    return batch if file.last <= time else batch.filter(compute.less_equal(batch.column("time"), time))


def shared_hashes(table: CollectionTable, files: Iterable[CollectionFile], time: int) -> set[int]:
    """Return the hashes shared by more than one update up to a time."""
    chunks = [
        updates_up_to(batch, file, time).column("hash")
        for file in files
        for batch in table.batches(file, ["time", "hash"], _BATCH)
    ]
    counts = compute.value_counts(pa.chunked_array(chunks, pa.int64()))
    return set(counts.filter(compute.greater(counts.field("counts"), 1)).field("values").to_pylist())


def updates_with_hashes(
    table: CollectionTable, files: Iterable[CollectionFile], hashes: Iterable[int]
) -> Iterator[tuple[int, bytes]]:
    """Yield the weights and rows of updates with any of these hashes."""
    wanted = pa.array(list(hashes), pa.int64())
    for file in files:
        for batch in table.batches(file, ["weight", "hash", "row"], _BATCH):
            found = batch.filter(compute.is_in(batch.column("hash"), wanted))
            yield from zip(found.column("weight").to_pylist(), found.column("row").to_pylist())


class MultiplicitySums:
    """Multiplicities of rows, summed over updates by row key."""

    def __init__(self, codec: RowCodec, location: str) -> None:
        self._codec = codec
        self._location = location
        self._counts: dict[bytes, int] = defaultdict(int)
        self._rows: dict[bytes, tuple[Row, bytes]] = {}

    def add(self, data: bytes, weight: int) -> None:
        row = decode_row(data, self._location)
        key = self._codec.key(row)
        self._counts[key] += weight
        self._rows.setdefault(key, (row, data))

    def rows(self) -> Iterator[tuple[Row, int]]:
        return ((self._rows[key][0], count) for key, count in self._counts.items() if count)

    def changes(self, time: int) -> list[StoredChange]:
        """Convert the sums to updates at one time. Weights of more than 63 bits are split."""
        return [
            StoredChange(time, key, self._rows[key][1], part)
            for key, count in self._counts.items()
            for part in _parts(count)
        ]


def _parts(count: int) -> Iterator[int]:
    while count:
        part = max(-LAST_TIME, min(LAST_TIME, count))
        yield part
        count -= part


def merge_files(
    table: CollectionTable, number: int, files: Sequence[CollectionFile], codec: RowCodec
) -> ArrowTable:
    """Merge several files' updates into one table, with each row once, at the last time."""
    time = files[-1].last
    shared = shared_hashes(table, files, time)
    sums = MultiplicitySums(codec, table.path)
    wanted = pa.array(list(shared), pa.int64())
    chunks: list[ArrowTable] = []
    for file in files:
        for batch in table.batches(file, ["weight", "hash", "row"], _BATCH):
            both = compute.is_in(batch.column("hash"), wanted)
            once = batch.filter(compute.invert(both))
            n = once.num_rows
            columns = [
                [number] * n,
                [time] * n,
                once.column("weight"),
                once.column("hash"),
                once.column("row"),
            ]
            chunks.append(pa.table(columns, schema=SCHEMA))
            again = batch.filter(both)
            for weight, data in zip(again.column("weight").to_pylist(), again.column("row").to_pylist()):
                sums.add(data, weight)
    return pa.concat_tables([*chunks, changes_to_table(number, sums.changes(time))])


FEW = 8
"""Number of similar files at which they are merged into one."""


def choose_files_to_merge(files: Sequence[CollectionFile], since: int) -> list[CollectionFile]:
    """Choose the files to merge now.

    These are the newest files up to the since, back to one that is much larger than their total, so that each
    update is merged only a few times, however long the history. Files that share a time stay together.
    """
    ready = [file for file in files if file.last <= since]
    run: list[CollectionFile] = []
    rows = 0
    for file in reversed(ready):
        if run and file.rows > 2 * rows and file.last < run[-1].first:
            break
        run.append(file)
        rows += file.rows
    return run[::-1] if len(run) >= FEW else []
