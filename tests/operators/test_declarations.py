"""Each operator declares what engines must know of it, and each engine has a form for it."""

from __future__ import annotations

import pytest

from headrace.analysis import analyse
from headrace.engine.program import compile_program
from headrace.graph.node import Operator
from headrace.graph.operator_declarations import EQUAL_ROWS
from headrace.operators.lattice_fold import LatticeGrowth
from tests.operators.examples import ALL, EXAMPLES, example

DECLARED = ("ports", "output", "placement", "unservable")


@pytest.mark.parametrize("operator", [*EXAMPLES, LatticeGrowth], ids=lambda operator: operator.__name__)
def test_an_operator_declares_its_inputs_its_output_its_placement_and_whether_it_is_served(
    operator: type[Operator],
) -> None:
    assert not operator.__abstractmethods__
    assert all(getattr(operator, name) is not getattr(Operator, name) for name in DECLARED)


@pytest.mark.parametrize("name", ALL)
def test_state_that_may_be_on_several_shards_has_a_layout(name: str) -> None:
    """The slots that the compiled flow keeps by key are those that operators declare."""
    graph = example(name).graph()
    facts = analyse(graph).facts
    kept: dict[int, set[str]] = {}
    for slot in compile_program(graph).slots:
        node, _, what = slot.name.partition(".")
        kept.setdefault(int(node), set()).add(what)
    for node in graph.nodes:
        keys = node.operator.placement().keys
        # Rows that are paired with all others are in lists, and those of a loop are kept by rounds.
        if keys is None or keys == (EQUAL_ROWS, None) or any(source >= node.id for source in node.inputs):
            continue
        layouts = node.operator.state([facts[source].append for source in node.inputs])
        assert kept.get(node.id, set()) <= set(layouts), node.operator.kind
