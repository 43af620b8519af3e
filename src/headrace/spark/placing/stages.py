"""Stages: a flow cut where rows must move between shards.

A stage is a flow of its own that every shard runs on its part of the rows. Rows that cross a cut leave one
stage through a sink and enter a later one through a source, both named after the *exchange*. Stage 0 runs
wherever rows enter the flow and has no state; later stages run on the shards. Each operator is in the
earliest stage in which its rows can be together, so consecutive operators share a stage whenever the spread
of their rows allows it (`earliest_stages`). A whole loop runs on one shard, unless it is partitioned by
key: then its stages run in rounds.

Pure data; nothing here needs Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.analysis import analyse
from headrace.engine.flow_parts import live_consumers
from headrace.engine.partial_aggregation import ExchangeSink
from headrace.errors import NoFixpoint, SourceLocation, Step
from headrace.graph.node import FlowGraph, Node
from headrace.operators.endpoints import SinkOperator, SourceOperator
from headrace.operators.feedback import FeedbackOperator
from headrace.spark.placing.earliest_stages import Levels, RoundsLevels
from headrace.spark.placing.row_placement import ByBucket, Route
from headrace.spark.refusals import check_runs_on_spark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expr.types import Schema
    from headrace.graph.operator_declarations import Facts


LOOP_ROWS = 2_000_000
"""Default limit on the input rows of a batch loop that runs in one task."""

_SHOWN_ROUNDS = 8
"""Number of most recent rounds shown in the error for a loop that does not converge."""


@dataclass(frozen=True, slots=True)
class FeedbackExchange:
    """A feedback edge: the number of its exchange, and the two nodes it connects."""

    exchange: int
    closed_by: str
    feedback: str
    places: tuple[SourceLocation, SourceLocation]


@dataclass(frozen=True, slots=True)
class LoopStages:
    """Stages of a loop. first, last: the stages run in each round. max_rounds: limit of rounds per tick."""

    first: int
    last: int
    closings: tuple[FeedbackExchange, ...]
    max_rounds: int

    def check(self, growth: Sequence[Mapping[int, int]], before: int = 0) -> None:
        """Raise `NoFixpoint` if rows still circulate after the maximum number of rounds.

        growth: per round so far, how many rows went back over each exchange. before: rounds before those.
        """
        # The last round that may be still has an echo: rows go back that have been there before.
        rounds = before + len(growth)
        if rounds <= self.max_rounds + 1 or not growth[-1]:
            return
        going = [c for c in self.closings if growth[-1].get(c.exchange)]
        where: list[Step] = []
        for closing in going:
            news = growth[-1][closing.exchange]
            where.append(Step(closing.places[1], f"{closing.feedback!r} gets {news} rows in the last round"))
            where.append(Step(closing.places[0], f"from {closing.closed_by!r}, which closes it"))
        last = [sum(sent.values()) for sent in growth[-_SHOWN_ROUNDS:]]
        raise NoFixpoint(
            f"the loop still makes new rows after {self.max_rounds} rounds",
            where=where,
            why=f"Rows that went round in the last rounds: {', '.join(map(str, last))}.",
            fix="bound what the loop makes (a filter, a distinct key), or raise max_iterations",
            rounds=self.max_rounds,
            growth=tuple(last),
            operator=going[0].feedback,
            edges=tuple(f"{c.closed_by} -> {c.feedback}" for c in going),
        )


@dataclass(frozen=True, slots=True)
class StageSpan:
    """Consecutive stages: those of one loop, run until it converges, or those between loops."""

    first: int
    last: int
    loop: LoopStages | None


def loops_in_stage_order(
    graph: FlowGraph, levels: RoundsLevels, exchanges: Sequence[Exchange]
) -> tuple[LoopStages, ...]:
    """Return the loops of a flow, in stage order."""
    found: list[LoopStages] = []
    number = {(e.node, e.to_stage, str(e.route)): at for at, e in enumerate(exchanges)}
    for loop in levels.loops:
        closings: list[FeedbackExchange] = []
        bounds: list[int] = []
        for node in (graph.nodes[n] for n in loop):
            if isinstance(node.operator, FeedbackOperator):
                source = graph.nodes[node.inputs[0]]
                at = number[source.id, levels.level[node.id], str(levels.routes[node.id, 0])]
                places = (source.location, node.location)
                closings.append(FeedbackExchange(at, source.name, node.name, places))
                bounds.append(node.operator.max_iterations)
        stages = [levels.level[n] for n in loop]
        found.append(LoopStages(min(stages), max(stages), tuple(closings), min(bounds)))
    return tuple(sorted(found, key=lambda loop: loop.first))


@dataclass(frozen=True, slots=True)
class Exchange:
    """Transfer of one node's rows to a later stage.

    name:    of the sink by which they leave and of the source by which they enter.
    schema:  of the rows, which have their weight last unless `append`.
    ordered: the order of the rows is read, so it is sent along.
    """

    name: str
    node: int
    from_stage: int
    to_stage: int
    route: Route
    schema: Schema
    append: bool
    ordered: bool


@dataclass(frozen=True, slots=True)
class Stage:
    """Stage of a flow. graph: the part run by each shard. arriving, leaving: its exchanges.

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
    """Stages in order, stage 0 first. loops: those partitioned by key, which run in rounds."""

    stages: tuple[Stage, ...]
    shards: int
    exchanges: tuple[Exchange, ...] = ()
    loops: tuple[LoopStages, ...] = ()

    @property
    def depth(self) -> int:
        return len(self.stages)

    def spans(self) -> Iterator[StageSpan]:
        """Yield the spans of the stages after stage 0, in order: each loop, and the stages between loops."""
        at = 1
        for loop in self.loops:
            if at < loop.first:
                yield StageSpan(at, loop.first - 1, None)
            yield StageSpan(loop.first, loop.last, loop)
            at = loop.last + 1
        if at < len(self.stages):
            yield StageSpan(at, len(self.stages) - 1, None)


