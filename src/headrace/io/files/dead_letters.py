"""Dead letters: unreadable rows, written to a folder as JSON lines.

    <folder>/tick=12-<source>.jsonl           {"source", "file", "row", "line", "reason", "text"} per line

Each file is published together with the tick that read the rows, by the two-step protocol of sinks
(`headrace.io.sink`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from headrace.atomic_files import move, remove_empty, sync_file
from headrace.io.source import BadRecord
from headrace.tables.version_folders import STAGING


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Dead letters of one source. durable: whether to sync files to disk."""

    source: str
    folder: Path
    durable: bool

    def _name(self, tick: int | str) -> str:
        return f"tick={tick}-{quote(self.source, safe='')}.jsonl"

    def prepare(self, tick: int, bad: Sequence[BadRecord]) -> None:
        """Write the unreadable rows of a tick where readers do not look."""
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
