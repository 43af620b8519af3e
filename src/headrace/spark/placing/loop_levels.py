"""Levels of a flow with loops partitioned by key: each loop gets stages of its own, run repeatedly.

In each round a shard takes what the round before sent back, lets through what is new, and
sends on what follows from it. Every way back leads through a feedback, so with the
ways into feedbacks cut the loop is a flow like any other, and is placed like one:
the way back is a cut that leads from a later stage to an earlier one. A feedback keeps
the set of its rows, spread by what the first operator behind it needs.

A round is thus a tick of that flow, over the state that the round before left. Since
only rows come and none goes, that is semi-naive evaluation. What reads the loop comes
in stages behind it, and hears of a tick once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.analysis import analyse
from headrace.errors import NotOnSpark
from headrace.expr.tree import Column, columns_of
from headrace.graph.graph_algorithms import adjacency_lists, topological_order
from headrace.operators.feedback import FeedbackOperator
from headrace.operators.join.operator import Join
from headrace.operators.sink import Sink
from headrace.spark.placing.earliest_stages import Levels, cycles_in_order
from headrace.spark.placing.row_placement import ANYHOW, ByKey, Keys, keys_of, whole_row_key, with_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.graph.node import FlowGraph, Node
    from headrace.graph.operator_declarations import Facts


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
        is_plain = isinstance(node.operator, Sink) and node.operator.name not in self.tables
        if _one_by_one(node) or is_plain:
            # It can do its part in each round: no row of it is ever taken back.
            self.home[node.id] = self.home[source]
            self.level[node.id], self.spread[node.id] = self.level[source], ANYHOW
        elif node.operator.unites and not self._is_whole(node):
            for port in range(len(node.inputs)):
                self.routes[node.id, port] = ByKey(whole_row_key(node.schema))
            level = max(self.level[s] for s in node.inputs) + 1
            self._settle(node, level, [self._arrived(ByKey(whole_row_key(node.schema)))] * len(node.inputs))
        elif self._is_whole(node) or isinstance(node.operator, Sink) or keys_of(node, self.graph):
            Levels.place(self, [node.id])
        else:
            keys = whole_row_key(self.graph.nodes[source].schema)
            self.routes[node.id, 0] = ByKey(keys)
            self._settle(node, self.level[source] + 1, [self._arrived(ByKey(keys))])

    def _feedback_keys(self, feedback: int, inside: set[int]) -> Keys:
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
) -> Iterator[Keys]:
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
