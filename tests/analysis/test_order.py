"""Loops, strata, ranks and regions of random flows against slow definitions."""

from __future__ import annotations

from hypothesis import given, settings

from headrace.analysis.strata import find_activation, find_execution_order, find_regions
from headrace.graph.node import FlowGraph
from headrace.graph.operator_declarations import Delay
from tests.analysis.graphs import Draft, graphs, reach

LEGAL = graphs(legal=True)


def loop_numbers(loops: tuple[tuple[int, ...], ...]) -> dict[int, int]:
    return {node: at for at, loop in enumerate(loops) for node in loop}


@given(LEGAL)
def test_a_loop_is_a_set_of_nodes_that_reach_each_other_within_a_tick(graph: FlowGraph) -> None:
    reached = reach(len(graph.nodes), graph.same_tick_edges())
    mutual = {
        frozenset(b for b in reached[a] if a in reached[b])
        for a in range(len(graph.nodes))
        if a in reached[a]
    }
    assert {frozenset(loop) for loop in find_execution_order(graph).loops} == mutual


@given(LEGAL)
def test_a_stratum_counts_the_blocking_edges_of_the_longest_path(graph: FlowGraph) -> None:
    longest = [0] * len(graph.nodes)
    for _ in range(2 * len(graph.nodes)):
        for edge in graph.same_tick_edges():
            step = int(graph.port(edge).blocking)
            longest[edge.target] = max(longest[edge.target], longest[edge.source] + step)
    assert list(find_execution_order(graph).strata) == longest


@given(LEGAL)
def test_ranks_number_the_nodes_and_follow_every_edge_but_those_of_loops(graph: FlowGraph) -> None:
    order = find_execution_order(graph)
    loop = loop_numbers(order.loops)
    assert sorted(order.ranks) == list(range(len(graph.nodes)))
    for edge in graph.same_tick_edges():
        if edge.source not in loop or loop[edge.source] != loop.get(edge.target):
            assert order.ranks[edge.source] < order.ranks[edge.target]


@given(LEGAL)
def test_strata_never_fall_along_the_ranks(graph: FlowGraph) -> None:
    order = find_execution_order(graph)
    by_rank = sorted(range(len(graph.nodes)), key=order.ranks.__getitem__)
    strata = [order.strata[node] for node in by_rank]
    assert strata == sorted(strata)


@given(LEGAL)
def test_the_nodes_of_a_loop_stand_together_and_share_a_stratum(graph: FlowGraph) -> None:
    order = find_execution_order(graph)
    for loop in order.loops:
        ranks = [order.ranks[node] for node in loop]
        assert ranks == list(range(ranks[0], ranks[0] + len(loop)))
        assert len({order.strata[node] for node in loop}) == 1


@given(LEGAL)
def test_within_a_loop_only_the_edges_that_close_a_feedback_go_back(graph: FlowGraph) -> None:
    order = find_execution_order(graph)
    loop = loop_numbers(order.loops)
    for edge in graph.same_tick_edges():
        if order.ranks[edge.source] >= order.ranks[edge.target]:
            assert loop[edge.source] == loop[edge.target]
            assert graph.nodes[edge.target].operator.kind == "feedback"


@given(LEGAL)
def test_activation_is_inherited_where_all_inputs_agree_and_new_at_every_junction(graph: FlowGraph) -> None:
    order = find_execution_order(graph)
    activation = find_activation(graph, order)
    loop = loop_numbers(order.loops)
    for node in graph.nodes:
        of_inputs = {activation[i] for i in node.inputs}
        delayed = any(port.delay is Delay.TICK for port in node.operator.ports())
        if node.id in loop:
            assert activation[node.id] == order.loops[loop[node.id]][0]
        elif len(of_inputs) == 1 and not delayed:
            assert activation[node.id] in of_inputs
        else:
            assert activation[node.id] == node.id


