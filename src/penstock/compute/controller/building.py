"""From a plan to a view: what it reads, what of it can be looked up, from when on it can be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.compute.controller.catalog import Catalog, CollectionEntry, ViewEntry
from penstock.compute.errors import AlreadyThere, BadMessage, NotServable
from penstock.compute.frontier import START, Frontier
from penstock.compute.plans import FlowSink, FlowSource, decode, servable, sinks_of, sources_of
from penstock.compute.protocol.dataflow import (
    CollectionExport,
    CollectionImport,
    Dataflow,
    Export,
    Id,
    IndexExport,
    IndexImport,
    Plan,
)
from penstock.errors import SourceLocation, UnknownColumn
from penstock.expr.types import Schema


@dataclass(frozen=True, slots=True)
class PlanSchema:
    """What a plan reads and gives, checked. places: of the sources, by name: the lines that made them."""

    sources: tuple[FlowSource, ...]
    sink: FlowSink
    places: Mapping[str, SourceLocation]


def check_name(name: str) -> None:
    """Raises `BadMessage` for what cannot be a name."""
    if not name or name != name.strip() or not name.isprintable() or len(name) > 200:
        raise BadMessage(
            f"{name!r} is no name", fix="letters, digits, and what is easy to type", field="name"
        )
    if name.startswith("penstock."):
        raise BadMessage(
            f"{name!r} cannot be a name", why="Names that begin with penstock. are ours.", field="name"
        )


def shape_of(plan: Plan, *, allow_callables: bool) -> PlanSchema:
    """What a plan reads and gives.

    Raises `BadPlan`, `CallableRefused`, `MessageTooLarge`, and `NotServable` also for more sinks than one.
    """
    flow = decode(plan, allow_callables=allow_callables)
    servable(flow)
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
    places = {name: graph.nodes[node].location for name, node in graph.sources.items()}
    return PlanSchema(sources_of(flow), sinks[0], places)


def found_source(
    catalog: Catalog, source: FlowSource, location: SourceLocation
) -> CollectionEntry | ViewEntry | None:
    """What a source reads; None: nothing has its name. Raises `AlreadyThere` where that does not fit."""
    found = catalog.find(source.name)
    if found is None:
        return None
    if found.schema != source.schema:
        raise AlreadyThere(
            f"source {source.name!r} has other columns than what is there under its name",
            where=[location],
            why=f"The source has {source.schema},\nwhat is there has {found.schema}.",
            fix="give the source these columns, or another name",
            name=source.name,
        )
    if source.append and not found.append_only:
        raise AlreadyThere(
            f"source {source.name!r} takes rows that are only ever added, and reads some that may go",
            where=[location],
            why=f"Rows of what is there as {source.name!r} may be taken back.",
            fix=f"flow.table({source.name!r}, ...)",
            name=source.name,
        )
    return found


def check_key(key: Sequence[str], schema: Schema) -> None:
    """Raises `UnknownColumn` for a key column that is not there, `BadMessage` for one that is there twice."""
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


def dataflow_of(view: ViewEntry, collections: Iterable[Id], as_of: Frontier = START) -> Dataflow:
    """What replicas are asked to build for a view. collections: the ids of all that are collections."""
    known = set(collections)
    exports: list[Export] = [IndexExport(view.id, view.sink, view.key)]
    if view.into is not None:
        exports.append(CollectionExport(view.into.export, view.sink, view.into.collection))
    return Dataflow(
        view.plan,
        tuple(CollectionImport(source, id) for source, id in view.imports if id in known),
        tuple(IndexImport(source, id) for source, id in view.imports if id not in known),
        tuple(exports),
        as_of,
        name=view.name,
    )
