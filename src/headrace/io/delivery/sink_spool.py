"""Spool: prepared ticks kept in the checkpoint, for sinks without staging of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.atomic_files import sync_folder, write_file
from headrace.io.declared_types import refuse_untyped
from headrace.io.delivery.negative_rows import HeldBack
from headrace.io.sink import SinkRequest, Writer, held_back_of
from headrace.io.source import Rows
from headrace.state.codec import decode, value_encoder

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
