"""Start of a controller from its durable state, continuing where the previous one left off.

As-ofs are chosen so that running replicas can keep their dataflows: as late as the guarantees to readers
allow, and never before the frontier to which the previous controller allowed replicas to compact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from headrace.compute.collections.store import CollectionAppend, CollectionBounds, Collections
from headrace.compute.controller.catalog import CollectionEntry, ControllerCatalog
from headrace.compute.controller.durable_catalog import DurableCatalog
from headrace.compute.controller.holds import KeepPast
from headrace.compute.controller.state import ControllerState
from headrace.compute.errors import StoreDamaged, StoreUnavailable, UnknownName, UpperMismatch
from headrace.compute.frontier import END, START, Frontier, join, meet
from headrace.compute.protocol.commands import CollectionExport, Dataflow, Id, IndexExport
from headrace.expr.types import BYTES, Field, Schema

# Constraints narrow a range of times per dataflow. Hard constraints must hold, or changes would be lost or
# duplicated; soft ones are preferences. A dataflow must not start later than the dataflows that read it. In
# the end, each dataflow takes the latest time of its range, which needs the least history and gives
# replicas the best chance to keep what they have. Source: the compute protocol of Materialize, as-of
# selection (reference).


@dataclass(frozen=True, slots=True)
class LagPolicy:
    """Read policy that keeps an index readable for a number of milliseconds behind its upper.

    >>> LagPolicy(5).since(Frontier(20)), LagPolicy(5).since(Frontier(3)), LagPolicy(5).since(END)
    (Frontier(time=15), Frontier(time=0), Frontier(time=None))
    """

    milliseconds: int = 1

    def since(self, upper: Frontier) -> Frontier:
        """Return the since that the policy allows at an upper."""
        return upper if upper.time is None else Frontier(max(upper.time - self.milliseconds, 0))


@dataclass(frozen=True, slots=True)
class ValidFrom:
    """Read policy that keeps an index readable from a fixed frontier on."""

    frontier: Frontier

    def since(self, upper: Frontier) -> Frontier:
        """Return the since that the policy allows at an upper."""
        return self.frontier


class ReadPolicy(Protocol):
    """Read policy, which determines the since that an upper allows."""

    def since(self, upper: Frontier) -> Frontier: ...


@dataclass(frozen=True, slots=True)
class AsOfSelection:
    """Selected as-ofs. as_of: as-of of each export, END for one that no longer needs to run.

    broken: exports whose hard constraints contradict each other; they start as early as their inputs allow,
        which leaves a gap in the collections they write.
    """

    as_of: Mapping[Id, Frontier] = field(default_factory=dict[Id, Frontier])
    broken: frozenset[Id] = frozenset()


def select_as_ofs(
    dataflows: Sequence[Dataflow],
    collections: Mapping[Id, CollectionBounds],
    policies: Mapping[Id, ReadPolicy],
    now: int,
) -> AsOfSelection:
    """Select the as-of of each dataflow.

    dataflows:   in order of creation, so imports come first. Their own as-ofs are ignored.
    collections: bounds of all collections that they read and write.
    policies:    of index exports; others are ignored. An index without a policy need not keep its past
        readable, and starts as late as possible.
    now:         time of the timeline, for indexes that read nothing.
    """
    selection = _Selection(collections, policies, now)
    for dataflow in dataflows:
        selection.add(dataflow)
    selection.must_be_readable()
    selection.must_continue_what_is_written()
    selection.wish_inputs_to_be_settled()
    selection.wish_what_policies_allow()
    return selection.selected()


class _Range:
    """Times from which a dataflow may start, both ends included."""

    def __init__(self, dataflow: Dataflow) -> None:
        self.dataflow = dataflow
        self.lower = START
        self.upper = END
        self.broken = False

    @property
    def exports(self) -> Iterable[Id]:
        return (export.id for export in self.dataflow.exports)

    @property
    def written(self) -> Iterable[Id]:
        return (e.collection for e in self.dataflow.exports if isinstance(e, CollectionExport))

    @property
    def indexes(self) -> Iterable[Id]:
        return (e.id for e in self.dataflow.exports if isinstance(e, IndexExport))

    def raise_lower(self, bound: Frontier) -> None:
        assert self.upper == END, "hard constraints on readability come first"
        self.lower = max(self.lower, bound)

    def lower_upper(self, bound: Frontier) -> bool:
        """Lower the upper end to the bound, as far as the range allows. Returns whether it was reached."""
        self.upper = max(min(self.upper, bound), self.lower)
        return self.upper <= bound


class _Selection:
    def __init__(
        self, collections: Mapping[Id, CollectionBounds], policies: Mapping[Id, ReadPolicy], now: int
    ) -> None:
        self._collections = collections
        self._policies = policies
        self._now = Frontier(now)
        self._ranges: list[_Range] = []
        self._range_of: dict[Id, _Range] = {}
        self._sealed: list[_Range] = []

    def add(self, dataflow: Dataflow) -> None:
        range = _Range(dataflow)
        written = list(range.written)
        if written and all(self._collections[id].upper == END for id in written):
            self._sealed.append(range)  # everything it writes is complete
            return
        self._ranges.append(range)
        self._range_of.update(dict.fromkeys(range.exports, range))

    def must_be_readable(self) -> None:
        """Hard constraint: start no earlier than the since of any collection read, directly or by index."""
        for range in self._ranges:
            range.raise_lower(join(self._collections[i.id].since for i in range.dataflow.collections))
            range.raise_lower(join(read.lower for read in self._reads(range)))

    def must_continue_what_is_written(self) -> None:
        """Hard constraint: start no later than the last time already written to the dataflow's collections.

        An empty collection is written from its since on. The dataflows read must not start later, either.
        """
        for range in self._ranges:
            for id in range.written:
                bounds = self._collections[id]
                last = bounds.upper.step_back() if bounds.since < bounds.upper else bounds.since
                range.broken |= not range.lower_upper(last)
        self._agree()

    def wish_inputs_to_be_settled(self) -> None:
        """Soft constraint: start at a time that is settled in all inputs, to avoid waiting for them."""
        for range in self._ranges:
            read = meet(self._collections[i.id].upper.step_back() for i in range.dataflow.collections)
            range.lower_upper(min(read, meet(r.upper for r in self._reads(range))))
        self._agree()

    def wish_what_policies_allow(self) -> None:
        """Soft constraint: start an index no later than its policy's since, and not in the future."""
        uppers: dict[Id, Frontier] = {}
        for range in self._ranges:
            upper = self._transitive_upper(range, uppers)
            for id in range.indexes:
                if id in self._policies:
                    range.lower_upper(self._policies[id].since(upper))
        self._agree()
        for range in self._ranges:
            if any(range.indexes):
                range.lower_upper(self._now)
        self._agree()

    def selected(self) -> AsOfSelection:
        as_of = {id: range.upper for range in self._ranges for id in range.exports}
        as_of |= {id: END for range in self._sealed for id in range.exports}
        return AsOfSelection(as_of, frozenset(id for r in self._ranges if r.broken for id in r.exports))

    def _transitive_upper(self, range: _Range, uppers: dict[Id, Frontier]) -> Frontier:
        """Return the earliest upper of the collections read, directly or through indexes; now if there are
        none."""
        read = [self._collections[i.id].upper for i in range.dataflow.collections]
        read += [uppers[i.id] for i in range.dataflow.indexes if i.id in uppers]
        upper = meet(read) if read else self._now
        uppers.update(dict.fromkeys(range.exports, upper))
        return upper

    def _agree(self) -> None:
        """Make each dataflow start no later than its readers."""
        for range in reversed(self._ranges):
            for read in self._reads(range):
                read.lower_upper(range.upper)

    def _reads(self, range: _Range) -> list[_Range]:
        """Return the ranges of the dataflows whose indexes a dataflow reads."""
        return [self._range_of[i.id] for i in range.dataflow.indexes if i.id in self._range_of]


