"""Operators with parameters that no method of a stream gives, on every operator that has some: refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import headrace as hr
from headrace import col, lattice, lit
from headrace.compute.errors import BadPlan
from headrace.compute.plans import decode, encode
from headrace.compute.plans.conversion import encode_body, pickle_callables
from headrace.compute.plans.encoding import ValueEncoder
from headrace.compute.plans.generated import plan_pb2 as pb
from headrace.compute.protocol.commands import PlanBytes
from headrace.expr.types import INT64
from headrace.flow.flow import Flow
from headrace.operators.event_time.watermark import Move, WatermarkPolicy
from headrace.operators.event_time.window import Window
from headrace.operators.lifetime import Lifetime
from headrace.operators.signals.lift import Constant
from headrace.operators.statistics.ewm import Decay
from headrace.operators.statistics.statistic import CountWindow
from headrace.operators.time_spans import Grid, Sessions
from tests.operators.examples import example
from tests.signals.test_statistics_in_flows import STATISTICS

STATIC, TICK = Lifetime.STATIC, Lifetime.TICK

# The example, the operator in it, the parameters that it gets.
FORGED: list[tuple[str, str, dict[str, Any]]] = [
    ("join: inner", "Join", {"right_keys": (lit("text"),)}),
    ("join: inner", "Join", {"right_keys": ()}),
    ("join: left", "Join", {"left_keys": (), "right_keys": ()}),
    ("join: inner", "Join", {"residual": col.a}),
    ("join: inner", "Join", {"residual": col.nobody == 1}),
    ("join: inner", "Join", {"kept_right": (5,)}),
    ("join: inner", "Join", {"kept_right": (-1,)}),
    ("join: inner", "Join", {"pair_names": ("a", "a", "b", "c")}),
    ("join: inner", "Join", {"pair_names": ("a",)}),
    ("join: left", "Join", {"lifetimes": (STATIC, TICK)}),
    ("join: semi", "Join", {"kept_right": (1,)}),
    ("join: inner", "Join", {"nondet": " "}),
    ("distinct: distinct", "Distinct", {"columns": (col.a,)}),
    ("unique: append", "Unique", {"columns": (col.b, col.a)}),
    ("difference: difference", "Difference", {"neg_columns": (col.a,)}),
    ("difference: difference", "Difference", {"lifetimes": (STATIC, TICK)}),
    ("feedback: fixpoint", "Feedback", {"columns": (col.a,)}),
    ("feedback: fixpoint", "Feedback", {"max_iterations": 0}),
    ("feedback: feedback of a bag", "BagFeedback", {"max_iterations": -1}),
    ("top_k: top_k", "TopK", {"count": 0}),
    ("top_k: top_k", "TopK", {"per": (col.nobody,)}),
    ("aggregate: sum", "Aggregate", {"aggregations": ()}),
    ("aggregate: sum", "Aggregate", {"aggregations": (("x", hr.sum(lit("text"))),)}),
    ("aggregate: sum", "Aggregate", {"nondet": ""}),
    ("union: union", "Union", {"count": 3}),
    ("union: union", "Union", {"count": -1}),
    ("chain_first_n: chain_first_n", "ChainFirstN", {"count": -1}),
    ("zip: zip", "Zip", {"kept_right": (0,)}),
    ("zip_longest: zip_longest", "ZipLongest", {"kept_right": (1, 0)}),
    ("cross_singleton: cross_singleton", "CrossSingleton", {"kept_right": ()}),
    ("explode: flatten", "Explode", {"at": 7}),
    ("explode: flatten", "Explode", {"at": -1}),
    ("partition: expression", "Partition", {"tags": (1, 1)}),
    ("partition: expression", "Partition", {"tags": ("text",)}),
    ("partition: expression", "Partition", {"tags": ()}),
    ("enumerate: enumerate", "Enumerate", {"start": 2**63}),
    ("enumerate: enumerate", "Enumerate", {"per": (col.nobody,)}),
    ("filter: expression", "Filter", {"predicate": col.a}),
    ("source: append", "SourceOperator", {"bounded": True, "append": False}),
    ("lattice_fold: of all", "LatticeFold", {"lattice": lattice.SetUnion()}),
    ("state: state", "RunningState", {"lattice": lattice.BoolOr()}),
    ("at_least: at_least", "AtLeast", {"threshold": "text"}),
    ("at_least: at_least", "AtLeast", {"column": "a"}),
    ("at_least: at_least", "AtLeast", {"lattice": lattice.Min()}),
    ("at_least: at_least", "AtLeast", {"keys": ()}),
    ("sort: sort", "Sort", {"nondet": "\t"}),
    ("watermark: on_time", "OnTime", {"clock": WatermarkPolicy("nobody", 0)}),
    ("watermark: on_time", "OnTime", {"clock": WatermarkPolicy("a", -1)}),
    ("watermark: on_time", "OnTime", {"clock": WatermarkPolicy("a", 0.5)}),
    ("watermark: on_time", "OnTime", {"clock": WatermarkPolicy("a", 0, 0)}),
    ("late_rows: late_rows", "LateRows", {"clock": WatermarkPolicy("a", -1)}),
    ("watermark_time: close", "Watermark", {"clock": WatermarkPolicy("a", 5)}),
    ("watermark_time: close", "EndOfInput", {"sources": ("y",)}),
    ("least_watermark: union", "LeastWatermark", {"moves": ((), (Move(INT64, lit(0) - col.value),))}),
    ("window: sliding", "Window", {"shape": Grid(1, 3)}),
    ("window: sliding", "Window", {"shape": Grid(0, 0)}),
    ("window: sliding", "Window", {"shape": Grid(2.5, 1.0)}),
    ("window: session", "Window", {"shape": Sessions(0)}),
    ("window: sliding", "Window", {"time": col.b}),
    ("window: sliding", "Window", {"time": col.a + 1}),
    ("distinct: of a time", "ExpiringDistinct", {"width": 100}),
    ("distinct: of a time", "ExpiringDistinct", {"time": "b"}),
    ("first_within: first_within", "FirstWithin", {"within": 0}),
    ("first_within: first_within", "FirstWithin", {"time": "b"}),
    ("join: of times", "IntervalJoin", {"high": 1000}),
    ("join: of times", "IntervalJoin", {"low": 1, "high": -1}),
    ("join: of times", "IntervalJoin", {"times": ("b", "b")}),
]


def forged(flow: Flow, kind: str, changes: dict[str, Any]) -> pb.Body:
    """The body of a flow of which an operator was changed."""
    nodes = list(flow.nodes)
    at = next(n.id for n in nodes if type(n.operator).__name__ == kind)
    operator: Any = nodes[at].operator
    nodes[at] = dataclasses.replace(nodes[at], operator=dataclasses.replace(operator, **changes))
    writer = ValueEncoder()
    body = encode_body(tuple(nodes), writer, given_ticks=flow.graph().given_ticks)
    body.functions = pickle_callables(writer.functions)
    return body


def refused(body: pb.Body) -> None:
    with pytest.raises(BadPlan) as error:
        decode(PlanBytes(body.SerializeToString(deterministic=True)), allow_callables=True)
    assert error.value.facts["part"].startswith("operator")


@pytest.mark.parametrize(("name", "kind", "changes"), FORGED, ids=[f"{n}: {list(c)}" for n, _, c in FORGED])
def test_parameters_that_no_method_gives_are_refused(name: str, kind: str, changes: dict[str, Any]) -> None:
    refused(forged(example(name), kind, changes))


SIGNALS: list[tuple[str, str, dict[str, Any]]] = [
    ("mean", "StatisticSignal", {"statistic.window": CountWindow(0, 0)}),
    ("mean", "StatisticSignal", {"statistic.window": CountWindow(2, 3)}),
    ("mean", "StatisticSignal", {"statistic.window": CountWindow(2, -1)}),
    ("std", "StatisticSignal", {"statistic.ddof": -1}),
    ("quantile", "StatisticSignal", {"statistic.q": 1.5}),
    ("ewm mean", "StatisticSignal", {"statistic.decay": Decay(alpha=2.0)}),
    ("ewm mean", "StatisticSignal", {"statistic.decay": Decay()}),
    ("ewm mean", "StatisticSignal", {"statistic.min_periods": -1}),
    ("diff", "StatisticSignal", {"statistic.count": 0}),
    ("crossed a level", "StatisticSignal", {"statistic.level": float("nan")}),
    ("of what is computed", "Lift", {"arguments": (0, 0)}),
    ("of what is computed", "Lift", {"arguments": (1, 0)}),
    ("of what is computed", "Lift", {"arguments": (Constant(1),)}),
]


@pytest.mark.parametrize(("name", "kind", "changes"), SIGNALS)
def test_parameters_of_signals_that_no_method_gives_are_refused(
    name: str, kind: str, changes: dict[str, Any]
) -> None:
    flow = hr.Flow("a statistic")
    a, b, t = (flow.signal(n, float) for n in "abt")
    flow.sink("out", STATISTICS[name](a, b, t))
    node = next(n for n in flow.nodes if type(n.operator).__name__ == kind)
    inner = {k.partition(".")[2]: v for k, v in changes.items() if "." in k}
    operator: Any = node.operator
    if inner:
        changes = {"statistic": dataclasses.replace(operator.statistic, **inner)}
    refused(forged(flow, kind, changes))


def test_a_window_reads_the_watermark_of_its_rows_and_no_other() -> None:
    flow = hr.Flow("two clocks")
    one, other = (flow.source(n, int).watermark(col.value, lateness=1) for n in ("one", "other"))
    for name, stream in (("a", one), ("b", other)):
        flow.sink(name, stream.group_by(window=hr.tumbling(col.value, 2)).agg(n=hr.count()))
    body = pb.Body.FromString(encode(flow).body)
    first, second = (n for n in flow.nodes if isinstance(n.operator, Window))
    body.nodes[second.id].inputs[1] = first.inputs[1]
    refused(body)
    body.nodes[second.id].inputs[1] = second.inputs[0]
    refused(body)


def test_signals_and_streams_are_not_taken_for_each_other() -> None:
    flow = hr.Flow("both", ticks="given")
    signal, rows = flow.signal("signal", int), flow.source("rows", int)
    flow.sink("a", signal.changes().stream(int))
    flow.sink("b", rows.filter(col.value > 1))
    body = pb.Body.FromString(encode(flow).body)
    for kind, source in (("NoRepeats", 1), ("Filter", 0), ("ValueRows", 1)):
        forged_body = pb.Body.FromString(body.SerializeToString())
        at = next(n.id for n in flow.nodes if type(n.operator).__name__ == kind)
        forged_body.nodes[at].inputs[0] = source
        refused(forged_body)
