"""Checks and verdicts: flows without well-defined results are rejected, and sinks judged.

A rejection shows its proof as a witness path of the user's source lines, and a fix. A verdict names the
coordination that the results of a sink need.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from headrace.analysis.strata import find_loops
from headrace.errors import CycleThroughBlockingInput, GuardMissing, HeadraceError, NeedNotMet, Step
from headrace.expr.types import holds_any
from headrace.graph.graph_algorithms import adjacency_lists, shortest_path, strongly_connected_components
from headrace.graph.node import label_in_sentence
from headrace.graph.operator_declarations import Delay, introducing_operator
from headrace.shown import Shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headrace.graph.node import Edge, FlowGraph, Node
    from headrace.graph.operator_declarations import Facts, Need


def steps_by_location(nodes: Iterable[tuple[Node, str]]) -> list[Step]:
    """Make one step per source location, in order, with the notes of all nodes there.

    Operators chained on one line form a single step.
    """
    found: list[Step] = []
    for node, note in nodes:
        if found and found[-1].location == node.location:
            both = "; ".join(n for n in (found[-1].note, note) if n)
            found[-1] = Step(node.location, both)
        else:
            found.append(Step(node.location, note))
    return found


def cycle_through(edge: Edge, edges: Iterable[Edge], count: int) -> list[int]:
    """Return the shortest cycle that ends with `edge`, starting at a reader of its target.

    There must be one.
    """
    if edge.source == edge.target:
        return [edge.target]
    graph = adjacency_lists(count, ((e.source, e.target) for e in edges))
    path = shortest_path(graph, edge.target, edge.source)
    assert path is not None, "the edge is in no cycle"
    return [*path[1:], edge.target]


def cycle_across_ticks(graph: FlowGraph, edge: Edge, edges: Sequence[Edge]) -> list[int] | None:
    """Return a short cycle of `edges` that ends with `edge` and has a delay, or None."""
    following = adjacency_lists(len(graph.nodes), ((e.source, e.target) for e in edges))
    for late in edges:
        if graph.port(late).delay is Delay.NONE:
            continue
        there = _path(following, edge.target, late.source)
        back = _path(following, late.target, edge.source)
        if there is not None and back is not None:
            return [*there[1:], *back, edge.target]
    return None


def _path(following: Sequence[Sequence[int]], start: int, end: int) -> list[int] | None:
    return [start] if start == end else shortest_path(following, start, end)


def path_to_lost_fact(graph: FlowGraph, facts: Sequence[Facts], start: int, fact: str) -> list[int]:
    """Return the shortest path from the node that loses `fact` to `start`, whose output lacks it."""
    reader: dict[int, int | None] = {start: None}
    waiting = [start]
    for node_id in waiting:
        blamed = _blamed(graph.nodes[node_id], facts, fact)
        if not blamed:
            path = [node_id]
            while (onward := reader[path[-1]]) is not None:
                path.append(onward)
            return path
        for source in blamed:
            if source not in reader:
                reader[source] = node_id
                waiting.append(source)
    raise AssertionError("a fact is lost in a loop and by nobody in it")


def _blamed(node: Node, facts: Sequence[Facts], fact: str) -> list[int]:
    """Return the inputs from which the output inherits its lack of `fact`; none if the operator drops it."""
    lacking = [i for i in node.inputs if not getattr(facts[i], fact)]
    mended = [facts[i].but(**{fact: True}) for i in node.inputs]
    return lacking if getattr(node.operator.output_facts(mended), fact) else []


def refusals(graph: FlowGraph, facts: Sequence[Facts]) -> Iterator[HeadraceError]:
    """Yield all errors of a flow that passes `check_cycles`."""
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
        for need in node.operator.required_facts():
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
        for need in node.operator.required_facts():
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
        column = node.operator.required_monotone_column()
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
    return any(need.fact == "ordered" for need in node.operator.required_facts())


def _makes_one_of_equal(node: Node, facts: Facts) -> bool:
    """Return whether equal but distinguishable values are merged into one representative.

    For types other than `Any`, equal values are identical, or made so (`headrace.analysis.analysis`).
    """
    merged = node.operator.picks_representative or not facts.append
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
