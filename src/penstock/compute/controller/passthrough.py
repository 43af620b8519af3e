"""Dataflows that pass on what is there: for subscriptions and copies."""

from __future__ import annotations

from penstock.compute.controller.catalog import CollectionEntry, ViewEntry
from penstock.compute.frontier import END, Frontier
from penstock.compute.plans import INPUT, OUTPUT, encode, identity_flow
from penstock.compute.protocol.dataflow import (
    CollectionImport,
    CopyToExport,
    Dataflow,
    Id,
    IndexImport,
    Plan,
    SubscribeExport,
)


class PassthroughDataflows:
    """Makes them; remembers their plans, which depend on the columns alone."""

    def __init__(self) -> None:
        self._plans: dict[Id, Plan] = {}

    def subscription(
        self, id: Id, entry: CollectionEntry | ViewEntry, as_of: int, snapshot: bool
    ) -> Dataflow:
        """The changes of a view or collection."""
        return self._dataflow(entry, as_of, SubscribeExport(id, OUTPUT, snapshot))

    def copy(self, id: Id, entry: CollectionEntry | ViewEntry, at: int, file: str) -> Dataflow:
        """The rows of a view or collection, into a file."""
        return self._dataflow(entry, at, CopyToExport(id, OUTPUT, file))

    def forget(self, id: Id) -> None:
        self._plans.pop(id, None)

    def _dataflow(
        self, entry: CollectionEntry | ViewEntry, as_of: int, export: SubscribeExport | CopyToExport
    ) -> Dataflow:
        is_view = isinstance(entry, ViewEntry)
        return Dataflow(
            self._plan(entry),
            collections=() if is_view else (CollectionImport(INPUT, entry.id),),
            indexes=(IndexImport(INPUT, entry.id),) if is_view else (),
            exports=(export,),
            as_of=Frontier(as_of),
            until=Frontier(as_of + 1) if isinstance(export, CopyToExport) else END,
            name=entry.name,
        )

    def _plan(self, entry: CollectionEntry | ViewEntry) -> Plan:
        plan = self._plans.get(entry.id)
        if plan is None:
            plan = encode(identity_flow(entry.schema, entry.append_only))
            self._plans[entry.id] = plan
        return plan
