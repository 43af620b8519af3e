"""`explain`: the report as people read it."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, NamedTuple

import pytest
from hypothesis import given, settings

import headrace as hr
from headrace import col
from headrace.analysis import Verdict, analyse
from headrace.errors import CycleThroughBlockingInput, GuardMissing, NeedNotMet
from headrace.graph.node import FlowGraph
from headrace.lattice import Max, Merging
from tests.analysis import closing_price, every_feature
from tests.analysis.graphs import graphs
from tests.golden import assert_golden


class Line(NamedTuple):
    price: Decimal
    amount: Annotated[Decimal, hr.DecimalType(12, 2)]


GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("module", [closing_price, every_feature])
def test_the_report_reads_as_it_should(module: object) -> None:
    flow = module.flow  # type: ignore[attr-defined]
    assert_golden(GOLDEN / f"{module.__name__.rpartition('.')[2]}.txt", hr.explain(flow))  # type: ignore[attr-defined]


def test_generated_code_comes_last_as_it_was_given() -> None:
    report = hr.explain(closing_price.flow, code="def tick():\n    return {}\n")
    assert report.endswith("\n\nCode\n  def tick():\n      return {}\n")


def test_a_flow_of_given_ticks_says_so() -> None:
    flow = hr.Flow("steps", ticks="given")
    flow.sink("out", flow.source("n", int).filter(col.value > 0))
    assert hr.explain(flow).startswith(
        "Flow 'steps': 3 operators, 1 stratum, 1 region; its ticks are part of its input\n"
    )


def test_windows_that_answer_when_they_close_are_not_said_to_take_rows_back() -> None:
    flow = hr.Flow("closed")
    times = flow.source("times", int).watermark("value", lateness=0)
    flow.sink("counts", times.group_by(window=hr.tumbling(col.value, 10)).agg(count=hr.count()))
    assert f"counts  {IN_ORDER}; rows are only ever added\n" in hr.explain(flow)


def sinks_of(flow: hr.Flow) -> list[str]:
    """What the report says of the sinks, line by line, with the names of files left out."""
    _, _, sinks = hr.explain(flow).partition("\nSinks\n")
    lines = sinks.partition("\n\n")[0].rstrip().splitlines()
    return [re.sub(r"\w+\.py:\d+", "HERE", line.strip()) for line in lines]


def total(sum: float, row: float) -> float:
    return sum + row


def test_a_verdict_that_rests_on_claims_says_whose_they_are() -> None:
    flow = hr.Flow("claims")
    numbers = flow.source("numbers", float)
    flow.sink("sum", numbers.map(abs, returns=float).fold(0.0, total, commutative=True, name="all"))
    flow.sink("most", numbers.lattice_fold(Merging(0.0, max)))
    flow.sink("plain", numbers.lattice_fold(Max()))
    assert sinks_of(flow) == [
        "sum    deterministic and live: the same however the input is cut; rows may be taken back",
        "as claimed by map at HERE: abs is a function of its arguments",
        "as claimed by fold 'all' at HERE: total is a function of its arguments, total is commutative",
        "most   deterministic and live: the same however the input is cut; rows may be taken back",
        "as claimed by lattice_fold at HERE: max merges in any order and any number of times alike",
        "plain  deterministic and live: the same however the input is cut; rows may be taken back",
    ]


def running(sum: int, n: int) -> tuple[int, int]:
    return sum + n, sum + n


IN_ORDER = "reads the order of arrival: the same for rows in the same order, however cut"
EQUAL_VALUES = "may show which of equal values came first: of any type, 1, True and 1.0 are one"


def test_what_reads_the_order_of_arrival_is_called_that() -> None:
    flow = hr.Flow("order")
    numbers = flow.source("numbers", int)
    flow.sink("sums", numbers.scan(0, running, per="value", name="running"))
    flow.sink("most", numbers.enumerate().group_by().agg(most=hr.max(col.index)))
    assert sinks_of(flow) == [
        f"sums  {IN_ORDER}; rows are only ever added",
        "order is read by scan 'running' at HERE",
        "as claimed by scan 'running' at HERE: running is a function of its arguments",
        f"most  {IN_ORDER}; rows may be taken back",
        "order is read by enumerate at HERE",
    ]


def test_values_that_are_equal_and_differ_are_not_called_deterministic() -> None:
    flow = hr.Flow("objects")
    values = flow.source("values", object)
    flow.sink("rows", values.map(str, returns=str))
    flow.sink("texts", values.distinct().map(str, returns=str))
    assert sinks_of(flow) == [
        "rows   needs no coordination: rows are only ever added, whoever has seen what",
        "as claimed by map at HERE: str is a function of its arguments",
        f"texts  {EQUAL_VALUES}; rows are only ever added",
        "made one by distinct at HERE",
        "as claimed by map at HERE: str is a function of its arguments",
    ]


def test_a_flow_of_given_ticks_follows_them_where_they_show() -> None:
    flow = hr.Flow("steps", ticks="given")
    numbers = flow.source("numbers", int)
    flow.sink("again", numbers.every_tick())
    flow.sink("plain", numbers.filter(col.value > 0))
    assert [analyse(flow.graph()).verdicts[name] for name in ("again", "plain")] == [
        Verdict.GIVEN_TICKS,
        Verdict.NO_COORDINATION,
    ]
    assert "Guards: none: its ticks are part of its input" in hr.explain(flow)


@settings(max_examples=50)
@given(graphs(legal=True))
def test_every_legal_flow_has_a_report_with_a_line_per_operator(graph: FlowGraph) -> None:
    try:
        verdicts = analyse(graph).verdicts
    except (CycleThroughBlockingInput, GuardMissing, NeedNotMet):
        return
    report = hr.explain(graph)
    for node in graph.nodes:
        assert f"flow.py:{node.id + 1}" in report
    assert [v.value in report for v in verdicts.values()] == [True] * len(verdicts)
    assert ("Guards: none" in report) == all(node.operator.guard() is None for node in graph.nodes)
    assert {v for v in Verdict if f"  {v.value}:" in report} == set(verdicts.values())


def test_what_runs_in_every_tick_is_told() -> None:
    flow = hr.Flow("screen", ticks="given")
    flow.sink("out", flow.source("n", int).every_tick())
    assert "every_tick, sink 'out'  (in every tick)" in hr.explain(flow)


def test_what_leads_to_a_null_is_used() -> None:
    flow = hr.Flow("watched")
    flow.source("n", int).inspect(print).null()
    assert "Unused" not in hr.explain(flow)


def test_decimals_that_are_rounded_are_told_with_their_place() -> None:
    flow = hr.Flow("lines")
    lines = flow.source("lines", Line)
    flow.sink("exact", lines.select(total=col.amount * col.amount * 2, more=col.price + 1))
    flow.sink("sums", lines.group_by().agg(total=hr.sum(col.price * col.amount)))
    flow.sink("squares", lines.filter(col.price * col.price > 1))
    flow.sink("parts", lines.select(share=col.price / 3, unit=col.price / col.price))
    flow.sink("means", lines.group_by().agg(mean=hr.mean(col.amount)))
    *_, rounded = str(hr.explain(flow)).partition("Rounded decimals\n")
    here = re.sub(r" at test_explanation.py:\d+", "", rounded).splitlines()
    assert here == [
        "  select: more = price + 1 keeps 17 of 18 decimal places",
        "  aggregate: total = price * amount keeps 7 of 20 decimal places",
        "  filter: predicate = price * price > 1 keeps 6 of 36 decimal places",
        "  select: share = price / 3 is rounded to 18 decimal places",
        "  select: unit = price / price keeps 6 of 18 decimal places",
        "  aggregate: mean = mean(amount) is rounded to 6 decimal places",
        "  Decimal alone is decimal(38,18), and no result has more than 38 digits. To keep all,",
        "  declare fewer in the row class: Annotated[Decimal, DecimalType(12, 2)]",
    ]
