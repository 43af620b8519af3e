"""Rows that come a tick later, rows that go round."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.errors import NoFixpoint
from headrace.testing import Backend, check_ticks

AnyStream = hr.Stream[Any, Any, Any, Any]


class Edge(NamedTuple):
    a: str
    b: str


def test_a_deferred_row_comes_with_the_next_tick(backend: Backend) -> None:
    def later(flow: hr.Flow) -> None:
        numbers = flow.table("numbers", int)
        flow.sink("now", numbers)
        flow.sink("later", numbers.defer_tick())

    check_ticks(
        backend,
        later,
        """
        tick | numbers | now | later
        1    | 1       | + 1 |
        2    | 2       | + 2 | + 1
        3    | - 1     | - 1 | + 2
        4    |         |     | - 1
        5    |         |     |
    """,
    )


def test_a_second_delay_is_a_second_tick(backend: Backend) -> None:
    def later(flow: hr.Flow) -> AnyStream:
        return flow.source("numbers", int).defer_tick().filter(col.value > 0).defer_tick()

    check_ticks(
        backend,
        later,
        """
        tick | numbers | out
        1    | 1; 0    |
        2    |         |
        3    |         | + 1
        4    |         |
    """,
    )


def test_a_delay_lets_a_flow_compare_with_the_tick_before(backend: Backend) -> None:
    def news(flow: hr.Flow) -> AnyStream:
        numbers = flow.table("numbers", int)
        return numbers.difference(numbers.defer_tick())

    check_ticks(
        backend,
        news,
        """
        tick | numbers | out
        1    | 1       | + 1
        2    | 2       | + 2; - 1
        3    |         | - 2
    """,
    )


def test_a_cycle_through_a_blocking_input_runs_tick_by_tick_where_the_flow_says_why(backend: Backend) -> None:
    def blinking(flow: hr.Flow) -> AnyStream:
        before = flow.feedback(int)
        lit = flow.source("numbers", int).difference(before)
        before.close(lit.defer_tick(nondet="a lamp is lit in the ticks in which it was not lit before"))
        return lit

    check_ticks(
        backend,
        blinking,
        """
        tick | numbers | out
        1    | 1       | + 1
        2    | 2       | + 2; - 1
        3    |         | + 1; - 2
        4    | 1       | - 1; + 2
    """,
    )


def test_a_delay_in_a_loop_makes_a_round_a_tick(backend: Backend) -> None:
    def down(flow: hr.Flow) -> AnyStream:
        def less(numbers: AnyStream) -> AnyStream:
            return numbers.filter(col.value > 0).select(value=col.value - 1, into=int).defer_tick()

        return flow.fixpoint(less, flow.source("numbers", int))

    check_ticks(
        backend,
        down,
        """
        tick | numbers | out
        1    | 2       | + 2
        2    | 5       | + 5; + 1
        3    |         | + 4; + 0
        4    | 4       | + 3
        5    |         |
    """,
    )


def reachable(flow: hr.Flow) -> AnyStream:
    edges = flow.source("edges", Edge)
    start = flow.source("start", str)

    def step(reached: AnyStream) -> AnyStream:
        return reached.join(edges, on=hr.left.value == hr.right.a).select(value=col.b, into=str)

    return flow.fixpoint(step, start)


def test_a_fixpoint_finds_all_that_follows_within_the_tick(backend: Backend) -> None:
    check_ticks(
        backend,
        reachable,
        """
        tick | edges         | start | out
        1    | a b; b c; d e |       |
        2    |               | a     | + a; + b; + c
        3    | c d           |       | + d; + e
        4    | e a; e f      |       | + f
        5    |               | a; f  |
        6    | x y           | x     | + x; + y
    """,
    )


def test_what_was_reached_over_a_row_alone_goes_with_it_and_a_cycle_does_not_hold_itself_up(
    backend: Backend,
) -> None:
    def reachable_while_it_lasts(flow: hr.Flow) -> AnyStream:
        edges, start = flow.table("edges", Edge), flow.table("start", str)

        def step(reached: AnyStream) -> AnyStream:
            return reached.join(edges, on=hr.left.value == hr.right.a).select(value=col.b, into=str)

        return flow.fixpoint(step, start)

    check_ticks(
        backend,
        reachable_while_it_lasts,
        """
        tick | edges                | start | out
        1    | a b; b c; c d; d b   | a     | + a; + b; + c; + d
        2    | a c                  |       |
        3    | - a b                |       |
        4    | - a c                |       | - b; - c; - d
        5    | a d                  |       | + d; + b; + c
        6    |                      | - a   | - a; - b; - c; - d
        7    | - c d; d e           | c     | + c
        8    | c d; - d b           |       | + d; + e
        9    | - c d; c e           |       | - d
    """,
    )


def test_a_loop_over_rows_that_come_and_go_may_ask_for_absence_outside_of_it(backend: Backend) -> None:
    def passable(flow: hr.Flow) -> AnyStream:
        edges, closed = flow.table("edges", Edge), flow.source("closed", str)
        open_ = flow.source("opened", str)

        def longer(path: AnyStream) -> AnyStream:
            further = path.select(via=col.a, end=col.b)
            both = path.join(further, on=hr.left.b == hr.right.via).select(a=col.a, via=col.b, b=col.end)
            free = both.join(closed.difference(open_), on=hr.left.via == hr.right.value, how="anti")
            return free.select("a", "b")

        return flow.fixpoint(longer, edges)

    check_ticks(
        backend,
        passable,
        """
        tick | edges         | closed | opened | out
        1    | a b; b c; c d |        |        | + a b; + b c; + c d; + a c; + b d; + a d
        2    |               | b      |        | - a c; - a d
        3    | a c           |        |        | + a c; + a d
        4    | - b c         | c      |        | - b c; - b d; - a d
        5    | - a c         |        | b; c   | - a c
        6    | b c           |        |        | + b c; + a c; + b d; + a d
    """,
    )


def test_a_join_of_a_loop_with_itself_finds_all_paths(backend: Backend) -> None:
    def paths(flow: hr.Flow) -> AnyStream:
        edges = flow.source("edges", Edge)

        def longer(path: AnyStream) -> AnyStream:
            further = path.select(via=col.a, end=col.b)
            return path.join(further, on=hr.left.b == hr.right.via).select(a=col.a, b=col.end)

        return flow.fixpoint(longer, edges)

    check_ticks(
        backend,
        paths,
        """
        tick | edges    | out
        1    | a b      | + a b
        2    | c d      | + c d
        3    | b c      | + b c; + a c; + b d; + a d
        4    | d d; d d | + d d
        5    | d a      | + d a; + a a; + b a; + b b; + c a; + c b; + c c; + d b; + d c
    """,
    )


def test_two_feedbacks_may_feed_each_other(backend: Backend) -> None:
    def parity(flow: hr.Flow) -> None:
        seed = flow.source("seed", int)
        even, odd = flow.feedback(int), flow.feedback(int)

        def less(numbers: AnyStream) -> AnyStream:
            return numbers.filter(col.value > 0).select(value=col.value - 1, into=int)

        even.close(seed.union(less(odd)))
        odd.close(less(even))
        flow.sink("even", even)
        flow.sink("odd", odd)

    check_ticks(
        backend,
        parity,
        """
        tick | seed | even            | odd
        1    | 4    | + 4; + 2; + 0   | + 3; + 1
        2    | 2    |                 |
        3    | 1    | + 1             | + 0
        4    | 3    | + 3             | + 2
    """,
    )


def test_what_follows_a_loop_sees_all_of_it_in_the_same_tick(backend: Backend) -> None:
    def counted(flow: hr.Flow) -> AnyStream:
        return reachable(flow).group_by().agg(n=hr.count())

    check_ticks(
        backend,
        counted,
        """
        tick | edges         | start | out
        1    | a b; b c; d e | a     | + 3
        2    | c d           |       | - 3; + 5
    """,
    )


def test_what_enters_a_loop_and_what_goes_round_can_be_read_beside_it(backend: Backend) -> None:
    def beside(flow: hr.Flow) -> None:
        seed = flow.source("seed", int)
        round_ = flow.feedback(int)
        less = round_.filter(col.value > 0).select(value=col.value - 1, into=int)
        closing = seed.union(less)
        round_.close(closing)
        flow.sink("closing", closing)
        flow.sink("less", less)
        flow.sink("seeds", round_.join(seed, on="value", how="semi"))

    check_ticks(
        backend,
        beside,
        """
        tick | seed | seeds | less           | closing
        1    | 2    | + 2   | + 1; + 0       | + 2; + 1; + 0
        2    | 0; 2 | + 0   |                | + 0; + 2
        3    | 3    | + 3   | + 2            | + 3; + 2
    """,
    )


def test_a_bag_goes_round_as_often_as_it_comes(backend: Backend) -> None:
    def down(flow: hr.Flow) -> AnyStream:
        back = flow.feedback(int, distinct=False)
        numbers = flow.source("seed", int).union(back)
        back.close(numbers.filter(col.value > 0).select(value=col.value - 1, into=int))
        return numbers

    check_ticks(
        backend,
        down,
        """
        tick | seed | out
        1    | 2; 1 | + 2; +2 1; +2 0
        2    |      |
        3    | 1    | + 1; + 0
    """,
    )


def test_rows_of_a_bag_keep_their_order_from_round_to_round() -> None:
    flow = hr.Flow("down")
    back = flow.feedback(int, distinct=False)
    numbers = flow.source("seed", int).union(back)
    back.close(numbers.filter(col.value > 0).select(value=col.value - 1, into=int))
    flow.sink("out", numbers)
    assert [c.row for c in hr.Engine(flow).tick(seed=[2, 3, 1])["out"]] == [2, 3, 1, 1, 2, 0, 0, 1, 0]


def test_a_bag_whose_every_way_round_passes_a_delay_hands_on_what_it_gets(backend: Backend) -> None:
    def down(flow: hr.Flow) -> AnyStream:
        back = flow.feedback(int, distinct=False, changes=True)
        numbers = flow.table("seed", int).union(back)
        less = numbers.filter(col.value > 0).select(value=col.value - 1, into=int)
        back.close(less.defer_tick(nondet="each row goes round by itself"))
        return numbers

    check_ticks(
        backend,
        down,
        """
        tick | seed   | out
        1    | +2 2   | +2 2
        2    | - 2    | - 2; +2 1
        3    |        | - 1; +2 0
        4    |        | - 0
        5    |        |
    """,
    )


def test_a_loop_without_end_is_an_error_that_names_the_bound() -> None:
    flow = hr.Flow("up")
    seed = flow.source("seed", int)
    flow.sink(
        "out", flow.fixpoint(lambda n: n.select(value=col.value + 1, into=int), seed, max_iterations=50)
    )
    with pytest.raises(NoFixpoint, match="50"):
        hr.Engine(flow).tick(seed=[0])


def test_a_loop_without_end_over_rows_that_come_and_go_is_an_error_too() -> None:
    flow = hr.Flow("up")
    seed = flow.table("seed", int)
    up = flow.fixpoint(lambda n: n.select(value=col.value + 1, into=int), seed, max_iterations=50)
    flow.sink("out", up)
    with pytest.raises(NoFixpoint, match="50") as error:
        hr.Engine(flow).tick(seed=[0, 7])
    assert error.value.facts["growth"][-1] == 1


def test_a_bounded_source_takes_rows_in_the_first_tick_only() -> None:
    flow = hr.Flow("bounded")
    flow.sink("out", flow.source("rows", int, bounded=True))
    engine = hr.Engine(flow)
    engine.tick(rows=[1, 2])
    engine.tick()
    with pytest.raises(hr.HeadraceError, match="bounded"):
        engine.tick(rows=[3])
