"""Batch mode: each operator as native DataFrame expressions, against the oracle, on awkward rows."""

from __future__ import annotations

import json
import math
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import headrace as hr
from headrace import col, left, right
from headrace.engine.change import Change
from headrace.errors import BadInput, BadRow, EvaluationError, NoFixpoint, UserFunctionFailed, WrongType
from headrace.lattice import Max
from headrace.spark.batch.run_batch import lower_flow
from headrace.spark.ticks.failures import decoded_errors
from tests.spark.aggregates_of_items import AGGREGATES, FURTHER
from tests.spark.batch_rows_of import bag_of_frame, bags_in_one_tick, batch_bags, frame_of, true_bags

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAN, INF = math.nan, math.inf


class Item(NamedTuple):
    key: float | None
    name: str | None
    count: int
    price: Decimal | None = None


ITEMS = [
    Item(NAN, "a", 3, Decimal("1.5")),
    Item(NAN, "a", 3, Decimal("1.5")),
    Item(None, "b", 2, None),
    Item(None, None, 5, Decimal("-2.25")),
    Item(0.0, "c", -1, Decimal("0")),
    Item(-0.0, "ä", 4, Decimal("7")),
    Item(1.5, None, 2**62, Decimal("1")),
    Item(1.5, "b", 2**62, None),
    Item(1.5, "b", -(2**62), None),
    Item(INF, "", 0, Decimal("0.333333333333333333")),
]
OTHERS = [
    Item(NAN, "x", 1),
    Item(None, "b", 2),
    Item(None, "b", 2),
    Item(-0.0, "y", 0),
    Item(1.5, None, 2**62, Decimal("1")),
    Item(1.5, "b", 7),
]


def once(rows: list[Any]) -> list[Change[Any]]:
    return [Change(row, 1) for row in rows]


def is_big(item: Item) -> bool:
    return item.count > 2


def key_and_name(item: Item) -> tuple[float | None, str]:
    return item.key, (item.name or "") * 2


class Named(NamedTuple):
    key: float | None
    name: str


def renamed(item: Item) -> Named:
    return Named(*key_and_name(item))


def letters(item: Item) -> list[str]:
    return list(item.name or "")


SINGLE: dict[str, Callable[[Any], Any]] = {
    "filter, null drops": lambda s: s.filter(col.name > "a"),
    "filter by a callable": lambda s: s.filter(is_big),
    "map": lambda s: s.map(renamed),
    "flat_map": lambda s: s.flat_map(letters),
    "select keeps copies": lambda s: s.select(name=col.name),
    "with_columns": lambda s: s.with_columns(count=col.count % 3, more=col.key * 2),
    "distinct": lambda s: s.distinct(),
    "deferred": lambda s: s.defer_tick(),
    "top k of all": lambda s: s.top_k(3, by=col.key.desc()),
    "top k with ties": lambda s: s.top_k(4, by=col.count % 2),
    "top k with ties per group": lambda s: s.top_k(1, by=col.price.is_null(), per=col.key),
    "top k per group, copies count": lambda s: s.top_k(1, by=[col.count, col.name.desc()], per=col.key),
    "top k per computed group": lambda s: s.top_k(2, by=col.key, per=col.name.is_null()),
    "all aggregates by a float": lambda s: s.group_by(col.key).agg(**AGGREGATES),
    "all aggregates by a string": lambda s: s.group_by(col.name).agg(**AGGREGATES),
    "all aggregates of everything": lambda s: s.filter(col.count < 2**62).group_by().agg(**AGGREGATES),
    "further aggregates by a float": lambda s: s.group_by(col.key).agg(**FURTHER),
    "further aggregates by a string": lambda s: s.group_by(col.name).agg(**FURTHER),
    "further aggregates of everything": lambda s: s.group_by().agg(**FURTHER),
    "two computed keys": lambda s: s.group_by(small=col.count < 4, no=col.name.is_null()).agg(n=hr.count()),
    "a key and an aggregate that take names of inputs": lambda s: s.group_by(count=col.name).agg(
        key=hr.max(col.count)
    ),
    "aggregate of an aggregate": lambda s: (
        s.group_by(col.key, col.name)
        .agg(top=hr.max(col.count))
        .group_by(col.name)
        .agg(mean=hr.mean(col.top), most=hr.count_distinct(col.top))
    ),
}


