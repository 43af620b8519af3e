"""Outbox: prepared ticks as part files, for sinks that deliver to a transactional system.

The external system stores the number of the last tick beside the rows, and changes both in one transaction.
It therefore recognises a redelivered tick and skips it. A tick stays in the outbox until the system has it,
so each tick arrives exactly once even if the run is killed:

    prepare   write the tick to the outbox, and stage it in the external transaction if possible
    commit    the engine commits its checkpoint
    publish   commit the external transaction, then drop the tick from the outbox
    recover   deliver a committed tick that has not arrived

On Spark, tasks stage the parts (`StagedSink`) and never see the external system or its credentials.
Sinks that cannot take back a tick have a `Spool`: prepared ticks as rows in the checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from headrace.expr.types import Row, Rows, Schema
from headrace.expr.value_keys import with_representatives
from headrace.file_system import remove_folder, sync_folder, write_file
from headrace.io.files import changelog
from headrace.io.keyed_tables import HeldBack, HeldRows, TableKey, consolidate_rows
from headrace.io.sink import (
    Contents,
    ReadableWriter,
    SinkRequest,
    SinkTarget,
    Writer,
    held_back_of,
    refuse_later_ticks,
    refuse_mid_run_start,
)
from headrace.io.source import refuse_untyped
from headrace.state.codec import decode, value_encoder
from headrace.tables.version_folders import STAGING

Batches: TypeAlias = Callable[[], Iterator[Rows]]

BATCH_ROWS = 8192
"""Number of an outbox's rows held in memory at once."""


@dataclass(frozen=True)
class DeliveredSink(SinkTarget):
    """Base class of sinks that deliver to a transactional system. key: of a table; None for a changelog."""

    key: tuple[str, ...] | None = None


class Delivery(ABC):
    """Connection to a transactional system that applies each tick in one transaction. Single-threaded."""

    destination: str
    """Text that names where rows go, without secrets."""

    @abstractmethod
    def last_tick(self) -> int | None:
        """Return the last delivered tick, 0 before the first, or None if the destination is missing."""

    @abstractmethod
    def begin(self) -> None:
        """Create the destination if it is missing."""

    @abstractmethod
    def apply(self, tick: int, batches: Batches) -> Rows | None:
        """Apply a tick's changes (weight last) invisibly to readers, after undoing any unfinished attempt.

        A keyed table gets each row at most once, held-back rows included. Returns the rows with negative
        multiplicity after the tick, weight last, or None if the tick was already delivered.
        """

    @abstractmethod
    def finish(self, tick: int) -> None:
        """Commit the applied changes together with the tick number."""

    @abstractmethod
    def rows(self) -> Iterable[Row]:
        """Read the changes that add up to the rows of the destination, weight last.

        Raises `BadInput` or `UnwritableSink` unless all rows there are of this sink.
        """

    @abstractmethod
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Outbox:
    """Prepared ticks of one sink, stored in a folder of its own."""

    folder: Path
    schema: Schema

    def keep(self, tick: int, rows: Rows) -> None:
        """Write a tick's rows to disk, replacing those of an earlier attempt."""
        self.drop(tick)
        self.assemble(tick, [changelog.stage_part(self.folder, tick, "0.parquet", rows, self.schema)])

    def assemble(self, tick: int, names: Iterable[str]) -> None:
        """Assemble a tick from parts staged by tasks. Idempotent."""
        changelog.assemble(self.folder, tick, names)

    def holds(self, tick: int) -> bool:
        return changelog.assembled(self.folder, tick).is_dir()

    def parts(self, tick: int) -> list[Path]:
        """List the part files of a tick."""
        return sorted(changelog.assembled(self.folder, tick).iterdir())

    def batches(self, tick: int) -> Iterator[Rows]:
        """Yield the rows of a tick in batches."""
        import pyarrow.parquet as pq

        from headrace.io.arrow import table_to_rows

        for part in self.parts(tick):
            with pq.ParquetFile(part) as file:
                for batch in file.iter_batches(BATCH_ROWS):
                    yield table_to_rows(batch, self.schema, weighted=True)

    def drop(self, tick: int) -> None:
        """Delete a delivered tick."""
        remove_folder(changelog.assembled(self.folder, tick))

    def clear(self) -> None:
        """Delete all ticks."""
        remove_folder(self.folder / STAGING)


