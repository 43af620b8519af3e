"""Stores by their URIs."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.compute.collections.memory import MemoryCollections
from headrace.compute.collections.opening import open_collections
from headrace.compute.collections.sqlite import SqliteCollections
from headrace.errors import BadUri


@pytest.mark.parametrize("prefix", ["", "sqlite:", "SQLite:"])
def test_a_path_is_a_file_of_sqlite(prefix: str, tmp_path: Path) -> None:
    store = open_collections(f"{prefix}{tmp_path / 'a:b ?.db'}")
    assert isinstance(store, SqliteCollections)
    store.close()
    assert (tmp_path / "a:b ?.db").exists()


def test_a_name_in_memory_is_one_store_in_this_process() -> None:
    one, same, other = (open_collections(f"memory:{name}") for name in ("one", "one", "other"))
    assert isinstance(one, MemoryCollections)
    one.create("s1", b"")
    assert (same.all(), other.all()) == ({"s1": b""}, {})


@pytest.mark.parametrize(
    "uri", ["", "sqlite:", "mysql://user:secret@host/db", "memory:", "delta:", "delta:a\0b"]
)
def test_what_names_no_store_is_told_without_its_password(uri: str) -> None:
    with pytest.raises(BadUri, match="names no store") as refused:
        open_collections(uri)
    assert "secret" not in str(refused.value)
    assert "postgresql:" in refused.value.fix
