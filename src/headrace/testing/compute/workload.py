"""Workload of a simulation: recipes of views, the collections they read, and rows to write."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, TypeAlias

from headrace.compute.collections.memory import MemoryCollections
from headrace.compute.controller.controller import Controller
from headrace.compute.controller.durable_catalog import DurableCatalog
from headrace.compute.errors import NotServable
from headrace.compute.plans import FlowSource, check_servable, decode, encode, sources_of
from headrace.compute.protocol.commands import PlanBytes
from headrace.compute.protocol.responses import Update
from headrace.errors import BadInput, NoFixpoint, SourceLocation
from headrace.expr.row_classes import from_user
from headrace.expr.types import (
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float32Type,
    Float64Type,
    IntegerType,
    IntervalType,
    ListType,
    MapType,
    Row,
    Schema,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.flow.flow import Flow
from headrace.graph.node import FlowGraph
from headrace.lowering.reference import Bag, NotOfBags
from headrace.testing.oracle import TickOracle

DrawRow: TypeAlias = Callable[[random.Random], Any]
"""Function that draws a row in user form from a random generator, reproducibly for a seed."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Recipe for a view to simulate.

    flow: with one sink; or its plan, or a function that builds it. Its sources are other views of the
        simulation, or collections, by name.
    key:  columns of the view's index; empty: the whole row.
    rows: row generators by the name of a collection that it reads. Other collections get rows of few distinct
        values, so that keys match.
    """

    flow: Flow | PlanBytes | Callable[[], Flow]
    key: tuple[str, ...] = ()
    rows: Mapping[str, DrawRow] = field(default_factory=dict[str, DrawRow])


@dataclass(frozen=True, slots=True)
class View:
    """View ready to be created.

    positions: positions of the key columns. reads: all sources. draw_key: draws values of the key columns,
        in their form in rows.
    """

    name: str
    plan: PlanBytes
    graph: FlowGraph
    schema: Schema
    key: tuple[str, ...]
    positions: tuple[int, ...]
    reads: tuple[FlowSource, ...]
    draw_key: Callable[[random.Random], Row]


@dataclass(frozen=True, slots=True)
class Collection:
    """Collection read by views. draw: draws a row in stored form."""

    name: str
    schema: Schema
    append_only: bool
    draw: Callable[[random.Random], Row]


@dataclass(frozen=True, slots=True)
class Workload:
    """All views and collections of a simulation, by name.

    allow_callables: whether flows may contain Python functions.
    """

    views: Mapping[str, View]
    collections: Mapping[str, Collection]
    allow_callables: bool = False

    @classmethod
    def of(cls, recipes: Mapping[str, Recipe], *, allow_callables: bool = False) -> Workload:
        """Build a workload from recipes.

        Raises the errors of creating the views (`NotServable`, `CallableRefused`, `AlreadyThere`,
        `UnknownColumn`, ...), and `BadInput` for inconsistent recipes.
        """
        if not recipes:
            raise _unfit(
                "no recipe, so there is nothing to simulate",
                fix='recipes={"name": Recipe(flow)}, or leave recipes out',
            )
        views = {name: _view(name, recipe, allow_callables) for name, recipe in recipes.items()}
        rows = _draws(recipes, {source.name for view in views.values() for source in view.reads} - set(views))
        sources: dict[str, list[FlowSource]] = {}
        for source in (source for view in views.values() for source in view.reads):
            if source.name not in views:
                sources.setdefault(source.name, []).append(source)
        collections = {name: _collection(found, rows.get(name)) for name, found in sources.items()}
        found = cls(views, collections, allow_callables)
        found._rehearse()
        return found

    def missing(self, there: list[str]) -> list[str]:
        """List the missing views that can be created, given the existing ones."""
        return [
            name
            for name, view in self.views.items()
            if name not in there and all(s.name in there or s.name in self.collections for s in view.reads)
        ]

    def create_view(self, controller: Controller, name: str, *, keep: int, into: str | None) -> str:
        """Create a view on a controller, and return its id."""
        view = self.views[name]
        for source in view.reads:
            collection = self.collections.get(source.name)
            # Created with the view it would be a table, which views over append streams cannot read.
            if collection is not None and collection.append_only and not source.append:
                controller.create_collection(collection.name, collection.schema, append_only=True)
        return controller.create_view(name, view.plan, key=view.key, keep=keep, into=into)

    def _rehearse(self) -> None:
        """Create all views once, so that refused ones are reported before the simulation."""
        with closing(DurableCatalog.open(":memory:")) as state:
            controller = Controller(
                state,
                MemoryCollections(),
                clock=lambda: 0,
                random=random.Random(0),
                allow_callables=self.allow_callables,
            )
            for collection in self.collections.values():
                collection.draw(random.Random(0))
            there: list[str] = []
            while missing := self.missing(there):
                self.create_view(controller, missing[0], keep=0, into=kept(missing[0]))
                there.append(missing[0])
        if left := [name for name in self.views if name not in there]:
            raise _unfit(
                f"views that read themselves, or each other in a circle: {', '.join(map(repr, left))}",
                why="A source reads the view of its name if there is one, and that is made first.",
                fix="give the view another name than its source; write a loop as one flow, with feedback()",
                views=tuple(left),
            )


def kept(view: str) -> str:
    """Return the name of the collection that records a view's changes, if any."""
    return f"{view}_kept"


