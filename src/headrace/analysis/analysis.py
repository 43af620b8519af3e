"""Complete analysis of a flow, for engines, explanations and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.analysis.checks import check_cycles, refusals
from headrace.analysis.coordination_verdicts import Judgement, Verdict, judge_sinks
from headrace.analysis.fact_propagation import find_facts
from headrace.analysis.regions import Region, find_activation, find_regions
from headrace.analysis.signed_zero import ZeroNormalization, find_zero_normalization
from headrace.analysis.strata import find_execution_order
from headrace.shown import Shown

if TYPE_CHECKING:
    from headrace.graph.node import FlowGraph
    from headrace.graph.operator_declarations import Facts


@dataclass(frozen=True, slots=True)
class Analysis(Shown):
    """Results of the static analysis of a flow. Tuples are indexed by node id unless stated otherwise.

    facts:      of each node's output.
    loops:      sets of nodes that feed each other within a tick, in execution order.
    strata:     number of blocking inputs on the longest path from a source.
    ranks:      position in the execution order of the whole flow: 0, 1, 2, ... without gaps.
    activation: head of the node's region.
    regions:    parts that are active together, in an order in which they may run one by one.
    zeros:      nodes where an engine replaces -0.0 by 0.0.
    judgements: verdict on each sink with its grounds, by sink name.
    """

    facts: tuple[Facts, ...]
    loops: tuple[tuple[int, ...], ...]
    strata: tuple[int, ...]
    ranks: tuple[int, ...]
    activation: tuple[int, ...]
    regions: tuple[Region, ...]
    zeros: ZeroNormalization
    judgements: dict[str, Judgement]

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Verdict per sink name."""
        return {name: judgement.verdict for name, judgement in self.judgements.items()}

    def is_changing(self, loop: tuple[int, ...]) -> bool:
        """Return whether rows of a loop may be retracted."""
        return not all(self.facts[node].append for node in loop)

    def execution_order(self) -> list[int]:
        """Return the node ids by rank, which is also by (stratum, rank)."""
        return sorted(range(len(self.ranks)), key=self.ranks.__getitem__)


def analyse(graph: FlowGraph) -> Analysis:
    """Analyse a flow.

    Raises `CycleThroughBlockingInput`, `GuardMissing` and `NeedNotMet`, in this order.
    """
    for error in check_cycles(graph):
        raise error
    facts = find_facts(graph)
    for error in refusals(graph, facts):
        raise error
    order = find_execution_order(graph)
    activation = find_activation(graph, order)
    return Analysis(
        facts=facts,
        loops=order.loops,
        strata=order.strata,
        ranks=order.ranks,
        activation=activation,
        regions=find_regions(graph, order, activation),
        zeros=find_zero_normalization(graph, facts),
        judgements=judge_sinks(graph, facts),
    )
