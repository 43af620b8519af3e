"""Rows of a pull-stream as the batches of ticks."""

from __future__ import annotations

from typing import Any

from penstock.io.guarantee import Guarantee, guarantee_of
from penstock.io.iterable_source import converted
from penstock.io.source import Batch, Feed
from penstock.pull import Source, Transformer
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.protocol import AnswerTo, End, Read

_ROWS = "rows"
_AT_ONCE = 1000
"""Rows asked for at once where all belong to one tick, or to none."""


@guarantee_of.register
def _(end: Source) -> Guarantee:
    return Guarantee("exactly once", "where the source brings the same rows again: those taken are skipped")


def in_batches(feed: Feed, limit: int | None) -> Transformer:
    """For each ask a batch of what upstream answers to an ask for `limit` rows; None: one batch of all rows.

    Its position is the number of rows taken: as many are skipped at the beginning, so upstream must
    bring the same rows again in a later run.

    Raises `BadRow` for what is no row.
    """

    def open(_module: Module, edge: Edge) -> Read:
        return (_Whole if limit is None else _Parts)(feed, edge, limit or _AT_ONCE).read

    return Transformer.of("rows", open, linear=True)


class _Parts:
    def __init__(self, feed: Feed, edge: Edge, limit: int) -> None:
        self._feed = feed
        self._edge = edge
        self._limit = limit
        self._taken: int = feed.taken.get(_ROWS) or 0
        self._skip = self._taken
        self._answer: AnswerTo | None = None

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is not None:
            self._edge(abort, answer)
        else:
            self._answer = answer
            self._ask()

    def _ask(self) -> None:
        self._edge.batch(min(self._skip, _AT_ONCE) or self._limit, self._got)

    def _got(self, end: End | None, rows: Any = None, /) -> None:
        if end is not None:
            self._ended(end)
        elif self._skip:
            self._skip -= len(rows)
            self._ask()
        else:
            self._came(rows)

    def _came(self, rows: list[Any]) -> None:
        self._reply(rows)

    def _ended(self, end: End) -> None:
        assert self._answer is not None
        self._answer(end)

    def _reply(self, rows: list[Any]) -> None:
        assert self._answer is not None
        batch = converted(rows, self._feed, f"{self._taken} rows")
        self._taken += len(rows)
        self._answer(None, Batch(batch.rows, batch.bad, {_ROWS: self._taken}))


class _Whole(_Parts):
    """All rows in one batch."""

    def __init__(self, feed: Feed, edge: Edge, limit: int) -> None:
        super().__init__(feed, edge, limit)
        self._rows: list[Any] = []

    def _came(self, rows: list[Any]) -> None:
        self._rows.extend(rows)
        self._ask()

    def _ended(self, end: End) -> None:
        rows, self._rows = self._rows, []
        if end is True and rows:
            self._reply(rows)
        else:
            super()._ended(end)
