"""Why a row is in a sink: of random flows, rows in the answer have a witness, and no others do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace import run
from headrace.engine.change import Change
from headrace.engine.source_rereading import ReplayLimits
from headrace.engine.witness import find_witness
from headrace.flow.stream import Stream
from headrace.io import Rows
from headrace.operators.endpoints import SinkOperator
from tests.properties.effort import examples
from tests.random_flows.cases import Case, Tick, cases, cuts
from tests.random_flows.grow import COMPETING, Grown, grow

_UNSHRUNK = ReplayLimits(runs=0)
"""Whether a row is found does not depend on how far its witness is shrunk."""
_MAX_ASKED = 4
"""Rows per sink of each kind."""


def answers(case: Case, ticks: Sequence[Tick]) -> dict[str, Counter[tuple[Any, ...]]]:
    """Per sink the rows that it holds after a run."""
    held: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in case.graph.sinks}

    def take(name: str) -> Callable[[int, Any], object]:
        def add(_tick: int, changes: Any) -> None:
            for *row, weight in changes.raw:
                held[name][tuple(row)] += weight

        return add

    run(case.flow, by_source(case, ticks), {name: take(name) for name in held})
    return held


def by_source(case: Case, ticks: Sequence[Tick]) -> dict[str, Rows]:
    """The input of each source, up to its last row: a source may end before others."""
    last = {
        name: max((at for at, tick in enumerate(ticks, 1) if tick.get(name)), default=0)
        for name in case.inputs
    }
    return {name: Rows([tick.get(name, []) for tick in ticks[:end]]) for name, end in last.items()}


@st.composite
def cases_with_less(draw: st.DrawFn) -> tuple[Case, dict[str, list[Change[Any]]]]:
    """A case and some of its input, whose answer has rows that the rest of the input takes back.

    In a further sink, rows of any stream compete: there, a row is often beaten by rows unlike it.
    """
    case = draw(cases(folds=True))
    watched = [node for node in case.graph.nodes if not isinstance(node.operator, SinkOperator)]
    node = draw(st.sampled_from(watched))
    start = Grown(Stream(case.flow, node.id, node.schema), 1)
    case.flow.sink("competing", grow(draw, [start], draw(st.integers(1, 2)), COMPETING)[-1].stream)
    less = {
        name: [Change(c.row, 1) for c in changes if c.weight > 0 and draw(st.booleans())]
        for name, changes in case.inputs.items()
    }
    return case, less


def check_witnesses(case: Case, ticks: Sequence[Tick], *others: Sequence[Tick]) -> None:
    """Rows of the run on these ticks are found. Rows that only runs on other ticks give are not."""
    held = answers(case, ticks)
    possible = [answers(case, other) for other in others]
    for sink, rows in held.items():
        shown = {repr(row) for row, count in rows.items() if count > 0}
        there = [row for row, count in rows.items() if count > 0]
        absent = [row for each in possible for row, count in each[sink].items() if count > 0 >= rows[row]]
        for row in [*there[:_MAX_ASKED], *absent[:_MAX_ASKED]]:
            given_ = by_source(case, ticks)
            found = find_witness(case.flow, given_, sink, row, end=True, limits=_UNSHRUNK)
            assert found.found == (repr(row) in shown), (sink, row, found.problem)
            assert found.conclusive


@examples(1)
@given(cases_with_less())
def test_rows_of_the_answer_have_a_witness_and_others_do_not(
    drawn: tuple[Case, dict[str, list[Change[Any]]]],
) -> None:
    case, less = drawn
    check_witnesses(case, [case.tick(case.inputs)], [case.tick(less)])


@st.composite
def cases_with_cuts(draw: st.DrawFn, **kind: bool) -> tuple[Case, list[Tick], list[Tick]]:
    """A case, its input cut into ticks, and cut otherwise."""
    case = draw(cases(**kind))
    return case, draw(cuts(case)), draw(cuts(case))


@st.composite
def cases_with_deferral(draw: st.DrawFn) -> tuple[Case, list[Tick], list[Tick]]:
    """A case with a further sink: numbers that came, or did not come, in the tick before too."""
    case = draw(cases(ticks=True))
    numbers = case.flow.source("numbers", int)
    case.inputs["numbers"] = [Change(n, 1) for n in draw(st.lists(st.integers(0, 1), min_size=4, max_size=7))]
    late = draw(st.sampled_from([numbers.defer_tick, numbers.defer_tick_lazy]))()
    met = draw(st.sampled_from([numbers.semi_join, numbers.anti_join]))(late, on="value", lifetime="tick")
    case.flow.sink("met", met)
    return case, draw(cuts(case, least=3)), draw(cuts(case))


@examples(0.6)
@given(cases_with_deferral())
def test_rows_have_a_witness_in_the_ticks_of_the_run_only(drawn: tuple[Case, list[Tick], list[Tick]]) -> None:
    case, ticks, otherwise = drawn
    check_witnesses(case, ticks, otherwise, [case.tick(case.inputs)], ticks[:-1])


@examples(0.3)
@given(cases_with_cuts(order=True) | cases_with_cuts(deferred=True, folds=True))
def test_rows_have_a_witness_over_several_ticks(drawn: tuple[Case, list[Tick], list[Tick]]) -> None:
    case, ticks, otherwise = drawn
    check_witnesses(case, ticks, otherwise, ticks[:-1])