def cut_stages(
    graph: FlowGraph, shards: int, tables: Mapping[str, ByBucket] | None = None, *, rounds: bool = False
) -> StagePlan:
    """Cut a flow into stages for `shards` shards.

    tables: per sink that keeps a table in buckets, how its rows get to the owner of their bucket.
    rounds: whether loops are cut by key where they can be; else each runs on one shard.

    Raises the errors of the flow's analysis, and `NotOnSpark` for unsupported operators.
    """
    check_runs_on_spark(graph, travelling=())
    facts = analyse(graph).facts
    if rounds:
        levels = RoundsLevels(graph, shards, tables or {}, facts)
        plan = _Cutter(graph, shards, facts, levels, frozenset(range(len(graph.nodes)))).plan()
        plan = replace(plan, loops=loops_in_stage_order(graph, levels, plan.exchanges))
    else:
        plan = _Cutter(graph, shards, facts, Levels(graph, shards, tables or {}, facts), _live(graph)).plan()
    check_runs_on_spark(graph, travelling={e.node for e in plan.exchanges})
    return plan


def _live(graph: FlowGraph) -> frozenset[int]:
    """Return the nodes that bring in rows or lead to a sink; the rest of a flow has no effect."""
    read = {edge.source for edges in live_consumers(graph) for edge in edges}
    ends = (n.id for n in graph.nodes if n.id in graph.sinks.values() or n.operator.ends_streams)
    return frozenset({*read, *ends, *(n.id for n in graph.nodes if not n.inputs)})


