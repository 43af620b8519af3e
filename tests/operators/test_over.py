"""Window functions: whose answers change when rows come and go, peers, frames, nulls and copies."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.errors import WrongType
from headrace.operators.over.window_function import Months
from headrace.testing import check_ticks

if TYPE_CHECKING:
    from headrace.testing import Backend


class Sale(NamedTuple):
    shop: str
    day: int
    price: int | None


class Reading(NamedTuple):
    at: datetime


def over_sales(backend: Backend, table: str, **functions: Any) -> None:
    def flow(flow: hr.Flow) -> None:
        sales = flow.table("sales", Sale)
        flow.sink("out", sales.with_columns(**functions).select("shop", "day", *functions))

    check_ticks(backend, flow, table)


def test_a_row_in_between_moves_those_behind_it_and_no_others(backend: Backend) -> None:
    over_sales(
        backend,
        """
        tick | sales             | out
        1    | x 1 5; x 3 5      | + x 1 1; + x 3 2
        2    | x 2 5; y 1 5      | - x 3 2; + x 2 2; + x 3 3; + y 1 1
        3    | - x 1 5           | - x 1 1; - x 2 2; - x 3 3; + x 2 1; + x 3 2
    """,
        n=hr.row_number().over(partition_by="shop", order_by="day"),
    )


def test_ranks_of_peers(backend: Backend) -> None:
    by_price: dict[str, Any] = {"order_by": col.price.desc()}
    over_sales(
        backend,
        """
        tick | sales                      | out
        1    | x 1 9; x 2 7; x 3 7; x 4 5 | + x 1 1 1; + x 2 2 2; + x 3 2 2; + x 4 4 3
        2    | - x 2 7                    | - x 2 2 2; - x 4 4 3; + x 4 3 3
        3    | x 5 null                   | + x 5 4 4
    """,
        rank=hr.rank().over(**by_price),
        dense=hr.dense_rank().over(**by_price),
    )


def test_a_running_sum_goes_to_the_last_peer(backend: Backend) -> None:
    over_sales(
        backend,
        """
        tick | sales        | out
        1    | x 1 1; x 2 2 | + x 1 1; + x 2 3
        2    | x 1 4        | - x 1 1; - x 2 3; +2 x 1 5; + x 2 7
        3    | - x 1 1      | -2 x 1 5; - x 2 7; + x 1 4; + x 2 6
    """,
        sum=hr.sum(col.price).over(partition_by="shop", order_by="day"),
    )


def test_a_frame_of_rows_reaches_no_further(backend: Backend) -> None:
    over_sales(
        backend,
        """
        tick | sales                      | out
        1    | x 1 1; x 2 2; x 3 4; x 4 8 | + x 1 1; + x 2 3; + x 3 6; + x 4 12
        2    | - x 2 2                    | - x 2 3; - x 3 6; + x 3 5
        3    | x 9 null                   | + x 9 8
    """,
        sum=hr.sum(col.price).over(order_by="day", rows=(-1, 0)),
    )


def test_a_frame_of_values_measures_them(backend: Backend) -> None:
    over_sales(
        backend,
        """
        tick | sales               | out
        1    | x 1 1; x 2 2; x 9 4 | + x 1 2; + x 2 2; + x 9 1
        2    | x 3 0               | - x 2 2; + x 2 3; + x 3 2
    """,
        n=hr.count().over(order_by="day", range=(-1, 1)),
    )


def test_a_frame_without_rows_counts_zero_and_sums_to_null(backend: Backend) -> None:
    over_sales(
        backend,
        """
        tick | sales        | out
        1    | x 1 1        | + x 1 0 null
        2    | x 2 5        | - x 1 0 null; + x 1 1 5; + x 2 0 null
    """,
        n=hr.count().over(order_by="day", rows=(1, 2)),
        sum=hr.sum(col.price).over(order_by="day", rows=(1, 2)),
    )


def test_values_of_other_rows(backend: Backend) -> None:
    by_day: dict[str, Any] = {"order_by": "day"}
    over_sales(
        backend,
        """
        tick | sales                  | out
        1    | x 1 1; x 2 null; x 3 3 | + x 1 null null 1; + x 2 1 3 1; + x 3 1 -1 1
        2    | - x 1 1                | - x 1 null null 1; - x 2 1 3 1; - x 3 1 -1 1; + x 2 null 3 null; \