_WRITTEN = "headrace.written"
"""Name of the collection of write ids."""
_WRITTEN_SCHEMA = Schema((Field("id", BYTES),))
_TRIES = 10


@dataclass(frozen=True, slots=True)
class InitialState:
    """Initial state of a controller. last: upper bound on the times of earlier writes."""

    epoch: int
    catalog: ControllerCatalog
    bounds: dict[Id, CollectionBounds]
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


def create_views(state: ControllerState, bounds: Mapping[Id, CollectionBounds]) -> None:
    """Create the dataflows of all views, and report the views that start with a gap."""
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


def _check_ids(catalog: ControllerCatalog, collections: Collections) -> None:
    """Raise `StoreDamaged` if the store already has collections with ids yet to be assigned."""
    later = [id for id in collections.all() if id[:1] == "s" and id[1:].isdecimal()]
    if any(int(id[1:]) > catalog.given for id in later):
        raise StoreDamaged(
            "the store has collections that are unknown to this state",
            why="The state is new, or an older copy. Its next collections would mix with existing rows.",
            fix="start the controller with the state that belongs to the store, or with an empty store; "
            "`headrace backup restore` puts a backup of both in their place",
        )


def _drop_strays(
    durable: DurableCatalog, epoch: int, catalog: ControllerCatalog, collections: Collections
) -> None:
    strays = sorted(catalog.strays)
    for id in strays:
        collections.drop(id)
    if strays:
        with durable.begin_change(epoch) as change:
            for id in strays:
                change.remove_stray(id)
        catalog.strays.clear()


def _create_write_ids(
    durable: DurableCatalog, epoch: int, catalog: ControllerCatalog, collections: Collections
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


def _level_uppers(
    catalog: ControllerCatalog, collections: Collections
) -> tuple[dict[Id, CollectionBounds], int]:
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
    collections.append([CollectionAppend(id, bounds[id].upper, upper) for id in clients])
    return bounds | {id: CollectionBounds(bounds[id].since, upper) for id in clients}, reached.time


def _bounds(catalog: ControllerCatalog, collections: Collections) -> dict[Id, CollectionBounds]:
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
