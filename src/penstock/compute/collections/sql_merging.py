"""Compaction in a database: updates of the same row become one, a slice at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from penstock.compute.collections.database import Transaction
from penstock.compute.collections.sql_tables import Record, after, place_of
from penstock.compute.frontier import LAST_TIME, Frontier

SLICE = 2_000
"""How many updates are merged or removed at a time: some ten milliseconds."""


def advance_since(tx: Transaction, record: Record, since: Frontier) -> None:
    tx.run("UPDATE penstock_collections SET since = $1 WHERE number = $2", since.time, record.number)


def merge(tx: Transaction, record: Record, since: Frontier, key: Callable[[bytes], bytes]) -> None:
    """Merge the next updates that the since allows to.

    Each row is at one place at most among those before `merged`, so an update has at most one to be added
    to. The earliest stays, where it is: times up to the since all count as the since.
    key: the identity of a row, from its bytes.
    """
    begin = record.first + record.merged
    limit = place_of(tx, record, since if since.time is None else after(since.time))
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
    tx.weigh(weights)
    tx.run("UPDATE penstock_collections SET merged = $1 WHERE number = $2", end - record.first, record.number)


def _after_slice(tx: Transaction, begin: int, limit: int) -> int:
    """The place before which the next slice of updates ends."""
    found = tx.run(
        "SELECT place FROM penstock_updates WHERE place >= $1 AND place < $2 "
        "ORDER BY place LIMIT 1 OFFSET $3",
        begin,
        limit,
        SLICE,
    )
    return found[0][0] if found else limit


def _same(
    tx: Transaction, begin: int, end: int, key: Callable[[bytes], bytes]
) -> list[tuple[list[int], int]]:
    """Rows with several updates, of which one is from `begin` to before `end`: their places, and the sum."""
    new = tx.run(
        "SELECT place, weight, hash, row FROM penstock_updates WHERE place >= $1 AND place < $2", begin, end
    )
    # A hash tells the collection, too. In a cross join SQLite begins with the first table, as it should.
    old = tx.run(
        "SELECT o.place, o.weight, o.hash, o.row FROM penstock_updates n CROSS JOIN penstock_updates o "
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
    """Remove some updates of collections that were dropped, or whose since is at its end."""
    gone = tx.run(
        "SELECT number, id, next, merged FROM penstock_collections "
        "WHERE since IS NULL AND (id IS NULL OR merged < next) ORDER BY number LIMIT 1"
    )
    if not gone:
        return
    number, id, next, merged = gone[0]
    record = Record(number, Frontier(None), Frontier(None), next, merged, b"")
    last = _after_slice(tx, record.first, record.end)
    tx.run("DELETE FROM penstock_updates WHERE place >= $1 AND place < $2", record.first, last)
    if last < record.end:
        return
    if id is None:
        tx.run("DELETE FROM penstock_collections WHERE number = $1", number)
    else:
        tx.run("UPDATE penstock_collections SET merged = next WHERE number = $1", number)
