"""State of an incremental table, which may be ahead of the published version."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.errors import CheckpointDamaged
from headrace.io.files import changelog
from headrace.pipelines.catalog import Positions, TableEntry
from headrace.state.checkpoint import erase
from headrace.state.commit import CommitLog, read_checked, write_checked
from headrace.tables.version_folders import tick_folders


@dataclass(frozen=True, slots=True)
class TableState:
    """State of an incremental table: the checkpoint of its flow, with the flow's changelog beside it.

    A run writes down how far its inputs go before it begins a tick, since a tick that is committed may
    never get into the catalogue.
    """

    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def sink(self) -> Path:
        return self.folder / "changes"

    @property
    def last_tick(self) -> int:
        return CommitLog(self.checkpoint).last_tick()

    def _begun(self, tick: int) -> Path:
        return self.folder / f"tick-{tick}.json"

    def begin(self, positions: Positions) -> None:
        """Record the positions of the inputs after the next tick."""
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / ".tick.tmp"
        write_checked(aside, {"positions": dict(positions)}, durable=True)
        aside.replace(self._begun(self.last_tick + 1))

    def forget_before(self, tick: int) -> None:
        """Remove the changes and positions of earlier ticks, which are in versions of the table."""
        ticks = tick_folders(self.sink)
        ticks.retain([each for each in ticks.numbers() if each >= tick])
        for each in range(tick - 1, 0, -1):
            if not self._begun(each).exists():
                break
            self._begun(each).unlink()

    def erase(self, tick: int) -> None:
        """Remove deleted values from disk. tick: the last one whose changes are in a version."""
        self.forget_before(tick)
        if self.last_tick == tick:
            # The sink expects the folder of its last tick; what was in it is in a version.
            for file in tick_folders(self.sink).folder(tick).glob("*"):
                _empty(file)
        erase(self.checkpoint)

    def positions(self, entry: TableEntry, flow: str) -> Positions | None:
        """Return how far the state has read its inputs; None if there is no state."""
        last = self.last_tick
        if not last:
            return None
        if last == entry.tick:
            return entry.positions.get(flow, {})
        changelog.recover(self.sink, last)
        try:
            return read_checked(self._begun(last))["positions"]
        except CheckpointDamaged:
            return None

    def ticks_after(self, tick: int) -> list[Path]:
        """Return the folders of later ticks that changed something."""
        ticks = tick_folders(self.sink)
        return [ticks.folder(each) for each in ticks.numbers() if each > tick]


def _empty(file: Path) -> None:
    """Replace a file of Parquet by one without rows."""
    import pyarrow.parquet as pq

    columns = pq.read_schema(file).empty_table()
    aside = file.with_name(f".{file.name}.tmp")
    pq.write_table(columns, aside)
    aside.replace(file)
