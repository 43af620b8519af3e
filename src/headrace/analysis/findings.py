"""Findings on a flow for `headrace check`: every error that refuses it, and warnings about unused parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from headrace.analysis.checks import check_cycles, refusals
from headrace.analysis.coordination_verdicts import Verdict, ancestors_of, judge_sinks
from headrace.analysis.fact_propagation import find_facts
from headrace.analysis.node_labels import label, label_in_sentence
from headrace.analysis.rounded_decimals import rounded_decimals
from headrace.analysis.witness_paths import steps_by_location
from headrace.errors import HeadraceError, SourceLocation
from headrace.graph.node import graph_of

if TYPE_CHECKING:
    from headrace.flow.flow import Flow
    from headrace.graph.node import FlowGraph, Node
    from headrace.graph.operator_declarations import Facts


class UnusedSource(HeadraceError):
    """Reported for a source on which no sink depends. Carries `flow` and `source`."""

    code = "P108"


class UnusedStream(HeadraceError):
    """Reported for a stream that reaches no sink. Carries `flow` and `node`."""

    code = "P109"


class EqualValuesMerged(HeadraceError):
    """Reported for a sink that may show any of several equal values, such as 1 and True.

    Carries `flow` and `sink`.
    """

    code = "P110"


class DecimalsRounded(HeadraceError):
    """Reported for decimals that lose decimal places to the limit of 38 digits. Carries `flow` and `node`."""

    code = "P111"


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """An error or a warning about a user's file, as the error that was or could be raised."""

    severity: Severity
    error: HeadraceError

    @property
    def location(self) -> SourceLocation | None:
        """The line to change. Errors list lines in order; the last one is where the mistake shows."""
        return self.error.where[-1].location if self.error.where else None


def findings_of(flow: Flow | FlowGraph) -> Iterator[Finding]:
    """Yield the findings on a flow. A flow without a sink, or blocked by a cycle, has no other errors."""
    try:
        graph = graph_of(flow, "findings_of")
    except HeadraceError as error:
        yield Finding(Severity.ERROR, error)
        return
    yield from (Finding(Severity.WARNING, error) for error in _unused(graph))
    if blocked := list(check_cycles(graph)):
        yield from (Finding(Severity.ERROR, error) for error in blocked)
        return
    yield from (Finding(Severity.WARNING, error) for error in _rounded(graph))
    facts = find_facts(graph)
    yield from (Finding(Severity.ERROR, error) for error in refusals(graph, facts))
    yield from (Finding(Severity.WARNING, error) for error in _merged(graph, facts))


def unused_nodes(graph: FlowGraph) -> list[Node]:
    """Return the nodes on which no sink depends, in the order in which they were added."""
    ends = (*graph.sinks.values(), *(node.id for node in graph.nodes if node.operator.ends_streams))
    used = {node for end in ends for node in ancestors_of(graph, end)}
    return [node for node in graph.nodes if node.id not in used]


def _unused(graph: FlowGraph) -> Iterator[HeadraceError]:
    """Warn of unused sources, and of the last operator of each unused chain."""
    names = {node: name for name, node in graph.sources.items()}
    read = {source for node in graph.nodes for source in node.inputs}
    for node in unused_nodes(graph):
        if node.id in names:
            yield UnusedSource(
                f"no sink of flow {graph.name!r} depends on source {names[node.id]!r}",
                where=[node.location],
                why="Its rows would be read and dropped.",
                fix="remove the source, or give a stream made from it to flow.sink(...)",
                flow=graph.name,
                source=names[node.id],
            )
        elif node.id not in read:
            yield UnusedStream(
                f"no sink of flow {graph.name!r} depends on {label_in_sentence(graph, node)}",
                where=[node.location],
                why="Its rows would be computed and dropped.",
                fix='flow.sink("name", stream), or remove the stream',
                flow=graph.name,
                node=node.name,
            )


def _rounded(graph: FlowGraph) -> Iterator[HeadraceError]:
    for each in rounded_decimals(graph):
        if each.rounding.is_cut:
            yield DecimalsRounded(
                f"{label(graph, each.node)} of flow {graph.name!r}: {each.text} {each.rounding}",
                where=[each.node.location],
                why="A result has 38 digits at most, and Decimal alone is decimal(38,18).",
                fix="declare fewer digits in the row class: Annotated[Decimal, DecimalType(12, 2)]",
                flow=graph.name,
                node=each.node.name,
            )


def _merged(graph: FlowGraph, facts: tuple[Facts, ...]) -> Iterator[HeadraceError]:
    for name, judgement in judge_sinks(graph, facts).items():
        if judgement.verdict is Verdict.EQUAL_VALUES:
            merging = [graph.nodes[n] for n in judgement.because]
            notes = [(node, f"{label(graph, node)} keeps one of them") for node in merging]
            yield EqualValuesMerged(
                f"sink {name!r} may show any one of several equal values",
                where=steps_by_location([*notes, (graph.nodes[graph.sinks[name]], "")]),
                why="A column of any type may hold 1, True and 1.0, which are equal and print differently.",
                fix="give the column one type in the row class, such as `int`",
                flow=graph.name,
                sink=name,
            )
