"""Rows that a table holds back: they have been taken back more often than they came.

The deletion of a row may overtake its insertion, or name a row that never came, and without a
key nothing tells the one from the other before the input ends. So a changelog shows such a change
as it is; a table shows nothing of the row, keeps its negative multiplicity, and takes it off when the
row comes. What is held back in the end is told by the run, with the sources that it comes of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from penstock.expr.types import Schema
from penstock.io.publish import move

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = list[Row]

SHOWN = 10
"""How many rows are told one by one."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """What a table holds back.

    rows:    how many different rows.
    some:    the first of them, as changes with the weight that is held back.
    sources: the table sources that the rows come of; of several, one or more of them.
    """

    rows: int
    some: Sequence[Any]
    sources: tuple[str, ...]


def added_up(rows: Iterable[Row]) -> dict[Row, int]:
    """Rows with the sum of their weights, those without any left out."""
    sums: dict[Row, int] = {}
    for *values, weight in rows:
        row = tuple(values)
        sums[row] = sums.get(row, 0) + weight
    return {row: weight for row, weight in sums.items() if weight}


def named(sources: Sequence[str]) -> str:
    """Sources in a sentence."""
    if len(sources) == 1:
        return f"source {sources[0]!r}"
    return f"one of the sources {', '.join(map(repr, sources))}"


def told(held_back: Mapping[str, HeldBack]) -> Iterator[str]:
    """What tables hold back at the end of a run, as lines of text."""
    for sink, held in held_back.items():
        if held.rows == 1:
            what, them = "1 row was taken back more often than it came", "it"
        else:
            what, them = f"{held.rows:,} rows were taken back more often than they came", "them"
        yield f"{named(held.sources)}: {what}; sink {sink!r} holds {them} back:"
        yield from (f"  {change.weight:+d} {change.row!r}" for change in held.some)
        if held.rows > len(held.some):
            yield f"  and {held.rows - len(held.some):,} more"


class HeldRows:
    """The rows held back for a sink in another system; with a folder they survive the run.

    A tick that holds back other rows than the one before it has a file, written before the tick is
    committed. The one before is kept, too: the tick may have to be delivered again.
    """

    def __init__(self, schema: Schema, folder: Path | None) -> None:
        self.rows: dict[Row, int] = {}
        self._schema = schema
        self._folder = None if folder is None else folder / "held"
        self._tick = 0
        self._before: dict[Row, int] = {}

    def recover(self, tick: int) -> None:
        """Be what holds after the committed `tick`, and forget what came after it."""
        for number in self._numbers():
            if number > tick:
                self._path(number).unlink()
        self.rows, self._before, self._tick = self._read(tick), self._read(tick - 1), tick

    def before(self, tick: int) -> dict[Row, int]:
        """What holds before a tick, whatever an earlier attempt at it has kept."""
        return self._before if tick == self._tick else self.rows

    def keep(self, tick: int, rows: dict[Row, int]) -> None:
        """Be what holds after a tick, on disk where there is a folder."""
        before = self.before(tick)
        if self._folder is not None and (rows != before or self._path(tick).exists()):
            self._write(self._path(tick), rows)
            newest_before = max((number for number in self._numbers() if number < tick), default=0)
            for number in self._numbers():
                if number < newest_before:
                    self._path(number).unlink()
        self.rows, self._before, self._tick = rows, before, tick

    def _write(self, path: Path, rows: dict[Row, int]) -> None:
        from penstock.io.parts import write_part

        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.stem}.tmp")
        write_part(aside, [(*row, weight) for row, weight in rows.items()], self._schema)
        move(aside, path, durable=True)

    def _read(self, tick: int) -> dict[Row, int]:
        from penstock.io.parts import read_part

        last = max((number for number in self._numbers() if number <= tick), default=None)
        return {} if last is None else added_up(read_part(self._path(last), self._schema))

    def _path(self, tick: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{tick:012d}.parquet"

    def _numbers(self) -> list[int]:
        if self._folder is None or not self._folder.is_dir():
            return []
        return [int(file.stem) for file in self._folder.iterdir() if file.stem.isdigit()]
