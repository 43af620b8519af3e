"""A flow that travels as a plan comes back as the flow that it was."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col, left, right
from headrace.analysis import explain
from headrace.analysis.fingerprints import describe_nodes
from headrace.compute.errors import CallableRefused
from headrace.compute.plans import decode, encode
from headrace.compute.protocol.commands import PlanBytes
from headrace.flow.flow import Flow
from headrace.flow.stream import Stream
from tests.operators.examples import ALL, TICKS, example
from tests.properties.effort import examples
from tests.random_flows.cases import Case, Tick, cases, cuts
from tests.signals.test_statistics_in_flows import STATISTICS, flow_of


class Bid(NamedTuple):
    auction: int
    price: float | None
    who: str


class Auction(NamedTuple):
    id: int
    category: str


def averages(name: str = "averages") -> Flow:
    flow = hr.Flow(name)
    bids, auctions = flow.table("bids", Bid), flow.source("auctions", Auction)
    joined = bids.join(auctions, on=left.auction == right.id).filter(col.price > 1.5, name="dear")
    flow.sink("means", joined.group_by("category").agg(mean=hr.mean(col.price), rows=hr.count()))
    flow.sink("best", bids.top_k(3, by=[col.price.desc(), col.who], per=["auction"]))

    def less(numbers: Stream[Any, Any, Any, Any]) -> Stream[Any, Any, Any, Any]:
        return numbers.union(numbers.filter(col.value > 0).select(value=col.value - 1, into=int))

    flow.sink("countdown", flow.fixpoint(less, flow.table("numbers", int)))
    return flow


def travelled(flow: Flow, *, callables: bool = True) -> Flow:
    """The flow after its journey; it must be the same, and travel on as the same."""
    plan = encode(flow, allow_callables=callables)
    again = decode(plan, allow_callables=callables)
    assert [(n.name, n.operator.kind, n.inputs, n.schema) for n in again.nodes] == [
        (n.name, n.operator.kind, n.inputs, n.schema) for n in flow.nodes
    ]
    if not _holds_functions(plan):
        assert encode(again) == plan
        assert _described(again) == _described(flow)
    assert _without_places(explain(again)) == _without_places(explain(flow))
    return again


class Counts(NamedTuple):
    shop: str
    by_day: dict[int, float | None] | None


def test_maps_and_functions_of_them_travel() -> None:
    f, flow = hr.functions, hr.Flow("maps")
    counts = flow.table("counts", Counts)
    positive = f.map_filter(col.by_day, lambda day, count: count > 0)
    made = f.map_zip_with(col.by_day, f.map(1, 0.5), lambda day, one, other: one + other)
    columns = counts.select("shop", days=f.map_keys(positive), sum=made, first=col.by_day[1])
    flow.sink("out", columns.group_by("sum").agg(n=hr.count()))
    again = travelled(flow, callables=False)
    rows = [Counts("north", {1: 0.5, 2: None}), Counts("south", {2: None, 1: 0.5})]
    assert [(row.sum, row.n) for row, _ in hr.Engine(again).tick(counts=rows)["out"]] == [
        ({1: 1.0, 2: None}, 2)
    ]


def _described(flow: Flow) -> str:
    # A `when` without `otherwise` is a call like any other.
    return repr(describe_nodes(flow.graph())).replace("'When'", "'Call'")


def _holds_functions(plan: PlanBytes) -> bool:
    try:
        decode(plan)
    except CallableRefused:
        return True
    return False


def _without_places(explained: object) -> str:
    # Lines of a decoded flow stand in files that are not looked for; columns are as wide as the widest.
    words = (word for word in str(explained).split() if not (".py" in word or ".py>" in word))
    return " ".join(words)


# --- what a plan is -----------------------------------------------------------------


def test_a_plan_is_the_same_whatever_people_call_it_and_wherever_they_write_it() -> None:
    plan, other = encode(averages()), encode(averages("otherwise"))
    assert (plan.body, plan.hash) == (other.body, other.hash)
    assert plan == other
    assert plan.places != other.places


def test_a_plan_is_the_same_in_every_process() -> None:
    program = "from tests.compute.plans.test_round_trip import *; print(encode(averages()).hash)"
    other = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == encode(averages()).hash


def test_a_plan_of_another_flow_is_another() -> None:
    def limited(limit: float) -> Flow:
        flow = hr.Flow("limited")
        flow.sink("dear", flow.table("bids", Bid).filter(col.price > limit))
        return flow

    assert encode(limited(1.0)).hash != encode(limited(2.0)).hash
    assert encode(limited(0.0)).hash != encode(limited(-0.0)).hash


def test_names_and_lines_come_along_for_people() -> None:
    again = decode(encode(averages()))
    assert again.name == "averages"
    dear = next(node for node in again.nodes if node.name == "dear")
    assert dear.location.file == "<test_round_trip.py>"
    assert dear.location.text == ""  # whoever made the plan named the file: it is not read here
    assert dear.location.line > 0


def test_a_plan_without_its_places_is_the_same_flow() -> None:
    plan = encode(averages())
    for places in (b"", b"\xff\xff", plan.places[:20]):
        assert encode(decode(PlanBytes(plan.body, places))).body == plan.body


# --- all that there is ------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_every_operator_travels(name: str) -> None:
    flow = example(name)
    again = travelled(flow)
    one, other = hr.Engine(flow), hr.Engine(again)
    for tick in TICKS:
        assert _told(other.tick(**tick)) == _told(one.tick(**tick))


@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic_travels(name: str) -> None:
    flow = flow_of(STATISTICS[name])
    again = travelled(flow)
    events = [{"a": 1.0, "t": 0.0}, {"b": 3.0}, {"a": 2.0, "t": 1.0}, {"t": 4.0}, {"a": -1.0, "b": 0.5}]
    assert list(hr.Engine(again).replay(events)["out"]) == list(hr.Engine(flow).replay(events)["out"])


def _told(output: Any) -> dict[str, list[tuple[Any, int]]]:
    return {name: [(_plain(row), weight) for row, weight in changes] for name, changes in output.items()}


def _plain(row: object) -> object:
    return tuple(row) if isinstance(row, tuple) else row  # type: ignore[arg-type]


@st.composite
def cut_cases(draw: st.DrawFn, **kind: bool) -> tuple[Case, list[Tick]]:
    case = draw(cases(**kind))
    return case, draw(cuts(case, most=3))


def check_journey(case: Case, ticks: list[Tick]) -> None:
    again = travelled(case.flow)
    one, other = hr.Engine(case.flow), hr.Engine(again)
    for tick in ticks:
        assert _told(other.tick(**tick)) == _told(one.tick(**tick))


@examples(0.4)
@given(cut_cases(deferred=True, folds=True))
def test_random_flows_travel_and_answer_as_before(drawn: tuple[Case, list[Tick]]) -> None:
    check_journey(*drawn)


@examples(0.2)
@given(cut_cases(order=True))
def test_random_flows_that_read_order_travel(drawn: tuple[Case, list[Tick]]) -> None:
    check_journey(*drawn)


@examples(0.2)
@given(cut_cases(ticks=True))
def test_random_flows_that_speak_of_ticks_travel(drawn: tuple[Case, list[Tick]]) -> None:
    check_journey(*drawn)
