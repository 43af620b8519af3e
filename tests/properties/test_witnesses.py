"""Why a row is in a sink: of random flows, rows in the answer have a witness, and no others do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock import Engine
from penstock.engine.change import Change
from penstock.engine.witness import Limits, find_witness
from penstock.flow.operators.sink import Sink
from penstock.flow.stream import Stream
from tests.properties.effort import examples
from tests.random_flows.cases import Case, cases
from tests.random_flows.grow import COMPETING, Grown, grow

_UNSHRUNK = Limits(runs=0)
"""Whether a row is found does not depend on how far its witness is shrunk."""
_MOST_ASKED = 4
"""Rows per sink of each kind."""


def answers(case: Case, inputs: Mapping[str, list[Change[Any]]]) -> dict[str, Counter[tuple[Any, ...]]]:
    """Per sink the rows that it holds after all input in one tick."""
    engine = Engine(case.flow, columnar="never")
    held: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in case.graph.sinks}
    tick = case.tick(inputs)
    while tick or engine.pending:
        for name, changes in engine.tick(**tick).items():
            for *row, weight in changes.raw:
                held[name][tuple(row)] += weight
        tick = {}
    return held


@st.composite
def cases_with_less(draw: st.DrawFn) -> tuple[Case, dict[str, list[Change[Any]]]]:
    """A case and some of its input, whose answer has rows that the rest of the input takes back.

    In a further sink, rows of any stream compete: there, a row is often beaten by rows unlike it.
    """
    case = draw(cases(folds=True))
    watched = [node for node in case.graph.nodes if not isinstance(node.operator, Sink)]
    node = draw(st.sampled_from(watched))
    start = Grown(Stream(case.flow, node.id, node.schema), 1)
    case.flow.sink("competing", grow(draw, [start], draw(st.integers(1, 2)), COMPETING)[-1].stream)
    less = {
        name: [Change(c.row, 1) for c in changes if c.weight > 0 and draw(st.booleans())]
        for name, changes in case.inputs.items()
    }
    return case, less


@examples(1)
@given(cases_with_less())
def test_rows_of_the_answer_have_a_witness_and_others_do_not(
    drawn: tuple[Case, dict[str, list[Change[Any]]]],
) -> None:
    case, less = drawn
    held, possible = answers(case, case.inputs), answers(case, less)
    given_rows = case.tick(case.inputs)
    for sink, rows in held.items():
        shown = {repr(row) for row, count in rows.items() if count > 0}
        there = [row for row, count in rows.items() if count > 0]
        absent = [row for row, count in possible[sink].items() if count > 0 and rows[row] <= 0]
        for row in [*there[:_MOST_ASKED], *absent[:_MOST_ASKED]]:
            found = find_witness(case.flow, given_rows, sink, row, end=False, limits=_UNSHRUNK)
            assert found.found == (repr(row) in shown), (sink, row, found.problem)
