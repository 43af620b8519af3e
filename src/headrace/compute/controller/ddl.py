"""Creation and removal of views and collections: first in the state and the store, then on replicas.

The order makes a crash at any point harmless: a collection is recorded as a stray before it is created in the
store, and one transaction adds it to the catalog and removes it from the strays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

from headrace.compute.collections.store import Collections
from headrace.compute.controller.catalog import (
    Catalog,
    CollectionEntry,
    MaterializationTarget,
    ViewEntry,
    check_name,
    name_taken_error,
)
from headrace.compute.controller.durable import ControllerState
from headrace.compute.controller.holds import ReadHold
from headrace.compute.controller.instance import Instance
from headrace.compute.controller.timestamps import TimestampOracle
from headrace.compute.errors import AlreadyThere, BadMessage, NotServable, SinceViolation, StillInUse
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.plans import FlowSink, FlowSource, check_servable, decode, sinks_of, sources_of
from headrace.compute.protocol.dataflow import (
    CollectionExport,
    DataflowLimits,
    Id,
    Plan,
)
from headrace.errors import SourceLocation, UnknownColumn
from headrace.expr.types import Schema


@dataclass(frozen=True, slots=True)
class PlanSchema:
    """Sources and sink of a checked plan. locations: the user's source line of each source, by name."""

    sources: tuple[FlowSource, ...]
    sink: FlowSink
    locations: Mapping[str, SourceLocation]


def decode_plan(plan: Plan, *, allow_callables: bool) -> PlanSchema:
    """Decode a plan, and return its sources and sink.

    Raises `BadPlan`, `CallableRefused`, `MessageTooLarge`, and `NotServable`, also for more than one sink.
    """
    flow = decode(plan, allow_callables=allow_callables)
    check_servable(flow)
    sinks = sinks_of(flow)
    graph = flow.graph()
    if len(sinks) != 1:
        raise NotServable(
            f"flow {flow.name!r} cannot be a view: it has {len(sinks)} sinks",
            where=[graph.nodes[node].location for node in graph.sinks.values()],
            why="A view is the rows of one sink.",
            fix="make a flow for each of them; they can read each other's views",
            operator="",
        )
    locations = {name: graph.nodes[node].location for name, node in graph.sources.items()}
    return PlanSchema(sources_of(flow), sinks[0], locations)


def find_source_entry(
    catalog: Catalog, source: FlowSource, location: SourceLocation
) -> CollectionEntry | ViewEntry | None:
    """Return the entry that a source reads, or None. Raises `AlreadyThere` if its schema differs."""
    found = catalog.find(source.name)
    if found is None:
        return None
    if found.schema != source.schema:
        raise AlreadyThere(
            f"source {source.name!r} has other columns than the existing {source.name!r}",
            where=[location],
            why=f"The source has {source.schema},\nthe existing one has {found.schema}.",
            fix="give the source these columns, or another name",
            name=source.name,
        )
    if source.append and not found.append_only:
        raise AlreadyThere(
            f"source {source.name!r} is append-only, but reads rows that may be retracted",
            where=[location],
            why=f"The existing {source.name!r} is not append-only.",
            fix=f"flow.table({source.name!r}, ...)",
            name=source.name,
        )
    return found


def check_key(key: Sequence[str], schema: Schema) -> None:
    """Raise `UnknownColumn` for a missing key column, `BadMessage` for a repeated one."""
    for name in key:
        if schema.position(name) is None:
            raise UnknownColumn(
                f"the view has no column {name!r} to be its key",
                why=f"Its columns are {schema}.",
                fix="name columns of the sink",
                column=name,
            )
    if len(set(key)) != len(key):
        raise BadMessage(f"the key {', '.join(key)} names a column twice", field="key")


@dataclass(frozen=True, slots=True)
class ViewRequest:
    """Request to create a view."""

    name: str
    plan: Plan
    key: tuple[str, ...]
    keep: int
    into: str | None
    limits: DataflowLimits = DataflowLimits()  # noqa: RUF009


_Read: TypeAlias = tuple[FlowSource, CollectionEntry | ViewEntry | None]


@dataclass(frozen=True, slots=True)
class _Making:
    """Entries to create. made: collections for clients. written: those for the view, from `as_of` on."""

    made: list[CollectionEntry]
    written: list[CollectionEntry]
    view: ViewEntry | None
    as_of: Frontier


