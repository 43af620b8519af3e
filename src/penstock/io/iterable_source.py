"""Rows: Python rows, cut into ticks by hand; and any iterable of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from penstock.errors import BadRow
from penstock.io.guarantee import Guarantee
from penstock.io.source import Batch, Feed, Reader, Source, open_source

_BATCHES = "batches"
_ROWS = "rows"


@dataclass(frozen=True)
class Rows(Source):
    """Rows as users write them, one inner iterable per tick (an empty one gives nothing to its tick).

    For a table source also `ps.insert(row)`, `ps.delete(row)`, `ps.Change(row, weight)`.
    With a checkpoint, the same batches must come again after a restart: those that were taken are skipped.
    """

    guarantee: ClassVar[Guarantee] = Guarantee(
        "exactly once", "where the same batches come again after a restart: those taken are skipped"
    )
    batches: Iterable[Iterable[Any]]


class BatchesReader(Reader):
    def __init__(self, batches: Iterator[Iterable[Any]], feed: Feed) -> None:
        self._batches = batches
        self._feed = feed
        self._taken: int = feed.taken.get(_BATCHES) or 0
        for _ in islice(batches, self._taken):
            pass

    def read(self, limit: int | None) -> Batch | None:
        rows: list[Any] = []
        before = self._taken
        for batch in islice(self._batches, None if limit is None else 1):
            rows.extend(batch)
            self._taken += 1
        if self._taken == before:
            self.done = True
            return None
        batch = converted(rows, self._feed, f"{before} batches")
        self._feed.taken[_BATCHES] = self._taken
        return batch


class RowsReader(Reader):
    """Any iterable of rows, `limit` of them per tick."""

    def __init__(self, rows: Iterator[Any], feed: Feed) -> None:
        self._rows = rows
        self._feed = feed
        self._taken: int = feed.taken.get(_ROWS) or 0
        for _ in islice(rows, self._taken):
            pass

    def read(self, limit: int | None) -> Batch | None:
        rows = list(islice(self._rows, limit))
        self.done = limit is None or len(rows) < limit
        if not rows:
            return None
        batch = converted(rows, self._feed, f"{self._taken} rows")
        self._taken += len(rows)
        self._feed.taken[_ROWS] = self._taken
        return batch


def converted(rows: list[Any], feed: Feed, before: str) -> Batch:
    """Users' rows as a batch. `BadRow` counts them from 0 and says how many batches or rows came before."""
    assert feed.from_user is not None, "the engine says how its rows are made"
    try:
        return Batch(feed.from_user(rows))
    except BadRow as error:
        why = f"{error.why}\n{before} of the source were taken before.".strip()
        raise BadRow(
            error.what, where=error.where, why=why, fix=error.fix, **{**error.facts, "before": before}
        ) from error


@open_source.register
def _(source: Rows, feed: Feed) -> Reader:
    return BatchesReader(iter(source.batches), feed)


@open_source.register(Iterable)
def _(source: Iterable[Any], feed: Feed) -> Reader:
    return RowsReader(iter(source), feed)
