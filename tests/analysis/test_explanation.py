"""`explain`: the report as people read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

import penstock as ps
from penstock import col
from penstock.analysis import Verdict, analyse
from penstock.errors import CycleThroughBlockingInput, GuardMissing, NeedNotMet
from penstock.graph.node import FlowGraph
from tests.analysis import closing_price, every_feature
from tests.analysis.graphs import graphs
from tests.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("module", [closing_price, every_feature])
def test_the_report_reads_as_it_should(module: object) -> None:
    flow = module.flow  # type: ignore[attr-defined]
    assert_golden(GOLDEN / f"{module.__name__.rpartition('.')[2]}.txt", ps.explain(flow))  # type: ignore[attr-defined]


def test_generated_code_comes_last_as_it_was_given() -> None:
    report = ps.explain(closing_price.flow, code="def tick():\n    return {}\n")
    assert report.endswith("\n\nCode\n  def tick():\n      return {}\n")


def test_a_flow_of_given_ticks_says_so() -> None:
    flow = ps.Flow("steps", ticks="given")
    flow.sink("out", flow.source("n", int).filter(col.value > 0))
    assert ps.explain(flow).startswith(
        "Flow 'steps': 3 operators, 1 stratum, 1 region; its ticks are part of its input\n"
    )


def test_windows_that_answer_when_they_close_are_not_said_to_take_rows_back() -> None:
    flow = ps.Flow("closed")
    times = flow.source("times", int).watermark("value", lateness=0)
    flow.sink("counts", times.group_by(window=ps.tumbling(col.value, 10)).agg(count=ps.count()))
    assert ps.explain(flow).endswith(
        "counts  deterministic and live: the same however the input is cut; rows are only ever added\n"
    )


@settings(max_examples=50)
@given(graphs(legal=True))
def test_every_legal_flow_has_a_report_with_a_line_per_operator(graph: FlowGraph) -> None:
    try:
        verdicts = analyse(graph).verdicts
    except (CycleThroughBlockingInput, GuardMissing, NeedNotMet):
        return
    report = ps.explain(graph)
    for node in graph.nodes:
        assert f"flow.py:{node.id + 1}" in report
    assert [v.value in report for v in verdicts.values()] == [True] * len(verdicts)
    assert ("Guards: none" in report) == all(node.operator.guard() is None for node in graph.nodes)
    assert {v for v in Verdict if f"  {v.value}:" in report} == set(verdicts.values())


def test_what_runs_in_every_tick_is_told() -> None:
    flow = ps.Flow("screen", ticks="given")
    flow.sink("out", flow.source("n", int).every_tick())
    assert "every_tick, sink 'out'  (in every tick)" in ps.explain(flow)


def test_what_leads_to_a_null_is_used() -> None:
    flow = ps.Flow("watched")
    flow.source("n", int).inspect(print).null()
    assert "Unused" not in ps.explain(flow)