def draw_value(of: Field, random: random.Random) -> Any:
    """Draw one of a few values of a column."""
    if of.nullable and random.random() < 0.2:
        return None
    return _value(of.type, random)


def _value(type_: DataType, random: random.Random) -> Any:
    match type_:
        case BoolType():
            return random.random() < 0.5
        case IntegerType():
            return random.randint(0, 3)
        case Float32Type():
            return random.choice([-1.5, 0.0, 0.25, 2.0**30])
        case Float64Type():
            return random.choice([-1.5, 0.0, 0.1, 0.2, 1e16])
        case DecimalType(scale=scale):
            return Decimal(random.randint(0, 3)).scaleb(-min(scale, 1))
        case StrType():
            return random.choice(["", "a", "ab", "ä"])
        case BytesType():
            return random.choice([b"", b"a", b"\xff"])
        case DateType():
            return date(2024, 2, 28) + timedelta(days=random.randint(0, 3))
        case TimestampType():
            return datetime(2024, 2, 28, 18, tzinfo=UTC) + timedelta(hours=3 * random.randint(0, 3))
        case IntervalType():
            return timedelta(days=random.randint(-1, 2))
        case TimestampNtzType():
            return datetime(2024, 2, 28, 18) + timedelta(hours=3 * random.randint(0, 3))
        case ListType(element, nullable):
            return tuple(
                draw_value(Field("", element, nullable), random) for _ in range(random.randint(0, 2))
            )
        case MapType(key, value, nullable):
            drawn = {_value(key, random): draw_value(Field("", value, nullable), random) for _ in range(2)}
            return tuple(drawn.items())
        case StructType(fields):
            return tuple(draw_value(each, random) for each in fields)
        case _:
            raise AssertionError(f"no column of what is served: {type_}")


def _view(name: str, recipe: Recipe, allow_callables: bool) -> View:
    flow = recipe.flow
    if isinstance(flow, PlanBytes):
        flow = decode(flow, allow_callables=allow_callables)
    elif not isinstance(flow, Flow):
        flow = flow()
    check_servable(flow)  # Errors here have the user's source lines; plans only have names.
    graph = flow.graph()
    if len(graph.sinks) != 1:
        raise NotServable(
            f"the recipe of {name!r} is no view: its flow has {len(graph.sinks)} sinks",
            where=[graph.nodes[node].location for node in graph.sinks.values()],
            why="A view is the rows of one sink.",
            fix="give each sink a flow, and each flow a recipe",
            operator="",
        )
    (node,) = graph.sinks.values()
    schema = graph.nodes[node].schema
    key = tuple(recipe.key)
    # Unknown columns are refused with the view.
    positions = tuple(at for column in key if (at := schema.position(column)) is not None)
    positions = positions or tuple(range(len(schema.fields)))
    keys = Schema(tuple(schema.fields[at] for at in positions))
    draw_key = _inside(keys, f"keys of {name!r}", _row_of(keys))
    plan = encode(flow, allow_callables=allow_callables)
    return View(name, plan, graph, schema, key, positions, sources_of(flow), draw_key)


