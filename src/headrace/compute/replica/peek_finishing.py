"""Finishing of a peek: order, offset, limit and projection, in bounded memory."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

from headrace.compute.errors import BadMessage
from headrace.compute.protocol.commands import Finishing
from headrace.compute.protocol.responses import Counted
from headrace.compute.protocol.row_batch import RowBatch
from headrace.expr.types import Field, IntegerType, Row, Schema
from headrace.expr.value_keys import order_key

RUN = 4096
"""Number of rows sorted at a time, which takes a few milliseconds."""


class PeekFinisher(ABC):
    """Finishing of one peek: takes candidate rows and returns the rows to send.

    held: maximum number of rows held at a time.
    """

    held = 0

    @abstractmethod
    def add_rows(self, rows: Iterable[Counted]) -> bool:
        """Add some rows. Returns whether more rows can change the result."""

    def ready(self) -> list[Sequence[Counted]]:
        """Take the parts that can be sent regardless of later rows."""
        return []

    @abstractmethod
    def rows(self) -> Iterator[Sequence[Counted]]:
        """Yield the rows to send that were not ready before, in parts, each a short piece of work."""


def peek_finisher(finishing: Finishing, schema: Schema) -> PeekFinisher:
    """Create the finishing of a peek over rows of a schema.

    Raises `BadMessage` for a missing column.
    """
    for at in (*(at for at, _ in finishing.order_by), *(finishing.project or ())):
        if at >= len(schema.fields):
            raise BadMessage(
                f"there is no column at position {at}",
                why=f"The rows have {len(schema.fields)} columns.",
                fix="order and project by columns that are there",
                field="finishing",
            )
    if not finishing.order_by:
        return _Unordered(finishing)
    key = _order(finishing, schema)
    wanted = None if finishing.limit is None else finishing.limit + finishing.offset
    if wanted is not None and wanted <= RUN:
        return _Best(finishing, key, wanted)
    return _Sorted(finishing, key)


_Key = Callable[[Row], Any]
_Project = Callable[[Row], Row] | None


class _Unordered(PeekFinisher):
    """Finishing without an order, which stops as soon as it has enough rows. Batches stay in columns."""

    def __init__(self, finishing: Finishing) -> None:
        self._skip = finishing.offset
        self._left = finishing.limit
        self._positions = finishing.project
        self._project = _projection(finishing.project)
        self._taken: list[Sequence[Counted]] = []

    def add_rows(self, rows: Iterable[Counted]) -> bool:
        if self._skip or self._left is not None:
            rows = list(self._cut(rows))
        if self._project is None:
            rows = rows if isinstance(rows, Sequence) else list(rows)
        elif isinstance(rows, RowBatch) and self._positions:
            rows = rows.project(self._positions)
        else:
            rows = [(self._project(row), count) for row, count in rows]
        if rows:
            self._taken.append(rows)
            self.held = max(self.held, sum(map(len, self._taken)))
        return self._left is None or self._left > 0

    def _cut(self, rows: Iterable[Counted]) -> Iterator[Counted]:
        for row, count in rows:
            if self._skip:
                skipped = min(self._skip, count)
                self._skip -= skipped
                count -= skipped
            if self._left is not None:
                if not self._left:
                    return
                count = min(count, self._left)
                self._left -= count
            if count:
                yield row, count

    def ready(self) -> list[Sequence[Counted]]:
        taken, self._taken = self._taken, []
        return taken

    def rows(self) -> Iterator[Sequence[Counted]]:
        yield from self.ready()


class _Best(PeekFinisher):
    """Finishing by order with a limit: keeps at most twice the wanted rows, pruning when there are more."""

    def __init__(self, finishing: Finishing, key: _Key, wanted: int) -> None:
        self._finishing = finishing
        self._key = key
        self._wanted = wanted
        self._kept: list[tuple[Any, Row, int]] = []
        self._enough = False
        self._worst: Any = None

    def add_rows(self, rows: Iterable[Counted]) -> bool:
        if not self._wanted:
            return False
        key_of, kept = self._key, self._kept
        for row, count in rows:
            key = key_of(row)
            if self._enough and not key < self._worst:
                continue
            kept.append((key, row, count))
            if len(kept) >= 2 * self._wanted:
                self._thin()
        return True

    def _thin(self) -> None:
        kept = self._kept
        self.held = max(self.held, len(kept))
        kept.sort(key=itemgetter(0))
        total = 0
        for at, (_, _, count) in enumerate(kept):
            total += count
            if total >= self._wanted:
                del kept[at + 1 :]
                self._enough, self._worst = True, kept[-1][0]
                return

    def rows(self) -> Iterator[Sequence[Counted]]:
        self._thin()
        yield from _finished(self._finishing, self._kept)


class _Sorted(PeekFinisher):
    """Finishing by order without a limit: rows are sorted in runs on arrival and merged when sent."""

    def __init__(self, finishing: Finishing, key: _Key) -> None:
        self._finishing = finishing
        self._key = key
        self._runs: list[list[tuple[Any, Row, int]]] = []
        self._run: list[tuple[Any, Row, int]] = []

    def add_rows(self, rows: Iterable[Counted]) -> bool:
        key, run = self._key, self._run
        for row, count in rows:
            run.append((key(row), row, count))
            self.held += 1
        if len(run) >= RUN:
            self._close_run()
        return True

    def _close_run(self) -> None:
        self._run.sort(key=itemgetter(0))
        self._runs.append(self._run)
        self._run = []

    def rows(self) -> Iterator[Sequence[Counted]]:
        self._close_run()
        yield from _finished(self._finishing, heapq.merge(*self._runs, key=itemgetter(0)))


def _finished(finishing: Finishing, ordered: Iterable[tuple[Any, Row, int]]) -> Iterator[Sequence[Counted]]:
    """Apply offset and limit to ordered rows, in parts of `RUN` rows."""
    ending = _Unordered(finishing)
    rows = iter(ordered)
    wants_more = True
    while wants_more and (part := list(islice(rows, RUN))):
        wants_more = ending.add_rows((row, count) for _, row, count in part)
        yield [counted for ready in ending.ready() for counted in ready]


def _order(finishing: Finishing, schema: Schema) -> _Key:
    """Compile the requested order, with ties broken by all columns for agreement across replicas."""
    parts: list[str] = []
    keys: dict[str, Any] = {}
    seen: set[int] = set()
    for at, down in (*finishing.order_by, *((at, False) for at in range(len(schema.fields)))):
        if at not in seen:
            seen.add(at)
            parts.append(_part(schema.fields[at], at, down, keys))
    return eval(f"lambda row: ({', '.join(parts)},)", keys)


def _part(field: Field, at: int, down: bool, keys: dict[str, Any]) -> str:
    """Generate the code for a column's part of the sort key; `keys` receives the functions that it calls."""
    key = order_key(field.type, field.nullable, down)
    if key is None:
        return f"row[{at}]"
    if not field.nullable and isinstance(field.type, IntegerType):
        return f"-row[{at}]"
    keys[f"key{at}"] = key
    return f"key{at}(row[{at}])"


def _projection(positions: Sequence[int] | None) -> _Project:
    if positions is None:
        return None
    return lambda row: tuple(row[at] for at in positions)
