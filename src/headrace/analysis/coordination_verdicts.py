"""Verdicts on sinks: determinism and the coordination that they need."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from headrace.expr.types import holds_any
from headrace.shown import Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.graph.node import FlowGraph, Node
    from headrace.graph.operator_declarations import Facts


class Verdict(Shown, Enum):
    """Degree of coordination that a sink's results need."""

    NO_COORDINATION = "needs no coordination"
    DETERMINISTIC = "deterministic and live"
    IN_ORDER = "reads the order of arrival"
    EQUAL_VALUES = "may show which of equal values came first"
    GIVEN_TICKS = "follows its ticks"
    GUARDED = "depends on the cut into ticks"


@dataclass(frozen=True, slots=True)
class Claim:
    """Unproved assumption about an operator's user functions. said: the assumption, as a clause."""

    node: int
    said: str


@dataclass(frozen=True, slots=True)
class Judgement(Shown):
    """Verdict on a sink, with its grounds.

    because: for `IN_ORDER` and `EQUAL_VALUES`, the operators that prevent a better verdict.
    claims: assumptions that the verdict relies on.
    """

    verdict: Verdict
    because: tuple[int, ...] = ()
    claims: tuple[Claim, ...] = ()


def judge_sinks(graph: FlowGraph, facts: Sequence[Facts]) -> dict[str, Judgement]:
    """Judge each sink. Append-only, deterministic, order-free paths need no coordination."""
    return {name: _judged(graph, facts, sink) for name, sink in graph.sinks.items()}


def _judged(graph: FlowGraph, facts: Sequence[Facts], sink: int) -> Judgement:
    if not facts[sink].det:
        return Judgement(Verdict.GUARDED)
    before = [graph.nodes[n] for n in sorted(ancestors_of(graph, sink))]
    claims = tuple(Claim(node.id, said) for node in before for said in node.operator.assumptions())

    def those(holds: Callable[[Node], bool]) -> tuple[int, ...]:
        return tuple(node.id for node in before if holds(node))

    ordered = those(_reads_order)
    if _follows_ticks(graph, before) or (graph.given_ticks and ordered):
        return Judgement(Verdict.GIVEN_TICKS, claims=claims)
    if equal := those(lambda node: _makes_one_of_equal(node, facts[node.id])):
        return Judgement(Verdict.EQUAL_VALUES, equal, claims)
    if ordered:
        return Judgement(Verdict.IN_ORDER, ordered, claims)
    grows = all(facts[node.id].append and facts[node.id].det for node in before)
    return Judgement(Verdict.NO_COORDINATION if grows else Verdict.DETERMINISTIC, claims=claims)


def _follows_ticks(graph: FlowGraph, nodes: Sequence[Node]) -> bool:
    """Return whether results depend on ticks that are part of the input."""
    return any(
        node.operator.begins_ticks
        or (graph.given_ticks and (bool(node.operator.depends_on_cut()) or node.is_delay))
        for node in nodes
    )


def _reads_order(node: Node) -> bool:
    """Return whether an operator depends on its input order, which parallel workers would have to keep."""
    return any(need.fact == "ordered" for need in node.operator.needs())


def _makes_one_of_equal(node: Node, facts: Facts) -> bool:
    """Return whether equal but distinguishable values are merged into one representative.

    For types other than `Any`, equal values are identical, or made so (`headrace.analysis.signed_zero`).
    """
    merged = node.operator.merges_equal or not facts.append
    return merged and any(holds_any(field.type) for field in node.schema.fields)


def ancestors_of(graph: FlowGraph, node: int) -> set[int]:
    """Return `node` and all its ancestors, including those across delays."""
    found = {node}
    waiting = [node]
    while waiting:
        for source in graph.nodes[waiting.pop()].inputs:
            if source not in found:
                found.add(source)
                waiting.append(source)
    return found
