"""State of a checkpoint as the page shows it: sizes by operator and shard, positions, watermarks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.state.inspection import CheckpointHeld, SlotHeld, inspect, plain, rows_of_key

if TYPE_CHECKING:
    from headrace.ui.page import Json


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
