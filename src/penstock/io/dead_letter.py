"""Dead letters: rows that could not be read, set aside as JSON lines.

    <folder>/tick=12-<source>.jsonl           {"source", "file", "row", "line", "reason", "text"} per line

A file appears whole, together with the tick that met the rows; the two steps
are those of a sink (`penstock.io.sink`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from penstock.io.publish import STAGING, move, remove_empty, sync_file
from penstock.io.source import BadRecord


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Where the bad rows of one source go. durable: they must survive a power cut."""

    source: str
    folder: Path
    durable: bool

    def _name(self, tick: int | str) -> str:
        return f"tick={tick}-{quote(self.source, safe='')}.jsonl"

    def prepare(self, tick: int, bad: Sequence[BadRecord]) -> None:
        """Write down what tick `tick` set aside, where nobody looks."""
        if bad:
            staging = self.folder / STAGING
            staging.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps(record.as_json(self.source), ensure_ascii=False) + "\n" for record in bad]
            file = staging / self._name(tick)
            file.write_text("".join(lines), encoding="utf-8", errors="replace")
            if self.durable:
                sync_file(file)

    def publish(self, tick: int) -> None:
        """Show the tick's file; nothing happens where it has none or shows already."""
        staged = self.folder / STAGING / self._name(tick)
        if staged.exists():
            move(staged, self.folder / self._name(tick), durable=self.durable)

    def recover(self, tick: int) -> None:
        """After a crash: show what the committed `tick` set aside, drop what came after it."""
        self.publish(tick)
        staging = self.folder / STAGING
        if staging.is_dir():
            for leftover in staging.glob(self._name("*")):
                leftover.unlink()

    def close(self) -> None:
        remove_empty(self.folder / STAGING)
