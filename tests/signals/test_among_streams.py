"""Signals beside streams, from one to the other; every operator has a step, a reason on Spark, a place."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.analysis import Verdict, analyse
from headrace.errors import BadInput, BadRow, NotOnSpark
from headrace.graph.node import Operator
from headrace.lowering.signal_step import signal_step
from headrace.operators import signals
from headrace.operators.signals.lift import SignalOperator
from headrace.spark.refusals import check_runs_on_spark, refusal
from headrace.view import picture_of
from headrace.view.drawing import to_dot, to_mermaid


class Trade(NamedTuple):
    symbol: str
    price: float


def rows(changes: hr.Changes) -> list[Any]:
    return [(change.row, change.weight) for change in changes]


def test_rows_become_a_signal_and_its_values_rows_again() -> None:
    flow = hr.Flow("there and back", ticks="given")
    trades = flow.source("trades", Trade)
    factor = flow.signal("factor", float)
    newest = trades.latest(nondet="the last trade of a tick is its price")
    priced = hr.lift(lambda trade, factor: trade.price * factor)(newest, factor)
    flow.sink("highest", priced.stream(float).group_by().agg(top=hr.max(col.value)))
    flow.sink("count", trades.group_by("symbol").agg(n=hr.count()))
    engine = hr.Engine(flow)
    first = engine.tick(trades=[Trade("x", 1.0), Trade("y", 2.0)])
    assert rows(first["highest"]) == []
    assert len(first["count"]) == 2
    assert rows(engine.tick(factor=10.0)["highest"]) == [((20.0,), 1)]
    assert rows(engine.tick(trades=[Trade("x", 3.0)], factor=1.0)["highest"]) == []
    assert rows(engine.tick(factor=9.0)["highest"]) == [((20.0,), -1), ((27.0,), 1)]


def test_signals_on_both_sides_of_a_stream_meet_with_the_values_of_one_tick() -> None:
    flow = hr.Flow("round", ticks="given")
    a = flow.signal("a", int)
    doubled = (a * 2).stream(int).select(value=col.value + 1, into=int).latest()
    flow.sink("both", hr.lift(lambda x, y: (x, y))(a, doubled))
    engine = hr.Engine(flow)
    assert [rows(engine.tick(a=value)["both"]) for value in (1, 5)] == [[((1, 3), 1)], [((5, 11), 1)]]


@pytest.mark.parametrize("schedule", ["hybrid", "dynamic", "static"])
def test_a_filter_that_is_silent_gives_no_rows(schedule: Any) -> None:
    flow = hr.Flow("some")
    up = flow.signal("a", int).filter(lambda v: v > 0)
    flow.sink("seen", up.stream().group_by().agg(n=hr.count()))
    engine = hr.Engine(flow, schedule=schedule)
    assert [len(engine.tick(a=value)["seen"]) for value in (-1, 1, -1, 2)] == [0, 1, 0, 2]


def test_values_that_are_fed_are_a_tick_each() -> None:
    flow = hr.Flow("sum")
    flow.sink("sum", flow.signal("a", int).scan(0, lambda sum, v: sum + v))
    engine = hr.Engine(flow)
    engine.feed(a=[1, 2, 3])
    assert [rows(tick["sum"]) for tick in engine.run_available()] == [[(1, 1)], [(3, 1)], [(6, 1)]]


def test_a_run_gives_each_value_a_tick_of_its_own() -> None:
    flow = hr.Flow("sum")
    flow.sink("sum", flow.signal("a", int).scan(0, lambda sum, v: sum + v))
    seen: list[Any] = []
    assert hr.run(flow, sources={"a": [1, 2, 3]}, sinks={"sum": seen}).ticks == 3
    assert [change.row for change in seen] == [1, 3, 6]


def test_a_signal_that_goes_back_into_a_stream_of_a_type_is_checked() -> None:
    flow = hr.Flow("typed")
    flow.sink("out", (flow.signal("a", int) + 0.5).stream(int))
    with pytest.raises(BadRow, match="a row made by"):
        hr.Engine(flow).tick(a=1)


def test_the_last_row_needs_a_reason_unless_it_comes_from_a_signal() -> None:
    flow = hr.Flow("own ticks")
    flow.sink("out", flow.signal("a", int).stream().latest())
    assert rows(hr.Engine(flow).tick(a=1)["out"]) == [(1, 1)]


READERS: dict[str, Any] = {
    "moving": lambda q: q.moving(3).mean(),
    "scan behind a filter": lambda q: q.filter(lambda v: v > 0).scan(0.0, lambda sum, v: sum + v),
    "window": lambda q: (q + 1).window(2, list),
    "delay": lambda q: q.delay(1),
    "stream": lambda q: q.stream(float).group_by().agg(sum=hr.sum(col.value)),
    "stream and back": lambda q: q.stream(float).latest(),
    "zip": lambda q: hr.lift(max, align="zip")(q, q.scan(0.0, max)),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_no_row_of_a_tick_is_missed_by_what_reads_every_value(reader: Any) -> None:
    flow = hr.Flow("rows", ticks="given")
    flow.sink("out", reader(flow.source("q", float).latest()))
    engine = hr.Engine(flow, tick_rows=1)
    engine.feed(q=[1.0, 2.0, 3.0])
    alone = [rows(tick["out"]) for tick in engine.run_available()]
    ones = hr.Engine(flow)
    assert alone == [rows(ones.tick(q=[value])["out"]) for value in (1.0, 2.0, 3.0)]
    with pytest.raises(BadInput, match="a tick brings 2 rows to latest"):
        hr.Engine(flow).tick(q=[1.0, 2.0])


@pytest.mark.parametrize("last", [lambda q: q * 2, lambda q: q.changes(), lambda q: hr.lift(max)(q, 0)])
def test_the_last_row_of_a_tick_is_enough_for_what_reads_the_current_value(last: Any) -> None:
    flow = hr.Flow("rows", ticks="given")
    flow.sink("out", last(flow.source("q", float).latest()))
    flow.sink("mean", flow.source("r", float).latest(nondet="one a second is enough").moving(2).mean())
    tick = hr.Engine(flow).tick(q=[1.0, 2.0], r=[1.0, 3.0])
    assert len(tick["out"]) == 1


def test_the_verdict_on_a_sink_behind_a_last_row_is_that_of_its_reason() -> None:
    flow = hr.Flow("reasons")
    q = flow.source("q", float)
    flow.sink("last", q.latest(nondet="one a second is enough") * 2)
    flow.sink("rows", q.filter(col.value > 0).latest(nondet="one is enough").stream(float).distinct())
    assert set(analyse(flow.graph()).verdicts.values()) == {Verdict.GUARDED}


def test_a_signal_that_starts_at_a_stream_can_be_subscribed_to() -> None:
    flow = hr.Flow("numbers")
    latest = flow.source("numbers", int).latest(nondet="tests")
    flow.sink("out", latest + 1)
    engine = hr.Engine(flow)
    heard: list[int] = []
    engine.tick(numbers=[1, 2])
    engine.subscribe(latest * 10, heard.append)
    engine.tick(numbers=[3])
    assert heard == [20, 30]


def latest_that_no_sink_reads(flow: hr.Flow, numbers: hr.Stream[int]) -> hr.Signal[int]:
    flow.sink("out", numbers)
    return numbers.latest(nondet="tests")


def another_latest(flow: hr.Flow, numbers: hr.Stream[int]) -> hr.Signal[int]:
    flow.sink("out", numbers.latest(nondet="tests"))
    return numbers.latest(nondet="tests")


def streams_between(flow: hr.Flow, numbers: hr.Stream[int]) -> hr.Signal[int]:
    signal = numbers.latest(nondet="tests")
    flow.sink("out", signal.stream(int).latest(nondet="tests"))
    return signal


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (latest_that_no_sink_reads, "none of its sinks reads a signal"),
        (another_latest, "the engine has no latest"),
        (streams_between, "streams stand between its signals"),
    ],
)
def test_a_signal_that_the_engine_was_made_without_cannot_be_subscribed_to(
    make: Callable[[hr.Flow, hr.Stream[int]], hr.Signal[int]], why: str
) -> None:
    flow = hr.Flow("numbers")
    signal = make(flow, flow.source("numbers", int))
    engine = hr.Engine(flow)
    with pytest.raises(BadInput, match=why):
        engine.subscribe(signal, print)


def test_what_is_subscribed_to_later_misses_no_row_either() -> None:
    flow = hr.Flow("rows", ticks="given")
    q = flow.source("q", float).latest()
    flow.sink("out", q * 2)
    engine = hr.Engine(flow)
    engine.tick(q=[1.0, 2.0])
    subscription = engine.subscribe(q.moving(1).mean(), lambda value: None)
    engine.tick(q=[3.0])
    engine.unsubscribe(subscription)
    engine.tick(q=[1.0, 2.0])
    engine.subscribe(q.moving(1).mean(), lambda value: None)
    with pytest.raises(BadInput, match="missed"):
        engine.tick(q=[1.0, 2.0])


def test_signals_are_drawn_and_explained_with_what_is_silent() -> None:
    flow = hr.Flow("drawn")
    a = flow.signal("a", int)
    flow.sink("out", a.filter(lambda v: v > 0, name="positive") + 1)
    picture = picture_of(flow)
    assert "positive" in to_mermaid(picture)
    assert "positive" in to_dot(picture)
    assert "(when filter_signal 'positive' is not silent)" in hr.explain(flow)
    assert "follows its ticks" in hr.explain(flow)


def operator_classes() -> list[type[Operator]]:
    found: list[type[Operator]] = []
    for module in pkgutil.iter_modules(signals.__path__):
        members = vars(importlib.import_module(f"{signals.__name__}.{module.name}"))
        found += [
            value
            for value in members.values()
            if isinstance(value, type)
            and issubclass(value, Operator)
            and value not in (Operator, SignalOperator)
            and value.__module__ == f"{signals.__name__}.{module.name}"
        ]
    return found


@pytest.mark.parametrize("operator", operator_classes())
def test_every_operator_on_signals_has_a_step_and_a_reason_not_to_run_on_spark(
    operator: type[Operator],
) -> None:
    assert signal_step.dispatch(operator) is not signal_step.dispatch(object)
    assert refusal.dispatch(operator) is not refusal.dispatch(object)
    assert operator.__doc__
    assert ">>>" in operator.__doc__


def test_a_flow_with_signals_is_refused_on_spark_with_the_reason() -> None:
    flow = hr.Flow("here only")
    flow.sink("out", flow.signal("a", int) + 1)
    with pytest.raises(NotOnSpark, match="order of values"):
        check_runs_on_spark(flow.graph())


def test_a_value_of_another_type_is_refused_before_the_first_tick_with_its_place_in_the_history() -> None:
    flow = hr.Flow("typed")
    flow.sink("out", flow.signal("a", float) + flow.signal("b", float))
    engine = hr.Engine(flow)
    with pytest.raises(BadRow, match="signal 'a', row 1: 'value' must be float64, got str 'x'"):
        engine.replay(a=[1.0, "x"], b=[1.0, 2.0])
    with pytest.raises(BadRow, match="signal 'b'"):
        engine.replay([("a", 1.0), ("b", "x")])
    with pytest.raises(BadRow, match="signal 'a'"):
        engine.tick(a=None)
    assert engine.ticks == 0
    assert list(engine.replay(a=[1], b=[2])["out"]) == [(0, 3.0)]
