"""Levels: the earliest stage in which an operator's rows can be together, and the routes to it.

Level 0 is where rows enter the flow; from level 1 on, rows are on shards. An operator that reads row order
gets its rows on one shard, or by a key within their order; so an operator that passes on an order that is
read later keeps its rows on one shard, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.graph.graph_algorithms import (
    adjacency_lists,
    is_cyclic,
    strongly_connected_components,
    topological_order,
)
from headrace.operators.sink import Sink
from headrace.spark.placing.order_readers import whose_order_is_read
from headrace.spark.placing.row_placement import (
    ANYHOW,
    ON_ONE,
    ByBucket,
    ByKey,
    Keys,
    Route,
    Spread,
    ToAll,
    ToOne,
    common_keys,
    keys_of,
    matching_keys,
    spread_after,
    spread_by,
    whole_row_key,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.graph.node import FlowGraph, Node
    from headrace.graph.operator_declarations import Facts


def cycles_in_order(graph: FlowGraph) -> list[list[int]]:
    """Return the nodes in topological order, grouped by cycle. Delayed edges close cycles too."""
    edges = [(e.source, e.target) for e in graph.edges()]
    groups = strongly_connected_components(adjacency_lists(len(graph.nodes), edges))
    group_of = {node: at for at, group in enumerate(groups) for node in group}
    between = {(group_of[a], group_of[b]) for a, b in edges if group_of[a] != group_of[b]}
    return [groups[at] for at in topological_order(adjacency_lists(len(groups), sorted(between)))]


@dataclass(slots=True)
class Levels:
    """Stage levels of a flow. level, spread: per node. routes: per node and port whose rows cross a cut.

    order_read: nodes whose row order is read.
    """

    graph: FlowGraph
    shards: int
    tables: Mapping[str, ByBucket]
    facts: Sequence[Facts]
    level: dict[int, int] = field(default_factory=dict[int, int])
    spread: dict[int, Spread] = field(default_factory=dict[int, Spread])
    routes: dict[tuple[int, int], Route] = field(default_factory=dict[tuple[int, int], Route])
    order_read: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        self.order_read = whose_order_is_read(self.graph, self.facts)
        for unit in cycles_in_order(self.graph):
            self.place(unit)
        self._let_append_sinks_stay()

    def place(self, unit: list[int]) -> None:
        """Place a node, or the nodes of a cycle, after all their inputs."""
        edges = [(a, b) for b in unit for a in self.graph.nodes[b].inputs]
        cyclic = is_cyclic([0] if len(unit) == 1 else unit, [[0]] if (unit[0], unit[0]) in edges else [[]])
        node = self.graph.nodes[unit[0]]
        if cyclic or self._is_whole(node):
            self._place_together(unit)
        elif not node.inputs:
            self.level[node.id], self.spread[node.id] = 0, ANYHOW
        elif isinstance(node.operator, Sink):
            self._place_sink(node, node.operator)
        elif node.operator.unites:
            self._place_union(node)
        else:
            keys = keys_of(node, self.graph)
            if keys is None:
                self._stay(node)
            else:
                self._place_by_keys(node, keys)

    def _is_whole(self, node: Node) -> bool:
        """Return whether all rows of a node must be on one shard."""
        operator = node.operator
        placement = operator.placement()
        if placement.whole:
            return True
        if placement.keys is None and (operator.linear or not operator.unites):
            return False
        return node.id in self.order_read

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
        """Return the first stage in which a node's rows can be distributed as required."""
        there = self.level[source] > 0 and self.spread[source] == wanted
        return self.level[source] + (not there)

    def _stay(self, node: Node) -> None:
        self._settle(node, self.level[node.inputs[0]], [self.spread[node.inputs[0]]])

    def _settle(self, node: Node, level: int, inputs: list[Spread]) -> None:
        self.level[node.id] = level
        self.spread[node.id] = spread_after(node, self.graph, inputs)

    def _place_by_keys(self, node: Node, keys: tuple[Keys | None, ...]) -> None:
        everywhere = [port for port, found in enumerate(keys) if found is None]
        # On one shard it is everywhere already; else it takes a cut to get there.
        far = [p for p in everywhere if self.shards > 1 or self.level[node.inputs[p]] == 0]
        least = max((self.level[node.inputs[p]] + (p in far) for p in everywhere), default=0)
        sides = [found for found in keys if found is not None]
        if len(sides) == 1:
            level, spreads = self._keyed(node, sides[0], least)
        else:
            level, spreads = self._pair(node, sides[0], sides[1], least)
        for port in everywhere:
            if self.level[node.inputs[port]] < level:
                self.routes[node.id, port] = ToAll()
            spreads.append(ON_ONE if self.shards == 1 else ANYHOW)
        self._settle(node, level, spreads)

    def _keyed(self, node: Node, keys: Keys, least: int) -> tuple[int, list[Spread]]:
        source = node.inputs[0]
        level = self.level[source]
        if level > 0 and level >= least and self.spread[source].determined_by(keys):
            return level, [self.spread[source]]
        self.routes[node.id, 0] = ByKey(keys)
        return max(level + 1, least), [self._arrived(ByKey(keys))]

    def _arrived(self, route: Route) -> Spread:
        if self.shards == 1 or isinstance(route, ToOne):
            return ON_ONE
        return spread_by(*route.keys) if isinstance(route, ByKey) else ANYHOW

    def _pair(self, node: Node, left_keys: Keys, right_keys: Keys, least: int) -> tuple[int, list[Spread]]:
        left, right = node.inputs[:2]
        keys = (left_keys, right_keys)
        found = tuple(matching_keys(self.spread[s], k) for s, k in zip((left, right), keys, strict=True))
        everything = list(range(len(left_keys)))
        # Each option: the stage, by which keys, and which inputs are where they have to be already.
        anew = max(self.level[left] + 1, self.level[right] + 1, least)
        options = [(anew, everything, (False, False))]
        both = common_keys(found[0], found[1])
        if both is not None:
            level = max(self.level[left], self.level[right])
            options.append((level, both, (self.level[left] == level, self.level[right] == level)))
        for at, other in ((0, right), (1, left)):
            here = self.level[node.inputs[at]]
            positions = found[at]
            # All on one shard is no place to bring a whole other stream to.
            if positions is not None and (positions or self.shards == 1) and self.level[other] < here:
                options.append((here, [min(p) for p in positions], (at == 0, at == 1)))
        possible = [option for option in options if option[0] >= least]
        level, numbers, stays = min(possible, key=lambda o: (o[0], -sum(o[2])))
        spreads: list[Spread] = []
        for port, side in enumerate(keys):
            route = ByKey(tuple(side[n] for n in numbers)) if numbers else ToOne()
            if stays[port]:
                spreads.append(self.spread[node.inputs[port]])
            else:
                self.routes[node.id, port] = route
                spreads.append(self._arrived(route))
        return level, spreads

    def _place_union(self, node: Node) -> None:
        level = max(self.level[source] for source in node.inputs)
        latest = next(s for s in node.inputs if self.level[s] == level)
        route = self.spread[latest].route() or ByKey(whole_row_key(node.schema))
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
            # Equal rows must meet to cancel.
            self.routes[node.id, 0] = ByKey(whole_row_key(node.schema))
            self._settle(node, self.level[source] + 1, [ANYHOW])
        else:
            self._stay(node)

    def _let_append_sinks_stay(self) -> None:
        # No row of an append stream cancels another, so they need not meet before they leave.
        for node in self.graph.nodes:
            is_plain = isinstance(node.operator, Sink) and node.operator.name not in self.tables
            if is_plain and self.facts[node.inputs[0]].append:
                self.routes.pop((node.id, 0), None)
                self.level[node.id] = self.level[node.inputs[0]]