class DeliveryWriter(ReadableWriter):
    """Sink writer that delivers ticks to a transactional system, through an outbox if it has a checkpoint.

    keys: of a table; None for a changelog.
    """

    def __init__(self, request: SinkRequest, delivery: Delivery, keys: TableKey | None) -> None:
        self._request = request
        self._delivery = delivery
        self._keys = keys
        self._outbox = None if request.spool is None else Outbox(request.spool, request.schema)
        self._held = HeldRows(request.schema, request.spool)
        self._ready: int | None = None

    def recover(self, tick: int) -> None:
        delivery, name = self._delivery, self._request.name
        found = delivery.last_tick()
        refuse_later_ticks(name, delivery.destination, found or 0, tick)
        refuse_mid_run_start(name, delivery.destination, tick, found is not None)
        delivery.begin()
        self._held.recover(tick)
        if self._outbox is not None:
            if (found or 0) < tick and self._outbox.holds(tick):
                self._apply(tick)
                self.publish(tick)
            self._outbox.clear()

    def prepare(self, tick: int, rows: Rows) -> None:
        if not rows:
            return
        if self._keys is not None:
            rows = consolidated_rows(rows, self._request.schema)
        if self._outbox is not None:
            self._outbox.keep(tick, rows)
        self._apply(tick, rows)

    def assemble(self, tick: int, names: Iterable[str]) -> None:
        assert self._outbox is not None, "tasks stage in an outbox"
        self._outbox.assemble(tick, names)
        self._apply(tick)

    def _apply(self, tick: int, rows: Rows | None = None) -> None:
        outbox = self._outbox

        def batches() -> Iterator[Rows]:
            if outbox is not None:
                return outbox.batches(tick)
            assert rows is not None, "without an outbox rows are in memory"
            return iter([rows])

        if self._keys is None:
            self._delivery.apply(tick, batches)
        else:
            self._apply_to_table(tick, self._keys, batches)
        self._ready = tick

    def _apply_to_table(self, tick: int, keys: TableKey, batches: Batches) -> None:
        before = self._held.before(tick)
        touched = _of_keys_in(before, keys, batches) if before else {}
        less = self._delivery.apply(tick, (lambda: _with(touched, batches)) if touched else batches)
        if less is not None:
            others = {row: weight for row, weight in before.items() if row not in touched}
            self._held.keep(tick, others | consolidate_rows(less))

    def publish(self, tick: int) -> None:
        if self._ready == tick:
            self._delivery.finish(tick)
            self._ready = None
            if self._outbox is not None:
                self._outbox.drop(tick)

    def contents(self) -> Contents | None:
        tick = self._delivery.last_tick()
        if tick is None:
            return None
        held = ((*row, weight) for row, weight in self._held.rows.items())
        return Contents(tick, chain(held, self._delivery.rows()))

    def held_back(self) -> HeldBack | None:
        return held_back_of([(*row, weight) for row, weight in self._held.rows.items()], self._request)

    def close(self) -> None:
        self._delivery.close()


def consolidated_rows(rows: Rows, schema: Schema) -> Rows:
    """Consolidate changes so that each row appears once."""
    return [(*row, weight) for row, weight in consolidate_rows(with_representatives(rows, schema)).items()]


def _of_keys_in(held: Mapping[Row, int], keys: TableKey, batches: Batches) -> dict[Row, int]:
    """Select the held-back rows whose key appears in the changes."""
    key = keys.of()
    changed = {key(row) for rows in batches() for row in rows}
    return {row: weight for row, weight in held.items() if key(row) in changed}


