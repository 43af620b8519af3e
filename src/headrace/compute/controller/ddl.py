"""Creation and removal of views and collections: first in the state and the store, then on replicas.

The order makes a crash at any point harmless: a collection is recorded as a stray before it is created in the
store, and one transaction adds it to the catalog and removes it from the strays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

from headrace.compute.controller import reads, subscriptions
from headrace.compute.controller.catalog import (
    CollectionEntry,
    ControllerCatalog,
    MaterializationTarget,
    ViewEntry,
    check_name,
    name_taken_error,
)
from headrace.compute.controller.reads import ReadableEntry
from headrace.compute.controller.state import ControllerState
from headrace.compute.errors import (
    AlreadyThere,
    BadMessage,
    NotServable,
    SinceViolation,
    StillInUse,
    UnknownName,
)
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.plans import FlowSink, FlowSource, check_servable, decode, sinks_of, sources_of
from headrace.compute.protocol.client_messages import Description
from headrace.compute.protocol.commands import CollectionExport, DataflowLimits, Id, PlanBytes
from headrace.errors import SourceLocation, UnknownColumn
from headrace.expr.types import Schema

DEFAULT_KEEP = 10_000
"""Default length of a view's readable past, in milliseconds."""
_SourceRead: TypeAlias = tuple[FlowSource, ReadableEntry | None]


@dataclass(frozen=True, slots=True)
class _ViewRequest:
    """Request to create a view."""

    name: str
    plan: PlanBytes
    key: tuple[str, ...]
    keep: int
    into: str | None
    limits: DataflowLimits


@dataclass(frozen=True, slots=True)
class _NewEntries:
    """Entries to create. for_clients: clients' collections. written: the view's, from `as_of` on."""

    for_clients: list[CollectionEntry]
    written: list[CollectionEntry]
    view: ViewEntry | None
    as_of: Frontier


def create_collection(state: ControllerState, name: str, schema: Schema, *, append_only: bool) -> Id:
    """Create a collection that clients write. Does nothing if an equal one exists.

    Raises `AlreadyThere`.
    """
    check_name(name)
    found = state.catalog.find(name)
    if found is not None:
        if isinstance(found, CollectionEntry) and found == replace(
            found, schema=schema, append_only=append_only, written_by=None
        ):
            return found.id
        raise name_taken_error(name, "Its owner is not a collection with these columns that clients write.")
    (id,) = _assign_ids(state, 0, 1)[1]
    entry = CollectionEntry(id, name, schema, append_only)
    _create(state, _NewEntries([entry], [], None, _fresh_upper(state)))
    return id


def create_view(
    state: ControllerState,
    name: str,
    plan: PlanBytes,
    *,
    key: Sequence[str] = (),
    keep: int = DEFAULT_KEEP,
    into: str | None = None,
    limits: DataflowLimits = DataflowLimits(),
) -> Id:
    """Create a view of a flow with one sink. Does nothing if an equal one exists.

    The flow's sources read the views and collections of the same names; missing collections are created.
    key:  columns of the view's index; empty: the whole row.
    keep: milliseconds of the view's past to keep readable.
    into: name of a new collection to write the changes to as well.
    limits: on what the view may use of a replica.

    Raises `AlreadyThere`, `NotServable`, `BadPlan`, `CallableRefused`, `UnknownColumn`.
    """
    asked = _ViewRequest(name, plan, tuple(key), keep, into, limits)
    check_name(name)
    if keep < 0:
        raise BadMessage(f"a view cannot keep {keep} ms", field="keep")
    found = state.catalog.find(name)
    if found is not None:
        if isinstance(found, ViewEntry) and _request_of(state, found) == asked:
            return found.id
        raise name_taken_error(name, _difference(state, found, asked))
    shape = _decode_plan(plan, allow_callables=state.allow_callables)
    _check_key(asked.key, shape.sink.schema)
    reads = [(s, _find_source_entry(state.catalog, s, shape.locations[s.name])) for s in shape.sources]
    _check_new_names(state, asked, [source.name for source, entry in reads if entry is None])
    new = _entries_of_view(state, asked, shape, reads)
    _create(state, new)
    assert new.view is not None
    return new.view.id


