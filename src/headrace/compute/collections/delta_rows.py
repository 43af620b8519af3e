"""Rows in Delta files: encoding an append, and summing weights per row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from headrace.compute.collections.delta_table import SCHEMA, CollectionFile, CollectionTable
from headrace.compute.collections.rows import Change, RowCodec, decode_row, hash_row_key
from headrace.compute.collections.untyped_pyarrow import ArrowBatch, ArrowTable, compute, pa
from headrace.compute.frontier import LAST_TIME
from headrace.compute.protocol.responses import Row

_BATCH = 50_000


def changes_to_table(number: int, changes: Sequence[Change]) -> ArrowTable:
    """Convert the changes that an append makes to one collection to an Arrow table."""
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

    def changes(self, time: int) -> list[Change]:
        """Convert the sums to updates at one time. Weights of more than 63 bits are split."""
        return [
            Change(time, key, self._rows[key][1], part)
            for key, count in self._counts.items()
            for part in _parts(count)
        ]


def _parts(count: int) -> Iterator[int]:
    while count:
        part = max(-LAST_TIME, min(LAST_TIME, count))
        yield part
        count -= part


def merge_tables(
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
