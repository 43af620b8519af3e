"""Stages: a flow cut where its rows must change their place.

A stage is a flow of its own that every shard runs on its part of the rows:
what crosses a cut leaves one stage by a sink and enters a later one by a
source, both called after the *exchange*. Stage 0 runs wherever rows come in and
keeps no state; stages from 1 on run on the shards. Operators are put into the
earliest stage in which their rows can be together, so consecutive ones share a
stage wherever the spread of their rows allows it. All of a loop runs on one shard.

Pure data; nothing here needs Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.analysis import analyse
from penstock.flow.operators.sink import Sink
from penstock.flow.operators.source import Source
from penstock.flow.operators.union import Union
from penstock.graph.node import FlowGraph, Node
from penstock.graph.order import components, is_cyclic, successors, topological_order
from penstock.spark.placement import (
    ANYHOW,
    ON_ONE,
    ByBucket,
    ByKey,
    Route,
    Spread,
    ToOne,
    by,
    common,
    matched,
    own_keys,
    spread_after,
    whole_row,
)
from penstock.spark.refusals import check_runs_on_spark

if TYPE_CHECKING:
    from penstock.expr.types import Schema
    from penstock.graph.facts import Facts


@dataclass(frozen=True, slots=True)
class Exchange:
    """Rows of one node on their way to a later stage.

    name:   of the sink by which they leave and of the source by which they enter.
    schema: of the rows, which have their weight last unless `append`.
    """

    name: str
    node: int
    from_stage: int
    to_stage: int
    route: Route
    schema: Schema
    append: bool


@dataclass(frozen=True, slots=True)
class Stage:
    """graph: what a shard runs. arriving, leaving: the exchanges at its borders.

    origins: per node of `graph` its id in the whole flow; None for the borders.
    sources and sinks: those of the flow that the stage has.
    """

    number: int
    graph: FlowGraph
    origins: tuple[int | None, ...]
    arriving: tuple[Exchange, ...]
    leaving: tuple[Exchange, ...]
    sources: tuple[str, ...]
    sinks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The stages in order, stage 0 first."""

    stages: tuple[Stage, ...]
    shards: int
    exchanges: tuple[Exchange, ...] = ()

    @property
    def depth(self) -> int:
        return len(self.stages)


def cut(graph: FlowGraph, shards: int, tables: Mapping[str, ByBucket] | None = None) -> StagePlan:
    """Cut a flow into stages for `shards` shards.

    tables: per sink that keeps a table in buckets, how its rows get to the owner of their bucket.

    Raises what the analysis of the flow raises, and `NotOnSpark` for what does not run there.
    """
    check_runs_on_spark(graph)
    facts = analyse(graph).facts
    cutter = _Cutter(graph, shards, dict(tables or {}))
    for unit in _units(graph):
        cutter.place(unit)
    return cutter.plan(facts)


def _units(graph: FlowGraph) -> list[list[int]]:
    """Nodes in topological order; those of a cycle together. Delayed edges close cycles too."""
    edges = [(e.source, e.target) for e in graph.edges()]
    groups = components(successors(len(graph.nodes), edges))
    group_of = {node: at for at, group in enumerate(groups) for node in group}
    between = {(group_of[a], group_of[b]) for a, b in edges if group_of[a] != group_of[b]}
    return [groups[at] for at in topological_order(successors(len(groups), sorted(between)))]


