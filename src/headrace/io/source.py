"""Source contract: sources, the feed a flow requests, and the reader that supplies it.

A source (`JsonFiles`, `CsvFiles`, `ParquetFiles`, `Rows`) is frozen data. Engines dispatch on its class:
in-process, `open_source` opens a `Reader`, which `headrace.io.pull_streams` turns into a pull-stream; on
Spark, the driver finds input and tasks read it, or Spark reads it itself.

**Positions are state.** A reader records its progress in `feed.taken`, a mapping from a name to a position:
of a file the number of rows read, or `DONE`, with its size, time and path (`PendingFile.position`). If that
mapping is a slot of a checkpoint, positions are committed together with the state derived from them, and a
reader opened on it resumes there. Nothing iterates over the mapping, so in a folder with many files a tick
costs only the files it touched.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias
from urllib.parse import quote

from headrace.errors import BadInput, BadRow, SourceLocation
from headrace.expr.types import Field, Schema, holds_any
from headrace.file_system import move, remove_empty, sync_file
from headrace.tables.version_folders import STAGING
from headrace.tables.version_folders import WEIGHT as WEIGHT

if TYPE_CHECKING:
    from datetime import datetime


# --- delivery guarantees --------------------------------------------------------------------------


Level: TypeAlias = Literal["exactly once", "at least once", "this run only"]


@dataclass(frozen=True, slots=True)
class Guarantee:
    """Delivery guarantee across a kill and restart of a run with a checkpoint.

    level: "exactly once": every change arrives, and none twice.
           "at least once": changes of the last committed tick may arrive again.
           "this run only": changes from before the start of this run are missing.
    why:   the reason, a clause without a full stop.
    """

    level: Level
    why: str

    def __str__(self) -> str:
        return f"{self.level}: {self.why}"


AT_LEAST_ONCE = Guarantee(
    "at least once",
    "after a crash the last committed tick may be delivered again, with the same number and changes",
)


@singledispatch
def guarantee_of(end: object) -> Guarantee:
    """Return the delivery guarantee of a source or sink. Raises `TypeError` for anything else."""
    found: Any = getattr(end, "guarantee", None)
    if not isinstance(found, Guarantee):
        if callable(end):
            return AT_LEAST_ONCE
        raise TypeError(f"{type(end).__name__} is neither a source nor a sink")
    return found


@guarantee_of.register(list)
def _(end: list[Any]) -> Guarantee:
    return Guarantee("this run only", "a list lives in this process")


# --- sources and readers --------------------------------------------------------------------------


DONE = -1
"""Position of a file that was read to its end."""


def printable(path: object) -> str:
    """Format a path for people, quoted if it holds line breaks or invalid characters."""
    text = str(path)
    return text if text.isprintable() else repr(text)


NextDue: TypeAlias = "Callable[[datetime], datetime | None]"
"""Function from the time of the last tick to the next one at which rows come or go, if any do."""


_CORRECT = (
    'correct the row, or set such rows aside: dead_letter="FOLDER" on the source, '
    "in a command PATH?dead_letter=FOLDER"
)


@dataclass(frozen=True, slots=True)
class BadRecord:
    """Unreadable input row: its location, the reason, and the beginning of its text.

    row:  its number in the file, from 1, not counting header and blank lines.
    line: its line in the file, for formats with lines.
    fix:  a way out, besides correcting it.
    """

    file: str
    row: int
    reason: str
    text: str
    line: int | None = None
    fix: str = field(default="", compare=False)

    @property
    def location(self) -> str:
        return f"row {self.row} of {printable(self.file)}" + (f" (line {self.line})" if self.line else "")

    def error(self, source: str) -> BadRow:
        return BadRow(
            f"source {source!r} cannot read {self.location}",
            why=f"{self.reason}\n\n  {self.text}" if self.text else self.reason,
            fix=self.fix + "\n" * bool(self.fix) + _CORRECT,
            source=source,
            file=self.file,
            row=self.row,
            line=self.line,
            reason=self.reason,
            text=self.text,
        )

    def as_json(self, source: str) -> dict[str, object]:
        """Encode as a line of a dead-letter file."""
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
    """Rows for one tick as internal tuples (weight last for a table source), and unreadable rows.

    positions: positions to record when a tick takes the batch; readers leave it empty.
    """

    rows: list[tuple[Any, ...]]
    bad: list[BadRecord] = field(default_factory=list[BadRecord])
    positions: Mapping[Any, Any] | None = None


@dataclass(frozen=True, slots=True)
class Feed:
    """Request of a flow to open a source.

    append:    rows only; otherwise each row has a weight, from the column `weight` or 1.
    follow:    keep looking for new input forever.
    taken:     positions, see above; an empty dict to start at the beginning.
    resumed:   the run resumes from a committed tick, so a lack of input is not an error.
    skip:      files to leave out, as absolute paths.
    from_user: converter of user rows to internal rows, for sources that hold Python objects.
    decode:    decoder from a file's records to lists of rows, weight last, if records are not rows. None is a
               null record. It raises `Unfit`.
    joined:    function from a file's decoded records, in order, and its path to as many records. It joins
               those that belong together.
    placed:    `decode`'s rows get a last field: the path of their file, and the number of their record in it.
    live:      columns that the flow reads, or None for all. A reader may give None for any other column
               without looking at it.
    next_due:  see `Engine.next_due`.
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
    joined: Callable[[Iterator[Any], str], Iterator[Any]] | None = None
    placed: bool = False
    live: AbstractSet[str] | None = None
    next_due: NextDue | None = None

    @property
    def live_fields(self) -> list[Field]:
        """The fields that a reader must read. At least one, since a table needs it to count its rows."""
        live = [f for f in self.schema.fields if self.live is None or f.name in self.live]
        return live or [*self.schema.fields[:1]]

    def refuse_weight_column(self) -> None:
        """Raise `BadInput` if a table source has a column with the name of the weight column."""
        if not self.append and self.schema.position(WEIGHT) is not None:
            raise BadInput(
                f"table source {self.name!r} has a column {WEIGHT!r} of its own",
                why="files of a table source hold the weight of each row under that name",
                fix="rename the column",
                source=self.name,
            )


