"""Refusals: raised exactly when they should be, with a path that proves them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import assume, given

from headrace.analysis import analyse
from headrace.analysis.analysis import find_facts
from headrace.analysis.checks import check_changing_loops, check_cycles, check_needs, check_nondet_reasons
from headrace.analysis.flow_report import Severity, findings_of
from headrace.analysis.strata import find_loops
from headrace.errors import CycleThroughBlockingInput, GuardMissing, HeadraceError, NeedNotMet
from headrace.graph.node import FlowGraph, Node
from headrace.graph.operator_declarations import Delay
from headrace.operators.endpoints import SinkOperator
from tests.analysis.graphs import Draft, blocked_cycles, graphs, unguarded_cycles


def by_name(graph: FlowGraph) -> dict[str, Node]:
    return {node.name: node for node in graph.nodes}


def raise_first(errors: Iterator[HeadraceError]) -> None:
    for error in errors:
        raise error


def assert_is_cycle(graph: FlowGraph, names: tuple[str, ...], port: str, *, simple: bool = True) -> None:
    """The names are of nodes that feed each other in turn, the last one through `port`.

    simple: none of them twice.
    """
    nodes = [by_name(graph)[name] for name in names]
    assert not simple or len(set(names)) == len(names)
    for reader, source in zip(nodes, [nodes[-1], *nodes], strict=False):
        assert source.id in reader.inputs
    ports = nodes[-1].operator.ports()
    feeding = nodes[-2].id if len(nodes) > 1 else nodes[-1].id
    assert any(p.name == port and i == feeding for p, i in zip(ports, nodes[-1].inputs))


@given(graphs())
def test_a_cycle_through_a_blocking_input_is_refused_with_a_cycle_that_is_there(graph: FlowGraph) -> None:
    if not blocked_cycles(graph):
        raise_first(check_cycles(graph))
        return
    with pytest.raises(CycleThroughBlockingInput) as error:
        raise_first(check_cycles(graph))
    assert_is_cycle(graph, error.value.facts["cycle"], error.value.facts["port"])
    last = by_name(graph)[error.value.facts["cycle"][-1]]
    assert any(p.blocking and p.name == error.value.facts["port"] for p in last.operator.ports())
    delayed = {n.name for n in graph.nodes if any(p.delay is Delay.TICK for p in n.operator.ports())}
    assert not delayed & set(error.value.facts["cycle"])


@given(graphs(legal=True))
def test_a_delay_in_a_cycle_that_blocks_or_takes_back_needs_a_reason_unless_ticks_are_given(
    graph: FlowGraph,
) -> None:
    facts = find_facts(graph)
    wrong = unguarded_cycles(graph, facts)
    if graph.given_ticks or not wrong:
        raise_first(check_nondet_reasons(graph, facts))
        return
    with pytest.raises(GuardMissing) as error:
        raise_first(check_nondet_reasons(graph, facts))
    last = by_name(graph)[error.value.facts["cycle"][-1]]
    assert last.id in {e.target for e in wrong}
    # The way round over a delay may pass a node of the loop within the tick twice.
    simple = any(p.blocking for p in last.operator.ports())
    assert_is_cycle(graph, error.value.facts["cycle"], error.value.facts["port"], simple=simple)
    on_cycle = [by_name(graph)[name].operator for name in error.value.facts["cycle"]]
    assert any(p.delay is Delay.TICK for op in on_cycle for p in op.ports())
    assert all(op.guard() is None for op in on_cycle)


@given(graphs(legal=True))
def test_rows_that_go_round_within_a_tick_may_be_taken_back(graph: FlowGraph) -> None:
    # A draft may read a sink, which users cannot.
    assume(
        not any(isinstance(graph.nodes[n].operator, SinkOperator) for loop in find_loops(graph) for n in loop)
    )
    facts = find_facts(graph)
    raise_first(check_needs(graph, facts))
    raise_first(check_changing_loops(graph, facts))


@given(graphs())
def test_a_static_check_finds_errors_exactly_in_flows_that_are_refused(graph: FlowGraph) -> None:
    errors = [found.error for found in findings_of(graph) if found.severity is Severity.ERROR]
    if not errors:
        analyse(graph)
        return
    with pytest.raises(type(errors[0])) as refused:
        analyse(graph)
    assert str(refused.value) == str(errors[0])


@given(graphs())
def test_a_flow_is_analysed_exactly_if_no_rule_refuses_it(graph: FlowGraph) -> None:
    refused = (CycleThroughBlockingInput, GuardMissing, NeedNotMet)
    try:
        raise_first(check_cycles(graph))
        raise_first(check_nondet_reasons(graph, find_facts(graph)))
        raise_first(check_needs(graph, find_facts(graph)))
        raise_first(check_changing_loops(graph, find_facts(graph)))
    except refused as error:
        with pytest.raises(type(error)):
            analyse(graph)
    else:
        assert analyse(graph) == analyse(graph)


def test_a_cycle_through_a_blocking_input_and_a_delay_with_a_reason_is_legal() -> None:
    draft = Draft()
    due = draft.source()
    settled = draft.feedback()
    unpaid = draft.difference(due, settled)
    draft.close(settled, draft.defer(unpaid, "whoever paid in an earlier tick owes nothing"))
    draft.sink(unpaid)
    assert analyse(draft.graph()).loops == ()


def test_one_guard_does_not_excuse_another_way_round() -> None:
    draft = Draft()
    due = draft.source()
    settled = draft.feedback()
    unpaid = draft.difference(due, settled)
    ways = draft.union(draft.defer(unpaid, "said"), draft.defer(unpaid))
    draft.close(settled, ways)
    draft.sink(unpaid)
    with pytest.raises(GuardMissing) as error:
        analyse(draft.graph())
    assert error.value.facts["cycle"] == ("defer_tick_4", "union_5", "feedback_1", "difference_2")


def test_rows_that_may_be_taken_back_go_round_a_tick_later_only_with_a_reason() -> None:
    def walk(nondet: str | None, *, append: bool) -> FlowGraph:
        draft = Draft()
        seed, again = draft.source(append=append), draft.feedback()
        draft.close(again, draft.defer(draft.union(seed, again), nondet))
        draft.sink(again)
        return draft.graph()

    analyse(walk(None, append=True))
    analyse(walk("who was there once stays", append=False))
    with pytest.raises(GuardMissing) as error:
        analyse(walk(None, append=False))
    assert error.value.facts["cycle"] == ("union_2", "defer_tick_3", "feedback_1")


def test_the_shortest_cycle_is_shown() -> None:
    draft = Draft()
    seed = draft.source()
    again = draft.feedback()
    long = draft.distinct(draft.distinct(again))
    short = draft.union(again, long, seed)
    total = draft.aggregate(short)
    draft.close(again, total)
    with pytest.raises(CycleThroughBlockingInput) as error:
        analyse(draft.graph())
    assert error.value.facts["cycle"] == ("feedback_1", "union_4", "aggregate_5")


def test_a_delay_round_a_loop_whose_rows_may_be_taken_back_needs_a_reason_too() -> None:
    def walk(nondet: str | None) -> FlowGraph:
        draft = Draft()
        table, again = draft.source(append=False), draft.feedback()
        draft.close(again, draft.union(again, table, draft.defer(again, nondet)))
        draft.sink(again)
        return draft.graph()

    analyse(walk("who was there once stays"))
    with pytest.raises(GuardMissing) as error:
        analyse(walk(None))
    assert error.value.facts["cycle"] == ("defer_tick_2", "union_3", "feedback_1")


def test_what_keeps_no_rounds_is_refused_with_the_way_from_where_rows_begin_to_be_taken_back() -> None:
    def walk(*, append: bool) -> FlowGraph:
        draft = Draft()
        table, again = draft.source(append=append), draft.feedback()
        shown = draft.distinct(table)
        draft.close(again, draft.remembering(draft.union(again, shown)))
        return draft.graph()

    analyse(walk(append=True))
    with pytest.raises(NeedNotMet) as error:
        analyse(walk(append=False))
    assert error.value.facts["way"] == ("source_0", "distinct_2", "union_3")
    assert [step.note for step in error.value.where] == [
        "from here on rows may be taken back",
        "",
        "",
        "is in a loop, whose rows then may be, too",
    ]


def test_the_way_begins_at_the_operator_that_makes_rows_be_taken_back() -> None:
    draft = Draft()
    source, again = draft.source(), draft.feedback()
    counted = draft.aggregate(draft.distinct(source))
    draft.close(again, draft.remembering(draft.union(again, counted)))
    with pytest.raises(NeedNotMet) as error:
        analyse(draft.graph())
    assert error.value.facts["way"] == ("aggregate_3", "union_4")
