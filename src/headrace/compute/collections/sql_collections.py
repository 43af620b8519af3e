"""Collections in two tables of a database (`sql_tables`), for any SQL database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from headrace.compute.collections.rows import (
    HASH_BITS,
    RowCodec,
    StoredChange,
    changed_row_error,
    check_counts,
    check_positive,
    decode_row,
    decode_rows,
    hash_row_key,
    other_hashes,
    split_into_chunks,
)
from headrace.compute.collections.sql_tables import (
    CollectionRecord,
    Database,
    PageSizer,
    Transaction,
    find_collection,
    find_place,
    frontier_after,
    lookup_collection,
    read_pages,
    read_rows,
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
)
from headrace.compute.frontier import LAST_TIME, START, Frontier
from headrace.compute.protocol.commands import Id
from headrace.compute.protocol.responses import Counted, Update
from headrace.expr.types import Row

SLICE = 2_000
"""Number of updates merged or removed at a time, which takes some ten milliseconds."""


_FEW = 8
"""How many times as many updates are merged as not, if those that are not are looked up one by one."""


def advance_since(tx: Transaction, record: CollectionRecord, since: Frontier) -> None:
    tx.run("UPDATE headrace_collections SET since = $1 WHERE number = $2", since.time, record.number)


def merge_next_slice(
    tx: Transaction, record: CollectionRecord, since: Frontier, key: Callable[[bytes], bytes]
) -> None:
    """Merge the next slice of updates up to the since.

    Each row has at most one update before `merged`, so a new update is added to at most one other. The
    earliest update keeps its place, since all times up to the since count as the since.
    key: returns the identity of an encoded row.
    """
    begin = record.first_place + record.merged
    limit = find_place(tx, record, since if since.time is None else frontier_after(since.time))
    if begin >= limit:
        return
    end = _after_slice(tx, begin, limit)
    gone: list[int] = []
    weights: list[tuple[int, int]] = []
    for places, weight in _same(tx, begin, end, key):
        if not weight:
            gone += places
        elif -LAST_TIME <= weight <= LAST_TIME:
            gone += places[1:]
            weights.append((weight, places[0]))
    tx.remove(gone)
    tx.set_weights(weights)
    tx.run(
        "UPDATE headrace_collections SET merged = $1 WHERE number = $2",
        end - record.first_place,
        record.number,
    )


def _after_slice(tx: Transaction, begin: int, limit: int) -> int:
    """Return the exclusive end of the next slice of updates."""
    found = tx.run(
        "SELECT place FROM headrace_updates WHERE place >= $1 AND place < $2 "
        "ORDER BY place LIMIT 1 OFFSET $3",
        begin,
        limit,
        SLICE,
    )
    return found[0][0] if found else limit


def _same(
    tx: Transaction, begin: int, end: int, key: Callable[[bytes], bytes]
) -> list[tuple[list[int], int]]:
    """Find rows with several updates, one of them in [begin, end). Returns their places and total weights."""
    new = tx.run(
        "SELECT place, weight, hash, row FROM headrace_updates WHERE place >= $1 AND place < $2", begin, end
    )
    # A hash tells the collection, too. In a cross join SQLite begins with the first table, as it should.
    old = tx.run(
        "SELECT o.place, o.weight, o.hash, o.row FROM headrace_updates n CROSS JOIN headrace_updates o "
        "WHERE o.hash = n.hash AND n.place >= $1 AND n.place < $2 AND o.place < $1",
        begin,
        end,
    )
    by_hash: dict[int, dict[int, tuple[int, bytes]]] = defaultdict(dict)
    for place, weight, hash, row in (*old, *new):
        by_hash[hash][place] = weight, bytes(row)
    rows: dict[bytes, dict[int, int]] = defaultdict(dict)
    for updates in by_hash.values():
        if len(updates) > 1:
            for place, (weight, row) in updates.items():
                rows[key(row)][place] = weight
    return [(sorted(places), sum(places.values())) for places in rows.values() if len(places) > 1]


def sweep(tx: Transaction) -> None:
    """Delete some updates of collections that were dropped or have reached since END."""
    gone = tx.run(
        "SELECT number, id, next, merged FROM headrace_collections "
        "WHERE since IS NULL AND (id IS NULL OR merged < next) ORDER BY number LIMIT 1"
    )
    if not gone:
        return
    number, id, next, merged = gone[0]
    record = CollectionRecord(number, Frontier(None), Frontier(None), next, merged, b"")
    last = _after_slice(tx, record.first_place, record.end)
    tx.run("DELETE FROM headrace_updates WHERE place >= $1 AND place < $2", record.first_place, last)
    if last < record.end:
        return
    if id is None:
        tx.run("DELETE FROM headrace_collections WHERE number = $1", number)
    else:
        tx.run("UPDATE headrace_collections SET merged = next WHERE number = $1", number)


def _has_history(bounds: CollectionBounds) -> bool:
    """Return whether a collection can be read as of several times."""
    since, upper = bounds.since.time, bounds.upper.time
    return since is not None and upper is not None and since + 1 < upper


class SqlCollections(Collections):
    """Implementation of collections common to all databases."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._codec = RowCodec()  # of the writer
        self._checking = RowCodec()  # of the readers

    def create(self, id: Id, description: bytes, upper: Frontier = START) -> None:
        check_id(id)
        with self._database.write_transaction() as tx:
            there = lookup_collection(tx, id)
            if there is not None:
                check_same_collection(id, description, there.description)
                return
            tx.run(
                "INSERT INTO headrace_collections (id, description, since, upper, next, merged) "
                "VALUES ($1, $2, 0, $3, 0, 0)",
                id,
                description,
                upper.time,
            )

    def drop(self, id: Id) -> None:
        with self._database.write_transaction() as tx:
            tx.run("UPDATE headrace_collections SET id = NULL, since = NULL WHERE id = $1", id)
            sweep(tx)

    def all(self) -> dict[Id, bytes]:
        with self._database.read_transaction() as tx:
            found = tx.run(
                "SELECT id, description FROM headrace_collections WHERE id IS NOT NULL ORDER BY number"
            )
        return {id: bytes(description) for id, description in found}

    def bounds(self, ids: Sequence[Id]) -> list[CollectionBounds]:
        with self._database.read_transaction() as tx:
            return [find_collection(tx, id).bounds for id in ids]

    def append(self, appends: Sequence[CollectionAppend]) -> None:
        with self._database.write_transaction() as tx:
            for append in appends:
                self._append(tx, append, self._codec.changes(append))

    def _append(self, tx: Transaction, append: CollectionAppend, changes: list[StoredChange]) -> None:
        there = find_collection(tx, append.id)
        check_expected(append.id, append.expected, there.upper)
        if there.since.ended:
            changes = []
        check_counts(append.id, changes, lambda keys: self._counts(tx, there, keys))
        first = there.first_place
        tx.insert(
            (place, change.time, change.weight, first + hash_row_key(change.key), change.row)
            for place, change in enumerate(changes, there.end)
        )
        tx.run(
            "UPDATE headrace_collections SET upper = $1, next = $2 WHERE number = $3",
            append.upper.time,
            there.next + len(changes),
            there.number,
        )

    def _counts(
        self, tx: Transaction, there: CollectionRecord, keys: Collection[bytes]
    ) -> Mapping[bytes, int]:
        """Return the multiplicity of each row by row key."""
        counts: dict[bytes, int] = defaultdict(int)
        hashes = {there.first_place + hash_row_key(key) for key in keys}
        for weight, row in tx.updates_with_hashes(hashes):
            key = self._key(row)
            if there.first_place + hash_row_key(key) not in hashes:
                raise changed_row_error(self._database.location, decode_row(row, self._database.location))
            counts[key] += weight
        return counts

    def compact(self, id: Id, since: Frontier) -> None:
        with self._database.write_transaction() as tx:
            there = find_collection(tx, id)
            if since > there.since:
                advance_since(tx, there, since)
            else:
                since = there.since
            if not since.ended:
                merge_next_slice(tx, there, since, self._key)
            sweep(tx)
        self._database.tidy()

    def erase(self) -> dict[Id, CollectionBounds]:
        for id in (*self.all(), None):
            while self._merge_some(id):
                pass
        self._database.erase_deleted()
        ids = list(self.all())
        found = dict(zip(ids, self.bounds(ids), strict=True))
        return {id: bounds for id, bounds in found.items() if not bounds.since.ended and _has_history(bounds)}

    def _merge_some(self, id: Id | None) -> bool:
        """Merge a slice of a collection, or sweep a dropped one (None). Return whether anything changed."""
        with self._database.write_transaction() as tx:
            if id is None:
                before = tx.run("SELECT count(*) FROM headrace_updates")
                sweep(tx)
                return before != tx.run("SELECT count(*) FROM headrace_updates")
            there = find_collection(tx, id)
            if there.since.ended:
                return False
            merge_next_slice(tx, there, there.since, self._key)
            return find_collection(tx, id).merged > there.merged

    def snapshot(self, id: Id, at: int, chunk: int = 10_000) -> Iterator[list[Counted]]:
        with self._database.read_transaction() as tx:
            check_readable(id, find_collection(tx, id).bounds, at)
        return self._snapshot(id, at, PageSizer(chunk))

    def _snapshot(self, id: Id, at: int, reading: PageSizer) -> Iterator[list[Counted]]:
        with self._database.snapshot_transaction() as tx:
            there = find_collection(tx, id)
            check_readable(id, there.bounds, at)
            end = find_place(tx, there, frontier_after(at))
            several = self._changed_more_than_once(tx, there, end)
            codec = RowCodec()
            sums: dict[bytes, tuple[Row, int]] = {}
            for page in read_rows(tx, (there.first_place, end), reading):
                rows: list[Counted] = []
                weights, hashes, encoded = zip(*page, strict=True)
                found = self._rows_in(there.first_place, hashes, encoded)
                if several.isdisjoint(hashes):
                    rows = list(zip(found, weights))
                    page = ()
                for row, (weight, hash, _) in zip(found, page):
                    if hash not in several:
                        rows.append((row, weight))
                    else:
                        key = codec.key(row)
                        shown, count = sums.get(key, (row, 0))
                        sums[key] = shown, count + weight
                if rows:
                    yield check_positive(id, rows, self._database.location)
        rest = [(row, count) for row, count in sums.values() if count]
        for rows in split_into_chunks(rest, reading.chunk):
            yield check_positive(id, rows, self._database.location)

    def _changed_more_than_once(self, tx: Transaction, there: CollectionRecord, end: int) -> set[int]:
        """Return the hashes shared by more than one update before a place."""
        if end <= there.first_place + there.merged:
            return set()
        merged = there.first_place + there.merged
        if (end - merged) * _FEW < there.merged:
            # In a cross join SQLite begins with the first table, which has few.
            found = tx.run(
                "SELECT n.hash FROM headrace_updates n CROSS JOIN headrace_updates o "
                "WHERE o.hash = n.hash AND o.place < n.place AND n.place >= $1 AND n.place < $2",
                merged,
                end,
            )
        else:
            found = tx.run(
                "SELECT hash FROM headrace_updates WHERE hash >= $1 AND hash < $2 AND place < $3 "
                "GROUP BY hash HAVING count(*) > 1",
                *there.hashes,
                end,
            )
        return {hash for (hash,) in found}

    def changes(
        self, id: Id, lower: Frontier, upper: Frontier, chunk: int = 10_000
    ) -> Iterator[list[Update]]:
        with self._database.read_transaction() as tx:
            there = find_collection(tx, id)
            check_changes(id, there.bounds, lower, upper)
            span = find_place(tx, there, lower), find_place(tx, there, upper)
        return self._changes(id, lower, upper, span, PageSizer(chunk))

    def _changes(
        self, id: Id, lower: Frontier, upper: Frontier, span: tuple[int, int], reading: PageSizer
    ) -> Iterator[list[Update]]:
        place, end = span
        while place < end:
            with self._database.read_transaction() as tx:
                check_changes(id, find_collection(tx, id).bounds, lower, upper)
                page = reading.read(tx, (place, end))
            if not page:
                return
            places, _, _, hashes, encoded = zip(*page, strict=True)
            rows = self._rows_in(places, hashes, encoded)
            yield [(row, update[1], update[2]) for row, update in zip(rows, page)]
            # What has been read may be merged now; of the last time there may be more to read.
            place, lower = page[-1][0] + 1, max(lower, Frontier(page[-1][1]))

    def _rows_in(
        self, places: int | Sequence[int], hashes: Sequence[int], encoded: Sequence[bytes]
    ) -> list[Row]:
        """Decode the rows of updates. Raises `StoreDamaged` for one that does not match its hash.

        places: of all, or one of their collection.
        """
        location = self._database.location
        rows = decode_rows(encoded, location)
        for at in other_hashes(encoded, places, hashes):
            # Most rows are encoded like their keys, and this one is not.
            place = places if isinstance(places, int) else places[at]
            first = place >> HASH_BITS << HASH_BITS
            if hashes[at] != first + hash_row_key(self._checking.key(rows[at])):
                raise changed_row_error(location, rows[at])
        return rows

    def _key(self, data: bytes) -> bytes:
        return self._codec.key(decode_row(data, self._database.location))

    def check(self, *, thorough: bool = False) -> None:
        self._database.check(thorough=thorough)
        if thorough:
            with self._database.snapshot_transaction() as tx:
                for page in read_pages(tx, (0, LAST_TIME), PageSizer(10_000)):
                    places, _, _, hashes, encoded = zip(*page, strict=True)
                    self._rows_in(places, hashes, encoded)

    def wait(self, seconds: float) -> bool:
        return self._database.wait(seconds)

    def close(self) -> None:
        self._database.close()
