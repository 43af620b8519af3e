"""What may be said of a sink's answers across processes and across time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from penstock.expr.types import holds_any
from penstock.graph.facts import Delay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.graph.facts import Facts
    from penstock.graph.node import FlowGraph, Node


class Verdict(Enum):
    """How much agreement a sink's answers need."""

    NO_COORDINATION = "needs no coordination"
    DETERMINISTIC = "deterministic and live"
    IN_ORDER = "reads the order of arrival"
    EQUAL_VALUES = "may show which of equal values came first"
    GIVEN_TICKS = "follows its ticks"
    GUARDED = "depends on the cut into ticks"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a user says of the functions of an operator, and nothing proves. said: a clause."""

    node: int
    said: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict on a sink, and what it rests on.

    because: the operators that stand in the way of a better one, of `IN_ORDER` and `EQUAL_VALUES`.
    claims:  it holds if these are true.
    """

    verdict: Verdict
    because: tuple[int, ...] = ()
    claims: tuple[Claim, ...] = ()


def find_judgements(graph: FlowGraph, facts: Sequence[Facts]) -> dict[str, Judgement]:
    """Per sink: no coordination where all before it only grows, is deterministic and reads no order."""
    return {name: _judged(graph, facts, sink) for name, sink in graph.sinks.items()}


def _judged(graph: FlowGraph, facts: Sequence[Facts], sink: int) -> Judgement:
    if not facts[sink].det:
        return Judgement(Verdict.GUARDED)
    before = [graph.nodes[n] for n in sorted(upstream(graph, sink))]
    claims = tuple(Claim(node.id, said) for node in before for said in node.operator.claimed())

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
    """Whether an answer is one of ticks that are part of the input."""
    return any(
        node.operator.begins_ticks
        or (graph.given_ticks and (bool(node.operator.depends_on_cut()) or _delays(node)))
        for node in nodes
    )


def _delays(node: Node) -> bool:
    return any(port.delay is not Delay.NONE for port in node.operator.ports())


def _reads_order(node: Node) -> bool:
    """Whether an operator answers from the order of its rows, which those who share the work must keep."""
    return any(need.fact == "ordered" for need in node.operator.needs())


def _makes_one_of_equal(node: Node, facts: Facts) -> bool:
    """Whether values of its rows that are equal and yet differ are one, so that one is shown for all.

    Of types that tell what a value is, equal values are the same, or are made so
    (`penstock.analysis.signed_zero`).
    """
    merged = node.operator.merges_equal or not facts.append
    return merged and any(holds_any(field.type) for field in node.schema.fields)


def upstream(graph: FlowGraph, node: int) -> set[int]:
    """`node` and all that leads to it, delays included."""
    found = {node}
    waiting = [node]
    while waiting:
        for source in graph.nodes[waiting.pop()].inputs:
            if source not in found:
                found.add(source)
                waiting.append(source)
    return found