@dataclass(slots=True)
class _Cutter:
    graph: FlowGraph
    shards: int
    tables: dict[str, ByBucket]
    level: dict[int, int] = field(default_factory=dict[int, int])
    spread: dict[int, Spread] = field(default_factory=dict[int, Spread])
    routes: dict[tuple[int, int], Route] = field(default_factory=dict[tuple[int, int], Route])

    # -- levels and spreads ---------------------------------------------------------------

    def place(self, unit: list[int]) -> None:
        edges = [(a, b) for b in unit for a in self.graph.nodes[b].inputs]
        if is_cyclic([0] if len(unit) == 1 else unit, [[0]] if (unit[0], unit[0]) in edges else [[]]):
            self._place_together(unit)
            return
        node = self.graph.nodes[unit[0]]
        if not node.inputs:
            self.level[node.id], self.spread[node.id] = 0, ANYHOW
        elif node.operator.placement().whole:
            self._place_together(unit)
        elif isinstance(node.operator, Sink):
            self._place_sink(node, node.operator)
        elif isinstance(node.operator, Union):
            self._place_union(node)
        else:
            keys = own_keys(node, self.graph)
            if keys is None:
                self._stay(node)
            elif len(keys) == 1:
                self._place_keyed(node, keys[0])
            else:
                self._place_pair(node, keys[0], keys[1])

    def _place_together(self, unit: list[int]) -> None:
        inside = set(unit)
        ports = [
            (node, port, source)
            for node in unit
            for port, source in enumerate(self.graph.nodes[node].inputs)
            if source not in inside
        ]
        level = max((self._ready(source, ON_ONE) for _, _, source in ports), default=1)
        for node, port, source in ports:
            if self.level[source] < level or not self.spread[source].on_one:
                self.routes[node, port] = ToOne()
        for node in unit:
            self.level[node], self.spread[node] = level, ON_ONE

    def _ready(self, source: int, wanted: Spread) -> int:
        """The first stage in which the rows of a node can be spread as wanted."""
        there = self.level[source] > 0 and self.spread[source] == wanted
        return self.level[source] + (not there)

    def _stay(self, node: Node) -> None:
        self._settle(node, self.level[node.inputs[0]], [self.spread[node.inputs[0]]])

    def _settle(self, node: Node, level: int, inputs: list[Spread]) -> None:
        self.level[node.id] = level
        self.spread[node.id] = spread_after(node.operator, node, self.graph, inputs)

    def _place_keyed(self, node: Node, keys: tuple[Any, ...]) -> None:
        source = node.inputs[0]
        if self.level[source] > 0 and self.spread[source].determined_by(keys):
            self._stay(node)
        else:
            self.routes[node.id, 0] = ByKey(keys)
            self._settle(node, self.level[source] + 1, [self._arrived(ByKey(keys))])

    def _arrived(self, route: Route) -> Spread:
        if self.shards == 1 or isinstance(route, ToOne):
            return ON_ONE
        return by(*route.keys) if isinstance(route, ByKey) else ANYHOW

    def _place_pair(self, node: Node, left_keys: tuple[Any, ...], right_keys: tuple[Any, ...]) -> None:
        left, right = node.inputs
        keys = (left_keys, right_keys)
        found = tuple(matched(self.spread[s], k) for s, k in zip((left, right), keys, strict=True))
        everything = list(range(len(left_keys)))
        # Each option: the stage, by which keys, and which inputs are where they have to be already.
        options = [(max(self.level[left], self.level[right]) + 1, everything, (False, False))]
        both = common(found[0], found[1])
        if both is not None:
            level = max(self.level[left], self.level[right])
            options.append((level, both, (self.level[left] == level, self.level[right] == level)))
        for at, other in ((0, right), (1, left)):
            here = self.level[node.inputs[at]]
            positions = found[at]
            # All on one shard is no place to bring a whole other stream to.
            if positions is not None and (positions or self.shards == 1) and self.level[other] < here:
                options.append((here, [min(p) for p in positions], (at == 0, at == 1)))
        level, numbers, stays = min(options, key=lambda o: (o[0], -sum(o[2])))
        spreads: list[Spread] = []
        for port, side in enumerate(keys):
            route = ByKey(tuple(side[n] for n in numbers)) if numbers else ToOne()
            if stays[port]:
                spreads.append(self.spread[node.inputs[port]])
            else:
                self.routes[node.id, port] = route
                spreads.append(self._arrived(route))
        self._settle(node, level, spreads)

    def _place_union(self, node: Node) -> None:
        level = max(self.level[source] for source in node.inputs)
        latest = next(s for s in node.inputs if self.level[s] == level)
        route = self.spread[latest].route() or ByKey(whole_row(node.schema))
        spreads: list[Spread] = []
        for port, source in enumerate(node.inputs):
            if self.level[source] < level:
                self.routes[node.id, port] = route
                spreads.append(self._arrived(route))
            else:
                spreads.append(self.spread[source])
        self._settle(node, level, spreads)

    def _place_sink(self, node: Node, sink: Sink) -> None:
        source = node.inputs[0]
        wanted = self.tables.get(sink.name)
        if wanted is not None and not self.spread[source].on_one:
            self.routes[node.id, 0] = wanted
            self._settle(node, self.level[source] + 1, [ANYHOW])
        elif wanted is not None:
            self._stay(node)
        elif self.level[source] == 0 or self.spread[source].anyhow:
            # Equal rows must meet to cancel; of an append stream none cancel, see `plan`.
            self.routes[node.id, 0] = ByKey(whole_row(node.schema))
            self._settle(node, self.level[source] + 1, [ANYHOW])
        else:
            self._stay(node)

    # -- from levels to graphs ---------------------------------------------------------------

    def plan(self, facts: tuple[Facts, ...]) -> StagePlan:
        for node in self.graph.nodes:
            is_plain = isinstance(node.operator, Sink) and node.operator.name not in self.tables
            if is_plain and facts[node.inputs[0]].append:
                self.routes.pop((node.id, 0), None)
                self.level[node.id] = self.level[node.inputs[0]]
        exchanges = self._exchanges(facts)
        depth = max(self.level.values()) + 1
        stages = tuple(self._stage(number, exchanges, facts) for number in range(depth))
        return StagePlan(stages, self.shards, tuple(exchanges.values()))

    def _exchanges(self, facts: tuple[Facts, ...]) -> dict[tuple[int, int, str], Exchange]:
        """By node, later stage and route: consumers that agree on these share one."""
        exchanges: dict[tuple[int, int, str], Exchange] = {}
        for key, port, route in self._crossings():
            node = self.graph.nodes[key]
            source, to_stage = node.inputs[port], self.level[node.id]
            name = f"exchange {source} to {to_stage} {route}"
            exchanges.setdefault(
                (source, to_stage, str(route)),
                Exchange(
                    name, source, self.level[source], to_stage, route,
                    self.graph.nodes[source].schema, facts[source].append,
                ),
            )  # fmt: skip
        return exchanges

    def _crossings(self) -> Iterable[tuple[int, int, Route]]:
        return (
            (node, port, route) for (node, port), route in sorted(self.routes.items(), key=lambda i: i[0])
        )

    def _stage(
        self, number: int, exchanges: Mapping[tuple[int, int, str], Exchange], facts: tuple[Facts, ...]
    ) -> Stage:
        arriving = tuple(e for e in exchanges.values() if e.to_stage == number)
        leaving = tuple(e for e in exchanges.values() if e.from_stage == number)
        own = [node for node in self.graph.nodes if self.level[node.id] == number]
        ids = {("exchange", e.name): at for at, e in enumerate(arriving)}
        ids |= {("node", str(node.id)): len(arriving) + at for at, node in enumerate(own)}
        nodes: list[Node] = []
        for e in arriving:
            origin = self.graph.nodes[e.node]
            source = Source(e.name, e.schema, facts[e.node].bounded, e.append)
            nodes.append(Node(len(nodes), f"{origin.name} ({e.name})", source, (), e.schema, origin.place))
        for node in own:
            inputs = tuple(ids[self._origin(node, port, exchanges)] for port in range(len(node.inputs)))
            nodes.append(Node(len(nodes), node.name, node.operator, inputs, node.schema, node.place))
        for e in leaving:
            origin = self.graph.nodes[e.node]
            inputs = (ids["node", str(e.node)],)
            nodes.append(
                Node(len(nodes), f"{origin.name} ({e.name})", Sink(e.name), inputs, e.schema, origin.place)
            )
        origins = (*(None for _ in arriving), *(node.id for node in own), *(None for _ in leaving))
        return _finished(number, self.graph, tuple(nodes), origins, arriving, leaving)

    def _origin(
        self, node: Node, port: int, exchanges: Mapping[tuple[int, int, str], Exchange]
    ) -> tuple[str, str]:
        route = self.routes.get((node.id, port))
        if route is None:
            return "node", str(node.inputs[port])
        return "exchange", exchanges[node.inputs[port], self.level[node.id], str(route)].name


def _finished(
    number: int,
    whole: FlowGraph,
    nodes: tuple[Node, ...],
    origins: tuple[int | None, ...],
    arriving: tuple[Exchange, ...],
    leaving: tuple[Exchange, ...],
) -> Stage:
    sources = {n.operator.name: n.id for n in nodes if isinstance(n.operator, Source)}
    sinks = {n.operator.name: n.id for n in nodes if isinstance(n.operator, Sink)}
    # The whole flow has passed the checks of guards; a part of it must not fail them again.
    graph = FlowGraph(f"{whole.name}, stage {number}", nodes, sources, sinks, given_ticks=True)
    inside = {e.name for e in (*arriving, *leaving)}
    return Stage(
        number, graph, origins, arriving, leaving,
        tuple(n for n in sources if n not in inside), tuple(n for n in sinks if n not in inside),
    )  # fmt: skip
