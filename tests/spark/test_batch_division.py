"""How a flow is divided for a batch: flows run unit by unit and on shuffled rows, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.engine.change import Change
from headrace.errors import HeadraceError, NotOnSpark
from headrace.spark.batch.batch_plan import Loop, Subplan, plan_batch
from headrace.spark.batch.subplans import distribution_of
from tests.random_flows.cases import Case, cases
from tests.spark.batch_in_process import InProcessBatch
from tests.spark.batch_rows_of import NeverQuiet, bags_in_one_tick


class Reading(NamedTuple):
    at: int
    meter: str
    value: int


READINGS = [Reading(n * 7 % 60, "abc"[n % 3], n * n % 17) for n in range(40)]
METERS = ["b", "a", "b", "c"]
INPUTS = {"readings": [Change(r, 1) for r in READINGS], "meters": [Change(m, 1) for m in METERS]}


def text(total: str, row: Any) -> str:
    return f"{total} {tuple(row)}"


def running(total: int, row: Any) -> tuple[int, int]:
    return total + row.value, total + row.value


def wider(row: Any) -> Reading:
    return Reading(row.at + 1, row.meter, row.value)


def windows(readings: Any) -> Any:
    timed = readings.watermark(col.at, lateness=10)
    return timed.group_by("meter", window=hr.tumbling(col.at, 8)).agg(n=hr.count())


def back_and_forth(r: Any) -> Any:
    """Numbers that go round through later ticks, each time with what the tick shows of all of them."""
    numbers = r.select(value=col.value, into=int)
    back = r.flow.feedback(int, distinct=False)
    fewer = numbers.union(back).filter(col.value > 3).select(value=col.value // 2, into=int)
    back.close(fewer.defer_tick())
    return fewer.fold(0, lambda n, row: n + 1, commutative=True, lifetime="tick")


# By name: what is built of readings and meters, and how its subplans run.
FLOWS: dict[str, tuple[Callable[[Any, Any], Any], list[str]]] = {
    "order is carried by filters and selections": (
        lambda r, m: r.filter(col.value > 2).select("meter", "value").fold("", text),
        ["fold: in one task"],
    ),
    "order and keys": (
        lambda r, m: r.filter(col.value > 2).select("value", of=col.meter).scan(0, running, per="of"),
        ["scan: by of"],
    ),
    "keys that the rows on the way tell": (
        lambda r, m: (
            r.inspect(repr).enumerate(per="meter").select("value", m=col.meter).scan(0, running, per=["m"])
        ),
        ["inspect enumerate select scan: by meter"],
    ),
    "the keys that all have in common": (
        lambda r, m: r.enumerate(per=["meter", "value"]).scan(0, running, per="meter"),
        ["enumerate scan: by meter"],
    ),
    "no keys in common": (
        lambda r, m: r.enumerate(per="value").scan(0, running, per="meter"),
        ["enumerate scan: in one task"],
    ),
    "what a function makes tells no keys": (
        lambda r, m: r.map(wider).scan(0, running, per="meter"),
        ["map scan: in one task"],
    ),
    "a fold that knows no order": (
        lambda r, m: r.map(wider).fold_keyed("meter", 0, lambda n, row: n + 1, commutative=True),
        ["map: row by row, wherever rows are", "fold_keyed: by meter"],
    ),
    "functions behind a subplan are on it": (
        lambda r, m: (
            r.fold_keyed("meter", "", text).map(lambda row: row.value, returns=str).filter(lambda t: True)
        ),
        ["fold_keyed map filter: by meter"],
    ),
    "ties of a sort go by order": (
        lambda r, m: r.sort("meter", lifetime="tick").fold("", text),
        ["sort fold: in one task"],
    ),
    "a sort of rows without order makes one": (
        lambda r, m: r.distinct().sort("meter", lifetime="tick").fold("", text),
        ["sort fold: in one task"],
    ),
    "nobody reads the order of a sort": (lambda r, m: r.sort("meter", lifetime="tick"), []),
    "rows as they come": (
        lambda r, m: (
            r.select(value=col.meter, into=str).union(m).assume_ordered().fold("", lambda all, row: all + row)
        ),
        ["select union assume_ordered fold: in one task"],
    ),
    "rows of a join as they come": (
        lambda r, m: (
            r.join(m, on=hr.left.meter == hr.right.value, suffix="_m").assume_ordered().fold("", text)
        ),
        ["join assume_ordered fold: in one task"],
    ),
    "a table shown in order": (
        lambda r, m: (
            r.flow.table("table", str).every_tick().assume_ordered().fold("", lambda all, row: all + row)
        ),
        ["every_tick assume_ordered fold: in one task"],
    ),
    "the first of several single rows": (
        lambda r, m: r.cross_singleton(m, lifetime="tick", suffix="_m"),
        ["cross_singleton: in one task"],
    ),
    "windows close by keys": (lambda r, m: windows(r), ["watermark: in one task", "window: by meter"]),
    "windows whose order is read": (
        lambda r, m: windows(r).fold("", text),
        ["watermark end_of_input watermark_time window fold: in one task"],
    ),
    "windows and ticks": (
        lambda r, m: windows(r).fold(0, lambda n, row: n + 1, commutative=True, lifetime="tick"),
        ["watermark: in one task", "end_of_input watermark_time window fold_tick: in one task"],
    ),
    "windows of computed times of two streams": (
        lambda r, m: (
            r.watermark(col.at, lateness=1)
            .union(r.watermark(col.at, lateness=30))
            .group_by("meter", window=hr.session(col.at * 2, 3))
            .agg(n=hr.count())
        ),
        ["watermark: in one task", "watermark: in one task", "window: by meter"],
    ),
    "late rows": (lambda r, m: r.watermark(col.at, lateness=10).late(), ["late_rows: in one task"]),
    "ticks that other parts of the flow make": (
        lambda r, m: r.union(r.defer_tick()).every_tick(),
        ["defer_tick union every_tick: in one task"],
    ),
    "each tick by itself": (
        lambda r, m: r.defer_tick().union(r).distinct(lifetime="tick"),
        ["defer_tick union distinct: in one task"],
    ),
    "each tick by itself behind rows that another part shows again": (
        lambda r, m: (
            r.every_tick()
            .join(r.select("meter").every_tick(), on="meter", lifetime=("tick", "tick"))
            .union(r.defer_tick())
        ),
        ["every_tick every_tick join defer_tick: in one task"],
    ),
    "a tick later with nothing to count": (lambda r, m: r.defer_tick().union(r).distinct(), []),
    "nothing before rows in order": (
        lambda r, m: r.inspect(repr).null().chain(r).enumerate(),
        ["inspect null chain enumerate: in one task"],
    ),
    "what waits for a tick": (lambda r, m: r.defer_tick_lazy(), []),
    "a loop through ticks": (
        lambda r, m: back_and_forth(r),
        ["feedback union filter select defer_tick fold_tick: in one task"],
    ),
    "a signal releases": (lambda r, m: r.defer_signal(m.filter(col.value == "a")), []),
    "no signal": (lambda r, m: r.defer_signal(m.filter(col.value == "z")), []),
    "a value without rows": (
        lambda r, m: r.filter(col.at < 0).fold(7, lambda n, row: n + 1, commutative=True),
        ["fold: in one task"],
    ),
    "nothing but the first tick": (
        lambda r, m: r.flow.initialize().map(lambda _: 5, returns=int),
        ["initialize map: in one task"],
    ),
}


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.seeds(3, together=3)
def test_a_flow_is_divided_and_answers_as_the_whole(name: str, seeds: range) -> None:
    build, expected = FLOWS[name]
    flow = hr.Flow("divided", ticks="given")
    flow.sink("out", build(flow.source("readings", Reading), flow.source("meters", str)))
    graph, inputs = flow.graph(), dict(INPUTS)
    if "table" in graph.sources:
        inputs["table"] = [Change(m, 1) for m in METERS] + [Change("b", -1)]
    plan = plan_batch(graph)
    subplans = [u for u in plan.units if isinstance(u, Subplan)]
    kinds = [" ".join(graph.nodes[n].operator.kind for n in u.nodes) for u in subplans]
    assert [f"{k}: {distribution_of(plan, u)}" for k, u in zip(kinds, subplans, strict=True)] == expected
    for seed in seeds:
        assert InProcessBatch(flow, inputs, seed).run() == bags_in_one_tick(flow, inputs)


def test_ticks_are_counted_where_another_part_of_the_flow_makes_them() -> None:
    flow = hr.Flow("apart", ticks="given")
    flow.sink("shown", flow.source("meters", str).every_tick())
    flow.sink("later", flow.source("readings", Reading).defer_tick())
    found = InProcessBatch(flow, INPUTS, 0).run()
    assert found == bags_in_one_tick(flow, INPUTS)
    assert found["shown"].total() == 2 * len(METERS)


def test_the_end_of_input_is_a_tick() -> None:
    flow = hr.Flow("ends", ticks="given")
    flow.sink("shown", flow.source("meters", str).every_tick())
    flow.sink("windows", windows(flow.source("readings", Reading)))
    found = InProcessBatch(flow, INPUTS, 0).run()
    assert found == bags_in_one_tick(flow, INPUTS)
    assert found["shown"].total() == 2 * len(METERS)


def test_the_end_of_input_is_no_tick_where_no_sink_hears_of_it() -> None:
    flow = hr.Flow("unheard", ticks="given")
    readings = flow.source("readings", Reading)
    windows(readings)
    flow.sink("shown", readings.every_tick())
    inputs = {"readings": INPUTS["readings"]}
    found = InProcessBatch(flow, inputs, 0).run()
    assert found == bags_in_one_tick(flow, inputs)
    assert found["shown"].total() == len(READINGS)


def test_a_loop_of_bags_is_no_subplan() -> None:
    flow = hr.Flow("loop")
    flow.sink("out", flow.fixpoint(lambda n: n.filter(col.value > 0).select(value=col.value - 1, into=int),
                                   flow.source("n", int)))  # fmt: skip
    assert [u for u in plan_batch(flow.graph()).units if isinstance(u, Subplan | Loop)] == [
        Loop((1, 2, 3, 4))
    ]


def test_what_no_sink_reads_is_left_out() -> None:
    flow = hr.Flow("unread", ticks="given")
    readings = flow.source("readings", Reading)
    readings.every_tick().fold(0, lambda n, row: n + 1, commutative=True, lifetime="tick")
    flow.sink("out", readings.defer_tick())
    assert [u for u in plan_batch(flow.graph()).units if isinstance(u, Subplan)] == []


def test_rows_of_any_type_may_stay_on_an_subplan_and_not_leave_it() -> None:
    flow = hr.Flow("any")
    numbers = flow.source("numbers", int)
    sets = numbers.fold(frozenset(), lambda all, n: all | {n}, commutative=True, returns=object)
    flow.sink("size", sets.map(len, returns=int))
    assert InProcessBatch(flow, {"numbers": [Change(n % 3, 1) for n in range(9)]}, 0).run()["size"] == {
        (3,): 1
    }
    flow.sink("sets", sets)
    with pytest.raises(NotOnSpark, match="may hold any Python value"):
        plan_batch(flow.graph())


# --- random flows ------------------------------------------------------------------------------


def agree(case: Case, seed: int) -> None:
    try:
        expected = bags_in_one_tick(case.flow, case.inputs)
    except NeverQuiet:
        reject()
    except HeadraceError as error:
        with pytest.raises(type(error)):
            InProcessBatch(case.flow, case.inputs, seed).run()
        return
    assert InProcessBatch(case.flow, case.inputs, seed).run() == expected


@given(case=cases(deferred=True, folds=True), seed=st.integers(0, 9))
def test_what_is_divided_answers_as_the_whole(case: Case, seed: int) -> None:
    agree(case, seed)


@given(case=cases(ticks=True), seed=st.integers(0, 9))
def test_operators_of_ticks_see_the_same_ticks(case: Case, seed: int) -> None:
    agree(case, seed)


@given(case=cases(order=True, deferred=True), seed=st.integers(0, 9))
def test_who_reads_order_or_time_has_it(case: Case, seed: int) -> None:
    agree(case, seed)


@given(case=cases(order=True, ticks=True), seed=st.integers(0, 9))
def test_order_and_ticks_go_together(case: Case, seed: int) -> None:
    agree(case, seed)