def _draws(recipes: Mapping[str, Recipe], collections: set[str]) -> dict[str, DrawRow]:
    """Collect the row generators by collection. Raises `BadInput` for invalid or conflicting ones."""
    found: dict[str, DrawRow] = {}
    for view, recipe in recipes.items():
        for name, draw in recipe.rows.items():
            if name not in collections:
                near = get_close_matches(name, sorted(collections), 1) or sorted(collections)
                raise _unfit(
                    f"the recipe of {view!r} has rows of {name!r}, which no view reads as a collection",
                    fix=f"name a source of the flow: {', '.join(map(repr, near))}",
                    name=name,
                )
            if found.setdefault(name, draw) is not draw:
                raise _unfit(
                    f"two recipes draw rows of {name!r}, each in its own way",
                    fix="give them in one of the recipes, or the same function in both",
                    name=name,
                )
    return found


def _collection(sources: list[FlowSource], draw: DrawRow | None) -> Collection:
    name, schema = sources[0].name, sources[0].schema
    append_only = any(source.append for source in sources)
    inside = _inside(schema, f"collection {name!r}", draw or _row_of(schema))
    return Collection(name, schema, append_only, inside)


def _row_of(schema: Schema) -> DrawRow:
    def draw(random: random.Random) -> Any:
        row = tuple(draw_value(each, random) for each in schema.fields)
        return row[0] if schema.scalar else row

    return draw


def _inside(schema: Schema, what: str, draw: DrawRow) -> Callable[[random.Random], Row]:
    convert = from_user(schema, what=what)
    return lambda random: convert([draw(random)])[0]


def _unfit(what: str, *, why: str = "", fix: str = "", **facts: Any) -> BadInput:
    where = [SourceLocation.of_caller()]
    return BadInput(f"the simulation cannot begin: {what}", where=where, why=why, fix=fix, **facts)


class GroundTruth:
    """Ground truth: all durable writes, and the view contents that follow from them."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.updates: dict[str, list[Update]] = {name: [] for name in workload.collections}
        self.times: list[int] = [0]
        self._known: dict[tuple[str, int], Bag | None] = {}

    def record_write(self, time: int, writes: Mapping[str, list[tuple[Row, int]]]) -> None:
        """Record a durable write."""
        self.times.append(time)
        for name, rows in writes.items():
            self.updates[name] += [(row, time, weight) for row, weight in rows]

    def last_before(self, time: int) -> int:
        """Return the time of the last write at or before a time."""
        return max(at for at in self.times if at <= max(time, 0))

    def schema(self, name: str) -> Schema:
        """Return the schema of a view or collection."""
        known = self._workload
        return (known.views[name] if name in known.views else known.collections[name]).schema

    def collection(self, name: str, time: int) -> Bag:
        """Return the rows of a collection at a time."""
        bag: Bag = Counter()
        for row, at, weight in self.updates[name]:
            if at <= time:
                bag[row] += weight
        return Counter({row: count for row, count in bag.items() if count})

    def fails_by(self, name: str, time: int) -> bool:
        """Whether a view has failed at or before a time; a failed view does not recover."""
        return any(self.view(name, at) is None for at in self.times if at <= time)

    def view(self, name: str, time: int) -> Bag | None:
        """Return the rows of a view at a time, or None if it fails on a row."""
        # Contents only change with writes, so they are those of the last write before the time.
        time = self.last_before(time)
        if (name, time) not in self._known:
            self._known[name, time] = self._computed(name, time)
        return self._known[name, time]

    def _computed(self, name: str, time: int) -> Bag | None:
        graph = self._workload.views[name].graph
        inputs: dict[str, Bag] = {}
        for source in graph.sources:
            bag = self.collection(source, time) if source in self.updates else self.view(source, time)
            if bag is None:
                return None
            inputs[source] = bag
        try:
            # All rows in one tick, since the division into ticks does not affect the result.
            (bag,) = TickOracle(graph).tick(inputs).values()
        except (AssertionError, NoFixpoint, NotOfBags):
            raise
        except Exception:  # a failing expression, or an exception of a user's function
            return None
        return Counter({row: count for row, count in bag.items() if count})