def _with(held: Mapping[Row, int], batches: Batches) -> Iterator[Rows]:
    """Merge held-back rows into changes, each row once."""
    left = dict(held)
    for rows in batches():
        yield [
            (*row, total) for *values, weight in rows if (total := weight + left.pop(row := tuple(values), 0))
        ]
    yield [(*row, weight) for row, weight in left.items()]


# --- in tasks ------------------------------------------------------------------------------


@dataclass(frozen=True)
class StagedSink:
    """Task-side view of a delivering sink on Spark: its outbox folder and its key."""

    folder: str
    key: tuple[str, ...] | None

    def stage(self, sink: str, tick: int, name: str, rows: Rows, schema: Schema) -> str:
        """Write a part of a tick and return its name for `assemble`. One task holds all rows of a key."""
        if self.key is not None:
            rows = consolidated_rows(rows, schema)
        return changelog.stage_part(self.folder, tick, name, rows, schema)


# --- spool: prepared ticks in the checkpoint, for sinks without staging of their own --------------


Deliver = Callable[[int, Rows], object]


class Spool:
    """Files of prepared ticks, one per tick until it is dropped. Raises `BadInput` for an `Any` column."""

    def __init__(self, request: SinkRequest, folder: Path) -> None:
        refuse_untyped(request.schema, f"sink {request.name!r} with a checkpoint")
        self._folder = folder
        self._encode = value_encoder()
        folder.mkdir(parents=True, exist_ok=True)

    def _file(self, tick: int) -> Path:
        return self._folder / f"{tick:08d}.msgpack"

    def keep(self, tick: int, rows: Rows) -> None:
        """Write a tick's rows to disk."""
        if rows:
            write_file(self._file(tick), self._encode(rows), durable=True)

    def rows_of_tick(self, tick: int) -> Rows | None:
        """Return the rows of a spooled tick, or None. Raises `CheckpointDamaged`."""
        file = self._file(tick)
        return list(decode(file.read_bytes())) if file.exists() else None

    def drop(self, tick: int) -> None:
        """Delete a delivered tick."""
        self._file(tick).unlink(missing_ok=True)

    def drop_others(self, tick: int) -> None:
        """Delete all ticks but one."""
        for leftover in self._folder.iterdir():
            if leftover != self._file(tick):
                leftover.unlink()
        sync_folder(self._folder)


def _ignore(_tick: int) -> None:
    pass


class SpooledWriter(Writer):
    """Sink writer that calls `deliver` with the rows of each published, non-empty tick.

    held:   rows that a table holds back.
    begins: called before any delivery, with the committed tick from which the run resumes.

    The last tick before a crash may be delivered twice; all others arrive exactly once. Without a checkpoint
    the prepared tick stays in memory, because no run can resume.
    """

    def __init__(
        self,
        request: SinkRequest,
        deliver: Deliver,
        held: Callable[[], Rows] = list,
        begins: Callable[[int], None] = _ignore,
    ) -> None:
        self._request = request
        self._deliver = deliver
        self._held = held
        self._begins = begins
        self._spool = None if request.spool is None else Spool(request, request.spool)
        self._prepared: tuple[int, Rows] | None = None
        self.only_holds = self._spool is None

    def recover(self, tick: int) -> None:
        self._begins(tick)
        if self._spool is not None:
            rows = self._spool.rows_of_tick(tick)
            if rows is not None:
                self._prepared = tick, rows
                self.publish(tick)
            self._spool.drop_others(tick)

    def prepare(self, tick: int, rows: Rows) -> None:
        self._prepared = tick, rows
        if self._spool is not None:
            self._spool.keep(tick, rows)

    def publish(self, tick: int) -> None:
        if self._prepared and self._prepared[0] == tick:
            rows, self._prepared = self._prepared[1], None
            if rows:
                self._deliver(tick, rows)
        if self._spool is not None:
            self._spool.drop(tick)

    def held_back(self) -> HeldBack | None:
        return held_back_of(self._held(), self._request)
