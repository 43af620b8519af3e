"""Checks that reject flows without well-defined results, with proof and fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.analysis.coordination_verdicts import ancestors_of
from headrace.analysis.node_labels import label_in_sentence
from headrace.analysis.strata import find_loops
from headrace.analysis.witness_paths import (
    cycle_across_ticks,
    cycle_through,
    path_to_lost_fact,
    steps_by_location,
)
from headrace.errors import CycleThroughBlockingInput, GuardMissing, HeadraceError, NeedNotMet
from headrace.graph.graph_algorithms import adjacency_lists, strongly_connected_components
from headrace.graph.monotone_columns import introducing_operator
from headrace.graph.operator_declarations import Delay

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.graph.node import Edge, FlowGraph, Node
    from headrace.graph.operator_declarations import Facts, Need


def refusals(graph: FlowGraph, facts: Sequence[Facts]) -> Iterator[HeadraceError]:
    """Yield every error of a flow in which no cycle blocks (`check_cycles`)."""
    yield from check_nondet_reasons(graph, facts)
    yield from check_needs(graph, facts)
    yield from check_growth(graph, facts)
    yield from check_changing_loops(graph, facts)


def check_cycles(graph: FlowGraph) -> Iterator[CycleThroughBlockingInput]:
    """Yield `CycleThroughBlockingInput` for a blocking input in a cycle within a tick."""
    edges = list(graph.same_tick_edges())
    for edge in _blocking_inside(graph, edges):
        node, port = graph.nodes[edge.target], graph.port(edge)
        cycle = [graph.nodes[i] for i in cycle_through(edge, edges, len(graph.nodes))]
        name = label_in_sentence(graph, node)
        yield CycleThroughBlockingInput(
            f"flow {graph.name!r} cannot be ordered: {name} waits for its own answer",
            where=steps_by_location(
                (n, f"{port.name!r} must be complete first" if n is node else "") for n in cycle
            ),
            why=f"It waits for {port.name!r} because {port.why};\nand its own answer arrives there again.",
            fix='read the answer one tick later, with .defer_tick(nondet="why that is right") in the cycle,\n'
            f"or take {name} out of the cycle.",
            flow=graph.name,
            cycle=tuple(n.name for n in cycle),
            port=port.name,
        )


def check_nondet_reasons(graph: FlowGraph, facts: Sequence[Facts]) -> Iterator[GuardMissing]:
    """Yield `GuardMissing` for results that depend on the cut into ticks without a `nondet=` reason.

    This concerns operators that themselves depend on the cut, and cycles broken by a delay. Such a cycle
    needs a reason if it contains a blocking input, or if its rows may be retracted, since rows derived from a
    retracted one could then support each other in later ticks. Flows with given ticks need no reasons. Call
    after `check_cycles`.
    """
    if graph.given_ticks:
        return
    for node in graph.nodes:
        why = node.operator.depends_on_cut()
        if why and node.operator.guard() is None and not _ticks_are_given(graph, node):
            yield GuardMissing(
                f"the answer of {label_in_sentence(graph, node)} depends on how the input is cut into ticks",
                where=steps_by_location([(node, "no nondet=")]),
                why=f"{why}\nNo `nondet=` reason accepts this.",
                fix='give the reason, nondet="why that is right",\n'
                f'or make the ticks part of the input: Flow({graph.name!r}, ticks="given").',
                flow=graph.name,
                cycle=(node.name,),
                port="",
            )
    unguarded = [
        e
        for e in graph.edges()
        if graph.port(e).delay is Delay.NONE or graph.nodes[e.target].operator.guard() is None
    ]
    for edge in _blocking_inside(graph, unguarded):
        yield _guard_missing(
            graph,
            cycle_through(edge, unguarded, len(graph.nodes)),
            graph.port(edge).name,
            "must be complete first",
            "It answers from its own earlier answers, and ticks decide what is earlier;",
        )
    within_a_tick = {node for loop in find_loops(graph) for node in loop}
    for edge, need in _unmet_in_cycles(graph, facts, unguarded):
        path = cycle_across_ticks(graph, edge, unguarded) if need.across_ticks else None
        if path is None and edge.target not in within_a_tick:
            path = cycle_through(edge, unguarded, len(graph.nodes))
        if path is not None:
            yield _guard_missing(
                graph,
                path,
                graph.port(edge).name,
                "may take back what went round",
                "What followed from a row a tick later may hold itself up when the row is taken back;",
            )


def _ticks_are_given(graph: FlowGraph, node: Node) -> bool:
    """Return whether all sources that reach a node have ticks that are part of the input."""
    heard = range(len(graph.nodes)) if node.operator.runs_each_tick else ancestors_of(graph, node.id)
    sources = [graph.nodes[n].operator for n in heard if not graph.nodes[n].inputs]
    return all(source.begins_ticks for source in sources)


def _guard_missing(graph: FlowGraph, path: Sequence[int], port: str, role: str, why: str) -> GuardMissing:
    cycle = [graph.nodes[i] for i in path]
    notes = {n.id: "a tick later: no nondet=" for n in cycle if n.is_delay}
    notes[cycle[-1].id] = f"{port!r} {role}"
    return GuardMissing(
        f"the answer of {label_in_sentence(graph, cycle[-1])} depends on how the input is cut into ticks",
        where=steps_by_location((n, notes.get(n.id, "")) for n in cycle),
        why=f"{why}\nnothing says why that is right.",
        fix='say it, .defer_tick(nondet="why that is right"),\n'
        f'or make the ticks part of the input: Flow({graph.name!r}, ticks="given").',
        flow=graph.name,
        cycle=tuple(n.name for n in cycle),
        port=port,
    )


def check_needs(graph: FlowGraph, facts: Sequence[Facts]) -> Iterator[NeedNotMet]:
    """Yield `NeedNotMet` for an operator whose input lacks a fact that it needs."""
    for node in graph.nodes:
        for need in node.operator.needs():
            if not need.only_in_loop and not _meets(facts, node, need):
                yield _need_not_met(graph, facts, node, need)
    for edge, need in _unmet_in_cycles(graph, facts, list(graph.same_tick_edges())):
        if not need.across_ticks:
            yield _need_not_met(graph, facts, graph.nodes[edge.target], need)


def check_changing_loops(graph: FlowGraph, facts: Sequence[Facts]) -> Iterator[NeedNotMet]:
    """Yield `NeedNotMet` for an operator that cannot run in a loop with retractions."""
    for loop in find_loops(graph):
        for node in (graph.nodes[n] for n in loop):
            if all(facts[n].append for n in loop):
                break
            why = node.operator.refused_in_changing_loop([i in loop for i in node.inputs])
            if why:
                yield _refused_in_loop(graph, facts, loop, node, why)


def _refused_in_loop(
    graph: FlowGraph, facts: Sequence[Facts], loop: Sequence[int], node: Node, why: str
) -> NeedNotMet:
    changing = next(i for i in (*node.inputs, node.id, *loop) if not facts[i].append)
    way = [graph.nodes[i] for i in path_to_lost_fact(graph, facts, changing, "append")]
    ends = (
        (way[0], "from here on rows may be taken back"),
        (node, "is in a loop, whose rows then may be, too"),
    )
    return NeedNotMet(
        f"{label_in_sentence(graph, node)} cannot stand in a loop whose rows may be taken back",
        where=steps_by_location([ends[0], *((n, "") for n in way[1:]), ends[1]]),
        why=f"Rounds are kept apart there, and {why}.",
        fix="take it out of the loop, or feed the loop from streams that only grow",
        flow=graph.name,
        node=node.name,
        fact="append",
        way=tuple(n.name for n in way),
    )


def _unmet_in_cycles(
    graph: FlowGraph, facts: Sequence[Facts], edges: Sequence[Edge]
) -> Iterator[tuple[Edge, Need]]:
    """Find the edges within cycles of `edges` that lack a fact needed in cycles."""
    for edge in _inside(graph, edges):
        node = graph.nodes[edge.target]
        for need in node.operator.needs():
            if need.only_in_loop and need.port == edge.port and not _meets(facts, node, need):
                yield edge, need


def _meets(facts: Sequence[Facts], node: Node, need: Need) -> bool:
    return bool(getattr(facts[node.inputs[need.port]], need.fact))


def _need_not_met(graph: FlowGraph, facts: Sequence[Facts], node: Node, need: Need) -> NeedNotMet:
    wanted, lost = _WORDS[need.fact]
    way = [graph.nodes[i] for i in path_to_lost_fact(graph, facts, node.inputs[need.port], need.fact)]
    port = node.operator.ports()[need.port].name
    between = [(n, "") for n in way[1:]]
    ends = (way[0], f"from here on {lost}"), (node, f"{port!r} must be {wanted}")
    return NeedNotMet(
        f"{label_in_sentence(graph, node)} needs {port!r} to be {wanted}, and it is not",
        where=steps_by_location([ends[0], *between, ends[1]]),
        why=f"It is needed because {need.why}.",
        fix=need.fix,
        flow=graph.name,
        node=node.name,
        fact=need.fact,
        way=tuple(n.name for n in way),
    )


_WORDS = {
    "bounded": ("bounded", "rows may come for ever"),
    "append": ("append-only", "rows may be taken back"),
    "ordered": ("ordered", "the order of rows means nothing"),
    "once": ("free of repeats", "a row may be delivered twice"),
    "det": ("deterministic", "rows depend on how the input is cut into ticks"),
}


def _blocking_inside(graph: FlowGraph, edges: Sequence[Edge]) -> Iterator[Edge]:
    """Find the blocking edges among `edges` that lie on a cycle of these edges."""
    return (e for e in _inside(graph, edges) if graph.port(e).blocking)


def _inside(graph: FlowGraph, edges: Sequence[Edge]) -> Iterator[Edge]:
    """Find the edges that lie on a cycle of `edges`."""
    following = adjacency_lists(len(graph.nodes), ((e.source, e.target) for e in edges))
    part_of = {node: at for at, part in enumerate(strongly_connected_components(following)) for node in part}
    return (e for e in edges if part_of[e.source] == part_of[e.target])


def check_growth(graph: FlowGraph, facts: Sequence[Facts]) -> Iterator[NeedNotMet]:
    """Yield `NeedNotMet` if an operator needs a monotone column and its rows may be retracted.

    Building the flow has already checked that the column is monotone for append streams.
    """
    for node in graph.nodes:
        column = node.operator.grows_from()
        if column is None:
            continue
        maker = introducing_operator(graph.nodes, node.inputs[0])
        read = [i for i in maker.inputs if not facts[i].append]
        if not read:
            continue
        way = [graph.nodes[i] for i in path_to_lost_fact(graph, facts, read[0], "append")]
        yield NeedNotMet(
            f"{label_in_sentence(graph, node)} needs {column!r} to only grow, and it may fall",
            where=steps_by_location(
                [
                    (way[0], "from here on rows may be taken back"),
                    *((between, "") for between in way[1:]),
                    (maker, f"{column!r} falls with each of them"),
                    (node, "what passed the threshold is never taken back"),
                ]
            ),
            why="Of a value that falls again, it would have been wrong to say that it had come so far.",
            fix=f"make {label_in_sentence(graph, maker)} of rows that are only added,\n"
            "or keep up to date which values are that high now: .filter(...) of the table",
            flow=graph.name,
            node=node.name,
            fact="grows",
            way=tuple(n.name for n in way),
        )
