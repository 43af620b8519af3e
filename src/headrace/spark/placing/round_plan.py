"""Stages of a loop that is partitioned by key, and the error for one that does not converge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import NoFixpoint, SourceLocation, Step
from headrace.operators.feedback import FeedbackOperator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.graph.node import FlowGraph
    from headrace.spark.placing.loop_levels import RoundsLevels
    from headrace.spark.placing.stages import Exchange

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
