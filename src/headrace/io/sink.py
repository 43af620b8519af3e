"""Sink contract: each tick is written in two steps, *prepare* and *publish*.

A sink (`Changelog`, `TableFiles`, `Call`, `Memory`, `Print`) is frozen data. An engine opens a `Writer` for
it and, per tick:

1. `prepare(tick, rows)` stores the tick's changes durably, invisible to readers.
2. The engine commits the tick (state, positions) in its checkpoint, if there is one.
3. `publish(tick)` makes the changes visible atomically.

`publish` is idempotent. After a crash, `recover(tick)` gets the last committed tick. It publishes that tick
if it was prepared, and deletes everything prepared after it. With a checkpoint, the output therefore holds
each tick exactly once. The exceptions are `Call` and `Print`, whose receivers cannot report what they have
received: the last tick before a crash may arrive twice, with the same number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any, ClassVar

from headrace.errors import BadInput, SourceLocation
from headrace.expr.types import Schema
from headrace.io.keyed_tables import MAX_LISTED, HeldBack
from headrace.io.source import Guarantee


@dataclass(frozen=True, slots=True)
class SinkRequest:
    """Request of a flow to open a sink.

    schema:  of the rows; changes are internal tuples with the weight as last field.
    sources: names of the table sources that its rows come from, which may retract rows.
    spool:   a folder of the checkpoint for the prepared ticks of a sink that is not a file itself;
             None without a checkpoint.
    present: converter of internal changes to what users see: a sequence of `Change(row, weight)`.
    keep_ticks: number of ticks that the checkpoint can be rewound to, including the last one.
    """

    name: str
    schema: Schema
    spool: Path | None = None
    present: Callable[[list[tuple[Any, ...]]], Sequence[Any]] = lambda rows: rows
    sources: tuple[str, ...] = ()
    keep_ticks: int = 1

    @property
    def durable(self) -> bool:
        """Whether to sync files to disk: only runs with a checkpoint can resume after a power cut."""
        return self.spool is not None


class Writer(ABC):
    """Sink opened for one run, written tick by tick. Single-threaded; `close` is called exactly once.

    only_holds: `prepare` cannot fail, so the engine may take both steps when it is time to publish.
    """

    only_holds: bool = False

    @abstractmethod
    def prepare(self, tick: int, rows: list[tuple[Any, ...]]) -> None: ...

    @abstractmethod
    def publish(self, tick: int) -> None: ...

    @abstractmethod
    def recover(self, tick: int) -> None:
        """Recover after `tick`, the last committed one, or 0 for a new run. Called once, first.

        Raises `BadInput` if the sink holds ticks that this run cannot have written, or is new in the
        middle of a run.
        """

    def held_back(self) -> HeldBack | None:
        """Return the rows a table holds back after the last published tick, also after `close`."""
        return None

    def close(self) -> None:
        """Release resources."""
        return


class PartsWriter(Writer):
    """Writer that can also assemble a tick from parts staged by tasks."""

    @abstractmethod
    def assemble(self, tick: int, names: Iterable[str]) -> None:
        """Prepare a tick from exactly the named parts. Idempotent."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of a sink. tick: its last published tick; 0 before the first.

    rows: changes that add up to its rows, weight last, as they are read. Raises `BadInput` for rows of
          another type than the sink's.
    """

    tick: int
    rows: Iterable[tuple[Any, ...]]


class ReadableWriter(PartsWriter):
    """Writer to a place that can be read back."""

    @abstractmethod
    def contents(self) -> Contents | None:
        """Return what the sink holds, held-back rows included; None if it was never written."""


@dataclass(frozen=True)
class SinkTarget:
    """Base class of sinks."""

    guarantee: ClassVar[Guarantee]

    @property
    def destination(self) -> Hashable:
        """Identity of the output, unique among the sinks of a run, or None if sinks may share it."""
        return None


@singledispatch
def open_sink(sink: object, request: SinkRequest) -> Writer:
    """Open a writer to `sink`. Raises `BadInput` unless it is a sink that can hold such rows."""
    raise BadInput(
        f"sink {request.name!r} is {type(sink).__name__}, which is not a sink",
        where=[SourceLocation.of_caller()],
        fix="give Changelog(...), TableFiles(...), Call(...), Memory(), Print(), a list or a function",
        sink=request.name,
    )


def held_back_of(rows: list[tuple[Any, ...]], request: SinkRequest) -> HeldBack | None:
    """Build the report on rows that a table holds back, weight last."""
    return HeldBack(len(rows), request.present(rows[:MAX_LISTED]), request.sources) if rows else None


def column_names(key: Iterable[str] | str) -> tuple[str, ...]:
    """Normalize a key given as one column name or several."""
    return (key,) if isinstance(key, str) else tuple(key)


def refuse_later_ticks(sink: str, path: Path | str, found: int, tick: int) -> None:
    """Raise `BadInput` if `found`, the latest tick at `path`, is later than the committed `tick`."""
    if found <= tick:
        return
    since = f"the checkpoint ends with tick {tick}" if tick else "this run begins with tick 1"
    raise BadInput(
        f"sink {sink!r}: {path} already holds tick {found}",
        why=f"{since}: those rows belong to another run and would mix with the new ones.",
        fix="resume from the checkpoint of that run, give another path, or remove the old output;\n"
        "if the checkpoint is lost, `headrace run --adopt` writes only what differs from the old output,\n"
        "and takes back rows there that the sources do not give",
        sink=sink,
        path=str(path),
        found=found,
        tick=tick,
    )


def other_rows(sink: str, place: Path | str, why: str) -> BadInput:
    """Create the error for rows read back that do not have the sink's type."""
    return BadInput(
        f"sink {sink!r}: {place} holds other rows than this flow gives",
        why=why,
        fix="run with an empty checkpoint and another path, then point readers at it;\n"
        "of files, `headrace run --rebuild` replaces the old output when the new one is complete",
        sink=sink,
        path=str(place),
    )


def refuse_mid_run_start(sink: str, path: Path | str, tick: int, is_there: bool) -> None:
    """Raise `BadInput` if a new output would start mid-run, because its sums would be wrong."""
    if is_there or tick == 0:
        return
    raise BadInput(
        f"sink {sink!r}: {path} is new, and the checkpoint ends with tick {tick}",
        why=f"the changes of ticks 1 to {tick} were not written there and will not be repeated.",
        fix="give the path of the earlier runs, or start over with an empty checkpoint folder",
        sink=sink,
        path=str(path),
        tick=tick,
    )
