"""The manifest of a checkpoint: what was decided when it was made and cannot change."""

from __future__ import annotations

import difflib
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from penstock.errors import FlowChanged
from penstock.state.commit import read_checked, write_checked
from penstock.state.files import damaged, sync

FORMAT = 1

Diff: TypeAlias = Callable[[Any, Any], str]
Compatible: TypeAlias = Callable[[Any, Any], bool]


@dataclass(frozen=True, slots=True)
class Manifest:
    """id: of the checkpoint. shards: their number.

    description: of the flow; layout: of its state; both as JSON.
    """

    id: str
    shards: int
    fingerprint: str
    description: Any
    layout: Any

    @classmethod
    def new(cls, shards: int, fingerprint: str, description: Any, layout: Any) -> Manifest:
        return cls(uuid.uuid4().hex, shards, fingerprint, description, layout)

    def write(self, folder: Path) -> None:
        body = {
            "format": FORMAT, "id": self.id, "shards": self.shards, "fingerprint": self.fingerprint,
            "description": self.description, "layout": self.layout,
        }  # fmt: skip
        aside = folder / "manifest.json.part"
        write_checked(aside, body, durable=True)
        aside.rename(folder / "manifest.json")
        sync(folder)

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """The manifest in a folder, None if there is none. Raises `CheckpointDamaged`."""
        path = folder / "manifest.json"
        if not path.exists():
            return None
        body = read_checked(path)
        if body.get("format") != FORMAT:
            raise damaged(path, f"its format is {body.get('format')!r}, this version knows {FORMAT}")
        try:
            return cls(
                body["id"], int(body["shards"]), body["fingerprint"], body["description"], body["layout"]
            )
        except (KeyError, ValueError, TypeError) as error:
            raise damaged(path, f"it is not a manifest: {error!r}") from error

    def refuse(self, folder: Path, description: Any, diff: Diff | None) -> FlowChanged:
        """The error for a flow that is not the one of the checkpoint."""
        difference = (diff or _line_diff)(self.description, description)
        return FlowChanged(
            f"the checkpoint {folder} belongs to another flow, or to another version of this one",
            why=f"What changed:\n{difference}",
            fix="run the flow that wrote it, or give the changed flow an empty checkpoint folder",
            checkpoint=str(folder),
            diff=difference,
        )


def _line_diff(old: Any, new: Any) -> str:
    lines = difflib.unified_diff(_lines(old), _lines(new), "checkpoint", "now", lineterm="", n=1)
    return "\n".join(lines)


def _lines(description: Any) -> list[str]:
    items = cast("list[Any]", description) if isinstance(description, list) else [description]
    return [item if isinstance(item, str) else json.dumps(item, sort_keys=True) for item in items]
