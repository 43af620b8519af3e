"""The catalog: what has a name. Plain data; `durable` keeps it, `names` finds things in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.compute.errors import AlreadyThere, UnknownName
from penstock.compute.protocol.commands import TimelyConfig
from penstock.compute.protocol.dataflow import Id, Plan
from penstock.expr.types import Schema


@dataclass(frozen=True, slots=True)
class CollectionEntry:
    """A durable collection.

    written_by: the id of the view that writes it; None: clients do.
    """

    id: Id
    name: str
    schema: Schema
    append_only: bool
    written_by: Id | None = None


@dataclass(frozen=True, slots=True)
class MaterializationTarget:
    """That the changes of a view are written to a collection: by which export, to which one."""

    export: Id
    collection: Id


@dataclass(frozen=True, slots=True)
class ViewEntry:
    """A view: one sink of a flow, kept as an index.

    imports:     names of the sources, with the ids of what they read.
    schema, append_only: of its rows.
    valid_from:  the time from which it was made; it was never readable before.
    """

    id: Id
    name: str
    plan: Plan
    sink: str
    schema: Schema
    append_only: bool
    imports: tuple[tuple[str, Id], ...]
    key: tuple[str, ...]
    keep: int
    valid_from: int
    into: MaterializationTarget | None = None


@dataclass(frozen=True, slots=True)
class ReplicaEntry:
    """A replica to be connected."""

    name: str
    address: str
    timely: TimelyConfig


@dataclass(slots=True)
class Catalog:
    """All entries, by id or name, in the order of their making.

    strays: ids of collections that may be in the store although nothing here names them, because a crash
        came between; to be dropped there.
    positions: by the id of a view, the time from which a reader that may come back goes on.
    last_time: no write had a greater time when this was written.
    given: the number of the last id that a collection was given.
    """

    collections: dict[Id, CollectionEntry] = field(default_factory=dict[Id, CollectionEntry])
    views: dict[Id, ViewEntry] = field(default_factory=dict[Id, ViewEntry])
    replicas: dict[str, ReplicaEntry] = field(default_factory=dict[str, ReplicaEntry])
    strays: set[Id] = field(default_factory=set[Id])
    positions: dict[Id, int] = field(default_factory=dict[Id, int])
    last_time: int = 0
    given: int = 0
    _names: dict[str, CollectionEntry | ViewEntry] = field(
        default_factory=dict[str, CollectionEntry | ViewEntry]
    )

    def find(self, name: str) -> CollectionEntry | ViewEntry | None:
        """What a name stands for, if anything."""
        return self._names.get(name)

    def named(self, name: str) -> CollectionEntry | ViewEntry:
        """What a name stands for. Raises `UnknownName`."""
        found = self._names.get(name)
        if found is None:
            raise UnknownName(
                f"there is no view or collection {name!r}",
                fix="create it first; it may have been dropped",
                name=name,
            )
        return found

    def replica(self, name: str) -> ReplicaEntry:
        """Raises `UnknownName`."""
        found = self.replicas.get(name)
        if found is None:
            raise UnknownName(
                f"there is no replica {name!r}", fix="add it first; it may have been dropped", name=name
            )
        return found

    def add(self, entry: CollectionEntry | ViewEntry) -> None:
        match entry:
            case CollectionEntry():
                self.collections[entry.id] = entry
            case ViewEntry():
                self.views[entry.id] = entry
        self._names[entry.name] = entry

    def remove(self, entry: CollectionEntry | ViewEntry) -> None:
        match entry:
            case CollectionEntry():
                del self.collections[entry.id]
            case ViewEntry():
                del self.views[entry.id]
        del self._names[entry.name]

    def readers(self, id: Id) -> list[ViewEntry]:
        """The views that read something."""
        return [view for view in self.views.values() if any(read == id for _, read in view.imports)]

    def written_by_clients(self) -> Iterable[CollectionEntry]:
        return (c for c in self.collections.values() if c.written_by is None)


def taken(name: str, why: str) -> AlreadyThere:
    """That a name stands for something else."""
    return AlreadyThere(
        f"the name {name!r} is taken", why=why, fix="choose another name, or drop what has it", name=name
    )
