"""Joins by example: which pairs come, which are taken back, what null, NaN and copies do."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import left, right
from headrace.testing import Backend, check_ticks


class Due(NamedTuple):
    name: str | None
    amount: int


class Most(NamedTuple):
    name: str | None
    most: int | None


class Level(NamedTuple):
    level: float
    label: str


AnyStream = hr.Stream[Any, Any, Any, Any]


def due_and_most(flow: hr.Flow) -> tuple[AnyStream, AnyStream]:
    return flow.table("due", Due), flow.table("most", Most)


def inner(flow: hr.Flow) -> AnyStream:
    due, most = due_and_most(flow)
    return due.join(most, on="name")


def outer(flow: hr.Flow) -> AnyStream:
    due, most = due_and_most(flow)
    return due.join(most, on="name", how="left")


def semi(flow: hr.Flow) -> AnyStream:
    due, most = due_and_most(flow)
    return due.join(most, on="name", how="semi")


def anti(flow: hr.Flow) -> AnyStream:
    due, most = due_and_most(flow)
    return due.join(most, on="name", how="anti")


def within(how: str) -> Any:
    def build(flow: hr.Flow) -> AnyStream:
        due, most = due_and_most(flow)
        same_name_and_enough = (left.name == right.name) & (left.amount <= right.most)
        return due.join(most, on=same_name_and_enough, how=how)  # type: ignore[call-overload]

    return build


def test_an_inner_join_pairs_rows_whichever_comes_first(backend: Backend) -> None:
    check_ticks(
        backend,
        inner,
        """
        tick | due   | most   | out
        1    | ann 3 |        |
        2    |       | ann 10 | + ann 3 10
        3    |       | bob 20 |
        4    | bob 5 |        | + bob 5 20
        5    | cid 7 | cid 30 | + cid 7 30
    """,
    )


def test_an_inner_join_takes_a_pair_back_with_either_row(backend: Backend) -> None:
    check_ticks(
        backend,
        inner,
        """
        tick | due     | most     | out
        1    | ann 3   | ann 10   | + ann 3 10
        2    | - ann 3 |          | - ann 3 10
        3    | ann 3   |          | + ann 3 10
        4    |         | - ann 10 | - ann 3 10
    """,
    )


def test_copies_multiply_in_an_inner_join(backend: Backend) -> None:
    check_ticks(
        backend,
        inner,
        """
        tick | due      | most     | out
        1    | +2 ann 3 | +3 ann 1 | +6 ann 3 1
        2    | - ann 3  |          | -3 ann 3 1
        3    | ann 3    | - ann 1  | + ann 3 1
    """,
    )


def test_a_row_that_is_taken_back_before_it_comes_pairs_with_its_weight(backend: Backend) -> None:
    check_ticks(
        backend,
        inner,
        """
        tick | due     | most     | out
        1    | - ann 3 |          |
        2    |         | ann 10   | - ann 3 10
        3    |         | - ann 10 | + ann 3 10
        4    | ann 3   | ann 10   |
        5    | ann 3   |          | + ann 3 10
    """,
    )


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_a_partner_is_there_when_it_came_more_often_than_it_was_taken_back(
    how: Any, backend: Backend
) -> None:
    comes, goes = ("+", "-") if how == "semi" else ("-", "+")

    def build(flow: hr.Flow) -> AnyStream:
        due, most = due_and_most(flow)
        return due.join(most, on="name", how=how)

    check_ticks(
        backend,
        build,
        f"""
        tick | due   | most             | out
        1    |       | - ann 10         |
        2    | ann 3 |                  | {"" if how == "semi" else "+ ann 3"}
        3    |       | ann 10           |
        4    |       | ann 10           | {comes} ann 3
        5    |       | - ann 10         | {goes} ann 3
    """,
    )


def test_rows_that_come_and_go_in_one_tick_pair_with_nothing(backend: Backend) -> None:
    check_ticks(
        backend,
        inner,
        """
        tick | due              | most           | out
        1    | ann 3; - ann 3   | ann 1          |
        2    | bob 5            | bob 1; - bob 1 |
        3    | ann 3            |                | + ann 3 1
        4    | - ann 3; ann 4   |                | - ann 3 1; + ann 4 1
        5    |                  |                |
    """,
    )


def test_null_is_equal_to_nothing_in_a_join(backend: Backend) -> None:
    check_ticks(
        backend,
        inner,
        """
        tick | due    | most    | out
        1    | null 3 | null 10 |
        2    | null 3 |         |
    """,
    )
    check_ticks(
        backend,
        outer,
        """
        tick | due      | most    | out
        1    | null 3   | null 10 | + null 3 null
        2    |          | null 11 |
        3    | - null 3 |         | - null 3 null
    """,
    )
    check_ticks(
        backend,
        anti,
        """
        tick | due    | most    | out
        1    | null 3 | null 10 | + null 3
    """,
    )
    check_ticks(
        backend,
        semi,
        """
        tick | due    | most    | out
        1    | null 3 | null 10 |
    """,
    )


def test_nan_is_equal_to_nan_and_zero_to_minus_zero_in_a_join(backend: Backend) -> None:
    def levels(flow: hr.Flow) -> AnyStream:
        a, b = flow.source("a", Level), flow.source("b", Level)
        return a.join(b, on="level", suffix="_b").select("label", "label_b")

    check_ticks(
        backend,
        levels,
        """
        tick | a      | b        | out
        1    | nan x  |          |
        2    |        | nan y    | + x y
        3    | 0.0 p  | -0.0 q   | + p q
    """,
    )


def test_a_left_join_answers_null_until_a_partner_comes_and_again_when_it_goes(backend: Backend) -> None:
    check_ticks(
        backend,
        outer,
        """
        tick | due   | most     | out
        1    | ann 3 |          | + ann 3 null
        2    |       | ann 10   | - ann 3 null; + ann 3 10
        3    |       | ann 20   | + ann 3 20
        4    |       | - ann 10 | - ann 3 10
        5    |       | - ann 20 | - ann 3 20; + ann 3 null
    """,
    )


def test_a_left_join_never_shows_null_for_a_partner_of_the_same_tick(backend: Backend) -> None:
    check_ticks(
        backend,
        outer,
        """
        tick | due   | most             | out
        1    | ann 3 | ann 10           | + ann 3 10
        2    |       | - ann 10; ann 11 | - ann 3 10; + ann 3 11
    """,
    )


def test_a_partner_that_holds_null_is_a_partner(backend: Backend) -> None:
    check_ticks(
        backend,
        outer,
        """
        tick | due   | most       | out
        1    | ann 3 |            | + ann 3 null
        2    |       | ann null   |
        3    |       | +2 ann null | +2 ann 3 null
    """,
    )


def test_copies_of_a_left_row_without_partner_stay_copies(backend: Backend) -> None:
    check_ticks(
        backend,
        outer,
        """
        tick | due      | most   | out
        1    | +2 ann 3 |        | +2 ann 3 null
        2    |          | ann 10 | -2 ann 3 null; +2 ann 3 10
        3    | - ann 3  |        | - ann 3 10
    """,
    )


def test_an_anti_join_takes_a_row_back_when_its_partner_comes(backend: Backend) -> None:
    check_ticks(
        backend,
        anti,
        """
        tick | due   | most     | out
        1    | ann 3 |          | + ann 3
        1    | bob 5 |          | + bob 5
        2    |       | bob 1    | - bob 5
        3    |       | bob 2    |
        4    |       | - bob 1  |
        5    |       | - bob 2  | + bob 5
        6    | cid 7 | cid 1    |
    """,
    )


def test_an_anti_join_keeps_copies_on_the_left_and_ignores_them_on_the_right(backend: Backend) -> None:
    check_ticks(
        backend,
        anti,
        """
        tick | due      | most     | out
        1    | +2 ann 3 |          | +2 ann 3
        2    |          | +2 ann 1 | -2 ann 3
        3    |          | - ann 1  |
        4    |          | - ann 1  | +2 ann 3
    """,
    )


def test_a_semi_join_keeps_a_row_once_however_many_partners_it_has(backend: Backend) -> None:
    check_ticks(
        backend,
        semi,
        """
        tick | due      | most         | out
        1    | +2 ann 3 | ann 1; ann 2 | +2 ann 3
        2    |          | - ann 1      |
        3    |          | - ann 2      | -2 ann 3
        4    |          | ann 9        | +2 ann 3
    """,
    )


def test_a_residual_that_is_not_true_makes_no_pair(backend: Backend) -> None:
    check_ticks(
        backend,
        within("inner"),
        """
        tick | due    | most     | out
        1    | ann 3  | ann 10   | + ann 3 10
        2    | ann 20 |          |
        3    |        | ann null |
    """,
    )


def test_absence_is_judged_with_the_residual(backend: Backend) -> None:
    check_ticks(
        backend,
        within("left"),
        """
        tick | due    | most     | out
        1    | ann 20 | ann 10   | + ann 20 null
        2    |        | ann 30   | - ann 20 null; + ann 20 30
        3    |        | - ann 30 | - ann 20 30; + ann 20 null
    """,
    )
    check_ticks(
        backend,
        within("anti"),
        """
        tick | due    | most     | out
        1    | ann 20 | ann 10   | + ann 20
        2    |        | ann 30   | - ann 20
        3    |        | - ann 30 | + ann 20
    """,
    )
    check_ticks(
        backend,
        within("semi"),
        """
        tick | due    | most     | out
        1    | ann 20 | ann 10   |
        2    |        | ann 30   | + ann 20
        3    |        | - ann 30 | - ann 20
    """,
    )


def test_a_stream_joins_itself(backend: Backend) -> None:
    def pairs(flow: hr.Flow) -> AnyStream:
        due = flow.table("due", Due)
        return due.join(due, on="name", suffix="_too").select("amount", "amount_too")

    check_ticks(
        backend,
        pairs,
        """
        tick | due     | out
        1    | ann 1   | + 1 1
        2    | ann 2   | + 1 2; + 2 1; + 2 2
        3    | - ann 1 | - 1 1; - 1 2; - 2 1
    """,
    )
