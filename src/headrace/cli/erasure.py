"""Erasure of places that hold rows: checkpoints, sinks that are folders, and stores of collections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import BadInput
from headrace.path_or_url import local_path

_STORE = re.compile("(sqlite|postgresql|delta|memory):")
_SQLITE = b"SQLite format 3"


def erase_place(place: str) -> Iterator[str]:
    """Erase what a place no longer holds, and yield what was done. Raises `BadInput` for other places."""
    folder = Path(place)
    if _STORE.match(place) or _is_sqlite(folder):
        yield from _erase_collections(place)
    elif (folder / "commit").is_dir():
        from headrace.state.erasure import erase

        done = erase(folder)
        yield f"tick {done.tick} is kept; {done.before:,} bytes of state are {done.after:,} now"
    elif (folder / "versions").is_dir() and (folder / "current").is_symlink():
        from headrace.io.files.table_files import erase_earlier

        yield f"{erase_earlier(folder)} earlier versions of the table are gone"
    elif folder.is_dir():
        from headrace.io.files.compaction import erase

        yield f"{erase(folder).merged:,} ticks of the changelog are one now"
    else:
        raise BadInput(
            f"{place} is not there",
            fix="give the folder of a checkpoint, changelog or table, or a store such as sqlite:PATH",
            path=place,
        )


def _is_sqlite(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(len(_SQLITE)) == _SQLITE


def _check_exists(uri: str) -> None:
    """Raise `BadInput` for a SQLite store that opening it would create."""
    kind, _, place = uri.partition(":")
    if kind == "sqlite" and not _is_sqlite(Path(local_path(place, "collections in SQLite"))):
        raise BadInput(
            f"there is no store of collections at {uri}",
            fix="name the file that a controller uses: --collections, or collections.db in its --state",
            path=uri,
        )


def _erase_collections(uri: str) -> Iterator[str]:
    from headrace.compute.collections.store import open_collections

    _check_exists(uri)
    collections = open_collections(uri)
    try:
        kept = collections.erase()
    finally:
        collections.close()
    yield "what was deleted is erased"
    for id, bounds in kept.items():
        times = f"{bounds.since} to {bounds.upper}"
        yield f"but {id} can still be read as of {times}: what was deleted since stays"
