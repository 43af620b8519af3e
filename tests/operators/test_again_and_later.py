"""Rows that are shown again, compared with the tick before, held back, or never there."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import BadFlow, GuardMissing, NeedNotMet
from headrace.testing import Backend, check_ticks
from tests.operators.test_sequences import in_order

AnyStream = hr.Stream[Any, Any, Any, Any]
WHY = "a screen is drawn per tick"


def test_all_rows_so_far_are_shown_in_each_tick(backend: Backend) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.table("n", int).every_tick(nondet=WHY)

    check_ticks(
        backend,
        build,
        """
        tick | n       | out
        1    | 1; 1; 2 | + 1; + 1; + 2
        2    |         | + 1; + 1; + 2
        3    | - 1; 3  | + 1; + 2; + 3
        4    | - 1     | + 2; + 3
        5    | - 2; - 3 |
        6    |         |
        7    | 4       | + 4
    """,
    )


def test_rows_are_shown_in_the_order_in_which_they_first_came() -> None:
    found = in_order(lambda flow: flow.source("n", int).every_tick(), [{"n": [3, 1]}, {}, {"n": [2, 3]}])
    assert found == [[3, 1], [3, 1], [3, 1, 2, 3]]
    ticks: list[Any] = [{"n": [hr.insert(3), hr.insert(1)]}, {"n": [hr.delete(3), hr.insert(2)]}, {"n": [3]}]
    assert in_order(lambda flow: flow.table("n", int).every_tick(), ticks) == [[3, 1], [1, 2], [1, 2, 3]]


def test_showing_rows_again_starts_no_tick() -> None:
    flow = hr.Flow("screen", ticks="given")
    flow.sink("out", flow.source("n", int).every_tick())
    engine = hr.Engine(flow)
    engine.tick(n=[1])
    assert not engine.pending


def test_what_was_remembered_is_shown_where_something_else_starts_the_tick() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        n, other = flow.source("n", int), flow.source("other", int)
        return n.persist().every_tick().union(other)

    assert in_order(build, [{"n": [1]}, {"other": [7]}, {}]) == [[1], [1, 7], [1]]


def test_a_stream_remembers_all_rows_without_being_told() -> None:
    n = hr.Flow("numbers").source("n", int)
    assert n.persist() is n


def test_in_a_loop_rows_are_shown_once_per_tick(backend: Backend) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        def less(numbers: AnyStream) -> AnyStream:
            return numbers.every_tick(nondet=WHY).filter(col.value > 0).select(value=col.value - 1, into=int)

        return flow.fixpoint(less, flow.source("n", int))

    if type(backend).__name__ == "FromScratch":
        pytest.skip("the oracle knows no loops that hold operators of a tick")
    check_ticks(
        backend,
        build,
        """
        tick | n | out
        1    | 2 | + 2; + 1; + 0
        2    | 4 | + 4; + 3
        3    |   |
    """,
    )


def test_a_delta_is_the_rows_beyond_those_of_the_tick_before(backend: Backend) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("n", int).multiset_delta(nondet=WHY)

    check_ticks(
        backend,
        build,
        """
        tick | n          | out
        1    | 3; 4; 3    | + 3; + 4; + 3
        2    | 3; 5; 3; 3 | + 5; + 3
        3    | 3          |
        4    |            |
        5    | 3          | + 3
    """,
    )


def test_a_delta_keeps_the_order_of_what_is_new() -> None:
    ticks = [{"n": [3, 4, 3]}, {"n": [3, 5, 3, 3, 4, 6]}]
    assert in_order(lambda flow: flow.source("n", int).multiset_delta(), ticks) == [[3, 4, 3], [5, 3, 6]]


def test_a_delta_undoes_showing_again(backend: Backend) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("n", int).every_tick(nondet=WHY).multiset_delta(nondet=WHY)

    check_ticks(
        backend,
        build,
        """
        tick | n       | out
        1    | 1; 1    | + 1; + 1
        2    |         |
        3    | 1; 2    | + 1; + 2
    """,
    )


def test_lazy_rows_come_with_the_next_tick_and_start_none(backend: Backend) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.table("n", int).defer_tick_lazy(nondet=WHY)

    check_ticks(
        backend,
        build,
        """
        tick | n    | out
        1    | 1; 2 |
        2    | - 1  | + 1; + 2
        3    |      | - 1
        4    |      |
    """,
    )


def test_a_signal_releases_all_since_the_last(backend: Backend) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.table("n", int).defer_signal(flow.source("go", str), nondet=WHY)

    check_ticks(
        backend,
        build,
        """
        tick | n       | go   | out
        1    | 1; 2    |      |
        2    | - 1; 3  |      |
        3    |         | a; b | + 2; + 3
        4    | 4       | c    | + 4
        5    |         | d    |
        6    | 5       |      |
        7    |         | e    | + 5
    """,
    )


def test_held_rows_leave_in_their_order() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("n", int).defer_signal(flow.source("go", int))

    assert in_order(build, [{"n": [3, 1]}, {"n": [2, 3], "go": [0]}, {"go": [0]}]) == [[], [3, 1, 2, 3], []]


def test_the_first_tick_has_one_row_of_its_own(backend: Backend) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.initialize().map(lambda _: "begun", returns=str).union(flow.source("words", str))

    check_ticks(
        backend,
        build,
        """
        tick | words | out
        1    | a     | + begun; + a
        2    | b     | + b
        3    |       |
    """,
    )


def test_the_first_tick_has_its_row_even_if_nothing_comes() -> None:
    assert in_order(lambda flow: flow.initialize(), [{}, {}, {}]) == [[()], [], []]


def test_a_run_that_goes_on_has_had_its_first_tick() -> None:
    flow = hr.Flow("begun")
    flow.sink("out", flow.initialize())
    state: dict[str, Any] = {slot.name: {} for slot in hr.Engine(flow).program.slots}
    assert len(hr.Engine(flow, state=state).tick()["out"]) == 1
    assert len(hr.Engine(flow, state=state, first_tick=1).tick()["out"]) == 0


def test_an_empty_stream_has_no_rows_and_an_end_has_no_readers() -> None:
    seen: list[int] = []

    def build(flow: hr.Flow) -> AnyStream:
        n = flow.source("n", int)
        nothing = n.inspect(seen.append).null()
        return nothing.union(flow.null(int)).union(n)

    assert in_order(build, [{"n": [1, 2]}, {"n": [3]}]) == [[1, 2], [3]]
    assert seen == [1, 2, 3]


def test_a_flow_may_end_in_nothing_but_must_end() -> None:
    seen: list[int] = []
    flow = hr.Flow("watched")
    flow.source("n", int).inspect(seen.append).null()
    hr.Engine(flow).tick(n=[1])
    assert seen == [1]
    unwatched = hr.Flow("unwatched")
    unwatched.source("n", int).inspect(seen.append)
    with pytest.raises(BadFlow):
        hr.Engine(unwatched)


@pytest.mark.parametrize(
    "build",
    [
        lambda n: n.every_tick(),
        lambda n: n.multiset_delta(),
        lambda n: n.defer_tick_lazy(),
        lambda n: n.defer_signal(n),
        lambda n: n.chain_first_n(1),
        lambda n: n.zip_longest(n, suffix="_b"),
        lambda n: n.assume_ordered(),
    ],
)
def test_what_depends_on_ticks_must_say_why(build: Any) -> None:
    flow = hr.Flow("numbers")
    flow.sink("out", build(flow.source("n", int)))
    with pytest.raises(GuardMissing):
        hr.Engine(flow)


def test_ticks_of_a_table_cannot_be_compared_nor_signal() -> None:
    for build in (lambda n: n.multiset_delta(), lambda n: n.defer_signal(n)):
        flow = hr.Flow("numbers", ticks="given")
        flow.sink("out", build(flow.table("n", int)))
        with pytest.raises(NeedNotMet):
            hr.Engine(flow)