class DdlExecutor:
    """Catalog of one controller, with the operations that change it in state, store and replicas.

    policies: implied holds on collections.
    """

    def __init__(
        self,
        state: ControllerState,
        epoch: int,
        catalog: Catalog,
        collections: Collections,
        instance: Instance,
        oracle: TimestampOracle,
        *,
        allow_callables: bool,
    ) -> None:
        self.catalog = catalog
        self.policies: dict[Id, ReadHold] = {}
        self._state = state
        self._epoch = epoch
        self._collections = collections
        self._instance = instance
        self._oracle = oracle
        self._allow_callables = allow_callables

    def create_collection(self, name: str, schema: Schema, append_only: bool) -> Id:
        """See `Controller.create_collection`."""
        check_name(name)
        found = self.catalog.find(name)
        if found is not None:
            if isinstance(found, CollectionEntry) and found == replace(
                found, schema=schema, append_only=append_only, written_by=None
            ):
                return found.id
            raise name_taken_error(
                name, "Its owner is not a collection with these columns that clients write."
            )
        (id,) = self._new_ids(0, 1)[1]
        entry = CollectionEntry(id, name, schema, append_only)
        self._carry_out(_Making([entry], [], None, self._fresh_upper()))
        return id

    def create_view(self, asked: ViewRequest) -> Id:
        """See `Controller.create_view`."""
        check_name(asked.name)
        if asked.keep < 0:
            raise BadMessage(f"a view cannot keep {asked.keep} ms", field="keep")
        found = self.catalog.find(asked.name)
        if found is not None:
            if isinstance(found, ViewEntry) and self._as_asked(found) == asked:
                return found.id
            raise name_taken_error(asked.name, self._difference(found, asked))
        shape = decode_plan(asked.plan, allow_callables=self._allow_callables)
        check_key(asked.key, shape.sink.schema)
        reads = [(s, find_source_entry(self.catalog, s, shape.locations[s.name])) for s in shape.sources]
        self._check_new_names(asked, [source.name for source, found in reads if found is None])
        making = self._making(asked, shape, reads)
        self._carry_out(making)
        assert making.view is not None
        return making.view.id

    def drop(self, name: str, forget: Callable[[str, Id], None]) -> None:
        """See `Controller.drop`. forget: called with the name and id of each dropped entry."""
        found = self.catalog.find_or_raise(name)
        gone = [found]
        if isinstance(found, ViewEntry) and found.into is not None:
            gone.append(self.catalog.collections[found.into.collection])
        self._check_unused(found, gone)
        with self._state.begin_change(self._epoch) as change:
            change.record_used_times(self._oracle.last)
            for entry in gone:
                match entry:
                    case ViewEntry():
                        change.remove_view(entry.id)
                    case CollectionEntry():
                        change.remove_collection(entry.id)
                        change.add_stray(entry.id)
        for entry in gone:
            self.catalog.remove(entry)
            forget(entry.name, entry.id)
            match entry:
                case ViewEntry():
                    self._instance.drop([entry.id, *([entry.into.export] if entry.into else [])])
                case CollectionEntry():
                    self.catalog.strays.add(entry.id)
                    self.policies.pop(entry.id).release()

    def drop_stray_collections(self, spared: set[Id]) -> None:
        """Drop collections from the store that are neither in the catalog nor in use, except `spared`."""
        # A dropped view runs until its peeks are answered, and a replica that rebuilds it needs its output.
        written = {
            export.collection
            for running in self._instance.running.values()
            for export in running.dataflow.exports
            if isinstance(export, CollectionExport)
        }
        for id in sorted(self.catalog.strays - spared - written):
            if id in self._instance.holds:
                continue
            self._collections.drop(id)
            with self._state.begin_change(self._epoch) as change:
                change.remove_stray(id)
            self.catalog.strays.discard(id)
            self._instance.forget_collection(id)

    def restore(self, entry: CollectionEntry, since: Frontier, upper: Frontier) -> None:
        """Add a collection of the catalog to the instance."""
        self.policies[entry.id] = self._instance.add_collection(entry.id, since, upper)

    def _as_asked(self, view: ViewEntry) -> ViewRequest:
        into = view.into and self.catalog.collections[view.into.collection].name
        return ViewRequest(view.name, view.plan, view.key, view.keep, into, view.limits)

    def _difference(self, found: CollectionEntry | ViewEntry, asked: ViewRequest) -> str:
        if isinstance(found, CollectionEntry):
            return "It is the name of a collection."
        there = self._as_asked(found)
        differ = [f.name for f in fields(asked) if getattr(there, f.name) != getattr(asked, f.name)]
        return f"It is the name of a view with another {', another '.join(differ)}."

    def _check_new_names(self, asked: ViewRequest, missing: Sequence[str]) -> None:
        if asked.into is not None and self.catalog.find(asked.into) is not None:
            raise name_taken_error(asked.into, "A view is written into a collection of its own.")
        names = [asked.name, *missing, *([asked.into] if asked.into is not None else [])]
        for name in names:
            check_name(name)
            if names.count(name) > 1:
                raise AlreadyThere(
                    f"the name {name!r} is used twice",
                    why="A view, its sources, and the collection that it is written into have a name each.",
                    name=name,
                )

    def _check_unused(
        self, found: CollectionEntry | ViewEntry, gone: Sequence[CollectionEntry | ViewEntry]
    ) -> None:
        readers = [view.name for entry in gone for view in self.catalog.views_reading(entry.id)]
        if isinstance(found, CollectionEntry) and found.written_by is not None:
            writer = self.catalog.views.get(found.written_by)
            readers = [writer.name if writer else "headrace", *readers]
        if readers:
            raise StillInUse(
                f"{found.name!r} cannot be dropped: it is used by {', '.join(map(repr, readers))}",
                fix="drop its users first",
                name=found.name,
                readers=tuple(readers),
            )

    def _making(self, asked: ViewRequest, shape: PlanSchema, reads: Sequence[_Read]) -> _Making:
        """Build the entries of a view and of the collections it needs, with new ids."""
        as_of = self._as_of([found.id for _, found in reads if found])
        missing = [source for source, found in reads if found is None]
        view_ids, ids = self._new_ids(2 if asked.into else 1, len(missing) + bool(asked.into))
        made = [CollectionEntry(id, s.name, s.schema, s.append) for id, s in zip(ids, missing, strict=False)]
        into = MaterializationTarget(view_ids[1], ids[-1]) if asked.into else None
        by_source = {s.name: found.id for s, found in reads if found} | {c.name: c.id for c in made}
        sink = shape.sink
        view = ViewEntry(
            id=view_ids[0],
            name=asked.name,
            plan=asked.plan,
            sink=sink.name,
            schema=sink.schema,
            append_only=sink.append,
            imports=tuple((source.name, by_source[source.name]) for source in shape.sources),
            key=asked.key,
            keep=asked.keep,
            valid_from=as_of.time or 0,
            into=into,
            limits=asked.limits,
        )
        written: list[CollectionEntry] = []
        if asked.into and into:
            written = [CollectionEntry(into.collection, asked.into, sink.schema, sink.append, view.id)]
        return _Making(made, written, view, as_of)

    def _as_of(self, ids: Sequence[Id]) -> Frontier:
        """Return the latest time up to the read time at which all of `ids` are settled and readable."""
        readable = self._instance.readable_frontier(ids)
        if readable == END:
            raise SinceViolation(
                "an input of the view is complete, and can no longer be read",
                fix="drop it, and create it anew",
                since=readable,
            )
        return max(readable, min(self._instance.settled_frontier(ids), Frontier(self._oracle.read)))

    def _new_ids(self, views: int, collections: int) -> tuple[list[Id], list[Id]]:
        """Assign ids to exports of views and to collections, which are strays until added to the catalog."""
        with self._state.begin_change(self._epoch) as change:
            change.record_used_times(self._oracle.last)
            ids = change.assign_ids("s", collections)
            for id in ids:
                change.add_stray(id)
            view_ids = change.assign_ids("u", views)
        self.catalog.strays.update(ids)
        return view_ids, ids

    def _carry_out(self, making: _Making) -> None:
        for entry in making.made:
            self._collections.create(entry.id, entry.description, self._fresh_upper())
        for entry in making.written:
            self._collections.create(entry.id, entry.description, making.as_of)
            self._collections.compact(entry.id, making.as_of)
        with self._state.begin_change(self._epoch) as change:
            for entry in (*making.made, *making.written):
                change.add_collection(entry)
                change.remove_stray(entry.id)
            if making.view is not None:
                change.add_view(making.view)
        self._take_up(making)

    def _take_up(self, making: _Making) -> None:
        for entry in (*making.made, *making.written):
            self.catalog.strays.discard(entry.id)
            self.catalog.add(entry)
        for entry in making.made:
            self.restore(entry, START, self._fresh_upper())
        for entry in making.written:
            self.restore(entry, making.as_of, making.as_of)
        if making.view is not None:
            self.catalog.add(making.view)
            self._instance.create(making.view.dataflow(self.catalog.collections, making.as_of))

    def _fresh_upper(self) -> Frontier:
        """Return the upper of new collections: above the last assigned time, so that no read waits for it."""
        return Frontier(self._oracle.last + 1)
