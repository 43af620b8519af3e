"""State of a checkpoint as the page shows it: sizes by operator and shard, positions, watermarks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.state.inspection import CheckpointHeld, SlotHeld, inspect

if TYPE_CHECKING:
    from penstock.ui.page import Json


def state_of(folder: str | Path) -> Json:
    """Describe a checkpoint. Raises the errors of `inspect`."""
    return describe(inspect(folder))


def describe(held: CheckpointHeld) -> Json:
    """Convert the contents of a checkpoint to JSON."""
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
        "slots": [_slot(slot) for slot in held.slots],
    }


def _slot(slot: SlotHeld) -> Json:
    return {
        "name": slot.called or slot.name,
        "operator": slot.operator or "removed from the flow",
        "place": slot.place or "",
        "slot": slot.what,
        "keys": slot.whole.keys,
        "bytes": slot.whole.bytes,
        "shards": {str(number): part.keys for number, part in sorted(slot.shards.items())},
    }
