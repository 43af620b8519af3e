"""Levels: the earliest stage in which an operator's rows can be co-located, and the routes to it.

Level 0 is where rows enter the flow; from level 1 on, rows are on shards. An operator that reads row order
gets its rows on one shard, or by a key within their order; so an operator that passes on an order that is
read later keeps its rows on one shard, too.

A loop that is partitioned by key gets stages of its own, run repeatedly. In each round a shard takes what
the round before sent back, lets through what is new, and sends on what follows from it. Every way back
leads through a feedback, so with the ways into feedbacks cut the loop is a flow like any other, and is
placed like one: the way back is a cut that leads from a later stage to an earlier one. A feedback keeps the
set of its rows, spread by what the first operator behind it needs.

A round is thus a tick of that flow, over the state that the round before left. Since only rows come and
none goes, that is semi-naive evaluation. What reads the loop comes in stages behind it, and hears of a tick
once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.analysis import analyse
from headrace.errors import NotOnSpark
from headrace.expr.tree import Column, columns_of
from headrace.graph.graph_algorithms import (
    adjacency_lists,
    is_cyclic,
    strongly_connected_components,
    topological_order,
)
from headrace.operators.endpoints import SinkOperator
from headrace.operators.feedback import FeedbackOperator
from headrace.operators.join.join import Join
from headrace.spark.placing.row_placement import (
    ANYHOW,
    ON_ONE,
    Broadcast,
    ByBucket,
    ByKey,
    Gather,
    Route,
    RouteKeys,
    RowDistribution,
    common_keys,
    keys_of,
    matching_keys,
    spread_after,
    spread_by,
    whole_row_key,
    with_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.graph.node import FlowGraph, Node, Operator
    from headrace.graph.operator_declarations import Facts


def whose_order_is_read(graph: FlowGraph, facts: Sequence[Facts]) -> frozenset[int]:
    """Return the nodes whose output order is read. A sink does not read order, since its output is a bag."""
    readers = graph.consumers()
    read: set[int] = set()
    waiting = [node.id for node in graph.nodes if facts[node.id].ordered]
    while True:
        found = {
            node
            for node in waiting
            for edge in readers[node]
            if edge.target in read or _reads_order(graph.nodes[edge.target].operator, edge.port)
        }
        if found <= read:
            return frozenset(read)
        # What hands an order on that is read reads it itself.
        read |= found


def _reads_order(operator: Operator, port: int) -> bool:
    """Return whether an operator reads the order of a port's rows, where that order is meaningful."""
    # One that makes an order keeps that of the rows that it holds to be equal.
    return operator.makes_order or operator.reads_order(port)


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
    spread: dict[int, RowDistribution] = field(default_factory=dict[int, RowDistribution])
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
        elif isinstance(node.operator, SinkOperator):
            self._place_sink(node, node.operator)
        elif node.operator.is_union:
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
        if placement.keys is None and (operator.linear or not operator.is_union):
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
                self.routes[node, port] = Gather()
        for node in unit:
            self.level[node], self.spread[node] = level, ON_ONE

    def _ready(self, source: int, wanted: RowDistribution) -> int:
        """Return the first stage in which a node's rows can be distributed as required."""
        there = self.level[source] > 0 and self.spread[source] == wanted
        return self.level[source] + (not there)

    def _stay(self, node: Node) -> None:
        self._settle(node, self.level[node.inputs[0]], [self.spread[node.inputs[0]]])

    def _settle(self, node: Node, level: int, inputs: list[RowDistribution]) -> None:
        self.level[node.id] = level
        self.spread[node.id] = spread_after(node, self.graph, inputs)

    def _place_by_keys(self, node: Node, keys: tuple[RouteKeys | None, ...]) -> None:
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
                self.routes[node.id, port] = Broadcast()
            spreads.append(ON_ONE if self.shards == 1 else ANYHOW)
        self._settle(node, level, spreads)

    def _keyed(self, node: Node, keys: RouteKeys, least: int) -> tuple[int, list[RowDistribution]]:
        source = node.inputs[0]
        level = self.level[source]
        if level > 0 and level >= least and self.spread[source].determined_by(keys):
            return level, [self.spread[source]]
        self.routes[node.id, 0] = ByKey(keys)
        return max(level + 1, least), [self._arrived(ByKey(keys))]

    def _arrived(self, route: Route) -> RowDistribution:
        if self.shards == 1 or isinstance(route, Gather):
            return ON_ONE
        return spread_by(*route.keys) if isinstance(route, ByKey) else ANYHOW

    def _pair(
        self, node: Node, left_keys: RouteKeys, right_keys: RouteKeys, least: int
    ) -> tuple[int, list[RowDistribution]]:
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
        spreads: list[RowDistribution] = []
        for port, side in enumerate(keys):
            route = ByKey(tuple(side[n] for n in numbers)) if numbers else Gather()
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
        spreads: list[RowDistribution] = []
        for port, source in enumerate(node.inputs):
            if self.level[source] < level:
                self.routes[node.id, port] = route
                spreads.append(self._arrived(route))
            else:
                spreads.append(self.spread[source])
        self._settle(node, level, spreads)

    def _place_sink(self, node: Node, sink: SinkOperator) -> None:
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
            is_plain = isinstance(node.operator, SinkOperator) and node.operator.name not in self.tables
            if is_plain and self.facts[node.inputs[0]].append:
                self.routes.pop((node.id, 0), None)
                self.level[node.id] = self.level[node.inputs[0]]


