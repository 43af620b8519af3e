"""Catalog of a controller: collections, views and replicas by id and name.

Plain data: `ddl` changes it, `durable` stores it. Entries are stored as plain values, with schemas in their
portable form.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, field

from headrace.compute.errors import AlreadyThere, BadMessage, UnknownName
from headrace.compute.frontier import START, Frontier
from headrace.compute.plans import schema_from_bytes, schema_to_bytes
from headrace.compute.protocol.commands import (
    CollectionExport,
    CollectionImport,
    Dataflow,
    DataflowLimits,
    Export,
    Id,
    IndexExport,
    IndexImport,
    PlanBytes,
    TimelyConfig,
)
from headrace.expr.types import Schema
from headrace.state import codec

_encode = codec.value_encoder()


@dataclass(frozen=True, slots=True)
class CollectionEntry:
    """Catalog entry of a durable collection.

    written_by: id of the view that writes it; None for a collection written by clients.
    """

    id: Id
    name: str
    schema: Schema
    append_only: bool
    written_by: Id | None = None

    @property
    def description(self) -> bytes:
        """Encoded schema, kept with the collection in the store for its readers."""
        return schema_to_bytes(self.schema)

    def to_bytes(self) -> bytes:
        """Encode the entry for the store."""
        return _encode((self.id, self.name, self.description, self.append_only, self.written_by))

    @classmethod
    def from_bytes(cls, data: bytes) -> CollectionEntry:
        """Decode a stored entry. Raises TypeError, ValueError or a `HeadraceError` for other bytes."""
        id, name, schema, append_only, written_by = codec.decode(data)
        return cls(id, name, schema_from_bytes(schema), append_only, written_by)


@dataclass(frozen=True, slots=True)
class MaterializationTarget:
    """Target of a materialized view: the export that writes its changes, and the collection written."""

    export: Id
    collection: Id


@dataclass(frozen=True, slots=True)
class ViewEntry:
    """Catalog entry of a view: one sink of a flow, maintained as an index.

    imports:     source names with the ids of the views and collections they read.
    schema, append_only: of its rows.
    valid_from:  time of its creation; earlier times are never readable.
    """

    id: Id
    name: str
    plan: PlanBytes
    sink: str
    schema: Schema
    append_only: bool
    imports: tuple[tuple[str, Id], ...]
    key: tuple[str, ...]
    keep: int
    valid_from: int
    into: MaterializationTarget | None = None
    limits: DataflowLimits = DataflowLimits()  # noqa: RUF009

    def dataflow(self, collections: Iterable[Id], as_of: Frontier = START) -> Dataflow:
        """Build the view's dataflow for replicas. collections: ids of all collections."""
        known = set(collections)
        exports: list[Export] = [IndexExport(self.id, self.sink, self.key)]
        if self.into is not None:
            exports.append(CollectionExport(self.into.export, self.sink, self.into.collection))
        return Dataflow(
            self.plan,
            tuple(CollectionImport(source, id) for source, id in self.imports if id in known),
            tuple(IndexImport(source, id) for source, id in self.imports if id not in known),
            tuple(exports),
            as_of,
            name=self.name,
            limits=self.limits,
        )

    def to_bytes(self) -> bytes:
        """Encode the entry for the store."""
        plan, schema = (self.plan.body, self.plan.places), schema_to_bytes(self.schema)
        into = self.into and (self.into.export, self.into.collection)
        made = (self.imports, self.key, self.keep, self.valid_from, into, astuple(self.limits))
        return _encode((self.id, self.name, *plan, self.sink, schema, self.append_only, *made))

    @classmethod
    def from_bytes(cls, data: bytes) -> ViewEntry:
        """Decode a stored entry. Raises TypeError, ValueError or a `HeadraceError` for other bytes."""
        id, name, body, places, sink, schema, append_only, *made = codec.decode(data)
        imports, key, keep, valid_from, into, *limits = made
        return cls(
            id=id,
            name=name,
            plan=PlanBytes(body, places),
            sink=sink,
            schema=schema_from_bytes(schema),
            append_only=append_only,
            imports=tuple((source, read) for source, read in imports),
            key=tuple(key),
            keep=keep,
            valid_from=valid_from,
            into=None if into is None else MaterializationTarget(*into),
            # Of an entry of an earlier version, they are the defaults.
            limits=DataflowLimits(*limits[0]) if limits else DataflowLimits(),
        )


@dataclass(frozen=True, slots=True)
class ReplicaEntry:
    """Catalog entry of a replica."""

    name: str
    address: str
    timely: TimelyConfig

    def to_bytes(self) -> bytes:
        """Encode the entry for the store."""
        return _encode((self.name, self.address, self.timely.runtime, self.timely.workers))

    @classmethod
    def from_bytes(cls, data: bytes) -> ReplicaEntry:
        """Decode a stored entry. Raises TypeError, ValueError or a `HeadraceError` for other bytes."""
        name, address, runtime, workers = codec.decode(data)
        return cls(name, address, TimelyConfig(runtime, workers))


@dataclass(slots=True)
class ControllerCatalog:
    """Entries by id or name, in order of creation.

    strays: ids of collections that may be left in the store without an entry, and are to be dropped there.
    positions: by view id, the earliest position that a reader may resume from.
    last_time: upper bound on the times of all writes when this was stored.
    given: number of the last assigned collection id.
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
        """Return the view or collection with a name, or None."""
        return self._names.get(name)

    def find_or_raise(self, name: str) -> CollectionEntry | ViewEntry:
        """Return the view or collection with a name. Raises `UnknownName`."""
        found = self._names.get(name)
        if found is None:
            raise UnknownName(
                f"no view or collection named {name!r}",
                fix="create it first; it may have been dropped",
                name=name,
            )
        return found

    def replica(self, name: str) -> ReplicaEntry:
        """Return the replica with a name. Raises `UnknownName`."""
        found = self.replicas.get(name)
        if found is None:
            raise UnknownName(
                f"no replica named {name!r}", fix="add it first; it may have been dropped", name=name
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

    def views_reading(self, id: Id) -> list[ViewEntry]:
        """List the views that read the view or collection `id`."""
        return [view for view in self.views.values() if any(read == id for _, read in view.imports)]

    def written_by_clients(self) -> Iterable[CollectionEntry]:
        return (c for c in self.collections.values() if c.written_by is None)


def name_taken_error(name: str, why: str) -> AlreadyThere:
    """Build the error for a name that is already in use."""
    return AlreadyThere(
        f"the name {name!r} is taken", why=why, fix="choose another name, or drop its owner", name=name
    )


def check_name(name: str) -> None:
    """Raise `BadMessage` for an invalid or reserved name."""
    if not name or name != name.strip() or not name.isprintable() or len(name) > 200:
        raise BadMessage(
            f"{name!r} is not a valid name", fix="use letters, digits and punctuation", field="name"
        )
    if name.startswith("headrace."):
        raise BadMessage(
            f"{name!r} is not a valid name", why="Names that begin with headrace. are reserved.", field="name"
        )