LONG = ("further aggregates by a float", "further aggregates of everything")


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(build, id=name, marks=[pytest.mark.verify] if name in LONG else [])
        for name, build in SINGLE.items()
    ],
)
def test_an_operator_answers_as_it_is_defined(spark: SparkSession, build: Callable[[Any], Any]) -> None:
    flow = hr.Flow("one")
    flow.sink("out", build(flow.source("items", Item)))
    for rows in (ITEMS, []):
        inputs = {"items": once(rows)}
        assert batch_bags(spark, flow, inputs) == true_bags(flow, inputs)


PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "union keeps copies": lambda a, b: a.union(b, b),
    "difference: null is null": lambda a, b: a.difference(b),
    "inner, null is nothing, NaN is NaN": lambda a, b: a.join(b, "key", suffix="_b"),
    "inner with a residual": lambda a, b: a.join(
        b, (left.key == right.key) & (left.count > right.count), suffix="_b"
    ),
    "left": lambda a, b: a.join(b, ["key", "name"], how="left", suffix="_b"),
    "left with a residual": lambda a, b: a.join(
        b, (left.key == right.key) & (right.count > left.count), how="left", suffix="_b"
    ),
    "semi": lambda a, b: a.join(b, "key", how="semi"),
    "semi with a residual": lambda a, b: a.join(
        b, (left.key == right.key) & (left.name != right.name), how="semi"
    ),
    "anti": lambda a, b: a.join(b, "name", how="anti"),
    "anti with a residual": lambda a, b: a.join(
        b, (left.key == right.key) & (left.count < right.count), how="anti"
    ),
    "a stream with itself": lambda a, b: a.join(a, "name", suffix="_again"),
    "computed keys": lambda a, b: a.join(b, left.count % 2 == right.count % 2, suffix="_b"),
}


@pytest.mark.parametrize("build", PAIRS.values(), ids=PAIRS)
def test_an_operator_of_two_streams_answers_as_it_is_defined(
    spark: SparkSession, build: Callable[[Any, Any], Any]
) -> None:
    flow = hr.Flow("two")
    flow.sink("out", build(flow.source("items", Item), flow.source("others", Item)))
    inputs = {"items": once(ITEMS), "others": once(OTHERS)}
    assert batch_bags(spark, flow, inputs) == true_bags(flow, inputs)


class Cased(NamedTuple):
    a: int
    A: int


def test_names_that_differ_in_upper_and_lower_case_are_two_columns(spark: SparkSession) -> None:
    flow = hr.Flow("cased")
    flow.sink("out", flow.source("cased", Cased).filter(col.a < col.A).select(A=col.a, a=col.A))
    assert batch_bags(spark, flow, {"cased": once([Cased(1, 2), Cased(2, 1)])})["out"] == {(1, 2): 1}


# --- zeros -------------------------------------------------------------------------------


class Nested(NamedTuple):
    x: float
    n: int


class Zero(NamedTuple):
    key: float
    value: float | None
    nested: Nested
    listed: list[float]


ZEROS = [
    Zero(a, b, Nested(c, 1), [d])
    for a, b, c, d in [
        (0.0, -0.0, -0.0, 0.0),
        (-0.0, 0.0, 0.0, -0.0),
        (-0.0, None, -0.0, -0.0),
        (1.0, -0.0, 0.0, 1.0),
    ]
]


def shown_value(row: Any) -> str:
    return repr(row[1])