def unpartitionable_reason(graph: FlowGraph, loop: Sequence[int], facts: Sequence[Facts]) -> str:
    """Return the reason why a loop cannot be partitioned by key, as a sentence; empty if it can."""
    for node in (graph.nodes[n] for n in loop):
        if not (node.operator.runs_in_rounds or _one_by_one(node)):
            return f"{node.name!r} in it must see all rows in one place."
        if isinstance(node.operator, Join) and not node.operator.left_keys:
            return f"{node.name!r} in it joins without a key."
        if node.operator.depends_on_cut():
            return f"{node.name!r} in it answers each tick for itself."
        if not facts[node.id].append:
            return f"Rows of {node.name!r} in it may be taken back."
    return ""


def _one_by_one(node: Node) -> bool:
    return node.operator.linear and node.operator.row_by_row


def check_loops_run_in_rounds(graph: FlowGraph) -> None:
    """Raise `NotOnSpark` for the first loop that cannot be partitioned by key."""
    facts = analyse(graph).facts
    for loop in cycles_in_order(graph):
        why = unpartitionable_reason(graph, loop, facts) if len(loop) > 1 else ""
        if why:
            feedback = next(
                n for n in map(graph.nodes.__getitem__, loop) if isinstance(n.operator, FeedbackOperator)
            )
            raise NotOnSpark(
                f"the loop of {feedback.name!r} cannot run in rounds over all shards",
                where=[feedback.location],
                why=why,
                fix='run with loops="one shard", or change the loop so that it can be cut by key',
                operator=feedback.name,
            )


@dataclass(frozen=True, slots=True)
class LoopPosition:
    """Position of a node that runs in a loop's rounds.

    loop: its number. first: level of the loop. level: of the node, within it.
    """

    loop: int
    first: int
    level: int


