"""Opening of collection stores by URI."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from headrace.compute.collections.store import Collections
from headrace.errors import BadInput, BadUri
from headrace.file_system import local_path
from headrace.io.postgres import without_password
from headrace.requirements import require_package

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):", re.IGNORECASE)


Opener: TypeAlias = Callable[[], Collections]


def open_collections(uri: str) -> Collections:
    """Open the store at a URI, creating it if missing.

    Raises what `check_collections` and the store raise.
    """
    return _opener(uri)()


def check_collections(uri: str) -> None:
    """Validate a URI without accessing its store.

    Raises `BadUri` for an invalid URI, and `BadInput` if a required package is missing.
    """
    _opener(uri)


def _opener(uri: str) -> Opener:
    scheme = _SCHEME.match(uri)
    name, rest = (scheme[1].lower(), uri[scheme.end() :]) if scheme else ("sqlite", uri)
    find = _STORES.get(name)
    if find is None or not rest or "\0" in rest:
        shown = without_password(uri)
        raise BadUri(
            f"{shown!r} names no store of collections",
            fix=f"write a path, or {', '.join(f'{known}:...' for known in _STORES)}",
            uri=shown,
        )
    return find(uri if rest.startswith("//") else rest)


def _sqlite(path: str) -> Opener:
    from headrace.compute.collections.sqlite import SqliteCollections

    return partial(SqliteCollections, local_path(path, "collections in SQLite"))


def _memory(name: str) -> Opener:
    from headrace.compute.collections.memory import MemoryCollections

    return partial(MemoryCollections.named, name)


def _postgresql(url: str) -> Opener:
    try:
        from headrace.compute.collections.postgres import PostgresCollections
    except ImportError as error:
        raise BadInput(
            "collections in PostgreSQL need pg8000, which cannot be imported",
            why=str(error),
            fix="pip install 'headrace[postgres]'",
        ) from error
    return partial(PostgresCollections, url)


def _delta(path: str) -> Opener:
    require_package("a store of collections", "deltalake", "delta")
    from headrace.tables.delta_table import check_location

    check_location(path, {}, "collections in Delta Lake")
    from headrace.compute.collections.delta import DeltaCollections

    return partial(DeltaCollections, path)


_STORES: Mapping[str, Callable[[str], Opener]] = {
    "sqlite": _sqlite,
    "memory": _memory,
    "postgresql": _postgresql,
    "delta": _delta,
}
