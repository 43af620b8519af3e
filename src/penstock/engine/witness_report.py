"""Report on a witness: its rows as JSON, and the steps of the search as sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.engine.live_rows import shown_json
from penstock.io.files.json_values import object_encoder

if TYPE_CHECKING:
    from penstock.engine.witness import SourceRead, Witness

SHOWN_ROWS = 200
"""Rows of a source that are listed."""


def witness_json(found: Witness) -> dict[str, Any]:
    """Encode a witness as JSON, with the steps of the search as sentences."""
    return {
        "found": found.found,
        "problem": found.problem,
        "steps": list(steps(found)),
        "minimal": found.minimal,
        "sources": {name: _source_json(name, read, found) for name, read in found.sources.items()},
    }


def _source_json(name: str, read: SourceRead, found: Witness) -> dict[str, Any]:
    encode = object_encoder(read.schema.fields)
    width = len(read.schema.fields)
    needed = {id(item) for item in found.needed}
    possible = sorted(
        (item for item in found.possible if item.source == name), key=lambda item: id(item) not in needed
    )
    rows = [
        {
            "values": [shown_json(value) for value in encode(item.row[:width]).values()],
            "weight": 1 if read.append else item.row[-1],
            "needed": id(item) in needed,
        }
        for item in possible[:SHOWN_ROWS]
    ]
    return {
        "why_not": read.why_not,
        "restriction": read.restriction,
        "columns": list(read.schema.names),
        "rows": rows,
        "possible": len(possible),
        "needed": sum(id(item) in needed for item in possible),
    }


def steps(found: Witness) -> Sequence[str]:
    """Describe the steps of a search, a sentence each."""
    said: list[str] = []
    for name, read in found.sources.items():
        if read.why_not:
            said.append(f"{name}: not read: {read.why_not}.")
            continue
        kept = sum(item.source == name for item in found.possible)
        limit = "" if read.all_read else ", and stopped at the limit"
        by = (
            f"; {kept:,} {'has' if kept == 1 else 'have'} {read.restriction}"
            if read.restriction
            else "; no column of the row restricts them"
        )
        said.append(f"{name}: read {read.rows:,} row{_s(read.rows)} again{limit}{by}.")
    count = len(found.possible)
    if not found.found:
        return [*said, found.problem]
    said.append(f"{_these(count)} produce{'s' if count == 1 else ''} it.")
    left = len(found.needed)
    if left == count:
        if count > 1:
            said.append("Every one of them is needed." if found.minimal else "No smaller set was found.")
    elif left == 1:
        said.append("One of them is enough.")
    else:
        needed = ", and every one of these is needed" if found.minimal else ""
        said.append(f"{left:,} of them are enough{needed}.")
    if not found.minimal:
        said.append("There were too many to try one by one, so some of them may be unrelated.")
    return said


def _these(count: int) -> str:
    return "This row" if count == 1 else f"These {count:,} rows"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