@dataclass(slots=True)
class RoundsLevels(Levels):
    """Levels in which each loop that can be partitioned by key gets its own.

    loops: the nodes of each of these.
    home:  of every node that runs in rounds: those of the loops, and what reads them row by row.
           Its rows are there once the rounds are over, and so in no order.
    """

    loops: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    home: dict[int, LoopPosition] = field(default_factory=dict[int, LoopPosition])

    def __post_init__(self) -> None:
        Levels.__post_init__(self)
        self._number_stages()

    def place(self, unit: list[int]) -> None:
        node = self.graph.nodes[unit[0]]
        if len(unit) > 1 and not unpartitionable_reason(self.graph, unit, self.facts):
            self._place_loop(unit)
        elif any(source in self.home for source in node.inputs) and len(unit) == 1:
            self._place_reader(node)
        else:
            Levels.place(self, unit)

    def _place_loop(self, loop: list[int]) -> None:
        inside = set(loop)
        entering = {s for n in loop for s in self.graph.nodes[n].inputs if s not in inside}
        first = max((self.level[source] for source in entering), default=0) + 1
        for n in loop:
            if isinstance(self.graph.nodes[n].operator, FeedbackOperator):
                route = ByKey(self._feedback_keys(n, inside))
                self.routes[n, 0] = route
                self.level[n], self.spread[n] = first, self._arrived(route)
        for n in _opened(self.graph, loop):
            Levels.place(self, [n])
        last = max(self.level[n] for n in loop)
        for n in loop:
            self.home[n] = LoopPosition(len(self.loops), first, self.level[n])
            # From outside, its rows are where and when the last round leaves them.
            self.level[n], self.spread[n] = last, ANYHOW
        self.loops.append(tuple(loop))

    def _place_reader(self, node: Node) -> None:
        source = node.inputs[0]
        is_plain = isinstance(node.operator, SinkOperator) and node.operator.name not in self.tables
        if _one_by_one(node) or is_plain:
            # It can do its part in each round: no row of it is ever taken back.
            self.home[node.id] = self.home[source]
            self.level[node.id], self.spread[node.id] = self.level[source], ANYHOW
        elif node.operator.is_union and not self._is_whole(node):
            for port in range(len(node.inputs)):
                self.routes[node.id, port] = ByKey(whole_row_key(node.schema))
            level = max(self.level[s] for s in node.inputs) + 1
            self._settle(node, level, [self._arrived(ByKey(whole_row_key(node.schema)))] * len(node.inputs))
        elif self._is_whole(node) or isinstance(node.operator, SinkOperator) or keys_of(node, self.graph):
            Levels.place(self, [node.id])
        else:
            keys = whole_row_key(self.graph.nodes[source].schema)
            self.routes[node.id, 0] = ByKey(keys)
            self._settle(node, self.level[source] + 1, [self._arrived(ByKey(keys))])

    def _feedback_keys(self, feedback: int, inside: set[int]) -> RouteKeys:
        """Return the keys that distribute a feedback: those of a join that reads it, else all columns."""
        schema = self.graph.nodes[feedback].schema
        for keys in _wanted(self.graph, feedback, {n: n for n in schema.names}, inside, {feedback}):
            return keys
        return whole_row_key(schema)

    def _number_stages(self) -> None:
        """Number the stages so that those of a loop are exclusive and consecutive."""
        places = {node: self._place_of(node) for node in self.level}
        number = {place: at for at, place in enumerate(sorted(set(places.values())))}
        for node, place in places.items():
            self.level[node] = number[place]

    def _place_of(self, node: int) -> tuple[int, int, int, int]:
        # A loop comes after all that has a lower level than its first, and before the rest of that level.
        home = self.home.get(node)
        return (self.level[node], 1, 0, 0) if home is None else (home.first, 0, home.loop, home.level)


def _opened(graph: FlowGraph, loop: Sequence[int]) -> list[int]:
    """Return the nodes of a loop without its feedbacks, in topological order."""
    body = [n for n in loop if not isinstance(graph.nodes[n].operator, FeedbackOperator)]
    at = {n: number for number, n in enumerate(body)}
    edges = [(at[s], at[n]) for n in body for s in graph.nodes[n].inputs if s in at]
    return [body[number] for number in topological_order(adjacency_lists(len(body), edges))]


def _wanted(
    graph: FlowGraph, node: int, names: dict[str, str], inside: set[int], seen: set[int]
) -> Iterator[RouteKeys]:
    """Yield the keys of the joins that read a node, in terms of the feedback's columns given by `names`."""
    for reader in (n for n in graph.nodes if n.id in inside and node in n.inputs and n.id not in seen):
        operator = reader.operator
        seen.add(reader.id)
        if isinstance(operator, Join):
            sides = (operator.left_keys, operator.right_keys)
            for keys in (sides[port] for port, source in enumerate(reader.inputs) if source == node):
                if all(names.keys() >= set(columns_of(key)) for key in keys):
                    yield tuple(with_names(key, names) for key in keys)
        else:
            schemas = [graph.nodes[source].schema for source in reader.inputs]
            lineage = operator.lineage(schemas, reader.schema)[reader.inputs.index(node)]
            kept = {n: names[e.name] for n, e in lineage.items() if isinstance(e, Column) and e.name in names}
            yield from _wanted(graph, reader.id, kept, inside, seen)