@given(LEGAL)
def test_regions_part_the_flow_and_may_run_one_after_the_other(graph: FlowGraph) -> None:
    order = find_execution_order(graph)
    regions = find_regions(graph, order, find_activation(graph, order))
    running = [node for region in regions for node in region.nodes]
    assert sorted(running) == list(range(len(graph.nodes)))
    heads = [(order.strata[r.head], order.ranks[r.head]) for r in regions]
    assert heads == sorted(heads)
    position = {node: at for at, node in enumerate(running)}
    loop = loop_numbers(order.loops)
    for edge in graph.same_tick_edges():
        if edge.source not in loop or loop[edge.source] != loop.get(edge.target):
            assert position[edge.source] < position[edge.target]


@given(LEGAL)
def test_rows_enter_a_region_only_at_its_head_or_loop(graph: FlowGraph) -> None:
    order = find_execution_order(graph)
    loop = loop_numbers(order.loops)
    regions = find_regions(graph, order, find_activation(graph, order))
    region_of = {node: r.head for r in regions for node in r.nodes}
    for region in regions:
        assert region.nodes[0] == region.head
        entries = {region.head, *(n for n in region.nodes if n in loop and loop[n] == loop.get(region.head))}
        assert {e.target for e in region.inputs} <= entries
    entering = {e for r in regions for e in r.inputs}
    crossing = {e for e in graph.edges() if region_of[e.source] != region_of[e.target]}
    delayed = {e for e in graph.edges() if graph.port(e).delay is Delay.TICK}
    assert entering == crossing | delayed


@given(LEGAL)
def test_the_graph_of_regions_has_no_cycle(graph: FlowGraph) -> None:
    order = find_execution_order(graph)
    regions = find_regions(graph, order, find_activation(graph, order))
    at = {node: i for i, region in enumerate(regions) for node in region.nodes}
    for edge in graph.same_tick_edges():
        assert at[edge.source] <= at[edge.target]


def test_two_sources_meet_in_a_region_of_their_own() -> None:
    draft = Draft()
    a, b = draft.source(), draft.source()
    cheap = draft.distinct(a)
    both = draft.union(cheap, b)
    total = draft.aggregate(both)
    draft.sink(total)
    graph = draft.graph()
    order = find_execution_order(graph)
    regions = find_regions(graph, order, find_activation(graph, order))
    assert [r.nodes for r in regions] == [(a, cheap), (b,), (both, total, total + 1)]
    assert order.strata == (0, 0, 0, 0, 1, 1)


def test_what_follows_a_loop_alone_runs_in_the_region_of_the_loop() -> None:
    draft = Draft()
    seed = draft.source()
    loop = draft.feedback()
    back = draft.union(seed, loop)
    draft.close(loop, back)
    total = draft.aggregate(loop)
    graph = draft.graph()
    order = find_execution_order(graph)
    regions = find_regions(graph, order, find_activation(graph, order))
    assert order.loops == ((loop, back),)
    assert [r.nodes for r in regions] == [(seed,), (loop, back, total)]
    assert [(e.source, e.target) for e in regions[1].inputs] == [(seed, back)]


def test_a_delay_starts_a_region_at_stratum_0_even_if_it_hears_from_itself() -> None:
    draft = Draft()
    seed = draft.source()
    again = draft.feedback()
    total = draft.aggregate(draft.union(seed, again))
    later = draft.defer(total)
    draft.close(again, later)
    graph = draft.graph()
    order = find_execution_order(graph)
    assert order.loops == ()
    assert order.strata[later] == order.strata[again] == 0
    assert order.strata[total] == 1
    regions = find_regions(graph, order, find_activation(graph, order))
    assert [r.nodes for r in regions] == [(seed,), (later, again), (total - 1, total)]


@settings(max_examples=1)
@given(LEGAL)
def test_the_order_of_a_flow_is_the_same_each_time(graph: FlowGraph) -> None:
    assert find_execution_order(graph) == find_execution_order(graph)


def test_a_line_of_ten_thousand_operators_is_no_problem() -> None:
    draft = Draft()
    at = draft.source()
    for _ in range(10_000):
        at = draft.aggregate(at)
    draft.sink(at)
    graph = draft.graph()
    order = find_execution_order(graph)
    assert order.strata[at] == 10_000
    assert len(find_regions(graph, order, find_activation(graph, order))) == 1