MERGED: dict[str, Callable[[Any, Any], Any]] = {
    "extremes": lambda a, t: a.group_by().agg(
        most=hr.max(col.value), least=hr.min(-col.value), nested=hr.max(col.nested), listed=hr.min(col.listed)
    ),
    "by order": lambda a, t: a.group_by("key").agg(
        first=hr.first(col.value, by=col.nested), last=hr.last(col.nested, by=col.value)
    ),
    "collected": lambda a, t: a.group_by("key").agg(
        values=hr.collect(col.value), nested=hr.collect(col.nested), mean=hr.mean(-col.key)
    ),
    "distinct": lambda a, t: a.select(col.key, col.value).distinct().map(shown_value, returns=str),
    "distinct nested": lambda a, t: a.distinct().map(shown_value, returns=str),
    "first of a table": lambda a, t: t.top_k(2, by=col.key),
    "first of rows": lambda a, t: a.top_k(2, by=col.key).map(shown_value, returns=str),
    "a table": lambda a, t: t,
    "a table seen by a function": lambda a, t: t.map(shown_value, returns=str),
    "a table seen by an expression": lambda a, t: t.select(text=col.key.cast(str)),
    "a table of what is computed": lambda a, t: t.select(key=-col.key, value=col.value * -1.0),
    "a table joined": lambda a, t: a.join(t, on="key", suffix="_t").map(shown_value, returns=str),
    "a table joined, or not": lambda a, t: a.select(col.key, col.value).join(
        t.select(col.value, other=-col.key), on="value", how="left"
    ),
    "a lattice": lambda a, t: a.lattice_fold(Max(), value="value", per="key", into="most"),
    "a row by itself": lambda a, t: a.map(shown_value, returns=str),
    "rows by themselves": lambda a, t: a.select(key=-col.key).filter(col.key <= 0.0),
}


class Deep(NamedTuple):
    k: int
    nested: Nested
    listed: list[Nested]


@pytest.mark.parametrize("of", ["nested", "listed"])
def test_aggregates_of_nested_rows_with_floats_are_native(spark: SparkSession, of: str) -> None:
    flow = hr.Flow("nested")
    deep = flow.source("rows", Deep).group_by("k")
    column = getattr(col, of)
    flow.sink(
        "out",
        deep.agg(
            least=hr.min(column),
            most=hr.max(column),
            first=hr.first(column, by=column),
            last=hr.last(column, by=col.k),
            all=hr.collect(column),
        ),
    )
    rows = [Deep(1, Nested(x, 1), [Nested(x, 2)]) for x in (0.5, -0.0, math.nan)]
    inputs = {"rows": once(rows)}
    told = batch_bags(spark, flow, inputs)["out"], bags_in_one_tick(flow, inputs)["out"]
    assert repr(told[0]) == repr(told[1])


@pytest.mark.parametrize("build", MERGED.values(), ids=MERGED)
def test_zeros_are_shown_as_the_engine_shows_them(
    spark: SparkSession, build: Callable[[Any, Any], Any]
) -> None:
    flow = hr.Flow("zeros")
    flow.sink("out", build(flow.source("rows", Zero), flow.table("table", Zero)))
    for rows in (ZEROS, ZEROS[::-1]):
        inputs = {"rows": once(rows), "table": [*once(rows), Change(ZEROS[1], 1), Change(ZEROS[0], -1)]}
        told = (batch_bags(spark, flow, inputs)["out"], bags_in_one_tick(flow, inputs)["out"])
        batch, engine = (Counter(map(repr, bag.elements())) for bag in told)
        assert batch == engine


# --- numbers -----------------------------------------------------------------------------


class Number(NamedTuple):
    group: int
    value: int
    part: float


def numbers(values: list[int], parts: list[float]) -> list[Change[Any]]:
    return once([Number(0, v, p) for v, p in zip(values, parts, strict=True)])


HARD = {
    "a sum that leaves int64 on its way": [2**63 - 1, 1, -(2**63) + 5, -7],
    "all at the lower end": [-(2**63)] * 3,
    "just above the exact floats": [2**53, 2**53 + 1, 2**53 + 1],
    "a quotient beside a half": [2**60 + 1, 2**60 + 2, 2**60 + 3, 7, -3, 11, 13],
    "a quotient that needs bits after the point": [2**53 + 1, 2**53, 3, 0, 0, 0, 0],
    "a little more than a half": [2**59 + 64, 2**59 + 64, 2**59 + 65],
    "exactly a half": [2**59 + 64] * 3,
    "small ones": [1, 2, 2],
    "minus": [-(2**61), -(2**61) - 1, -1],
}


