"""What an operator remembers when a tick ends: of each input all of it, or nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.analysis import analyse
from headrace.errors import GuardMissing, NeedNotMet, WrongType
from headrace.testing import Backend, check_ticks

AnyStream = hr.Stream[Any, Any, Any, Any]
WHY = "each day stands for itself"


class Order(NamedTuple):
    item: str
    count: int


class Price(NamedTuple):
    item: str
    price: int


def of_orders_and_prices(how: str, lifetime: Any, prices: str = "source") -> Any:
    def build(flow: hr.Flow) -> AnyStream:
        orders = flow.source("orders", Order)
        known = flow.source("prices", Price) if prices == "source" else flow.table("prices", Price)
        return orders.join(known, on="item", how=how, lifetime=lifetime, nondet=WHY)  # type: ignore[call-overload]

    return build


def test_a_join_of_ticks_pairs_what_comes_together(backend: Backend) -> None:
    check_ticks(
        backend,
        of_orders_and_prices("inner", "tick"),
        """
        tick | orders       | prices       | out
        1    | tea 2; tea 2 | tea 5        | + tea 2 5; + tea 2 5
        2    |              | tea 6        |
        3    | tea 1        |              |
        4    | ink 1        | ink 8; ink 9 | + ink 1 8; + ink 1 9
    """,
    )


def test_rows_of_a_tick_look_up_what_a_table_holds_when_the_tick_ends(backend: Backend) -> None:
    check_ticks(
        backend,
        of_orders_and_prices("inner", ("tick", "static"), "table"),
        """
        tick | orders | prices         | out
        1    | tea 2  | tea 5          | + tea 2 5
        2    | tea 1  | - tea 5; tea 6 | + tea 1 6
        3    |        | - tea 6; tea 7 |
        4    | tea 3  |                | + tea 3 7
        5    | tea 4  | - tea 7        |
    """,
    )


def test_rows_of_a_tick_that_find_nothing_keep_their_nulls(backend: Backend) -> None:
    check_ticks(
        backend,
        of_orders_and_prices("left", ("tick", "static"), "table"),
        """
        tick | orders | prices         | out
        1    | tea 2  |                | + tea 2 null
        2    |        | tea 5; tea 5   |
        3    | tea 1  | - tea 5; tea 6 | + tea 1 5; + tea 1 6
    """,
    )


def test_all_rows_so_far_are_looked_up_by_the_rows_of_a_tick(backend: Backend) -> None:
    check_ticks(
        backend,
        of_orders_and_prices("inner", ("static", "tick")),
        """
        tick | orders | prices | out
        1    | tea 2  |        |
        2    | tea 1  | tea 5  | + tea 2 5; + tea 1 5
        3    | ink 1  |        |
        4    |        | tea 6  | + tea 2 6; + tea 1 6
    """,
    )


def test_all_rows_so_far_with_nulls_are_given_in_each_tick(backend: Backend) -> None:
    check_ticks(
        backend,
        of_orders_and_prices("left", ("static", "tick")),
        """
        tick | orders | prices | out
        1    | tea 2  |        | + tea 2 null
        2    |        | tea 5  | + tea 2 5
        3    |        |        | + tea 2 null
    """,
    )


def test_rows_of_a_tick_with_a_partner_among_all_so_far(backend: Backend) -> None:
    check_ticks(
        backend,
        of_orders_and_prices("semi", ("tick", "static"), "table"),
        """
        tick | orders       | prices  | out
        1    | tea 2; tea 2 | tea 5   | + tea 2; + tea 2
        2    | ink 1        |         |
        3    |              | ink 7   |
        4    | ink 2; tea 3 | - tea 5 | + ink 2
    """,
    )


def test_all_rows_so_far_with_a_partner_in_this_tick_once_each(backend: Backend) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        orders, prices = flow.table("orders", Order), flow.source("prices", Price)
        return orders.semi_join(prices, on="item", lifetime=("static", "tick"), nondet=WHY)

    check_ticks(
        backend,
        build,
        """
        tick | orders                  | prices       | out
        1    | tea 2; tea 2; ink 1     |              |
        2    |                         | tea 5; tea 6 | + tea 2; + tea 2
        3    | - tea 2; - tea 2; tea 9 | tea 7        | + tea 9
        4    |                         |              |
    """,
    )


def test_rows_of_a_tick_without_a_partner_among_all_so_far(backend: Backend) -> None:
    check_ticks(
        backend,
        of_orders_and_prices("anti", ("tick", "static"), "table"),
        """
        tick | orders       | prices  | out
        1    | tea 2; tea 2 | ink 5   | + tea 2; + tea 2
        2    | ink 1        | tea 5   |
        3    |              | - ink 5 |
        4    | ink 2; tea 3 |         | + ink 2
    """,
    )


def numbers_without(lifetime: Any) -> Any:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("n", int).difference(flow.source("gone", int), lifetime=lifetime, nondet=WHY)

    return build


def test_a_difference_of_ticks(backend: Backend) -> None:
    check_ticks(
        backend,
        numbers_without("tick"),
        """
        tick | n       | gone | out
        1    | 1; 1; 2 | 2    | + 1; + 1
        2    | 2       | 1    | + 2
    """,
    )


def test_a_difference_of_a_tick_and_all_that_ever_went(backend: Backend) -> None:
    check_ticks(
        backend,
        numbers_without(("tick", "static")),
        """
        tick | n       | gone | out
        1    | 1; 1; 2 | 2    | + 1; + 1
        2    | 2; 3    |      | + 3
        3    |         |      |
    """,
    )


def test_all_so_far_but_what_goes_in_this_tick_is_given_in_each(backend: Backend) -> None:
    check_ticks(
        backend,
        numbers_without(("static", "tick")),
        """
        tick | n       | gone | out
        1    | 1; 1; 2 | 2    | + 1; + 1
        2    |         |      | + 1; + 1; + 2
        3    | 3       | 1    | + 2; + 3
    """,
    )


def test_each_tick_has_its_own_groups_sets_and_tops(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        orders = flow.source("orders", Order)
        flow.sink("sums", orders.group_by("item").agg(n=hr.sum(col.count), lifetime="tick", nondet=WHY))
        flow.sink("sets", orders.distinct(lifetime="tick", nondet=WHY))
        flow.sink("tops", orders.top_k(1, by=col.count.desc(), lifetime="tick", nondet=WHY))

    check_ticks(
        backend,
        build,
        """
        tick | orders              | sums             | sets             | tops
        1    | tea 2; tea 2; ink 1 | + tea 4; + ink 1 | + tea 2; + ink 1 | + tea 2
        2    | tea 1               | + tea 1          | + tea 1          | + tea 1
        3    |                     |                  |                  |
        4    | tea 2               | + tea 2          | + tea 2          | + tea 2
    """,
    )


def test_a_set_join_counts_each_row_of_a_side_once(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        orders, prices = flow.table("orders", Order), flow.source("prices", Price)
        flow.sink("ever", orders.join_set(prices, on="item"))
        flow.sink("with_tick", orders.join_set(prices, on="item", lifetime=("static", "tick"), nondet=WHY))

    check_ticks(
        backend,
        build,
        """
        tick | orders       | prices       | ever      | with_tick
        1    | tea 2; tea 2 | tea 5; tea 5 | + tea 2 5 | + tea 2 5
        2    | - tea 2      | tea 5        |           | + tea 2 5
        3    | - tea 2      | tea 5        | - tea 2 5 |
    """,
    )


def test_products(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        n, words = flow.source("n", int), flow.table("words", str)
        flow.sink("all", n.cross_join(words, suffix="_b"))
        flow.sink("sets", n.cross_join_set(words, suffix="_b"))
        flow.sink("now", n.cross_join(words, lifetime=("tick", "static"), suffix="_b", nondet=WHY))

    check_ticks(
        backend,
        build,
        """
        tick | n    | words | all                | sets    | now
        1    | 1; 1 | a     | + 1 a; + 1 a       | + 1 a   | + 1 a; + 1 a
        2    | 2    | b     | +2 1 b; + 2 a; + 2 b | + 1 b; + 2 a; + 2 b | + 2 a; + 2 b
        3    |      | - a   | -2 1 a; - 2 a      | - 1 a; - 2 a |
    """,
    )


def test_a_single_row_goes_beside_every_row(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        bids, rates = flow.source("bids", int), flow.source("rates", int)
        best = rates.group_by().agg(best=hr.max(col.value))
        flow.sink("ever", bids.cross_singleton(best))
        flow.sink("then", bids.cross_singleton(best, lifetime=("tick", "static"), nondet=WHY))

    check_ticks(
        backend,
        build,
        """
        tick | bids | rates | ever                     | then
        1    | 7    |       |                          |
        2    | 8    | 2     | + 7 2; + 8 2             | + 8 2
        3    | 9    | 3     | - 7 2; - 8 2; + 7 3; + 8 3; + 9 3 | + 9 3
        4    |      | 1     |                          |
    """,
    )


def test_the_first_single_row_of_a_tick_goes_beside_its_rows(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        bids, rates = flow.source("bids", int), flow.source("rates", int)
        first = rates.top_k(1, by=col.value, lifetime="tick", nondet=WHY)
        flow.sink("now", bids.cross_singleton(first, lifetime="tick", suffix="_r", nondet=WHY))
        flow.sink("all", bids.cross_singleton(first, lifetime=("static", "tick"), suffix="_r", nondet=WHY))

    check_ticks(
        backend,
        build,
        """
        tick | bids | rates | now   | all
        1    | 7    | 2; 3  | + 7 2 | + 7 2
        2    | 8    |       |       |
        3    | 9; 9 | 4     | + 9 4; + 9 4 | + 7 4; + 8 4; + 9 4; + 9 4
    """,
    )


OF_A_TICK: list[Any] = [
    lambda n: n.distinct(lifetime="tick"),
    lambda n: n.group_by().agg(n=hr.count(), lifetime="tick"),
    lambda n: n.top_k(1, by=col.value, lifetime="tick"),
    lambda n: n.difference(n, lifetime="tick"),
    lambda n: n.cross_join(n, lifetime=("static", "tick"), suffix="_b"),
    lambda n: n.join(n, on="value", lifetime=("tick", "static")),
    lambda n: n.cross_singleton(n, lifetime="tick", suffix="_b"),
]


@pytest.mark.parametrize("build", OF_A_TICK)
def test_what_depends_on_the_cut_must_say_why(build: Any) -> None:
    flow = hr.Flow("numbers")
    flow.sink("out", build(flow.source("n", int)))
    with pytest.raises(GuardMissing):
        hr.Engine(flow)
    given = hr.Flow("numbers", ticks="given")
    given.sink("out", build(given.source("n", int)))
    assert hr.Engine(given).tick(n=[]) == {"out": []}


@pytest.mark.parametrize("build", [b for at, b in enumerate(OF_A_TICK) if at != 4])
def test_a_tick_is_not_answered_from_rows_that_are_taken_back(build: Any) -> None:
    flow = hr.Flow("numbers", ticks="given")
    flow.sink("out", build(flow.table("n", int)))
    with pytest.raises(NeedNotMet, match="append-only"):
        hr.Engine(flow)


@pytest.mark.parametrize("build", OF_A_TICK)
def test_a_tick_gives_rows_that_stay(build: Any) -> None:
    flow = hr.Flow("numbers", ticks="given")
    flow.sink("out", build(flow.source("n", int)))
    assert analyse(flow.graph()).facts[flow.graph().sinks["out"]].append


def test_a_lifetime_is_one_of_two_names() -> None:
    n = hr.Flow("numbers").source("n", int)
    for wrong in ("forever", ("tick", "tick", "tick"), None, ("tick",)):
        with pytest.raises(WrongType, match="got lifetime"):
            n.difference(n, lifetime=wrong)  # type: ignore[arg-type]
    with pytest.raises(WrongType, match="got lifetime"):
        n.distinct(lifetime=("tick", "tick"))  # type: ignore[arg-type]
    with pytest.raises(WrongType, match="nondet is a reason"):
        n.distinct(lifetime="tick", nondet="")


def test_columns_may_be_called_lifetime_and_nondet() -> None:
    n = hr.Flow("numbers").source("n", int)
    assert n.group_by().agg(lifetime=hr.count(), nondet=hr.count()).schema.names == ("lifetime", "nondet")
