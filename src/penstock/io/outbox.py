"""Outbox: prepared ticks as part files, for sinks in another system that takes a tick in one transaction.

A *delivery* is such a system. It keeps the number of the last tick beside the
rows and changes both in one transaction, so a tick that is delivered again is
known and left out. What a tick changes waits in the outbox until it has
arrived. So each tick arrives exactly once, wherever a run is killed:

    prepare   the outbox holds the tick; the delivery has it ready where it can
    commit    of the engine's checkpoint
    publish   the delivery's transaction ends; the outbox forgets the tick
    recover   what the checkpoint has and the delivery has not is delivered

On Spark, tasks stage the parts (`Staged`) and never see the other system, nor how it is reached.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from penstock.expr.keys import with_one_zero
from penstock.expr.types import Schema
from penstock.io import changelog
from penstock.io.arrow_needed import need_arrow
from penstock.io.held_back import HeldBack, HeldRows, Row, Rows, added_up
from penstock.io.keyed import Keys
from penstock.io.publish import STAGING, remove
from penstock.io.sink import Drain, PartsWriter, SinkTarget, held_back_of, refuse_later_ticks, refuse_new

Batches: TypeAlias = Callable[[], Iterator[Rows]]

BATCH_ROWS = 8192
"""So many rows of an outbox are in memory at once."""


@dataclass(frozen=True)
class Delivered(SinkTarget):
    """Base of the sinks that are deliveries. key: columns that tell rows apart; None: all changes stay."""

    @property
    def key(self) -> tuple[str, ...] | None:
        return None


class Delivery(ABC):
    """Another system that takes ticks. One thread."""

    place: str
    """Where rows go, as text without secrets."""

    @abstractmethod
    def last_tick(self) -> int | None:
        """The last tick that arrived, 0 before the first one, None where nothing is there yet."""

    @abstractmethod
    def begin(self) -> None:
        """Make what is not there yet."""

    @abstractmethod
    def apply(self, tick: int, batches: Batches) -> Rows | None:
        """Have the changes of a tick ready, weight last, seen by nobody. What was not finished is undone.

        A table with a key is given each row once, with what was held back of it. It returns the rows
        with negative multiplicity after the tick, weight last; None where the tick had arrived before.
        """

    @abstractmethod
    def finish(self, tick: int) -> None:
        """Let what was applied be seen, together with the tick."""

    @abstractmethod
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Outbox:
    """folder: for this sink alone."""

    folder: Path
    schema: Schema

    def keep(self, tick: int, rows: Rows) -> None:
        """Have the rows of a tick on disk, in the place of what an earlier attempt at it kept."""
        self.drop(tick)
        self.assemble(tick, [changelog.stage_part(self.folder, tick, "0.parquet", rows, self.schema)])

    def assemble(self, tick: int, names: Iterable[str]) -> None:
        """Make a tick of parts that tasks have staged; repeating it is harmless."""
        changelog.assemble(self.folder, tick, names)

    def _tick(self, tick: int) -> Path:
        return self.folder / STAGING / changelog.tick_folder(tick)

    def holds(self, tick: int) -> bool:
        return self._tick(tick).is_dir()

    def parts(self, tick: int) -> list[Path]:
        """The files of a tick."""
        return sorted(self._tick(tick).iterdir())

    def batches(self, tick: int) -> Iterator[Rows]:
        """The rows of a tick, a few at a time."""
        import pyarrow.parquet as pq

        from penstock.io.arrow import table_to_rows

        for part in self.parts(tick):
            with pq.ParquetFile(part) as file:
                for batch in file.iter_batches(BATCH_ROWS):
                    yield table_to_rows(batch, self.schema, weighted=True)

    def drop(self, tick: int) -> None:
        """The rows of a tick have arrived."""
        remove(self._tick(tick))

    def clear(self) -> None:
        """Nothing that is here counts."""
        remove(self.folder / STAGING)


class DeliveryWriter(PartsWriter):
    """Writes ticks to a delivery, by way of an outbox where there is a checkpoint.

    keys: of a table; None for a changelog.
    """

    def __init__(self, drain: Drain, delivery: Delivery, keys: Keys | None) -> None:
        need_arrow(f"sink {drain.name!r}")
        self._drain = drain
        self._delivery = delivery
        self._keys = keys
        self._outbox = None if drain.spool is None else Outbox(drain.spool, drain.schema)
        self._held = HeldRows(drain.schema, drain.spool)
        self._ready: int | None = None

    def recover(self, tick: int) -> None:
        delivery, name = self._delivery, self._drain.name
        found = delivery.last_tick()
        refuse_later_ticks(name, delivery.place, found or 0, tick)
        refuse_new(name, delivery.place, tick, found is not None)
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
            rows = netted(rows, self._drain.schema)
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

    def _apply_to_table(self, tick: int, keys: Keys, batches: Batches) -> None:
        before = self._held.before(tick)
        touched = _of_keys_in(before, keys, batches) if before else {}
        less = self._delivery.apply(tick, (lambda: _with(touched, batches)) if touched else batches)
        if less is not None:
            others = {row: weight for row, weight in before.items() if row not in touched}
            self._held.keep(tick, others | added_up(less))

    def publish(self, tick: int) -> None:
        if self._ready == tick:
            self._delivery.finish(tick)
            self._ready = None
            if self._outbox is not None:
                self._outbox.drop(tick)

    def held_back(self) -> HeldBack | None:
        return held_back_of([(*row, weight) for row, weight in self._held.rows.items()], self._drain)

    def close(self) -> None:
        self._delivery.close()


def netted(rows: Rows, schema: Schema) -> Rows:
    """Changes with each row once."""
    return [(*row, weight) for row, weight in added_up(with_one_zero(rows, schema)).items()]


def _of_keys_in(held: Mapping[Row, int], keys: Keys, batches: Batches) -> dict[Row, int]:
    """Those of the rows held back that have the key of a change."""
    key = keys.of()
    changed = {key(row) for rows in batches() for row in rows}
    return {row: weight for row, weight in held.items() if key(row) in changed}


def _with(held: Mapping[Row, int], batches: Batches) -> Iterator[Rows]:
    """Changes with what was held back among them, each row once."""
    left = dict(held)
    for rows in batches():
        yield [
            (*row, total) for *values, weight in rows if (total := weight + left.pop(row := tuple(values), 0))
        ]
    yield [(*row, weight) for row, weight in left.items()]


# --- in tasks ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Staged:
    """What a task on Spark knows of such a sink: the folder of its outbox."""

    folder: str
    key: tuple[str, ...] | None

    def stage(self, sink: str, tick: int, name: str, rows: Rows, schema: Schema) -> str:
        """Write a part of a tick; with a key, all rows of a key are in one task. The name to `assemble`."""
        if self.key is not None:
            rows = netted(rows, schema)
        return changelog.stage_part(self.folder, tick, name, rows, schema)
