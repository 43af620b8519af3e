"""Combining before an exchange: which operators are divided, and that the answers stay the same. No Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import Engine, Flow, col
from headrace.engine.columnar.columnar_option import Columnar
from headrace.expr.types import DecimalType
from headrace.operators.aggregate.exact_totals import float_add, float_merge
from headrace.spark.placing.pushdown import combined_nodes, insert_partial_operators
from headrace.spark.placing.stages import cut_stages
from headrace.spark.ticks.cell import run_stateless
from tests.spark.tasks_in_process import SPOOLED, InProcessTasks

NAN, INF = float("nan"), float("inf")


class Bid(NamedTuple):
    auction: int
    price: int


class Sale(NamedTuple):
    shop: str | None
    pieces: int | None
    weight: float | None
    price: Annotated[Decimal, DecimalType(12, 2)] | None


def kinds(flow: Flow, shards: int = 3) -> list[list[str]]:
    plan = cut_stages(insert_partial_operators(flow.graph()), shards)
    stages = [zip(s.graph.nodes, s.origins, strict=True) for s in plan.stages]
    return [sorted(n.operator.kind for n, o in nodes if o is not None) for nodes in stages]


def bids_and(build: Callable[[Any], Any]) -> Flow:
    flow = Flow("bids")
    flow.sink("out", build(flow.source("bids", Bid)))
    return flow


def changing_and(build: Callable[[Any], Any]) -> Flow:
    flow = Flow("bids that may be taken back")
    flow.sink("out", build(flow.table("bids", Bid)))
    return flow


def best(bids: Any) -> Any:
    return bids.group_by(col.auction).agg(best=hr.max(col.price))


# -- which operators ---------------------------------------------------------------------------


def test_an_aggregate_sends_its_groups_and_not_its_rows() -> None:
    flow = bids_and(lambda b: b.group_by(col.auction).agg(n=hr.count(), total=hr.sum(col.price)))
    assert kinds(flow) == [["partial aggregate", "select", "source"], ["aggregate", "sink"]]
    assert len(combined_nodes(flow.graph())) == 1


def test_an_aggregate_of_everything_is_combined_per_shard_then_in_one() -> None:
    flow = bids_and(lambda b: best(b).group_by().agg(mean=hr.mean(col.best)))
    assert kinds(flow) == [
        ["partial aggregate", "select", "source"],
        ["aggregate", "partial aggregate", "select"],
        ["aggregate", "sink"],
    ]


def test_an_aggregate_whose_rows_are_there_already_is_left_as_it_is() -> None:
    flow = Flow("joined")
    bids = flow.source("bids", Bid)
    pairs = bids.join(flow.source("others", Bid), on="auction", suffix="_b")
    flow.sink("out", pairs.group_by(col.auction).agg(best=hr.max(col.price)))
    assert insert_partial_operators(flow.graph()) == flow.graph()


def test_rows_that_somebody_else_needs_there_are_not_sent_twice() -> None:
    flow = Flow("shared")
    bids = flow.source("bids", Bid)
    flow.sink("best", best(bids))
    flow.sink("pairs", bids.join(flow.source("others", Bid), on="auction", suffix="_b"))
    assert insert_partial_operators(flow.graph()) == flow.graph()


@pytest.mark.parametrize("aggregation", [hr.count_distinct(col.price), hr.collect(col.price)])
def test_an_aggregate_whose_parts_do_not_add_up_is_left_as_it_is(aggregation: Any) -> None:
    flow = bids_and(lambda b: b.group_by(col.auction).agg(a=aggregation, n=hr.count()))
    assert combined_nodes(flow.graph()) == set()


def test_extremes_are_combined_only_where_no_row_is_taken_back() -> None:
    def first(bids: Any) -> Any:
        return bids.group_by(col.auction).agg(first=hr.first(col.price, by=col.price))

    for extreme in (best, first):
        assert combined_nodes(bids_and(extreme).graph())
        assert combined_nodes(changing_and(extreme).graph()) == set()
    assert combined_nodes(changing_and(lambda b: b.group_by().agg(n=hr.count())).graph())


def test_top_k_gets_candidates_only_where_no_row_is_taken_back() -> None:
    def top(bids: Any) -> Any:
        return bids.top_k(2, by=col.price.desc())

    assert kinds(bids_and(top)) == [["candidates", "source"], ["sink", "top_k"]]
    assert combined_nodes(changing_and(top).graph()) == set()


def test_what_is_combined_does_not_depend_on_the_number_of_shards() -> None:
    flow = bids_and(lambda b: best(b).group_by().agg(mean=hr.mean(col.best)))

    def partials(shards: int) -> list[str]:
        return [kind for stage in kinds(flow, shards) for kind in stage if kind == "partial aggregate"]

    assert partials(1) == partials(2) == partials(5) == ["partial aggregate"] * 2


def test_keys_that_are_the_same_and_arguments_that_are_keys_stay_apart(tmp_path: Path) -> None:
    flow = bids_and(
        lambda b: b.group_by(a=col.auction, b=col.auction, c=col.price % 2).agg(
            x=hr.sum(col.auction), y=hr.mean(col.price % 2), z=hr.count()
        )
    )
    assert combined_nodes(flow.graph())
    changes = InProcessTasks(flow, 2, tmp_path, "stages").tick({"bids": [Bid(1, 3), Bid(1, 5), Bid(2, 4)]})
    assert sorted(changes["out"]) == [(1, 1, 1, 2, 1.0, 2, 1), (2, 2, 0, 2, 0.0, 1, 1)]


# -- what is sent --------------------------------------------------------------------------------


def sent_rows(flow: Flow, bids: list[Bid], folder: Path) -> int:
    """Rows that leave stage 0 for one piece of a tick."""
    tasks = InProcessTasks(flow, 3, folder, "one task")
    sent: list[int] = []
    run_stateless(
        tasks.plan.stages[0],
        {"bids": tasks.engine.internal_rows("bids", bids)},
        lambda *message: sent.append(len(message[3])),
    )
    return sum(sent)


def test_a_piece_of_a_tick_sends_one_row_per_group(tmp_path: Path) -> None:
    flow = bids_and(lambda b: b.group_by(col.auction).agg(total=hr.sum(col.price)))
    assert sent_rows(flow, [Bid(n % 7, n) for n in range(1000)], tmp_path) == 7


def test_a_piece_of_a_tick_sends_no_more_than_k_rows(tmp_path: Path) -> None:
    flow = bids_and(lambda b: b.top_k(3, by=col.price.desc()))
    assert sent_rows(flow, [Bid(n % 7, n) for n in range(1000)], tmp_path) == 3


# -- the same answers ----------------------------------------------------------------------------


numbers = st.one_of(st.none(), st.integers(-(2**62), 2**62), st.integers(-3, 3))
weights = st.one_of(st.none(), st.floats(), st.sampled_from([0.1, -0.1, NAN, INF, -INF, 1e300, 2.0**-1074]))
prices = st.one_of(st.none(), st.decimals(-9999, 9999, places=2))
sales = st.builds(Sale, st.sampled_from(["a", "b", None]), numbers, weights, prices)


def everything(sales: Any) -> Any:
    return sales.group_by(col.shop).agg(
        n=hr.count(),
        weighed=hr.count(col.weight),
        weight=hr.sum(col.weight),
        mean_weight=hr.mean(col.weight),
        price=hr.sum(col.price),
        mean_price=hr.mean(col.price),
        mean_pieces=hr.mean(col.pieces),
    )


def extremes(sales: Any) -> Any:
    return sales.group_by(col.shop).agg(
        lightest=hr.min(col.weight),
        heaviest=hr.max(col.weight),
        dearest=hr.max(col.price),
        n=hr.count(),
        first=hr.first(col.price, by=col.weight),
        last=hr.last(col.weight, by=col.pieces),
    )


def compared(
    flow: Flow, ticks: list[Any], folder: Path, shards: int, way: str, *, reading: Any = SPOOLED
) -> None:
    engine, tasks = Engine(flow), InProcessTasks(flow, shards, folder, way, reading=reading)
    for rows in ticks:
        expected = {n: Counter(map(repr, c.raw)) for n, c in engine.tick(sales=rows).items() if len(c)}
        assert {n: Counter(map(repr, r)) for n, r in tasks.tick({"sales": rows}).items()} == expected


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.tuples(sales, st.integers(-2, 3)), max_size=8), max_size=4),
    st.integers(1, 3),
    st.sampled_from(["one task", "stages"]),
)
def test_sums_of_a_table_are_those_of_the_engine(
    tmp_path_factory: pytest.TempPathFactory, ticks: list[Any], shards: int, way: str
) -> None:
    flow = Flow("sums")
    table = flow.table("sales", Sale)
    flow.sink("out", everything(table))
    flow.sink("all", table.group_by().agg(n=hr.count(), p=hr.sum(col.price)))
    assert len(combined_nodes(flow.graph())) == 2
    changes = [[hr.Change(row, n) for row, n in tick if n] for tick in ticks]
    compared(flow, changes, tmp_path_factory.mktemp("sums"), shards, way)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(sales, max_size=8), max_size=4),
    st.integers(1, 3),
    st.sampled_from(["one task", "stages"]),
)
def test_extremes_and_tops_of_a_stream_are_those_of_the_engine(
    tmp_path_factory: pytest.TempPathFactory, ticks: list[list[Sale]], shards: int, way: str
) -> None:
    flow = Flow("extremes")
    rows = flow.source("sales", Sale)
    flow.sink("out", extremes(rows))
    flow.sink("top", rows.top_k(3, by=[col.price.desc()]))
    flow.sink("top of each", rows.top_k(1, by=[col.weight], per=col.shop))
    assert len(combined_nodes(flow.graph())) == 3
    compared(flow, ticks, tmp_path_factory.mktemp("extremes"), shards, way)


class Load(NamedTuple):
    shop: str | None
    weighed: float | None
    pieces: int | None


loads = st.builds(Load, st.sampled_from(["a", "b", None]), weights, st.none() | st.integers(-3, 3))


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.tuples(loads, st.integers(-2, 3)), max_size=8), max_size=4),
    st.integers(1, 3),
    st.sampled_from(["one task", "stages"]),
    st.booleans(),
)
def test_sums_are_those_of_the_engine_where_rows_and_state_are_columns(
    tmp_path_factory: pytest.TempPathFactory, ticks: list[Any], shards: int, way: str, in_cells: bool
) -> None:
    flow = Flow("sums")
    by_shop = flow.table("sales", Load).group_by(col.shop)
    total, mean = hr.sum(col.weighed), hr.mean(col.weighed)
    flow.sink("out", by_shop.agg(n=hr.count(), total=total, mean=mean, pieces=hr.sum(col.pieces)))
    changes = [[hr.Change(row, n) for row, n in tick if n] for tick in ticks]
    cells = Columnar(1, always=in_cells, release=lambda name: None)
    with (
        mock.patch("headrace.spark.ticks.columnar_stage._LEAST", 1),
        mock.patch("headrace.spark.ticks.cell.ARRANGED", cells),
    ):
        compared(flow, changes, tmp_path_factory.mktemp("sums"), shards, way, reading=None)


def test_a_sum_that_leaves_int64_fails_where_the_user_wrote_it(tmp_path: Path) -> None:
    flow = Flow("too much")
    flow.sink("out", flow.source("bids", Bid).group_by().agg(total=hr.sum(col.price)))
    tasks = InProcessTasks(flow, 2, tmp_path, "one task")
    rows = {"bids": [Bid(1, 2**63 - 1), Bid(1, 1)]}
    with pytest.raises(hr.HeadraceError) as told:
        tasks.tick(rows)
    with pytest.raises(hr.HeadraceError) as expected:
        Engine(flow).tick(**rows)
    assert str(told.value) == str(expected.value)


def test_an_argument_that_fails_is_told_as_the_engine_tells_it(tmp_path: Path) -> None:
    flow = Flow("division")
    flow.sink("out", flow.source("bids", Bid).group_by().agg(total=hr.sum(col.price / col.auction)))
    with pytest.raises(hr.HeadraceError) as told:
        InProcessTasks(flow, 2, tmp_path, "stages").tick({"bids": [Bid(0, 1)]})
    with pytest.raises(hr.HeadraceError) as expected:
        Engine(flow).tick(bids=[Bid(0, 1)])
    assert str(told.value) == str(expected.value)


@given(st.lists(st.tuples(st.floats(), st.integers(-2, 2)), max_size=6), st.integers(0, 6))
def test_two_float_sums_added_are_the_sum_of_all(values: list[tuple[float, int]], at: int) -> None:
    def total(of: list[tuple[float, int]]) -> list[Any]:
        state = [0, 1, 0, 0, 0]
        for value, weight in of:
            float_add(state, 0, value, weight)
        return state

    one, other, whole = total(values[:at]), total(values[at:]), total(values)
    float_merge(one, 0, other[0], other[1], other[2], other[3], other[4])
    assert one[0] * whole[1] == whole[0] * one[1]
    assert one[2:] == whole[2:]


# -- cross joins ------------------------------------------------------------------------------


def above_average(bids: Any) -> Any:
    average = bids.group_by().agg(average=hr.mean(col.price))
    return bids.cross_join(average).filter(col.price > col.average)


def test_the_small_side_of_a_threshold_goes_to_all_shards() -> None:
    plan = cut_stages(insert_partial_operators(changing_and(above_average).graph()), 3)
    routes = [f"{e.from_stage}->{e.to_stage} {e.route}" for e in plan.exchanges]
    assert sorted(routes) == ["0->1 all to one", "0->2 by auction, price", "1->2 to all"]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.builds(Bid, st.integers(0, 3), st.integers(0, 9)), st.integers(-1, 2)), max_size=6
        ),
        max_size=4,
    ),
    st.integers(1, 3),
    st.sampled_from(["one task", "stages"]),
)
def test_a_cross_join_is_that_of_the_engine(
    tmp_path_factory: pytest.TempPathFactory, ticks: list[Any], shards: int, way: str
) -> None:
    flow = Flow("pairs")
    bids = flow.table("bids", Bid)
    sums = bids.group_by("auction").agg(best=hr.max(col.price))
    flow.sink("out", above_average(bids))
    flow.sink("all", bids.cross_join(sums, suffix="_b"))
    engine, tasks = Engine(flow), InProcessTasks(flow, shards, tmp_path_factory.mktemp("pairs"), way)
    for tick in ticks:
        rows = {"bids": [hr.Change(row, n) for row, n in tick if n]}
        expected = {n: Counter(c.raw) for n, c in engine.tick(**rows).items() if len(c)}
        assert {n: Counter(r) for n, r in tasks.tick(rows).items()} == expected
