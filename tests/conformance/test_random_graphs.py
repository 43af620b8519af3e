"""Random graphs, run by the runner and judged by an interpreter that computes all of it again."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from tests.conformance import naive
from tests.conformance.case_format import Fields
from tests.conformance.random_graphs import STATELESS, graphs
from tests.conformance.tick_cases import read_case, run_case


def check(graph: tuple[dict[str, Any], dict[str, Any]]) -> None:
    plain, case = graph
    # Through JSON's eyes: a tuple is an array.
    expected = [{name: _listed(rows) for name, rows in tick.items()} for tick in naive.run(plain)]
    problem = run_case(read_case(Fields({**case, "expected": expected}, "random")))
    assert not problem, problem


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


@given(graphs(STATELESS))
def test_graphs_without_state_show_what_the_naive_interpreter_shows(graph: Any) -> None:
    check(graph)


@given(graphs())
def test_graphs_of_any_operators_show_what_the_naive_interpreter_shows(graph: Any) -> None:
    check(graph)
