"""Page of a checkpoint at rest, or of one whose run has no page of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.file_system import local_path
from headrace.state.commit import CommitLog
from headrace.state.inspection import CheckpointHeld, SlotHeld, inspect, plain, rows_of_key

if TYPE_CHECKING:
    from headrace.ui.server import Json


# --- state of a checkpoint ----------------------------------------------------------


MAX_VALUES, MAX_TEXT = 200, 20_000
"""Values that are shown of a key, and characters of each."""


def state_of(folder: str | Path) -> Json:
    """Describe a checkpoint. Raises the errors of `inspect`."""
    return _describe(inspect(folder))


def state_of_key(folder: str | Path, operator: str, key: str) -> Json:
    """Look up what an operator has stored for a key, given as JSON. Raises the errors of `rows_of_key`."""
    try:
        wanted = json.loads(key)
    except ValueError:
        return {"why_not": 'A key is JSON: "a" in quotes, 7, or ["a", 7] for several columns.'}
    found = rows_of_key(folder, operator, wanted)[:MAX_VALUES]
    values = [(each, json.dumps(plain(each.value), ensure_ascii=False)[:MAX_TEXT]) for each in found]
    return {"values": [{"slot": each.what, "shard": each.shard, "value": text} for each, text in values]}


def _describe(held: CheckpointHeld) -> Json:
    return {
        "folder": str(held.folder),
        "on": held.on,
        "shards": held.shards,
        "oldest": held.oldest,
        "tick": held.tick,
        "files": held.files,
        "bytes": held.bytes,
        "damage": list(held.damage),
        "skipped": list(held.skipped),
        "positions": held.positions,
        "watermarks": held.watermarks,
        "slots": [_slot(slot, label) for slot, label in zip(held.slots, _labels(held.slots), strict=True)],
    }


def _labels(slots: Sequence[SlotHeld]) -> list[str]:
    """Name the operators of slots by the user's name or their kind, and the line; else by the state."""
    labels: dict[str, str] = {}
    for slot in slots:
        if slot.name not in labels:
            name = slot.called or ("" if slot.operator is None else slot.operator.partition(" (")[0])
            label = (f"{name} at {slot.place}" if slot.place else name) if name else slot.name
            count = sum(other == label or other.startswith(f"{label} #") for other in labels.values())
            labels[slot.name] = f"{label} #{count + 1}" if count else label
    return [labels[slot.name] for slot in slots]


def _slot(slot: SlotHeld, label: str) -> Json:
    return {
        "name": slot.called or slot.name,
        "label": label,
        "operator": slot.operator or "removed from the flow",
        "slot": slot.what,
        "keys": slot.whole.keys,
        "bytes": slot.whole.bytes,
        "shards": {str(number): part.keys for number, part in sorted(slot.shards.items())},
    }


_NO_ROWS = "A checkpoint holds state, not the rows of sinks. Start the run with --ui to see them."
_NO_WHY = "A checkpoint does not hold the flow. `headrace why FLOW SINK ROW --source ...` finds the rows."
_NO_LETTERS = "A checkpoint does not know the folders of dead letters. Start the run with --ui to see them."


class CheckpointPage:
    """Page of a checkpoint's folder; it follows new commits. The checkpoint is never modified.

    Following reads the newest commit only. The state's files are read when the state is asked for.
    The constructor raises the errors of `inspect`.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(local_path(folder, "checkpoint"))
        inspect(self._folder)
        self._log = CommitLog(self._folder)
        self._last = self._log.last()
        self._failure = ""
        self._version = 0

    def refresh(self) -> None:
        failure = "" if self._folder.is_dir() else f"{self._folder} is gone; this is what it held last."
        ticks = self._log.ticks()
        if failure != self._failure or (ticks and ticks[-1] != self._tick):
            self._last = self._log.last() or self._last
            self._failure = failure
            self._version += 1

    @property
    def _tick(self) -> int:
        return 0 if self._last is None else self._last.tick

    def version(self) -> int:
        return self._version

    def overview(self) -> Json:
        return {"kind": "checkpoint", "title": self._folder.name, "sources": {}, "sinks": {}}

    def flow(self, view: str) -> Json:
        return {"why_not": "A checkpoint holds no flow."}

    def status(self, after: int) -> Json:
        last = self._last
        return {
            "tick": self._tick,
            "ticks": [],
            "watermarks": {} if last is None else last.counters.get("watermarks", {}),
            "late": {},
            "sources": {},
            "state_bytes": None if last is None else last.state_bytes,
            "failure": self._failure,
        }

    def state(self) -> Json:
        return state_of(self._folder)

    def state_of_key(self, operator: str, key: str) -> Json:
        return state_of_key(self._folder, operator, key)

    def rows(self, view: str, search: str, offset: int) -> Json:
        return {"why_not": _NO_ROWS}

    def dead_letters(self) -> Json:
        return {"why_not": _NO_LETTERS}

    def why(self, view: str, row: str) -> Json:
        return {"why_not": _NO_WHY}
