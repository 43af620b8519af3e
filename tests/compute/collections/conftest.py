"""A place for collections of each kind, on which any number of handles can be opened."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.compute.collections.opening import open_collections
from headrace.compute.collections.store import Collections

ROOT = Path(__file__).resolve().parents[3]
KINDS = ("memory", "sqlite", "postgresql", "delta")


@dataclass
class Place:
    """used: handles that were opened before, for another test; they connect again by themselves."""

    kind: str
    uri: str
    used: list[Collections] = field(default_factory=list)
    handles: list[Collections] = field(default_factory=list)

    def open(self) -> Collections:
        if len(self.handles) == len(self.used):
            self.used.append(open_collections(self.uri))
        self.handles.append(self.used[len(self.handles)])
        return self.handles[-1]

    def close(self) -> None:
        for handle in self.handles:
            handle.close()


def place_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> Place:
    match kind:
        case "memory":
            return Place(kind, f"memory:{uuid.uuid4()}")
        case "sqlite":
            return Place(kind, f"sqlite:{folder / 'collections.db'}")
        case "delta":
            pytest.importorskip("deltalake", reason="deltalake is not installed")
            return Place(kind, f"delta:{folder / 'collections'}")
        case _:
            return request.getfixturevalue("postgres_places")()


@pytest.fixture(scope="session")
def postgres_places(request: pytest.FixtureRequest) -> Iterator[object]:
    """Makes places in one schema, with the same few handles: connections take long."""
    server = request.getfixturevalue("postgres")
    schema = f"c{uuid.uuid4().hex}"
    server.query(f"create schema {schema}")
    used: list[Collections] = []

    def place() -> Place:
        found = Place("postgresql", f"{server.url}?schema={schema}", used)
        if used:
            for id in used[0].all():
                used[0].drop(id)
        return found

    yield place
    for handle in used:
        handle.close()


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found = place_of(request.param, tmp_path, request)
    yield found
    if found.kind != "postgresql":
        found.close()


@pytest.fixture
def store(place: Place) -> Collections:
    return place.open()
