"""Signals answer what the rules say, whatever the graph, the schedule, and how ticks are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.signal_cases import NodeDescription, PropagationCase, run_case
from tests.properties.effort import examples
from tests.signals.oracle import expected_of

NUMBERS = st.integers(-3, 3)
FILTERS = (lambda v: v % 2 == 0, lambda v: v > 0, lambda v: v % 3 != 1, lambda v: True, lambda v: False)
SCANS = (lambda a, v: (a + v) % 7, lambda a, v: max(a, v))
WINDOWS = (sum, max, lambda values: values[0] - values[-1])


def bounded_sum(*values: int) -> int:
    return (sum(values) + 3 * len(values)) % 11 - 5


def one_input(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    operator = draw(st.sampled_from(("filter", "filter", "scan", "window", "delay", "changes")))
    if operator == "filter":
        return operator, {"fn": draw(st.sampled_from(FILTERS))}
    if operator == "scan":
        return operator, {"fn": draw(st.sampled_from(SCANS)), "init": 0}
    if operator == "window":
        size, full = draw(st.integers(1, 3)), draw(st.booleans())
        return operator, {"fn": draw(st.sampled_from(WINDOWS)), "size": size, "full": full}
    if operator == "delay":
        return operator, {"n": draw(st.integers(1, 2)), **({"init": 0} if draw(st.booleans()) else {})}
    return operator, {}


@st.composite
def graphs(
    draw: st.DrawFn, sources: int = 4, size: int = 14, near: bool = False
) -> dict[str, NodeDescription]:
    """Any graph. near: nodes read those made just before them, which makes it deep."""
    nodes = {f"s{i}": NodeDescription("source", (), {}) for i in range(draw(st.integers(1, sources)))}
    for at in range(draw(st.integers(1, size))):
        names = list(nodes)[-3:] if near else list(nodes)
        read = st.sampled_from(names)
        kind = draw(st.sampled_from(("lift", "lift", "lift", "zip", "sample", "one", "one")))
        if kind in ("lift", "zip"):
            of = tuple(draw(st.lists(read, min_size=1, max_size=3)))
            align = "zip" if kind == "zip" else "latest"
            node = NodeDescription("lift", of, {"fn": bounded_sum, "align": align})
        elif kind == "sample":
            node = NodeDescription("sample", (draw(read), draw(read)), {})
        else:
            operator, arguments = one_input(draw)
            node = NodeDescription(operator, (draw(read),), arguments)
        nodes[f"n{at}"] = node
    return nodes


def events_of(
    nodes: Mapping[str, NodeDescription], *, dense: bool = False
) -> st.SearchStrategy[list[dict[str, int]]]:
    sources = [name for name, node in nodes.items() if node.operator == "source"]
    if dense:
        return st.lists(st.fixed_dictionaries(dict.fromkeys(sources, NUMBERS)), max_size=12)
    return st.lists(st.dictionaries(st.sampled_from(sources), NUMBERS, max_size=3), max_size=16)


def check(nodes: Mapping[str, NodeDescription], events: list[dict[str, int]], outputs: list[str]) -> None:
    expected, fired = expected_of(nodes, outputs, events)
    read = _read_by(nodes, outputs)
    fired = {name: count for name, count in fired.items() if name in read}
    assert run_case(PropagationCase(nodes, tuple(outputs), tuple(events), tuple(expected), fired)) == ""


def _read_by(nodes: Mapping[str, NodeDescription], outputs: list[str]) -> set[str]:
    read = set(outputs)
    for name in reversed(nodes):
        if name in read:
            read.update(nodes[name].of)
    return read


@given(st.data())
@examples(3)
def test_any_graph_shows_what_the_rules_say_in_every_schedule(data: st.DataObject) -> None:
    nodes = data.draw(graphs())
    events = data.draw(events_of(nodes))
    outputs = data.draw(st.lists(st.sampled_from(list(nodes)), min_size=1, max_size=4, unique=True))
    check(nodes, events, outputs)


@given(st.data())
@examples(1.5)
def test_deep_graphs_of_unequal_branches_show_what_the_rules_say(data: st.DataObject) -> None:
    nodes = data.draw(graphs(sources=2, size=25, near=True))
    events = data.draw(events_of(nodes))
    check(nodes, events, list(nodes)[-2:])


@given(st.data())
@examples(1.5)
def test_ticks_in_which_all_sources_fire_are_one_loop_with_the_same_answers(data: st.DataObject) -> None:
    nodes = data.draw(graphs(sources=3))
    events = data.draw(events_of(nodes, dense=True))
    check(nodes, events, list(nodes)[-3:])


@given(st.data())
@examples(0.6)
def test_wide_graphs_of_which_each_tick_reaches_little_show_what_the_rules_say(data: st.DataObject) -> None:
    lanes = data.draw(st.integers(2, 8))
    nodes = {f"s{i}": NodeDescription("source", (), {}) for i in range(lanes)}
    for lane in range(lanes):
        for at in range(2):
            operator, arguments = data.draw(st.composite(lambda draw: one_input(draw))())
            before = f"s{lane}" if at == 0 else f"l{lane}_{at - 1}"
            nodes[f"l{lane}_{at}"] = NodeDescription(operator, (before,), arguments)
    for lane in range(lanes):
        of = (f"l{lane}_1", f"l{(lane + 1) % lanes}_1")
        nodes[f"join{lane}"] = NodeDescription("lift", of, {"fn": bounded_sum, "align": "latest"})
    events = data.draw(events_of(nodes))
    check(nodes, events, [f"join{lane}" for lane in range(lanes)])
