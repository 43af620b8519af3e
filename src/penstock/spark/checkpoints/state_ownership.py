"""Which shard is home to a piece of state, for any number of shards.

State is where the rows came from which it was made. So where it belongs follows from its key: from
the same values as the route of these rows. What is kept under no key of its own (the calendars of
windows, rows that wait for the next tick) is taken apart and put together again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.analysis import analyse
from penstock.engine.partial_windows import MergedWindow
from penstock.engine.partials import MergedAggregate
from penstock.expr.check import check
from penstock.expr.tree import Column, Expr, columns_of
from penstock.expr.types import Field, Schema
from penstock.flow.operators.aggregate import Aggregate
from penstock.flow.operators.at_least import AtLeast
from penstock.flow.operators.defer_tick import DeferTick
from penstock.flow.operators.defer_tick_lazy import DeferTickLazy
from penstock.flow.operators.difference import Difference
from penstock.flow.operators.distinct import Distinct
from penstock.flow.operators.distinct_on_time import DistinctOnTime
from penstock.flow.operators.enumerate import Enumerate
from penstock.flow.operators.feedback import Feedback
from penstock.flow.operators.first_within import FirstWithin
from penstock.flow.operators.fold_keyed import FoldKeyed
from penstock.flow.operators.join import Join
from penstock.flow.operators.join_on_time import JoinOnTime
from penstock.flow.operators.lattice_fold import LatticeFold
from penstock.flow.operators.reduce_keyed import ReduceKeyed
from penstock.flow.operators.scan import Scan
from penstock.flow.operators.state import State
from penstock.flow.operators.top_k import TopK
from penstock.flow.operators.unique import Unique
from penstock.flow.operators.window import Window
from penstock.flow.windows import Sessions
from penstock.spark.placing.placement import (
    ANYHOW,
    ON_ONE,
    ByKey,
    Spread,
    ToAll,
    ToOne,
    by,
    own_keys,
    pairs_all,
    spread_after,
)
from penstock.spark.placing.routing import divider

if TYPE_CHECKING:
    from penstock.graph.node import FlowGraph, Node, Operator
    from penstock.spark.placing.stages import Stage

Home: TypeAlias = Callable[[Any], int]
"""From a key, as the slot has it, to its shard."""
Part: TypeAlias = Callable[[Any], Any]


def _whole(key: Any) -> Any:
    return key


def _first(key: Any) -> Any:
    return key[0]


# --- how state is kept ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Keyed:
    """A slot whose keys, or whose `part` of each, are values of the operator's keys for an input.

    bare: a single value is not in a tuple.
    """

    port: int
    bare: bool = True
    part: Part = _whole


@dataclass(frozen=True, slots=True)
class Waiting:
    """A slot with rows of the input under `()`."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """Three slots, `<name>calendar`, `counts`, `due`, of what `penstock.engine.windows.note` notes.

    things: how the home of each of them is told.
    """

    name: str
    things: Keyed


@dataclass(frozen=True, slots=True)
class SessionBook:
    """The three slots of sessions, which are numbered through on a shard."""

    sessions: Keyed


Keeping: TypeAlias = Keyed | Waiting | Calendar | SessionBook


@singledispatch
def kept_by(operator: Operator, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    """Per slot of an operator that may be on several shards, how it is kept there."""
    return {}


@kept_by.register(Aggregate)
@kept_by.register(MergedAggregate)
@kept_by.register(TopK)
def _(operator: Operator, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    return {"groups": Keyed(0)}


@kept_by.register(FoldKeyed)
def _(operator: FoldKeyed, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    return {"values": Keyed(0)}


@kept_by.register(ReduceKeyed)
def _(operator: ReduceKeyed, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    return {"values": Keyed(0), "merged": Keyed(0)}


@kept_by.register(LatticeFold)
def _(operator: LatticeFold, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    return {"merged": Keyed(0)}


@kept_by.register(State)
def _(operator: State, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    return {"merged": Keyed(0)}


@kept_by.register(Scan)
def _(operator: Scan, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    return {"carried": Keyed(0)}


@kept_by.register(Enumerate)
def _(operator: Enumerate, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    return {"count": Keyed(0)}


@kept_by.register(AtLeast)
def _(operator: AtLeast, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    return {"reached": Keyed(0)}


@kept_by.register(Distinct)
@kept_by.register(Feedback)
@kept_by.register(Unique)
def _(operator: Operator, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    append = analyse(graph).facts[node.inputs[0]].append
    return {"copies": Keyed(0, bare=append)}


@kept_by.register(Join)
def _(operator: Join, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    if pairs_all(operator):
        # Its rows have no keys: those of the left are in as many lists as there are shards.
        return {}
    return {"left": Keyed(0), "right": Keyed(1)}


@kept_by.register(Difference)
def _(operator: Difference, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    return {"left": Keyed(0, bare=False), "right": Keyed(1, bare=False)}


@kept_by.register(DeferTick)
@kept_by.register(DeferTickLazy)
def _(operator: Operator, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    return {"deferred": Waiting()}


def _calendar(name: str, things: Keyed) -> dict[str, Keeping]:
    return dict.fromkeys((f"{name}calendar", f"{name}counts", f"{name}due"), Calendar(name, things))


@kept_by.register(Window)
def _(operator: Window, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    if isinstance(operator.shape, Sessions):
        return dict.fromkeys(("sessions", "calendar", "due"), SessionBook(Keyed(0)))
    return _windows()


@kept_by.register(MergedWindow)
def _(operator: MergedWindow, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    return _windows()


def _windows() -> dict[str, Keeping]:
    """What windows on a grid keep: per group and window its rows, and when each is over."""
    groups = Keyed(0, part=_first)
    return {"groups": groups, **_calendar("", groups)}


@kept_by.register(DistinctOnTime)
def _(operator: DistinctOnTime, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    copies = Keyed(0, bare=False)
    return {"copies": copies, **_calendar("", copies)}


@kept_by.register(FirstWithin)
def _(operator: FirstWithin, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    return {"kept": Keyed(0), **_calendar("", Keyed(0))}


@kept_by.register(JoinOnTime)
def _(operator: JoinOnTime, node: Node, graph: FlowGraph) -> Mapping[str, Keeping]:
    sides = {"left": Keyed(0, part=_first), "right": Keyed(1, part=_first)}
    return {**sides, **_calendar("left_", sides["left"]), **_calendar("right_", sides["right"])}


# --- where it is ---------------------------------------------------------------------------


class StateOwnership:
    """Of the operators of a stage: which shard is home to what."""

    def __init__(self, stage: Stage, shards: int) -> None:
        self._graph = stage.graph
        self._shards = shards
        self._spreads = _spreads(stage, shards)

    def on_one(self, node: Node) -> bool:
        """Whether all state of a node is on the first shard."""
        return all(self._spreads[source].on_one for source in node.inputs)

    def home(self, node: Node, keeping: Keyed) -> Home | None:
        """How the shard of a key is found; None where the key does not tell it."""
        if self.on_one(node):
            return lambda key: 0
        keys = (own_keys(node, self._graph) or ())[keeping.port]
        spread = self._spreads[node.inputs[keeping.port]]
        if keys is None or spread.positions is None:
            return None
        schema = _schema_of_keys(keys, self._graph.nodes[node.inputs[keeping.port]].schema)
        exprs = [_in_terms_of(same, keys, schema) for same in spread.positions]
        if any(expr is None for expr in exprs):
            return None
        divide = divider(
            ByKey(tuple(e for e in exprs if e is not None)), schema, self._shards, weighted=False
        )
        in_tuple = len(keys) == 1 and keeping.bare
        part = keeping.part

        def home(key: Any) -> int:
            values = part(key)
            return next(iter(divide([(values,) if in_tuple else values])))

        return home

    def home_of_row(self, node: Node) -> Home | None:
        """How the shard of a row of the input is found."""
        if self.on_one(node):
            return lambda row: 0
        route = self._spreads[node.inputs[0]].route()
        if route is None:
            return None
        schema = self._graph.nodes[node.inputs[0]].schema
        divide = divider(route, schema, self._shards, weighted=False)
        return lambda row: next(iter(divide([row[: len(schema.fields)]])))


def _schema_of_keys(keys: Sequence[Expr], schema: Schema) -> Schema:
    """Of the tuple of the keys. A key that is a column keeps its name."""
    fields: list[Field] = []
    for number, key in enumerate(keys):
        typed = check(key, schema)
        name = key.name if isinstance(key, Column) else f"key {number}"
        taken = any(f.name == name for f in fields)
        fields.append(Field(f"key {number}" if taken else name, typed.type, typed.nullable))
    return Schema(tuple(fields))


def _in_terms_of(same: Sequence[Expr], keys: Sequence[Expr], schema: Schema) -> Expr | None:
    for number, key in enumerate(keys):
        if any(key.same(expr) for expr in same):
            return Column(schema.fields[number].name)
    plain = {key.name for key in keys if isinstance(key, Column)}
    return next((expr for expr in same if plain.issuperset(columns_of(expr))), None)


def _spreads(stage: Stage, shards: int) -> dict[int, Spread]:
    """How the rows of each node of a stage are spread."""
    graph = stage.graph
    found: dict[int, Spread] = {}
    for exchange in stage.arriving:
        found[graph.sources[exchange.name]] = _arrived(exchange.route, shards)
    for node in _in_order(graph):
        if node.id not in found:
            inputs = [found.get(source, ON_ONE) for source in node.inputs]
            if shards > 1 and pairs_all(node.operator):
                inputs[1] = ANYHOW
            found[node.id] = spread_after(node.operator, node, graph, inputs) if inputs else ON_ONE
    return found


def _arrived(route: object, shards: int) -> Spread:
    if shards == 1 or isinstance(route, ToOne):
        return ON_ONE
    # What every shard has leaves the spread of what it is used with as it is.
    return by(*route.keys) if isinstance(route, ByKey) else ON_ONE if isinstance(route, ToAll) else ANYHOW


def _in_order(graph: FlowGraph) -> Iterator[Node]:
    """Nodes behind what they read; those of a loop, which are on one shard, in any order."""
    waiting = list(graph.nodes)
    done: set[int] = set()
    while waiting:
        ready = [n for n in waiting if done.issuperset(n.inputs)] or waiting[:1]
        yield from ready
        done.update(n.id for n in ready)
        waiting = [n for n in waiting if n.id not in done]