@pytest.mark.parametrize("values", HARD.values(), ids=HARD)
def test_sums_and_means_of_integers_are_exact(spark: SparkSession, values: list[int]) -> None:
    flow = hr.Flow("exact")
    source = flow.source("numbers", Number)
    flow.sink("mean", source.group_by(col.group).agg(mean=hr.mean(col.value)))
    inputs = {"numbers": numbers(values, [0.0] * len(values))}
    (mean,) = batch_bags(spark, flow, inputs)["mean"]
    assert mean[1] == sum(values) / len(values)
    flow = hr.Flow("sum")
    flow.sink("sum", flow.source("numbers", Number).group_by(col.group).agg(sum=hr.sum(col.value)))
    if -(2**63) <= sum(values) < 2**63:
        assert list(batch_bags(spark, flow, inputs)["sum"]) == [(0, sum(values))]
    else:
        with pytest.raises(EvaluationError):
            batch_bags(spark, flow, inputs)


@pytest.mark.parametrize("parts", [[1e16, 1.0, -1e16], [0.1] * 10, [1e308, 1e308, -1e308], [INF, -INF, 1.0]])
def test_sums_of_floats_do_not_depend_on_their_order(spark: SparkSession, parts: list[float]) -> None:
    flow = hr.Flow("floats")
    grouped = flow.source("numbers", Number).group_by(col.group)
    flow.sink("out", grouped.agg(sum=hr.sum(col.part), mean=hr.mean(col.part)))
    for order in (parts, parts[::-1]):
        inputs = {"numbers": numbers([0] * len(order), order)}
        assert batch_bags(spark, flow, inputs) == true_bags(flow, inputs)


# --- tables, loops, sharing ----------------------------------------------------------------


def test_a_table_is_what_its_weights_add_up_to(spark: SparkSession) -> None:
    flow = hr.Flow("table")
    flow.sink("out", flow.table("items", Item))
    changes = [
        Change(ITEMS[0], 2),
        Change(ITEMS[2], 1),
        Change(ITEMS[0], -1),
        Change(ITEMS[2], -1),
        Change(ITEMS[5], 3),
    ]
    found = batch_bags(spark, flow, {"items": changes})
    assert found == true_bags(flow, {"items": changes})
    assert found["out"].total() == 1 + 3


def test_a_row_taken_back_more_often_than_it_was_given_is_an_error(spark: SparkSession) -> None:
    flow = hr.Flow("table")
    flow.sink("out", flow.table("items", Item))
    with pytest.raises(BadRow, match="source 'items' takes a row back more often than it came") as raised:
        batch_bags(spark, flow, {"items": [Change(ITEMS[2], 1), Change(ITEMS[2], -2)]})
    told = raised.value
    assert json.loads(told.why) == {"name": "b", "count": 2}
    assert told.fix.endswith("tells them in the end")


class Edge(NamedTuple):
    a: str
    b: str


EDGES = [Edge(*pair) for pair in ("xy", "yz", "zx", "pq", "qr")]


def closure(flow: hr.Flow, *, deferred: bool = False) -> Any:
    edges = flow.source("edges", Edge)

    def longer(paths: Any) -> Any:
        step = paths.defer_tick() if deferred else paths
        found = step.join(edges.select(via=col.a, end=col.b), left.b == right.via)
        return found.select(a=col.a, b=col.end, into=Edge)

    return flow.fixpoint(longer, edges)


@pytest.mark.parametrize("deferred", [False, True])
def test_a_loop_answers_with_its_fixpoint(spark: SparkSession, deferred: bool) -> None:
    flow = hr.Flow("reach")
    paths = closure(flow, deferred=deferred)
    flow.sink("paths", paths)
    flow.sink("ends", paths.group_by(col.a).agg(ends=hr.count()))
    inputs = {"edges": once(EDGES)}
    found = batch_bags(spark, flow, inputs)
    assert found == true_bags(flow, inputs)
    assert len(found["paths"]) == 9 + 3


def test_a_loop_without_an_end_is_an_error_that_names_its_place(spark: SparkSession) -> None:
    flow = hr.Flow("endless")
    seed = flow.source("numbers", int)
    reached = flow.feedback(int, max_iterations=20)
    reached.close(seed.union(reached.select(value=col.value + 1, into=int)))
    flow.sink("out", reached)
    with pytest.raises(NoFixpoint) as raised:
        batch_bags(spark, flow, {"numbers": once([1])})
    assert raised.value.where[0].location.file == __file__


