"""Aggregates, distinct, difference, top k: rows that stand for several rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.errors import EvaluationError
from headrace.testing import Backend, check_ticks

if TYPE_CHECKING:
    from headrace.operators.aggregate.aggregation import Aggregation

AnyStream = hr.Stream[Any, Any, Any, Any]


class Sale(NamedTuple):
    shop: str | None
    price: int | None


class Reading(NamedTuple):
    value: float | None
    at: int | None


class Point(NamedTuple):
    x: float
    label: str | None


def per_shop(flow: hr.Flow) -> AnyStream:
    return flow.table("sales", Sale).group_by("shop").agg(n=hr.count(), sum=hr.sum(col.price))


def of_readings(*aggregations: Aggregation, append: bool = False) -> Any:
    """All readings in one group. `append` chooses the kernels that need not take back."""

    def build(flow: hr.Flow) -> AnyStream:
        readings = flow.source("readings", Reading) if append else flow.table("readings", Reading)
        return readings.group_by().agg(**{f"a{i}": a for i, a in enumerate(aggregations)})

    return build


def test_a_group_is_there_while_it_has_more_rows_than_were_taken_back(backend: Backend) -> None:
    check_ticks(
        backend,
        per_shop,
        """
        tick | sales          | out
        1    | - eve 3        |
        2    | eve 4          |
        3    | eve 3          | + eve 1 4
        4    | - eve 5        | - eve 1 4
        5    | eve 5; - eve 6 |
        6    | eve 6; eve 6   | + eve 2 10
    """,
    )


@pytest.mark.parametrize("operator", ["distinct", "top_k", "difference"])
def test_a_row_is_there_when_it_came_more_often_than_it_was_taken_back(
    operator: str, backend: Backend
) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        sales = flow.table("sales", Sale)
        if operator == "difference":
            return sales.distinct().difference(flow.table("gone", Sale))
        return sales.distinct() if operator == "distinct" else sales.top_k(9, by=col.price)

    check_ticks(
        backend,
        build,
        """
        tick | sales        | out
        1    | - eve 3      |
        2    | eve 3; ivy 1 | + ivy 1
        3    | eve 3        | + eve 3
        4    | - eve 3      | - eve 3
        5    | - ivy 1; - ivy 1 | - ivy 1
        6    | ivy 1; ivy 1 | + ivy 1
    """,
    )


def test_a_group_replaces_its_row_once_per_tick(backend: Backend) -> None:
    check_ticks(
        backend,
        per_shop,
        """
        tick | sales          | out
        1    | eve 3          | + eve 1 3
        2    | eve 4; eve 5   | - eve 1 3; + eve 3 12
        3    | ivy 1          | + ivy 1 1
        4    | - eve 4; eve 4 |
        5    |                |
    """,
    )


def test_a_group_leaves_with_its_last_row(backend: Backend) -> None:
    check_ticks(
        backend,
        per_shop,
        """
        tick | sales            | out
        1    | eve 3; ivy 1     | + eve 1 3; + ivy 1 1
        2    | - eve 3          | - eve 1 3
        3    | eve 5            | + eve 1 5
        4    | jan 1; - jan 1   |
        5    | - eve 5; - ivy 1 | - eve 1 5; - ivy 1 1
    """,
    )


def test_a_group_whose_rows_changed_to_the_same_answer_says_nothing(backend: Backend) -> None:
    check_ticks(
        backend,
        per_shop,
        """
        tick | sales                        | out
        1    | eve 3; eve 5                 | + eve 2 8
        2    | - eve 3; - eve 5; eve 4; eve 4 |
    """,
    )


def test_null_is_a_group_and_no_number(backend: Backend) -> None:
    check_ticks(
        backend,
        per_shop,
        """
        tick | sales      | out
        1    | null null  | + null 1 null
        2    | null 4     | - null 1 null; + null 2 4
        3    | - null 4   | - null 2 4; + null 1 null
        4    | eve 0      | + eve 1 0
    """,
    )


def test_the_group_of_everything_is_there_while_it_has_rows(backend: Backend) -> None:
    def total(flow: hr.Flow) -> AnyStream:
        return flow.table("sales", Sale).group_by().agg(n=hr.count(), priced=hr.count(col.price))

    check_ticks(
        backend,
        total,
        """
        tick | sales       | out
        1    |             |
        2    | +2 eve null | + 2 0
        3    | ivy 1       | - 2 0; + 3 1
        4    | -2 eve null | - 3 1; + 1 1
        5    | - ivy 1     | - 1 1
    """,
    )


def test_nan_and_both_zeros_are_one_group_each(backend: Backend) -> None:
    def counted(flow: hr.Flow) -> AnyStream:
        return flow.table("points", Point).group_by("x").agg(n=hr.count())

    check_ticks(
        backend,
        counted,
        """
        tick | points             | out
        1    | nan a; nan b       | + nan 2
        2    | 0.0 a; -0.0 b      | + 0.0 2
        3    | - nan a; - -0.0 b  | - nan 2; + nan 1; - 0.0 2; + 0.0 1
    """,
    )


def test_least_and_greatest_come_back_when_a_better_row_is_taken_back(backend: Backend) -> None:
    check_ticks(
        backend,
        of_readings(hr.min(col.value), hr.max(col.value)),
        """
        tick | readings              | out
        1    | 2.0 0                 | + 2.0 2.0
        2    | 1.0 0; 3.0 0; +2 0.5 0 | - 2.0 2.0; + 0.5 3.0
        3    | - 0.5 0               |
        4    | - 0.5 0; - 3.0 0      | - 0.5 3.0; + 1.0 2.0
        5    | nan 0                 | - 1.0 2.0; + 1.0 nan
        6    | - 1.0 0; - 2.0 0      | - 1.0 nan; + nan nan
        7    | null 0; - nan 0       | - nan nan; + null null
    """,
    )


def test_least_and_greatest_of_an_append_stream(backend: Backend) -> None:
    check_ticks(
        backend,
        of_readings(hr.min(col.value), hr.max(col.value), append=True),
        """
        tick | readings      | out
        1    | null 0        | + null null
        2    | 2.0 0; 1.0 0  | - null null; + 1.0 2.0
        3    | 1.5 0         |
        4    | nan 0         | - 1.0 2.0; + 1.0 nan
        5    | -inf 0        | - 1.0 nan; + -inf nan
    """,
    )


def test_first_and_last_of_an_append_stream(backend: Backend) -> None:
    check_ticks(
        backend,
        of_readings(hr.first(col.value, by=col.at), hr.last(col.value, by=col.at), append=True),
        """
        tick | readings             | out
        1    | 9.0 null             | + null null
        2    | 5.0 2                | - null null; + 5.0 5.0
        3    | 6.0 2; 4.0 2; 7.0 2  | - 5.0 5.0; + 4.0 7.0
        4    | null 2               | - 4.0 7.0; + null 7.0
        5    | -0.0 1; 1.0 3        | - null 7.0; + 0.0 1.0
        6    | null 3; 8.0 2        |
        7    | nan 3; inf 3         | - 0.0 1.0; + 0.0 nan
    """,
    )


def test_first_and_last_of_an_append_stream_keep_one_row() -> None:
    flow = hr.Flow("ends")
    flow.sink(
        "out", of_readings(hr.first(col.value, by=col.at), hr.last(col.value, by=col.at), append=True)(flow)
    )
    state: dict[str, Any] = {name: {} for name in hr.Engine(flow).slots}
    hr.Engine(flow, state=state).tick(readings=[Reading(float(n), n) for n in range(1_000)])
    (groups,) = state.values()
    assert groups == {(): [1_000, (0.0, 999.0), 0, 0.0, 999, 999.0]}


@pytest.mark.parametrize("append", [False, True])
def test_a_float_sum_is_exact_and_rounded_once(backend: Backend, append: bool) -> None:
    check_ticks(
        backend,
        of_readings(hr.sum(col.value), hr.mean(col.value), append=append),
        """
        tick | readings              | out
        1    | 0.1 0; 0.2 0; 0.3 0   | + 0.6 0.2
        2    | 1e16 0                | - 0.6 0.2; + 1.0000000000000000e16 2500000000000000.0
        3    | -1e16 0               | - 1.0000000000000000e16 2500000000000000.0; + 0.6 0.12
    """,
    )


def test_a_float_sum_gets_over_infinities_and_nan(backend: Backend) -> None:
    check_ticks(
        backend,
        of_readings(hr.sum(col.value)),
        """
        tick | readings   | out
        1    | 1.5 0      | + 1.5
        2    | inf 0      | - 1.5; + inf
        3    | -inf 0     | - inf; + nan
        4    | - inf 0    | - nan; + -inf
        5    | - -inf 0   | - -inf; + 1.5
        6    | nan 0      | - 1.5; + nan
        7    | - nan 0    | - nan; + 1.5
    """,
    )


def test_mean_is_null_where_every_value_is(backend: Backend) -> None:
    check_ticks(
        backend,
        of_readings(hr.mean(col.at), hr.sum(col.at)),
        """
        tick | readings           | out
        1    | 0.0 null           | + null null
        2    | 0.0 1; 0.0 2       | - null null; + 1.5 3
        3    | - 0.0 1; - 0.0 2   | - 1.5 3; + null null
    """,
    )


def test_distinct_values_are_counted_without_null(backend: Backend) -> None:
    check_ticks(
        backend,
        of_readings(hr.count_distinct(col.value)),
        """
        tick | readings                 | out
        1    | null 0                   | + 0
        2    | 1.0 0; 1.0 1; nan 0; nan 1 | - 0; + 2
        3    | - 1.0 0                  |
        4    | - 1.0 1                  | - 2; + 1
        5    | 0.0 0; -0.0 0            | - 1; + 2
    """,
    )


def test_first_and_last_follow_their_order_and_break_ties_by_value(backend: Backend) -> None:
    check_ticks(
        backend,
        of_readings(hr.first(col.value, by=col.at), hr.last(col.value, by=col.at)),
        """
        tick | readings             | out
        1    | 9.0 null             | + null null
        2    | 5.0 2                | - null null; + 5.0 5.0
        3    | 6.0 2; 4.0 2         | - 5.0 5.0; + 4.0 6.0
        4    | null 1               | - 4.0 6.0; + null 6.0
        5    | - 6.0 2; - 4.0 2     | - null 6.0; + null 5.0
        6    | - null 1; null 2     |
        7    | - null 2             | - null 5.0; + 5.0 5.0
    """,
    )


def test_collect_sorts_and_keeps_copies(backend: Backend) -> None:
    check_ticks(
        backend,
        of_readings(hr.collect(col.at)),
        """
        tick | readings                 | out
        1    | 0.0 null                 | + []
        2    | 0.0 3; 0.0 1; +2 1.0 2   | - []; + [1,2,2,3]
        3    | - 1.0 2; - 0.0 1         | - [1,2,2,3]; + [2,3]
    """,
    )


def test_an_aggregate_of_an_aggregate_follows_corrections(backend: Backend) -> None:
    def average_of_best(flow: hr.Flow) -> AnyStream:
        best = flow.table("sales", Sale).group_by("shop").agg(best=hr.max(col.price))
        return best.group_by().agg(average=hr.mean(col.best), shops=hr.count())

    check_ticks(
        backend,
        average_of_best,
        """
        tick | sales          | out
        1    | eve 3; eve 5   | + 5.0 1
        2    | ivy 8          | - 5.0 1; + 6.5 2
        3    | - eve 5        | - 6.5 2; + 5.5 2
        4    | eve 1          |
        5    | - ivy 8        | - 5.5 2; + 3.0 1
    """,
    )


def test_an_integer_sum_that_leaves_int64_is_an_error() -> None:
    flow = hr.Flow("large")
    flow.sink("out", flow.source("n", int).group_by().agg(sum=hr.sum(col.value)))
    with pytest.raises(EvaluationError, match="sum"):
        hr.Engine(flow).tick(n=[2**63 - 1, 1])


def test_an_integer_sum_may_leave_int64_on_the_way() -> None:
    flow = hr.Flow("large")
    flow.sink("out", flow.source("n", int).group_by().agg(sum=hr.sum(col.value)))
    assert hr.Engine(flow).tick(n=[2**63 - 1, 1, -1])["out"].raw == [(2**63 - 1, 1)]


def distinct(flow: hr.Flow) -> AnyStream:
    return flow.table("points", Point).distinct()


def test_distinct_shows_a_row_from_its_first_copy_to_its_last(backend: Backend) -> None:
    check_ticks(
        backend,
        distinct,
        """
        tick | points               | out
        1    | 1.0 a                | + 1.0 a
        2    | +2 1.0 a             |
        3    | -2 1.0 a             |
        4    | - 1.0 a              | - 1.0 a
        5    | 1.0 a; - 1.0 a       |
        6    | nan null; nan null   | + nan null
        7    | - nan null           |
        8    | - nan null           | - nan null
    """,
    )


def test_distinct_of_an_append_stream(backend: Backend) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("points", Point).distinct()

    check_ticks(
        backend,
        build,
        """
        tick | points                | out
        1    | 1.0 a; 1.0 a; nan b   | + 1.0 a; + nan b
        2    | nan b; 1.0 a; 0.0 c   | + 0.0 c
        3    | -0.0 c                |
    """,
    )


def difference(flow: hr.Flow) -> AnyStream:
    return flow.table("pos", Sale).difference(flow.table("neg", Sale))


def test_a_difference_compares_whole_rows_and_null_with_null(backend: Backend) -> None:
    check_ticks(
        backend,
        difference,
        """
        tick | pos                 | neg         | out
        1    | +2 eve 1; null null |             | +2 eve 1; + null null
        2    |                     | eve 2       |
        3    |                     | +2 eve 1    | -2 eve 1
        4    | eve 1               | null null   | - null null
        5    |                     | - eve 1     |
        6    |                     | - eve 1     | +3 eve 1
    """,
    )


def test_a_row_never_shows_when_both_sides_get_it_in_one_tick(backend: Backend) -> None:
    check_ticks(
        backend,
        difference,
        """
        tick | pos   | neg   | out
        1    | eve 1 | eve 1 |
        2    |       | - eve 1; eve 1 |
    """,
    )


def top_two(flow: hr.Flow) -> AnyStream:
    return flow.table("sales", Sale).top_k(2, by=col.price.desc(), per="shop")


def test_top_k_pushes_rows_out_and_lets_them_in_again(backend: Backend) -> None:
    check_ticks(
        backend,
        top_two,
        """
        tick | sales               | out
        1    | eve 1; eve 3        | + eve 1; + eve 3
        2    | eve 2               | - eve 1; + eve 2
        3    | - eve 3             | - eve 3; + eve 1
        4    | ivy 9               | + ivy 9
        5    | - eve 2; - eve 1    | - eve 2; - eve 1
    """,
    )


def test_copies_count_in_top_k(backend: Backend) -> None:
    check_ticks(
        backend,
        top_two,
        """
        tick | sales    | out
        1    | +3 eve 5 | +2 eve 5
        2    | eve 9    | - eve 5; + eve 9
        3    | - eve 9  | - eve 9; + eve 5
        4    | -2 eve 5 | - eve 5
    """,
    )


def test_null_is_last_in_a_descending_top_k_and_first_in_an_ascending_one(backend: Backend) -> None:
    def one_of_all(flow: hr.Flow) -> None:
        sales = flow.table("sales", Sale)
        flow.sink("most", sales.top_k(1, by=col.price.desc()))
        flow.sink("least", sales.top_k(1, by=col.price))

    check_ticks(
        backend,
        one_of_all,
        """
        tick | sales    | most             | least
        1    | x null   | + x null         | + x null
        2    | x 1      | - x null; + x 1  |
        3    | - x null |                  | - x null; + x 1
    """,
    )


def test_ties_in_top_k_are_broken_by_the_whole_row(backend: Backend) -> None:
    def first_of_all(flow: hr.Flow) -> AnyStream:
        return flow.table("points", Point).top_k(1, by=col.x.desc())

    check_ticks(
        backend,
        first_of_all,
        """
        tick | points  | out
        1    | 1.0 c   | + 1.0 c
        2    | 1.0 b   | - 1.0 c; + 1.0 b
        3    | 1.0 null | - 1.0 b; + 1.0 null
        4    | nan z   | - 1.0 null; + nan z
    """,
    )


def test_a_null_is_not_a_zero_where_only_one_side_of_a_difference_has_nulls(backend: Backend) -> None:
    def without(flow: hr.Flow) -> AnyStream:
        points = flow.source("points", Point).select("x")
        readings = flow.source("readings", Reading).select(x=col.value)
        return points.difference(readings)

    check_ticks(
        backend,
        without,
        """
        tick | points        | readings | out
        1    | 0.0 a; -0.0 a |          | +2 0.0
        2    |               | null 1   |
        3    |               | -0.0 1   | -2 0.0
    """,
    )