@dataclass(frozen=True, slots=True)
class _Cutter:
    """Assembly of the stages. live: the nodes to assign to stages."""

    graph: FlowGraph
    shards: int
    facts: tuple[Facts, ...]
    levels: Levels
    live: frozenset[int]

    def plan(self) -> StagePlan:
        exchanges = self._exchanges()
        depth = max(self.levels.level[node] for node in self.live) + 1
        stages = tuple(self._stage(number, exchanges) for number in range(depth))
        return StagePlan(stages, self.shards, tuple(exchanges.values()))

    def _exchanges(self) -> dict[tuple[int, int, str], Exchange]:
        """Return the exchanges by node, later stage and route; consumers that agree on these share one."""
        exchanges: dict[tuple[int, int, str], Exchange] = {}
        level, facts = self.levels.level, self.facts
        # What depends on the cut into ticks may show the order in which rows came, too.
        shown = any(node.operator.depends_on_cut() for node in self.graph.nodes)
        for key, port, route in self._crossings():
            node = self.graph.nodes[key]
            source, to_stage = node.inputs[port], level[node.id]
            name = f"exchange {source} to {to_stage} {route}"
            exchanges.setdefault(
                (source, to_stage, str(route)),
                Exchange(
                    name, source, level[source], to_stage, route,
                    self.graph.nodes[source].schema, facts[source].append,
                    source in self.levels.order_read or (shown and facts[source].ordered),
                ),
            )  # fmt: skip
        return exchanges

    def _crossings(self) -> Iterable[tuple[int, int, Route]]:
        routes = sorted(self.levels.routes.items(), key=lambda item: item[0])
        return ((node, port, route) for (node, port), route in routes if node in self.live)

    def _stage(self, number: int, exchanges: Mapping[tuple[int, int, str], Exchange]) -> Stage:
        arriving = tuple(e for e in exchanges.values() if e.to_stage == number)
        leaving = tuple(e for e in exchanges.values() if e.from_stage == number)
        here = (node for node in self.graph.nodes if self.levels.level[node.id] == number)
        own = [node for node in here if node.id in self.live]
        ids = {("exchange", e.name): at for at, e in enumerate(arriving)}
        ids |= {("node", str(node.id)): len(arriving) + at for at, node in enumerate(own)}
        nodes: list[Node] = []
        for e in arriving:
            origin = self.graph.nodes[e.node]
            source = SourceOperator(e.name, e.schema, self.facts[e.node].bounded, e.append)
            nodes.append(Node(len(nodes), f"{origin.name} ({e.name})", source, (), e.schema, origin.location))
        for node in own:
            inputs = tuple(ids[self._origin(node, port, exchanges)] for port in range(len(node.inputs)))
            nodes.append(Node(len(nodes), node.name, node.operator, inputs, node.schema, node.location))
        for e in leaving:
            origin = self.graph.nodes[e.node]
            inputs = (ids["node", str(e.node)],)
            nodes.append(
                Node(
                    len(nodes),
                    f"{origin.name} ({e.name})",
                    ExchangeSink(e.name),
                    inputs,
                    e.schema,
                    origin.location,
                )
            )
        origins = (*(None for _ in arriving), *(node.id for node in own), *(None for _ in leaving))
        return _finished(number, self.graph, tuple(nodes), origins, arriving, leaving)

    def _origin(
        self, node: Node, port: int, exchanges: Mapping[tuple[int, int, str], Exchange]
    ) -> tuple[str, str]:
        route = self.levels.routes.get((node.id, port))
        if route is None:
            return "node", str(node.inputs[port])
        return "exchange", exchanges[node.inputs[port], self.levels.level[node.id], str(route)].name


def _finished(
    number: int,
    whole: FlowGraph,
    nodes: tuple[Node, ...],
    origins: tuple[int | None, ...],
    arriving: tuple[Exchange, ...],
    leaving: tuple[Exchange, ...],
) -> Stage:
    sources = {n.operator.name: n.id for n in nodes if isinstance(n.operator, SourceOperator)}
    sinks = {n.operator.name: n.id for n in nodes if isinstance(n.operator, SinkOperator)}
    # The whole flow has passed the checks of guards; a part of it must not fail them again.
    graph = FlowGraph(f"{whole.name}, stage {number}", nodes, sources, sinks, given_ticks=True)
    inside = {e.name for e in (*arriving, *leaving)}
    return Stage(
        number, graph, origins, arriving, leaving,
        tuple(n for n in sources if n not in inside), tuple(n for n in sinks if n not in inside),
    )  # fmt: skip
