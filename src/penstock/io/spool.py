"""Spool: a prepared tick kept in the checkpoint, for sinks that have no place for it of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.io.arrow_needed import need_arrow
from penstock.io.publish import move, sync_folder
from penstock.io.sink import Drain, Writer
from penstock.io.untyped import refuse_untyped

Deliver = Callable[[int, list[tuple[Any, ...]]], object]


def spooled(drain: Drain, deliver: Deliver) -> Writer:
    """A writer that has `deliver` called with the rows of each tick that has some.

    At least once for the last tick before a crash, exactly once for all others.
    Without a checkpoint the prepared tick is kept in memory: there is nothing to go on from.
    """
    return Spool(drain, deliver, drain.spool) if drain.spool else Held(deliver)


class Held(Writer):
    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._held: tuple[int, list[tuple[Any, ...]]] | None = None

    def recover(self, tick: int) -> None:
        pass

    def prepare(self, tick: int, rows: list[tuple[Any, ...]]) -> None:
        self._held = (tick, rows)

    def publish(self, tick: int) -> None:
        if self._held and self._held[0] == tick:
            rows, self._held = self._held[1], None
            if rows:
                self._deliver(tick, rows)


class Spool(Held):
    def __init__(self, drain: Drain, deliver: Deliver, folder: Path) -> None:
        need_arrow(f"sink {drain.name!r} with a checkpoint")
        refuse_untyped(drain.schema, f"sink {drain.name!r} with a checkpoint")
        super().__init__(deliver)
        self._drain = drain
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _file(self, tick: int) -> Path:
        return self._folder / f"{tick:08d}.parquet"

    def prepare(self, tick: int, rows: list[tuple[Any, ...]]) -> None:
        from penstock.io.parts import write_part

        super().prepare(tick, rows)
        if rows:
            aside = self._folder / f".{tick:08d}.tmp"
            write_part(aside, rows, self._drain.schema)
            move(aside, self._file(tick), durable=True)

    def publish(self, tick: int) -> None:
        super().publish(tick)
        self._file(tick).unlink(missing_ok=True)

    def recover(self, tick: int) -> None:
        from penstock.io.parts import read_part

        if self._file(tick).exists():
            super().prepare(tick, read_part(self._file(tick), self._drain.schema))
            self.publish(tick)
        for leftover in self._folder.iterdir():
            leftover.unlink()
        sync_folder(self._folder)
