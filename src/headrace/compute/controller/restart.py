"""Start of a controller from its durable state, continuing where the previous one left off.

As-ofs are chosen so that running replicas can keep their dataflows: as late as the guarantees to readers
allow, and never before the frontier to which the previous controller allowed replicas to compact.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from headrace.compute.as_of import select_as_ofs
from headrace.compute.collections.store import Append, Bounds, Collections
from headrace.compute.controller.catalog import Catalog, CollectionEntry
from headrace.compute.controller.durable_catalog import DurableCatalog
from headrace.compute.controller.holds import KeepPast
from headrace.compute.controller.state import ControllerState
from headrace.compute.errors import StoreDamaged, StoreUnavailable, UnknownName, UpperMismatch
from headrace.compute.frontier import END, START, Frontier, join
from headrace.compute.protocol.dataflow import Id
from headrace.expr.types import BYTES, Field, Schema

_WRITTEN = "headrace.written"
"""Name of the collection of write ids."""
_WRITTEN_SCHEMA = Schema((Field("id", BYTES),))
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
        return self.catalog.find_or_raise(_WRITTEN).id


def start(durable: DurableCatalog, collections: Collections) -> InitialState:
    """Supersede earlier controllers, then read their state.

    In this order, everything that they acknowledged is already durable when it is read.
    """
    epoch, catalog = durable.start()
    _check_ids(catalog, collections)
    _drop_strays(durable, epoch, catalog, collections)
    if catalog.find(_WRITTEN) is None:
        _create_write_ids(durable, epoch, catalog, collections)
    for _ in range(_TRIES):
        with suppress(UpperMismatch):
            bounds, last = _level_uppers(catalog, collections)
            return InitialState(epoch, catalog, bounds, last)
    raise StoreUnavailable("another process keeps writing to the collections", fix="end all other writers")


def create_views(state: ControllerState, bounds: Mapping[Id, Bounds]) -> None:
    """Create the dataflows of all views, and note those with a gap."""
    catalog = state.catalog
    dataflows = {view.id: view.dataflow(catalog.collections) for view in catalog.views.values()}
    policies = {
        view.id: KeepPast(view.keep, view.valid_from, catalog.positions.get(view.id))
        for view in catalog.views.values()
    }
    selected = select_as_ofs(list(dataflows.values()), bounds, policies, state.oracle.read)
    complete: set[Id] = set()
    for id, dataflow in dataflows.items():
        as_of = join([selected.as_of[id], *(END for i in dataflow.indexes if i.id in complete)])
        if as_of == END:
            complete.add(id)
        else:
            state.instance.create(dataflow.at(as_of))
    for id in sorted(id for id, dataflow in dataflows.items() if dataflow.export_ids & selected.broken):
        state.note(None, f"{catalog.views[id].name!r} starts anew, with a gap")


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


def _drop_strays(durable: DurableCatalog, epoch: int, catalog: Catalog, collections: Collections) -> None:
    strays = sorted(catalog.strays)
    for id in strays:
        collections.drop(id)
    if strays:
        with durable.begin_change(epoch) as change:
            for id in strays:
                change.remove_stray(id)
        catalog.strays.clear()


def _create_write_ids(
    durable: DurableCatalog, epoch: int, catalog: Catalog, collections: Collections
) -> None:
    with durable.begin_change(epoch) as change:
        (id,) = change.assign_ids("s")
        change.add_stray(id)
    entry = CollectionEntry(id, _WRITTEN, _WRITTEN_SCHEMA, append_only=False, written_by="")
    collections.create(id, entry.description, START)
    with durable.begin_change(epoch) as change:
        change.add_collection(entry)
        change.remove_stray(id)
    catalog.add(entry)


def _level_uppers(catalog: Catalog, collections: Collections) -> tuple[dict[Id, Bounds], int]:
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