def test_what_several_sinks_are_made_of_is_shared_where_it_costs(spark: SparkSession) -> None:
    flow = hr.Flow("shared")
    items = flow.source("items", Item)
    cheap = items.filter(col.count > 0)
    grouped = cheap.group_by(col.name).agg(n=hr.count())
    flow.sink("groups", grouped.filter(col.n > 1))
    flow.sink("total", grouped.group_by().agg(n=hr.count()))
    flow.sink("rows", cheap)
    shared: list[Any] = []

    def share(frame: Any) -> Any:
        shared.append(frame.columns)
        return frame

    frames = {"items": frame_of(spark, items.schema, once(ITEMS), weighted=False)}
    lower_flow(flow.graph(), frames, share)
    assert shared == [["name", "n"]]


# --- what is given, what goes wrong ---------------------------------------------------------


def divide(item: Item) -> int:
    return item.count // (item.count - 2)


def test_a_function_that_raises_is_reported_with_its_row_and_place(spark: SparkSession) -> None:
    flow = hr.Flow("failing")
    flow.sink("out", flow.source("items", Item).map(divide))
    with pytest.raises(UserFunctionFailed, match="ZeroDivisionError") as raised:
        batch_bags(spark, flow, {"items": once(ITEMS)})
    assert raised.value.row == tuple(ITEMS[2])
    assert raised.value.where[0].location.file == __file__


def test_an_expression_that_fails_is_an_evaluation_error(spark: SparkSession) -> None:
    flow = hr.Flow("failing")
    flow.sink("out", flow.source("items", Item).select(x=col.count / (col.count - 2)))
    with pytest.raises(EvaluationError, match=r"DIVIDE_BY_ZERO"):
        batch_bags(spark, flow, {"items": once(ITEMS)})


def test_a_frame_is_checked_against_the_row_type(spark: SparkSession) -> None:
    flow = hr.Flow("checked")
    flow.sink("out", flow.source("edges", Edge))
    graph = flow.graph()
    with pytest.raises(BadInput, match="nothing is given for source 'edges'"):
        lower_flow(graph, {})
    with pytest.raises(WrongType, match="'b' as bigint"):
        lower_flow(graph, {"edges": spark.createDataFrame([("x", 1)], "a string, b bigint")})
    with pytest.raises(WrongType, match="no column 'b'"):
        lower_flow(graph, {"edges": spark.createDataFrame([("x",)], "a string")})
    more = spark.createDataFrame([(1, "y", "x")], "c int, b string, a string")
    schema = graph.nodes[0].schema
    assert bag_of_frame(lower_flow(graph, {"edges": more}).sinks["out"], schema) == {("x", "y"): 1}


def test_a_null_where_the_row_type_has_none_is_a_bad_row(spark: SparkSession) -> None:
    flow = hr.Flow("checked")
    flow.sink("out", flow.source("edges", Edge))
    frame = spark.createDataFrame([("x", None)], "a string, b string")
    with pytest.raises(BadRow, match="column 'b' of its DataFrame is null"), decoded_errors():
        lower_flow(flow.graph(), {"edges": frame}).sinks["out"].toArrow()


def test_the_plan_of_expressions_is_native(spark: SparkSession) -> None:
    flow = hr.Flow("native")
    items, others = flow.source("items", Item), flow.source("others", Item)
    joined = items.join(others, "key", suffix="_b").filter(col.count > col.count_b)
    flow.sink(
        "out", joined.group_by(col.name).agg(mean=hr.mean(col.count), last=hr.last(col.key, by=col.count))
    )
    frames = {
        n: frame_of(spark, items.schema, once(r), weighted=False)
        for n, r in [("items", ITEMS), ("others", OTHERS)]
    }
    plan = lower_flow(flow.graph(), frames).sinks["out"]._jdf.queryExecution().executedPlan().toString()
    assert "SortMergeJoin" in plan or "HashJoin" in plan
    assert "Python" not in plan
    assert "MapInArrow" not in plan
    assert "ArrowEval" not in plan
