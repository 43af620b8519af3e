"""What Headrace promises of any flow, on random flows of all operators, against an oracle.

The numbers are those of the promises in docs/explanation/model.md. A failure prints the flow,
its input and the cut into ticks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace import Engine
from headrace.analysis import analyse
from headrace.testing.oracle import answers
from headrace.testing.tick_tables import check_consolidated
from tests.properties.effort import examples
from tests.random_flows.cases import Accumulated, Case, Tick, cases, cuts, with_every_stream_watched

Changes = list[tuple[Any, ...]]


class Maintained:
    """An engine, and what it has emitted so far."""

    def __init__(self, case: Case) -> None:
        self.engine = Engine(case.flow)
        self.held: dict[str, Counter[Any]] = {name: Counter() for name in case.graph.sinks}

    def tick(self, tick: Tick) -> dict[str, Changes]:
        raw = {name: list(changes.raw) for name, changes in self.engine.tick(**tick).items()}
        for name, changes in raw.items():
            for *row, weight in changes:
                self.held[name][tuple(row)] += weight
        return raw

    def drain(self) -> None:
        for _ in range(100):
            if not self.engine.pending:
                return
            self.tick({})
        raise AssertionError("rows are still deferred after 100 ticks")

    @property
    def answers(self) -> dict[str, Counter[Any]]:
        return {name: Counter({r: w for r, w in held.items() if w}) for name, held in self.held.items()}


def accumulated(case: Case, ticks: Sequence[Tick]) -> Accumulated:
    so_far = Accumulated(case)
    for tick in ticks:
        so_far.add(tick)
    return so_far


def one_cut(**options: bool) -> st.SearchStrategy[tuple[Case, list[Tick]]]:
    return cases(folds=True, **options).flatmap(lambda case: st.tuples(st.just(case), cuts(case)))


def two_cuts(**options: bool) -> st.SearchStrategy[tuple[Case, list[Tick], list[Tick]]]:
    drawn = cases(folds=True, **options)
    return drawn.flatmap(lambda case: st.tuples(st.just(case), cuts(case), cuts(case)))


def check_any_cut(case: Case, one: list[Tick], other: list[Tick]) -> None:
    expected = answers(case.graph, accumulated(case, one).inputs)
    for ticks in (one, other):
        maintained = Maintained(case)
        for tick in ticks:
            maintained.tick(tick)
        maintained.drain()
        assert maintained.answers == expected


@examples(2)
@given(two_cuts())
def test_promise_1_answers_do_not_depend_on_the_cut_into_ticks(
    drawn: tuple[Case, list[Tick], list[Tick]],
) -> None:
    check_any_cut(*drawn)


@examples(1)
@given(two_cuts(settled=False))
def test_promise_1_holds_when_rows_are_taken_back_before_they_come(
    drawn: tuple[Case, list[Tick], list[Tick]],
) -> None:
    case, one, other = drawn
    check_any_cut(case, one, other)


@examples(1)
@given(two_cuts(deferred=True))
def test_promise_1_holds_for_deferred_rows_once_nothing_is_pending(
    drawn: tuple[Case, list[Tick], list[Tick]],
) -> None:
    check_any_cut(*drawn)


@examples(1.5)
@given(one_cut(settled=False))
def test_promise_2_a_tick_says_one_thing_about_a_row_and_never_nothing(
    drawn: tuple[Case, list[Tick]],
) -> None:
    case, ticks = drawn
    maintained = Maintained(case)
    for tick in ticks:
        for sink, changes in maintained.tick(tick).items():
            check_consolidated(f"sink {sink!r}", [(change[:-1], change[-1]) for change in changes])


@examples(2)
@given(one_cut())
def test_promise_4_after_every_tick_the_output_is_the_answer_to_the_input_so_far(
    drawn: tuple[Case, list[Tick]],
) -> None:
    case, ticks = drawn
    maintained, so_far = Maintained(case), Accumulated(case)
    for tick in ticks:
        so_far.add(tick)
        maintained.tick(tick)
        assert maintained.answers == answers(case.graph, so_far.inputs)


@examples(0.75)
@given(one_cut(deferred=True))
def test_promise_4_holds_for_deferred_rows_whenever_nothing_is_pending(
    drawn: tuple[Case, list[Tick]],
) -> None:
    case, ticks = drawn
    maintained, so_far = Maintained(case), Accumulated(case)
    for tick in ticks:
        so_far.add(tick)
        maintained.tick(tick)
        maintained.drain()
        assert maintained.answers == answers(case.graph, so_far.inputs)


@examples(1)
@given(one_cut(settled=False))
def test_promise_4_holds_again_once_no_row_is_there_less_than_0_times(drawn: tuple[Case, list[Tick]]) -> None:
    case, ticks = drawn
    maintained, so_far = Maintained(case), Accumulated(case)
    for tick in ticks:
        so_far.add(tick)
        maintained.tick(tick)
        if so_far.is_settled:
            assert maintained.answers == answers(case.graph, so_far.inputs)


@examples(1.5)
@given(one_cut(deferred=True))
def test_promise_5_an_append_stream_never_takes_a_row_back(drawn: tuple[Case, list[Tick]]) -> None:
    case, ticks = drawn
    watched = with_every_stream_watched(case)
    facts = analyse(watched.graph).facts
    append = {name for name, node in watched.graph.sinks.items() if facts[node].append}
    maintained = Maintained(watched)
    for tick in [*ticks, {}, {}]:
        for sink, changes in maintained.tick(tick).items():
            if sink in append:
                assert all(change[-1] > 0 for change in changes), f"{sink!r} takes back: {changes}"


@examples(0.75)
@given(one_cut())
def test_a_bounded_stream_has_all_its_rows_after_the_first_tick(drawn: tuple[Case, list[Tick]]) -> None:
    case, ticks = drawn
    watched = with_every_stream_watched(case)
    facts = analyse(watched.graph).facts
    bounded = {name for name, node in watched.graph.sinks.items() if facts[node].bounded}
    maintained = Maintained(watched)
    for number, tick in enumerate(ticks):
        changes = maintained.tick(tick)
        assert number == 0 or not any(changes[name] for name in bounded)


@examples(0.75)
@given(one_cut())
def test_a_look_at_every_stream_changes_no_answer(drawn: tuple[Case, list[Tick]]) -> None:
    case, ticks = drawn
    expected = answers(case.graph, accumulated(case, ticks).inputs)
    watched = with_every_stream_watched(case)
    all_expected = answers(watched.graph, accumulated(watched, ticks).inputs)
    maintained = Maintained(watched)
    for tick in ticks:
        maintained.tick(tick)
    assert maintained.answers == all_expected
    assert {name: all_expected[name] for name in expected} == expected