class Reader(ABC):
    """Source opened for one run, read in batches. Single-threaded; `close` is called exactly once.

    `read(limit)` returns at most `limit` rows (None: all available) and records the new position in
    `feed.taken`. It never waits, and returns None if nothing is available yet. `done` means that no further
    batch will come; until then, `look_again` is the number of seconds to wait after a None. After raising
    `BadRow` or `UnreadableSource`, `read` leaves the position unchanged.
    """

    done: bool = False
    look_again: float = 0.2

    @abstractmethod
    def read(self, limit: int | None) -> Batch | None: ...

    def close(self) -> None:
        self.done = True


@dataclass(frozen=True)
class Source:
    """Base class of sources."""

    guarantee: ClassVar[Guarantee] = Guarantee(
        "exactly once", "positions are committed together with the state derived from them"
    )


def set_fields(instance: object, **values: object) -> None:
    """Set the fields of a frozen dataclass with a custom `__init__`."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


@singledispatch
def dead_letter_folder(source: object) -> str | None:
    """Return the folder for a source's unreadable rows, or None if they end the run."""
    return None


@singledispatch
def open_source(source: object, feed: Feed) -> Reader:
    """Open a reader of `source`.

    Raises `BadInput` for anything but a source, `UnreadableSource` for an invalid path.
    """
    raise BadInput(
        f"source {feed.name!r} is {type(source).__name__}, which is not a source",
        where=[SourceLocation.of_caller()],
        fix=f"give what .collect() reads: {feed.name}.collect()"
        if hasattr(source, "collect")
        else "give JsonFiles(...), CsvFiles(...), ParquetFiles(...), Rows(...) or an iterable of rows",
        source=feed.name,
    )


# --- columns with declared types ------------------------------------------------------------------


def refuse_untyped(schema: Schema, what: str) -> None:
    """Raise `BadInput` for an `Any` column, also within a list or a nested row.

    what: subject of the error message: "source 'x', a JSON file".
    """
    for column in schema.fields:
        if holds_any(column.type):
            raise BadInput(
                f"{what}: column {column.name!r} is {column.type}, which a file cannot hold",
                why="A file has a type for each column, and this one may hold any Python object.",
                fix="give the column a type in the row class, or map() the rows to a class that has one",
                column=column.name,
            )


# --- dead letters: unreadable rows as JSON lines --------------------------------------------------

# <folder>/tick=12-<source>.jsonl           {"source", "file", "row", "line", "reason", "text"} per line
#
# Each file is published together with the tick that read the rows, by the two-step protocol of sinks
# (`headrace.io.sink`).


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Dead letters of one source. durable: whether to sync files to disk."""

    source: str
    folder: Path
    durable: bool

    def _name(self, tick: int | str) -> str:
        return f"tick={tick}-{quote(self.source, safe='')}.jsonl"

    def prepare(self, tick: int, bad: Sequence[BadRecord]) -> None:
        """Write the unreadable rows of a tick to the staging folder, which readers ignore."""
        if bad:
            staging = self.folder / STAGING
            staging.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps(record.as_json(self.source), ensure_ascii=False) + "\n" for record in bad]
            file = staging / self._name(tick)
            file.write_text("".join(lines), encoding="utf-8", errors="replace")
            if self.durable:
                sync_file(file)

    def publish(self, tick: int) -> None:
        """Publish the tick's file, if it exists and is unpublished."""
        staged = self.folder / STAGING / self._name(tick)
        if staged.exists():
            move(staged, self.folder / self._name(tick), durable=self.durable)

    def recover(self, tick: int) -> None:
        """Publish the dead letters of the committed `tick` after a crash, and delete later ones."""
        self.publish(tick)
        staging = self.folder / STAGING
        if staging.is_dir():
            for leftover in staging.glob(self._name("*")):
                leftover.unlink()

    def close(self) -> None:
        remove_empty(self.folder / STAGING)
