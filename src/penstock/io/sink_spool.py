"""Spool: a prepared tick kept in the checkpoint, for sinks that have no place for it of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.io.arrow_needed import need_arrow
from penstock.io.held_back import HeldBack
from penstock.io.publish import move, sync_folder
from penstock.io.sink import Drain, Writer, held_back_of
from penstock.io.untyped import refuse_untyped

Rows = list[tuple[Any, ...]]
Deliver = Callable[[int, Rows], object]


class Spool:
    """A file per prepared tick that has rows, until it is dropped: one at most, but for a moment.

    Raises `BadInput` where pyarrow is missing or cannot hold such rows.
    """

    def __init__(self, drain: Drain, folder: Path) -> None:
        need_arrow(f"sink {drain.name!r} with a checkpoint")
        refuse_untyped(drain.schema, f"sink {drain.name!r} with a checkpoint")
        self._schema = drain.schema
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _file(self, tick: int) -> Path:
        return self._folder / f"{tick:08d}.parquet"

    def keep(self, tick: int, rows: Rows) -> None:
        """Have the rows of a tick on disk."""
        from penstock.io.parts import write_part

        if rows:
            aside = self._folder / f".{tick:08d}.tmp"
            write_part(aside, rows, self._schema)
            move(aside, self._file(tick), durable=True)

    def kept(self, tick: int) -> Rows | None:
        """The rows of a tick that was kept and not dropped; None where there is none."""
        from penstock.io.parts import read_part

        file = self._file(tick)
        return read_part(file, self._schema) if file.exists() else None

    def drop(self, tick: int) -> None:
        """The rows of a tick have arrived where they were to go."""
        self._file(tick).unlink(missing_ok=True)

    def drop_others(self, tick: int) -> None:
        """Remove what is left of all other ticks."""
        for leftover in self._folder.iterdir():
            if leftover != self._file(tick):
                leftover.unlink()
        sync_folder(self._folder)


def _begins(_tick: int) -> None:
    pass


def spooled(
    drain: Drain, deliver: Deliver, held: Callable[[], Rows] = list, begins: Callable[[int], None] = _begins
) -> Writer:
    """A writer that has `deliver` called with the rows of each tick that has some.

    held:   the rows that a table holds back.
    begins: called with the committed tick that the run goes on from, before anything is delivered.

    At least once for the last tick before a crash, exactly once for all others.
    Without a checkpoint the prepared tick is kept in memory: there is nothing to go on from.
    """

    def told() -> HeldBack | None:
        return held_back_of(held(), drain)

    if drain.spool is None:
        return Held(deliver, told, begins)
    return SpoolWriter(deliver, told, begins, Spool(drain, drain.spool))


class Held(Writer):
    only_holds = True

    def __init__(
        self, deliver: Deliver, told: Callable[[], HeldBack | None], begins: Callable[[int], None]
    ) -> None:
        self._deliver = deliver
        self._told = told
        self._begins = begins
        self._held: tuple[int, Rows] | None = None

    def recover(self, tick: int) -> None:
        self._begins(tick)

    def prepare(self, tick: int, rows: Rows) -> None:
        self._held = (tick, rows)

    def publish(self, tick: int) -> None:
        if self._held and self._held[0] == tick:
            rows, self._held = self._held[1], None
            if rows:
                self._deliver(tick, rows)

    def held_back(self) -> HeldBack | None:
        return self._told()


class SpoolWriter(Held):
    only_holds = False

    def __init__(
        self,
        deliver: Deliver,
        told: Callable[[], HeldBack | None],
        begins: Callable[[int], None],
        spool: Spool,
    ) -> None:
        super().__init__(deliver, told, begins)
        self._spool = spool

    def prepare(self, tick: int, rows: Rows) -> None:
        super().prepare(tick, rows)
        self._spool.keep(tick, rows)

    def publish(self, tick: int) -> None:
        super().publish(tick)
        self._spool.drop(tick)

    def recover(self, tick: int) -> None:
        super().recover(tick)
        rows = self._spool.kept(tick)
        if rows is not None:
            super().prepare(tick, rows)
            self.publish(tick)
        self._spool.drop_others(tick)