def drop(state: ControllerState, name: str) -> None:
    """Drop a collection, or a view with the collection that it is written into.

    Its subscriptions end; accepted peeks are still answered. Raises `UnknownName`, `StillInUse`.
    """
    found = state.catalog.find_or_raise(name)
    dropped = [found]
    if isinstance(found, ViewEntry) and found.into is not None:
        dropped.append(state.catalog.collections[found.into.collection])
    _check_unused(state, found, dropped)
    with state.begin_change() as change:
        change.record_used_times(state.oracle.last)
        for entry in dropped:
            match entry:
                case ViewEntry():
                    change.remove_view(entry.id)
                case CollectionEntry():
                    change.remove_collection(entry.id)
                    change.add_stray(entry.id)
    for entry in dropped:
        state.catalog.remove(entry)
        _forget(state, entry)
        match entry:
            case ViewEntry():
                state.instance.drop([entry.id, *([entry.into.export] if entry.into else [])])
            case CollectionEntry():
                state.catalog.strays.add(entry.id)
                state.policies.pop(entry.id).release()


def describe(state: ControllerState, name: str) -> Description:
    """Describe the view or collection with a name. Raises `UnknownName`."""
    entry = state.catalog.find_or_raise(name)
    is_view = isinstance(entry, ViewEntry)
    return Description(entry.id, is_view, entry.schema, entry.key if is_view else (), entry.append_only)


def plan_of(state: ControllerState, view: str) -> PlanBytes:
    """Return the plan that a view was created with. Raises `UnknownName`, also for a collection."""
    entry = state.catalog.find_or_raise(view)
    if isinstance(entry, CollectionEntry):
        raise UnknownName(
            f"{view!r} is a collection, not a view",
            why="A collection holds rows that are written into it; only views have a plan.",
            fix="name a view",
            name=view,
        )
    return entry.plan


@dataclass(frozen=True, slots=True)
class _PlanSchema:
    """Sources and sink of a checked plan. locations: the user's source line of each source, by name."""

    sources: tuple[FlowSource, ...]
    sink: FlowSink
    locations: Mapping[str, SourceLocation]


def _decode_plan(plan: PlanBytes, *, allow_callables: bool) -> _PlanSchema:
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
    return _PlanSchema(sources_of(flow), sinks[0], locations)


def _find_source_entry(
    catalog: ControllerCatalog, source: FlowSource, location: SourceLocation
) -> ReadableEntry | None:
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


def _check_key(key: Sequence[str], schema: Schema) -> None:
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


def _request_of(state: ControllerState, view: ViewEntry) -> _ViewRequest:
    """Return the request that created a view."""
    into = view.into and state.catalog.collections[view.into.collection].name
    return _ViewRequest(view.name, view.plan, view.key, view.keep, into, view.limits)


def _difference(state: ControllerState, found: ReadableEntry, asked: _ViewRequest) -> str:
    if isinstance(found, CollectionEntry):
        return "It is the name of a collection."
    there = _request_of(state, found)
    differ = [f.name for f in fields(asked) if getattr(there, f.name) != getattr(asked, f.name)]
    return f"It is the name of a view with another {', another '.join(differ)}."


def _check_new_names(state: ControllerState, asked: _ViewRequest, missing: Sequence[str]) -> None:
    """Raise `AlreadyThere` or `BadMessage` unless the names of new entries are valid and unused."""
    if asked.into is not None and state.catalog.find(asked.into) is not None:
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


def _check_unused(state: ControllerState, found: ReadableEntry, dropped: Sequence[ReadableEntry]) -> None:
    """Raise `StillInUse` if other views read or write the dropped entries."""
    readers = [view.name for entry in dropped for view in state.catalog.views_reading(entry.id)]
    if isinstance(found, CollectionEntry) and found.written_by is not None:
        writer = state.catalog.views.get(found.written_by)
        readers = [writer.name if writer else "headrace", *readers]
    if readers:
        raise StillInUse(
            f"{found.name!r} cannot be dropped: it is used by {', '.join(map(repr, readers))}",
            fix="drop its users first",
            name=found.name,
            readers=tuple(readers),
        )


