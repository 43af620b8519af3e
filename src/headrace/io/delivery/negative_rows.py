"""Held-back rows: rows of a table with negative multiplicity.

A row's deletion may arrive before its insertion, or name a row that never arrives. Without a key the two
cases look the same until the input ends. A changelog records such a change as it is. A table hides the row,
remembers its negative multiplicity, and cancels it against a later insertion. At the end of the run, rows
still held back are reported with the sources they may come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.atomic_files import move
from headrace.expr.types import Schema
from headrace.io.source import Row

MAX_LISTED = 10
"""Limit on the rows that a report lists one by one."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Report of the rows a table still holds back.

    rows:    number of distinct rows.
    some:    a few of them, as changes with their negative weights.
    sources: table sources that the rows may come from.
    """

    rows: int
    some: Sequence[Any]
    sources: tuple[str, ...]


def consolidate_rows(rows: Iterable[Row]) -> dict[Row, int]:
    """Sum the weights (last fields) of equal rows. Holds no more rows than have a sum other than 0."""
    sums: dict[Row, int] = {}
    for *values, weight in rows:
        row = tuple(values)
        if total := sums.get(row, 0) + weight:
            sums[row] = total
        else:
            sums.pop(row, None)
    return sums


def source_names(sources: Sequence[str]) -> str:
    """Join source names for use in a sentence."""
    if len(sources) == 1:
        return f"source {sources[0]!r}"
    return f"one of the sources {', '.join(map(repr, sources))}"


def report_lines(held_back: Mapping[str, HeldBack]) -> Iterator[str]:
    """Format the report of rows still held back at the end of a run."""
    for sink, held in held_back.items():
        if held.rows == 1:
            what, them = "1 row was retracted more often than inserted", "it"
        else:
            what, them = f"{held.rows:,} rows were retracted more often than inserted", "them"
        yield f"{source_names(held.sources)}: {what}; sink {sink!r} holds {them} back:"
        yield from (f"  {change.weight:+d} {change.row!r}" for change in held.some)
        if held.rows > len(held.some):
            yield f"  and {held.rows - len(held.some):,} more"


class HeldRows:
    """Held-back rows of a sink in an external system, stored in a folder if they must survive the run.

    Each tick that changes the held-back rows writes a file before it commits. The previous file is kept,
    because the tick may have to be delivered again.
    """

    def __init__(self, schema: Schema, folder: Path | None) -> None:
        self.rows: dict[Row, int] = {}
        self._schema = schema
        self._folder = None if folder is None else folder / "held"
        self._tick = 0
        self._before: dict[Row, int] = {}

    def recover(self, tick: int) -> None:
        """Restore the rows held back as of the committed `tick`, and drop files of later ticks."""
        for number in self._numbers():
            if number > tick:
                self._path(number).unlink()
        self.rows, self._before, self._tick = self._read(tick), self._read(tick - 1), tick

    def before(self, tick: int) -> dict[Row, int]:
        """Return the rows held back before a tick, ignoring files of earlier attempts at it."""
        return self._before if tick == self._tick else self.rows

    def keep(self, tick: int, rows: dict[Row, int]) -> None:
        """Store the rows held back after a tick, on disk if there is a folder."""
        before = self.before(tick)
        if self._folder is not None and (rows != before or self._path(tick).exists()):
            self._write(self._path(tick), rows)
            newest_before = max((number for number in self._numbers() if number < tick), default=0)
            for number in self._numbers():
                if number < newest_before:
                    self._path(number).unlink()
        self.rows, self._before, self._tick = rows, before, tick

    def _write(self, path: Path, rows: dict[Row, int]) -> None:
        from headrace.io.arrow import write_part

        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.stem}.tmp")
        write_part(aside, [(*row, weight) for row, weight in rows.items()], self._schema)
        move(aside, path, durable=True)

    def _read(self, tick: int) -> dict[Row, int]:
        from headrace.io.arrow import read_part

        last = max((number for number in self._numbers() if number <= tick), default=None)
        return {} if last is None else consolidate_rows(read_part(self._path(last), self._schema))

    def _path(self, tick: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{tick:012d}.parquet"

    def _numbers(self) -> list[int]:
        if self._folder is None or not self._folder.is_dir():
            return []
        return [int(file.stem) for file in self._folder.iterdir() if file.stem.isdigit()]
