"""The latest dead letters of a source, read back from its folder."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from penstock.ui.page import Json

MAX_LETTERS = 200
_MAX_FILES = 50


def latest_dead_letters(source: str, folder: Path) -> Json:
    """Read the newest rows set aside for a source, at most `MAX_LETTERS`, newest tick first."""
    files = sorted(folder.glob(f"tick=*-{_literal(quote(source, safe=''))}.jsonl"), key=_tick, reverse=True)
    rows: list[Json] = []
    for file in files[:_MAX_FILES]:
        try:
            with file.open(encoding="utf-8") as lines:
                some = islice(lines, MAX_LETTERS - len(rows))
                rows += [{"tick": _tick(file), **json.loads(line)} for line in some]
        except (OSError, ValueError) as error:
            rows.append({"tick": _tick(file), "reason": f"{file.name} cannot be read: {error}"})
        if len(rows) >= MAX_LETTERS:
            break
    return {"folder": str(folder), "files": len(files), "rows": rows}


def _literal(name: str) -> str:
    return name.replace("[", "[[]")


def _tick(file: Path) -> int:
    number = file.name.partition("=")[2].partition("-")[0]
    return int(number) if number.isdecimal() else 0