def _entries_of_view(
    state: ControllerState, asked: _ViewRequest, shape: _PlanSchema, reads: Sequence[_SourceRead]
) -> _NewEntries:
    """Build the entries of a view and of the collections it needs, with new ids."""
    as_of = _latest_readable(state, [found.id for _, found in reads if found])
    missing = [source for source, found in reads if found is None]
    view_ids, ids = _assign_ids(state, 2 if asked.into else 1, len(missing) + bool(asked.into))
    new = [CollectionEntry(id, s.name, s.schema, s.append) for id, s in zip(ids, missing, strict=False)]
    into = MaterializationTarget(view_ids[1], ids[-1]) if asked.into else None
    by_source = {s.name: found.id for s, found in reads if found} | {c.name: c.id for c in new}
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
    return _NewEntries(new, written, view, as_of)


def _latest_readable(state: ControllerState, ids: Sequence[Id]) -> Frontier:
    """Return the latest time up to the read time at which all of `ids` are settled and readable."""
    readable = state.instance.readable_frontier(ids)
    if readable == END:
        raise SinceViolation(
            "an input of the view is complete, and can no longer be read",
            fix="drop it, and create it anew",
            since=readable,
        )
    return max(readable, min(state.instance.settled_frontier(ids), Frontier(state.oracle.read)))


def _assign_ids(state: ControllerState, views: int, collections: int) -> tuple[list[Id], list[Id]]:
    """Assign ids to exports of views and to collections, which are strays until added to the catalog."""
    with state.begin_change() as change:
        change.record_used_times(state.oracle.last)
        ids = change.assign_ids("s", collections)
        for id in ids:
            change.add_stray(id)
        view_ids = change.assign_ids("u", views)
    state.catalog.strays.update(ids)
    return view_ids, ids


def _create(state: ControllerState, new: _NewEntries) -> None:
    """Create entries in the store, in the durable catalog, and on the replicas."""
    fresh, as_of = _fresh_upper(state), new.as_of
    for entry in new.for_clients:
        state.store.create(entry.id, entry.description, fresh)
    for entry in new.written:
        state.store.create(entry.id, entry.description, as_of)
        state.store.compact(entry.id, as_of)
    collections = (*new.for_clients, *new.written)
    with state.begin_change() as change:
        for entry in collections:
            change.add_collection(entry)
            change.remove_stray(entry.id)
        if new.view is not None:
            change.add_view(new.view)
    for entry in collections:
        state.catalog.strays.discard(entry.id)
        state.catalog.add(entry)
    for entry in new.for_clients:
        state.policies[entry.id] = state.instance.add_collection(entry.id, START, fresh)
    for entry in new.written:
        state.policies[entry.id] = state.instance.add_collection(entry.id, as_of, as_of)
    if new.view is not None:
        state.catalog.add(new.view)
        state.instance.create(new.view.dataflow(state.catalog.collections, as_of))


def _forget(state: ControllerState, entry: ReadableEntry) -> None:
    """End the reads of a dropped entry, and forget everything about it."""
    id = entry.id
    subscriptions.on_dropped(state, entry.name, id)
    reads.on_collection_dropped(state, id)
    state.leases.forget(id)
    state.positions.forget(id)
    state.writes.converters.pop(id, None)


def _fresh_upper(state: ControllerState) -> Frontier:
    """Return the upper of new collections: above the last assigned time, so that no read waits for it."""
    return Frontier(state.oracle.last + 1)


def drop_stray_collections(state: ControllerState) -> None:
    """Drop collections from the store that are neither in the catalog, nor in use, nor being written."""
    under_way = state.writes.under_way
    # A dropped view runs until its peeks are answered, and a replica that rebuilds it needs its output.
    in_use = {append.id for append in under_way.appends} if under_way else set[Id]()
    for running in state.instance.running.values():
        exports = running.dataflow.exports
        in_use |= {export.collection for export in exports if isinstance(export, CollectionExport)}
    for id in sorted(state.catalog.strays - in_use):
        if id in state.instance.holds:
            continue
        state.store.drop(id)
        with state.begin_change() as change:
            change.remove_stray(id)
        state.catalog.strays.discard(id)
        state.instance.forget_collection(id)
