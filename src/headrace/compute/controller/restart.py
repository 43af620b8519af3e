"""Start of a controller from its durable state, continuing where the previous one left off.

As-ofs are chosen so that running replicas can keep their dataflows: as late as the guarantees to readers
allow, and never before the frontier to which the previous controller allowed replicas to compact.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from headrace.compute.as_of import select_as_ofs
from headrace.compute.collections.store import Append, Bounds, Collections
from headrace.compute.controller.catalog import Catalog, CollectionEntry
from headrace.compute.controller.durable import ControllerState
from headrace.compute.controller.holds import KeepPast
from headrace.compute.controller.instance import Instance
from headrace.compute.controller.writes import WRITTEN, WRITTEN_SCHEMA
from headrace.compute.errors import StoreDamaged, StoreUnavailable, UnknownName, UpperMismatch
from headrace.compute.frontier import END, START, Frontier, join
from headrace.compute.protocol.dataflow import Dataflow, Id

_TRIES = 10


@dataclass(frozen=True, slots=True)
class InitialState:
    """Initial state of a controller. last: upper bound on the times of earlier writes."""

    epoch: int
    catalog: Catalog
    bounds: dict[Id, Bounds]
    last: int

    @property
    def write_ids(self) -> Id:
        """Id of the collection of write ids."""
        entry = self.catalog.find_or_raise(WRITTEN)
        return entry.id


def start(state: ControllerState, collections: Collections) -> InitialState:
    """Supersede earlier controllers, then read their state.

    In this order, everything that they acknowledged is already durable when it is read.
    """
    epoch, catalog = state.start()
    _check_ids(catalog, collections)
    _forget_strays(state, epoch, catalog, collections)
    if catalog.find(WRITTEN) is None:
        _make_written(state, epoch, catalog, collections)
    for _ in range(_TRIES):
        with suppress(UpperMismatch):
            bounds, last = _levelled(catalog, collections)
            return InitialState(epoch, catalog, bounds, last)
    raise StoreUnavailable("another process keeps writing to the collections", fix="end all other writers")


def create_views(started: InitialState, instance: Instance, now: int) -> list[str]:
    """Create the dataflows of all views. Returns a message for each view with a gap."""
    catalog = started.catalog
    dataflows = {view.id: view.dataflow(catalog.collections) for view in catalog.views.values()}
    policies = {
        view.id: KeepPast(view.keep, view.valid_from, catalog.positions.get(view.id))
        for view in catalog.views.values()
    }
    selected = select_as_ofs(list(dataflows.values()), started.bounds, policies, now)
    complete: set[Id] = set()
    for id, dataflow in dataflows.items():
        as_of = join([selected.as_of[id], *(END for i in dataflow.indexes if i.id in complete)])
        if as_of == END:
            complete.add(id)
        else:
            instance.create(dataflow.at(as_of))
    return [
        f"{catalog.views[id].name!r} starts anew, with a gap"
        for id in sorted(_views(dataflows, selected.broken))
    ]


def _views(dataflows: dict[Id, Dataflow], exports: frozenset[Id]) -> set[Id]:
    return {id for id, dataflow in dataflows.items() if dataflow.export_ids & exports}


def _check_ids(catalog: Catalog, collections: Collections) -> None:
    """Raise `StoreDamaged` if the store already has collections with ids yet to be assigned."""
    later = [id for id in collections.all() if id[:1] == "s" and id[1:].isdecimal()]
    if any(int(id[1:]) > catalog.given for id in later):
        raise StoreDamaged(
            "the store has collections that are unknown to this state",
            why="The state is new, or an older copy. Its next collections would mix with existing rows.",
            fix="start the controller with the state that belongs to the store, or with an empty store; "
            "`headrace backup restore` puts a backup of both in their place",
        )


def _forget_strays(state: ControllerState, epoch: int, catalog: Catalog, collections: Collections) -> None:
    strays = sorted(catalog.strays)
    for id in strays:
        collections.drop(id)
    if strays:
        with state.begin_change(epoch) as change:
            for id in strays:
                change.remove_stray(id)
        catalog.strays.clear()


def _make_written(state: ControllerState, epoch: int, catalog: Catalog, collections: Collections) -> None:
    with state.begin_change(epoch) as change:
        (id,) = change.assign_ids("s")
        change.add_stray(id)
    entry = CollectionEntry(id, WRITTEN, WRITTEN_SCHEMA, append_only=False, written_by="")
    collections.create(id, entry.description, START)
    with state.begin_change(epoch) as change:
        change.add_collection(entry)
        change.remove_stray(id)
    catalog.add(entry)


def _levelled(catalog: Catalog, collections: Collections) -> tuple[dict[Id, Bounds], int]:
    """Advance the collections of clients to a common upper. Returns all bounds, and the last time.

    Afterwards no read waits for a collection without changes, and a write that the previous controller still
    has in progress fails, to be repeated by its client.

    Raises `UpperMismatch` if the previous controller finishes a write meanwhile.
    """
    bounds = _bounds(catalog, collections)
    clients = [entry.id for entry in catalog.written_by_clients()]
    reached = join([Frontier(catalog.last_time + 1), *(bounds[id].upper for id in clients)])
    assert reached.time is not None, "collections of clients are never complete"
    if not clients:
        return bounds, reached.time - 1
    upper = Frontier(reached.time + 1)
    collections.append([Append(id, bounds[id].upper, upper) for id in clients])
    return bounds | {id: Bounds(bounds[id].since, upper) for id in clients}, reached.time


def _bounds(catalog: Catalog, collections: Collections) -> dict[Id, Bounds]:
    ids = list(catalog.collections)
    there = collections.all()
    for entry in catalog.collections.values():
        if there.get(entry.id) != entry.description:
            raise StoreDamaged(
                f"collection {entry.name!r} of the controller is missing in the store",
                why=f"It should exist with the id {entry.id} and the same schema.",
                fix="start the controller with the store that belongs to its state",
            )
    try:
        return dict(zip(ids, collections.bounds(ids), strict=True))
    except UnknownName as error:
        raise StoreDamaged(f"the store has lost a collection: {error.what}") from error
