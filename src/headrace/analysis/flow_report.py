"""Reports on a flow: `explain`, as plain text, and the findings of `headrace check`.

`explain` shows strata, blocking inputs, guards, opaque functions and verdicts. The findings are every error
that refuses a flow, and warnings about unused parts and rounded decimals.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from headrace.analysis.analysis import Analysis, analyse, find_facts, rounded_decimals
from headrace.analysis.checks import (
    Judgement,
    Verdict,
    ancestors_of,
    check_cycles,
    judge_sinks,
    refusals,
    steps_by_location,
)
from headrace.analysis.column_lineage import columns_unread
from headrace.errors import HeadraceError, SourceLocation
from headrace.graph.node import function_name, graph_of, label, label_in_sentence
from headrace.graph.operator_declarations import Delay
from headrace.shown import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.flow.flow import Flow
    from headrace.graph.node import FlowGraph, Node
    from headrace.graph.operator_declarations import Facts


_TEXT_WIDTH = 44


def explain(flow: Flow | FlowGraph, *, code: str = "", large_ticks: Sequence[str] = ()) -> Text:
    """Render a report on a flow, about 100 columns wide.

    code: generated source to show at the end (provided by engines; `headrace explain --code`).
    large_ticks: lines on the operators computed on columns (added by `headrace explain`).
    Raises the errors of `analyse`, and `BadFlow` for an incomplete flow.

    >>> import headrace as hr
    >>> flow = hr.Flow("numbers")
    >>> flow.sink("count", flow.source("numbers", int).group_by().agg(count=hr.count()))
    >>> print(explain(flow))
    Flow 'numbers': 3 operators, 2 strata, 1 region
    <BLANKLINE>
    Stratum 0: streams
      source 'numbers'                        append, ordered  ...
    <BLANKLINE>
    Stratum 1: when stratum 0 is complete
      aggregate         by (): count=count()  changes          ...
        waits for source 'numbers': a further row could change a group's answer
      sink 'count'                            changes          ...
    <BLANKLINE>
    Active together
      1  source 'numbers', aggregate, sink 'count'
    <BLANKLINE>
    Loops: none: nothing goes round within a tick
    Guards: none: no answer depends on how the input is cut into ticks
    Opaque: none: every function is an expression
    <BLANKLINE>
    Sinks
      count  deterministic and live: the same however the input is cut; rows may be taken back
    <BLANKLINE>
    """
    graph = graph_of(flow, "explain")
    analysis = analyse(graph)
    parts = [
        _title(graph, analysis),
        *_strata(graph, analysis),
        _section("Active together", _regions(graph, analysis), ""),
        _section("Loops", _loops(graph, analysis), "none: nothing goes round within a tick"),
        _section("Guards", _guards(graph), _NO_GUARDS[graph.given_ticks]),
        _section("Opaque", _opaque(graph), "none: every function is an expression"),
        _section("Sinks", _sinks(graph, analysis), ""),
    ]
    if rounded := list(_rounded(graph)):
        parts.append(_section("Rounded decimals", rounded, ""))
    if unused := list(_unused(graph)):
        parts.append(_section("Unused", unused, ""))
    if unread := list(_unread(graph)):
        parts.append(_section("Columns not read", unread, ""))
    if large_ticks:
        parts.append(_section("Large ticks whose rows come in a frame", large_ticks, ""))
    if code:
        parts.append(_section("Code", code.rstrip().splitlines(), ""))
    return Text("".join(_spaced(parts)) + "\n")


def _spaced(parts: Sequence[str]) -> Iterator[str]:
    """Separate the parts, with an empty line around each that has several lines."""
    yield parts[0]
    for before, part in pairwise(parts):
        yield ("\n\n" if "\n" in before + part or before is parts[0] else "\n") + part


def _title(graph: FlowGraph, analysis: Analysis) -> str:
    strata = max(analysis.strata) + 1
    counts = (
        _count(len(graph.nodes), "operator", "operators"),
        _count(strata, "stratum", "strata"),
        _count(len(analysis.regions), "region", "regions"),
    )
    given = "; its ticks are part of its input" if graph.given_ticks else ""
    return f"Flow {graph.name!r}: {', '.join(counts)}{given}"


def _strata(graph: FlowGraph, analysis: Analysis) -> Iterator[str]:
    rows = {node.id: _rows(graph, analysis, node) for node in graph.nodes}
    left = max(len(row[0]) for row in rows.values())
    middle = max(len(line) for row in rows.values() for line in row[1])
    right = max(len(row[2]) for row in rows.values())
    order = analysis.execution_order()
    for stratum in range(max(analysis.strata) + 1):
        when = "streams" if stratum == 0 else f"when stratum {stratum - 1} is complete"
        lines = [f"Stratum {stratum}: {when}"]
        for node_id in (n for n in order if analysis.strata[n] == stratum):
            name, text, facts, location, notes = rows[node_id]
            first = f"  {name:<{left}}  {text[0]:<{middle}}  {facts:<{right}}  {location}"
            lines += [first.rstrip(), *(f"  {'':<{left}}  {more}" for more in text[1:])]
            lines += [f"    {note}" for note in notes]
        yield "\n".join(lines)


def _rows(graph: FlowGraph, analysis: Analysis, node: Node) -> tuple[str, list[str], str, str, list[str]]:
    """Table rows: name, description lines, facts, source location, and notes on blocking inputs."""
    text = textwrap.wrap(node.operator.describe(), _TEXT_WIDTH, break_long_words=False) or [""]
    return (
        label(graph, node),
        text,
        _facts(analysis.facts[node.id]),
        str(node.location),
        list(_notes(graph, node)),
    )


def _notes(graph: FlowGraph, node: Node) -> Iterator[str]:
    for port, source in zip(node.operator.ports(), node.inputs):
        read = label(graph, graph.nodes[source])
        if port.delay is not Delay.NONE:
            yield f"hears {read} one tick later"
        if port.blocking:
            named = f" ({port.name!r})" if len(node.inputs) > 1 else ""
            yield f"waits for {read}{named}: {port.why}"


def _facts(facts: Facts) -> str:
    """Return the facts in short form. `once` and `det` are shown only if they do not hold."""
    words = ["append" if facts.append else "changes"]
    words += [word for word, holds in (("bounded", facts.bounded), ("ordered", facts.ordered)) if holds]
    words += [word for word, holds in (("repeats", facts.once), ("guarded", facts.det)) if not holds]
    return ", ".join(words)


def _regions(graph: FlowGraph, analysis: Analysis) -> Iterator[str]:
    number = {node: at for at, region in enumerate(analysis.regions, start=1) for node in region.nodes}
    width = len(str(len(analysis.regions)))
    for at, region in enumerate(analysis.regions, start=1):
        names = ", ".join(label(graph, graph.nodes[n]) for n in region.nodes)
        sources = sorted({e.source for e in region.inputs})
        silent = [n for n in sources if graph.nodes[n].operator.may_be_silent()]
        entering = sorted({number[n] for n in sources if n not in silent})
        reasons = [f"{' or '.join(map(str, entering))} is"] if entering else []
        reasons += [f"{label(graph, graph.nodes[n])} is not silent" for n in silent]
        when = f"  (when {', or '.join(reasons)})" if reasons else ""
        if any(graph.nodes[n].operator.runs_each_tick for n in region.nodes):
            when = "  (in every tick)"
        yield f"{at:>{width}}  {names}{when}"


def _loops(graph: FlowGraph, analysis: Analysis) -> Iterator[str]:
    for loop in analysis.loops:
        names = " -> ".join(label(graph, graph.nodes[n]) for n in loop)
        how = "differences by tick and round" if analysis.is_changing(loop) else "only what is new goes round"
        yield f"{names}: until nothing new is found, within the tick ({how})"


_NO_GUARDS = {
    False: "none: no answer depends on how the input is cut into ticks",
    True: "none: its ticks are part of its input",
}


def _guards(graph: FlowGraph) -> Iterator[str]:
    for node in graph.nodes:
        if reason := node.operator.guard():
            yield f"{label(graph, node)} at {node.location}: {reason}"


def _opaque(graph: FlowGraph) -> Iterator[str]:
    for node in graph.nodes:
        for role, function in node.operator.callables():
            name = f"{function_name(function)}{_home(function)}"
            yield f"{label(graph, node)} at {node.location}: {role} {name}"


def _home(function: object) -> str:
    code = getattr(function, "__code__", None)
    return f", {code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}" if code is not None else ""


def _sinks(graph: FlowGraph, analysis: Analysis) -> Iterator[str]:
    width = max((len(name) for name in analysis.judgements), default=0)
    for name, judgement in analysis.judgements.items():
        meaning = MEANING[judgement.verdict]
        if judgement.verdict in (Verdict.DETERMINISTIC, Verdict.IN_ORDER, Verdict.EQUAL_VALUES):
            append = analysis.facts[graph.sinks[name]].append
            meaning += "; rows are only ever added" if append else "; rows may be taken back"
        yield f"{name:<{width}}  {judgement.verdict.value}: {meaning}"
        for ground in _grounds(graph, judgement):
            yield f"{'':<{width}}    {ground}"


def _grounds(graph: FlowGraph, judgement: Judgement) -> Iterator[str]:
    """Yield the grounds of a verdict, one line per operator."""
    role = "order is read by" if judgement.verdict is Verdict.IN_ORDER else "made one by"
    for number in judgement.because:
        node = graph.nodes[number]
        yield f"{role} {label(graph, node)} at {node.location}"
    for number, claims in groupby(judgement.claims, key=lambda claim: claim.node):
        node, said = graph.nodes[number], ", ".join(claim.said for claim in claims)
        yield f"as claimed by {label(graph, node)} at {node.location}: {said}"


MEANING = {
    Verdict.NO_COORDINATION: "rows are only ever added, whoever has seen what",
    Verdict.DETERMINISTIC: "the same however the input is cut",
    Verdict.IN_ORDER: "the same for rows in the same order, however cut",
    Verdict.EQUAL_VALUES: "of any type, 1, True and 1.0 are one",
    Verdict.GIVEN_TICKS: "the same for the same values in the same ticks and order",
    Verdict.GUARDED: "see its guards",
}


def _unread(graph: FlowGraph) -> Iterator[str]:
    """List the columns of each source that no operator reads; they are neither kept nor sent."""
    used = {i for node in graph.nodes for i in node.inputs}
    for name, unread in columns_unread(graph).items():
        if graph.sources[name] in used and unread:
            yield f"{name}: {', '.join(unread)}"


def _rounded(graph: FlowGraph) -> Iterator[str]:
    """List the expressions that round decimals, by operator, with a remedy if digits are lost."""
    found = list(rounded_decimals(graph))
    for each in found:
        yield f"{label(graph, each.node)} at {each.node.location}: {each.text} {each.rounding}"
    if any(each.rounding.is_cut for each in found):
        yield "Decimal alone is decimal(38,18), and no result has more than 38 digits. To keep all,"
        yield "declare fewer in the row class: Annotated[Decimal, DecimalType(12, 2)]"


def _unused(graph: FlowGraph) -> Iterator[str]:
    for node in unused_nodes(graph):
        yield f"{label(graph, node)} at {node.location}: no sink depends on it"


def _section(title: str, lines: Iterator[str] | Sequence[str], empty: str) -> str:
    listed = list(lines)
    return (
        f"{title}: {empty}" if not listed else "\n".join([title, *(f"  {line}".rstrip() for line in listed)])
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


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
    yield from (Finding(Severity.WARNING, error) for error in _warn_of_unused(graph))
    if blocked := list(check_cycles(graph)):
        yield from (Finding(Severity.ERROR, error) for error in blocked)
        return
    yield from (Finding(Severity.WARNING, error) for error in _warn_of_rounded(graph))
    facts = find_facts(graph)
    yield from (Finding(Severity.ERROR, error) for error in refusals(graph, facts))
    yield from (Finding(Severity.WARNING, error) for error in _warn_of_merged(graph, facts))


def unused_nodes(graph: FlowGraph) -> list[Node]:
    """Return the nodes on which no sink depends, in the order in which they were added."""
    ends = (*graph.sinks.values(), *(node.id for node in graph.nodes if node.operator.ends_streams))
    used = {node for end in ends for node in ancestors_of(graph, end)}
    return [node for node in graph.nodes if node.id not in used]


def _warn_of_unused(graph: FlowGraph) -> Iterator[HeadraceError]:
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


def _warn_of_rounded(graph: FlowGraph) -> Iterator[HeadraceError]:
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


def _warn_of_merged(graph: FlowGraph, facts: tuple[Facts, ...]) -> Iterator[HeadraceError]:
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