+ x 3 null -1 null
    """,
        before=hr.lag(col.price, ignore_nulls=True).over(**by_day),
        after=hr.lead(col.price, 1, -1).over(**by_day),
        first=hr.first_value(col.price).over(**by_day),
    )


def test_copies_are_rows_of_their_own(backend: Backend) -> None:
    over_sales(
        backend,
        """
        tick | sales    | out
        1    | +2 x 1 5 | + x 1 1; + x 1 2
        2    | - x 1 5  | - x 1 2
    """,
        n=hr.row_number().over(order_by="day"),
    )


def test_a_row_that_goes_before_it_comes_is_not_there(backend: Backend) -> None:
    over_sales(
        backend,
        """
        tick | sales    | out
        1    | - x 1 5  |
        2    | x 2 1    | + x 2 1
        3    | x 1 5    |
        4    | x 1 5    | - x 2 1; + x 1 1; + x 2 2
    """,
        n=hr.row_number().over(order_by="day"),
    )


def test_copies_that_go_before_they_come_are_counted(backend: Backend) -> None:
    over_sales(
        backend,
        """
        tick | sales    | out
        1    | -2 x 1 5 |
        2    | +2 x 1 5 |
        3    | x 1 5    | + x 1 null
    """,
        before=hr.lag(col.price).over(order_by="day"),
    )


def test_columns_are_computed_of_the_row_as_it_was() -> None:
    flow = hr.Flow("replacing")
    sales = flow.table("sales", Sale)
    flow.sink("out", sales.with_columns(price=hr.count().over(), more=col.price + 1))
    (change,) = hr.Engine(flow).tick(sales=[Sale("x", 1, 5)])["out"]
    assert change.row == ("x", 1, 1, 6)


def test_one_operator_computes_all_of_one_partition_and_order() -> None:
    flow = hr.Flow("shared")
    sales = flow.table("sales", Sale)
    made = sales.with_columns(
        n=hr.row_number().over(partition_by="shop", order_by="day"),
        all=hr.count().over(),
        before=hr.lag(col.price).over(partition_by="shop", order_by="day"),
    )
    flow.sink("out", made)
    assert [node.operator.kind for node in flow.graph().nodes].count("over") == 2
    assert made.schema.names == ("shop", "day", "price", "n", "all", "before")


@pytest.mark.parametrize(
    ("function", "reach"),
    [
        (hr.lag(col.price).over(order_by="day"), "the rows near it"),
        (hr.sum(col.price).over(order_by="day", range=(-3, 0)), "the rows near it"),
        (hr.row_number().over(order_by="day"), "the rows behind it"),
        (hr.sum(col.price).over(order_by="day"), "its partition"),
        (hr.ntile(4).over(order_by="day"), "its partition"),
    ],
)
def test_explain_says_what_a_change_costs(function: Any, reach: str) -> None:
    made = hr.Flow("costs").table("sales", Sale).with_columns(x=function)
    assert made.flow.nodes[-1].operator.describe().endswith(f"; a change costs {reach}")


def test_a_range_of_time_is_a_timedelta() -> None:
    flow = hr.Flow("readings")
    hour = timedelta(hours=1)
    near = hr.count().over(order_by="at", range=(-hour, hour))
    flow.sink("out", flow.table("readings", Reading).with_columns(near=near))
    noon = datetime(2001, 9, 11, 12, tzinfo=UTC)
    rows = [(noon + minutes * timedelta(minutes=1),) for minutes in (0, 30, 90)]
    changes = hr.Engine(flow).tick(readings=rows)["out"]
    assert [near for _, near in sorted(change.row for change in changes)] == [2, 3, 2]


@pytest.mark.parametrize(
    ("frame", "near"),
    [
        ((-timedelta(hours=1), 0), [1, 2, 2]),
        ((0, timedelta(hours=1)), [2, 2, 1]),
        ((0, 0), [1, 1, 1]),
        ((timedelta(), timedelta(hours=1)), [2, 2, 1]),
        ((None, -timedelta(minutes=30)), [0, 1, 2]),
    ],
)
@pytest.mark.parametrize("descending", [False, True])
def test_a_range_of_time_may_end_at_the_row_itself(frame: Any, near: list[int], descending: bool) -> None:
    flow = hr.Flow("readings")
    by = col.at.desc() if descending else col.at
    count = hr.count().over(order_by=by, range=frame)
    flow.sink("out", flow.table("readings", Reading).with_columns(near=count))
    noon = datetime(2001, 9, 11, 12, tzinfo=UTC)
    rows = [(noon + minutes * timedelta(minutes=1),) for minutes in (0, 30, 90)]
    # From the last row on, the first is as far as the last is from the first.
    rows = [(noon - (at - noon),) for (at,) in rows] if descending else rows
    engine, found = hr.Engine(flow), dict[Any, int]()
    for row in (rows[1], rows[0], rows[2]):
        for change in engine.tick(readings=[row])["out"]:
            if change.weight > 0:
                found[change.row.at] = change.row.near
    assert [found[at] for (at,) in rows] == near


def test_a_range_of_months_ends_at_the_last_day_of_a_month() -> None:
    flow = hr.Flow("days")
    later = hr.count().over(order_by="at", range=(Months(-1), 0))
    flow.sink("out", flow.table("days", Day).with_columns(later=later).select("at", "later"))
    engine = hr.Engine(flow)
    engine.tick(days=[Day(date(2023, 3, day), Decimal("0.00")) for day in (28, 29, 31)])
    changes = engine.tick(days=[Day(date(2023, 2, 28), Decimal("0.00"))])["out"]
    assert {(c.row.at.day, c.row.later) for c in changes if c.weight > 0} == {
        (28, 1),
        (28, 2),
        (29, 3),
        (31, 4),
    }


def test_a_range_of_a_value_behind_whether_it_is_null() -> None:
    flow = hr.Flow("prices")
    by = [col.price.is_null().desc(), col.price.desc()]
    near = hr.count().over(order_by=by, range=(-1, 0))
    flow.sink("out", flow.table("sales", Sale).with_columns(near=near).select("price", "near"))
    engine = hr.Engine(flow)
    engine.tick(sales=[Sale("x", 1, 3), Sale("x", 2, None), Sale("x", 3, 1)])
    changes = engine.tick(sales=[Sale("x", 4, 2), Sale("x", 5, None)])["out"]
    assert {tuple(c.row) for c in changes if c.weight > 0} == {(None, 2), (2, 2), (1, 2)}


class Measure(NamedTuple):
    x: float
    id: int


def test_a_range_of_floats_reaches_what_its_rounded_bounds_hold() -> None:
    """0.3 + 0.1 is 0.4, and 0.4 - 0.1 is more than 0.3."""
    flow = hr.Flow("measures")
    near = hr.count().over(order_by="x", range=(-0.1, 0.1))
    flow.sink("out", flow.table("measures", Measure).with_columns(near=near))
    engine = hr.Engine(flow)
    engine.tick(measures=[Measure(0.3, 1), Measure(0.4, 2)])
    changes = {(c.row.id, c.row.near, c.weight) for c in engine.tick(measures=[Measure(0.4, 3)])["out"]}
    assert {(1, 2, -1), (1, 3, 1)} <= changes


class Day(NamedTuple):
    at: date
    amount: Annotated[Decimal, hr.DecimalType(38, 2)]


def test_a_range_ends_where_its_type_does() -> None:
    flow = hr.Flow("days")
    day = timedelta(days=1)
    later = hr.count().over(order_by="at", range=(day, 5 * day))
    sooner = hr.count().over(order_by="at", range=(-5 * day, -day))
    flow.sink("out", flow.table("days", Day).with_columns(later=later, sooner=sooner))
    engine = hr.Engine(flow)
    engine.tick(days=[Day(date.max, Decimal("0.00")), Day(date.min, Decimal("0.00"))])
    engine.tick(days=[Day(date.max - 3 * day, Decimal("0.00"))])
    changes = engine.tick(days=[Day(date.max, Decimal("1.00"))])["out"]
    ((_, _, *counted),) = [change.row for change in changes if change.row.amount]
    assert counted == [0, 1]


def test_a_range_of_long_decimals_is_exact() -> None:
    flow = hr.Flow("days")
    near = hr.count().over(order_by="amount", range=(0, Decimal("0.50")))
    flow.sink("out", flow.table("days", Day).with_columns(near=near))
    most = "9" * 36
    rows = [Day(date.min, Decimal(f"{most}.{cents}")) for cents in ("00", "40", "60")]
    assert sorted(c.row.near for c in hr.Engine(flow).tick(days=rows)["out"]) == [1, 2, 2]


@pytest.mark.parametrize("build", [lambda: hr.lag(col.price, 1.5), lambda: hr.lead(col.price, "a")])  # type: ignore[arg-type]
def test_an_offset_is_a_number_of_rows(build: Any) -> None:
    with pytest.raises(WrongType, match="lag by"):
        build()


def test_a_value_that_is_computed_stands_for_all_that_are_equal() -> None:
    one, other = hr.functions.map("b", 1, "a", 2), hr.functions.map("a", 2, "b", 1)
    flow = hr.Flow("maps")
    sales = flow.table("sales", Sale)
    first = sales.with_columns(m=hr.first_value(one).over(partition_by="shop", order_by="day"))
    flow.sink("out", first.union(sales.with_columns(m=other)))
    (change,) = hr.Engine(flow).tick(sales=[Sale("a", 1, 2)])["out"]
    assert (list(change.row.m), change.weight) == (["a", "b"], 2)
