"""What every source has in common: a feed asked for, a reader given.

A source (`JsonFiles`, `CsvFiles`, `ParquetFiles`, `Rows`) is frozen data. Each
engine dispatches on its class: in-process `open_source` makes a `Reader`, which
`penstock.io.pull_source` makes a pull-stream of; on Spark the same dataclass becomes
a `readStream`.

**Positions are state.** A reader notes what it took in `feed.taken`, a mapping
from a name (of a file, mostly) to a number of rows, or `DONE`. Where that
mapping is a slot of a checkpoint, positions are committed together with the
state that came of them, and a reader opened on it goes on where it was.
Nothing iterates the mapping: a folder with many files costs a tick no more
than the files it touched.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, ClassVar

from penstock.errors import BadInput, BadRow
from penstock.expr.types import Field, Schema
from penstock.io.guarantee import Guarantee

DONE = -1
"""The position of a file that was taken whole."""

WEIGHT = "weight"
"""The column that holds the weight of a row, in table sources and in changelogs."""


def printable(path: object) -> str:
    """A path for people: a name may hold line breaks, or half a character."""
    text = str(path)
    return text if text.isprintable() else repr(text)


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A row of an input that cannot be read: where it is, what is wrong, how it begins.

    row:  its number in the file, from 1, counting rows and not header or blank lines.
    line: its line in a text file, where the format has lines.
    """

    file: str
    row: int
    reason: str
    text: str
    line: int | None = None

    @property
    def place(self) -> str:
        return f"row {self.row} of {printable(self.file)}" + (f" (line {self.line})" if self.line else "")

    def error(self, source: str) -> BadRow:
        return BadRow(
            f"source {source!r} cannot read {self.place}",
            why=f"{self.reason}\n\n  {self.text}" if self.text else self.reason,
            fix='correct the row, or have such rows set aside with `dead_letter="FOLDER"` on the source',
            source=source,
            file=self.file,
            row=self.row,
            line=self.line,
            reason=self.reason,
            text=self.text,
        )

    def as_json(self, source: str) -> dict[str, object]:
        """What a dead-letter file holds of it."""
        return {
            "source": source,
            "file": self.file,
            "row": self.row,
            "line": self.line,
            "reason": self.reason,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows for one tick, internal tuples (weight last for a table source), and rows set aside.

    positions: what is to be noted when a tick takes the batch; readers leave it empty.
    """

    rows: list[tuple[Any, ...]]
    bad: list[BadRecord] = field(default_factory=list[BadRecord])
    positions: Mapping[Any, Any] | None = None


@dataclass(frozen=True, slots=True)
class Feed:
    """What a flow wants of a source.

    append:    rows only; else each row carries its weight, from the column `weight` or 1.
    follow:    go on looking for new input for ever.
    taken:     positions, see above; an empty dict to begin at the beginning.
    resumed:   the run goes on from a committed tick: that there is none now is no mistake.
    skip:      files to leave out, as absolute paths.
    from_user: user rows to internal rows, for sources that hold Python objects.
    decode:    what makes rows of each record of a file, where a record is not a row: a list of them,
               weight last; None is a record that is null. It raises `Unfit`.
    """

    name: str
    schema: Schema
    append: bool = True
    follow: bool = False
    taken: MutableMapping[Any, Any] = field(default_factory=dict[Any, Any])
    resumed: bool = False
    skip: frozenset[str] = frozenset()
    from_user: Callable[[list[Any]], list[tuple[Any, ...]]] | None = None
    decode: Callable[[tuple[Any, ...] | None], list[tuple[Any, ...]]] | None = None

    def columns(self) -> tuple[Field, ...]:
        return self.schema.fields

    def reserved(self) -> None:
        """Raises `BadInput` if a table source has a column of its own that is called like the weight."""
        if not self.append and self.schema.position(WEIGHT) is not None:
            raise BadInput(
                f"table source {self.name!r} has a column {WEIGHT!r} of its own",
                why="files of a table source hold the weight of each row under that name",
                fix="rename the column",
                source=self.name,
            )


class Reader(ABC):
    """Takes input in batches. One thread; `close` is called once, whatever happened.

    `read(limit)` returns at most `limit` rows (None: all there is) and notes the
    new position in `feed.taken`; None where there is nothing now: it does not wait.
    `done` says that no call will ever return a batch again; where there was nothing and it is not
    done, `look_again` says after how many seconds it is worth another call.
    Raises `BadRow` and `UnreadableSource`; then the batch is not taken.
    """

    done: bool = False
    look_again: float = 0.2

    @abstractmethod
    def read(self, limit: int | None) -> Batch | None: ...

    def close(self) -> None:
        self.done = True


@dataclass(frozen=True)
class Source:
    """Base of the sources."""

    guarantee: ClassVar[Guarantee] = Guarantee(
        "exactly once", "positions are committed together with the state that came of them"
    )


@singledispatch
def dead_letter_folder(source: object) -> str | None:
    """Where the rows of a source that cannot be read are set aside, if they are."""
    return None


@singledispatch
def open_source(source: object, feed: Feed) -> Reader:
    """A reader of `source`. Raises `BadInput` for what is no source, `UnreadableSource` for a bad path."""
    raise BadInput(
        f"source {feed.name!r} is {type(source).__name__}, which is no source",
        fix="give JsonFiles(...), CsvFiles(...), ParquetFiles(...), Rows(...) or an iterable of rows",
        source=feed.name,
    )
