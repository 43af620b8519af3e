"""Expressions that come and go while an engine runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.signals.subscriptions import Subscription
from penstock.errors import BadInput, UserFunctionFailed
from penstock.testing.conformance.propagation import SCHEDULES, NodeDescription, add
from penstock.testing.oracle_signals import SILENT, SignalOracle
from tests.properties.effort import examples
from tests.signals.test_propagation import events_of, graphs


class Running:
    """An engine with subscriptions and, beside it, what it must show."""

    def __init__(self, nodes: dict[str, NodeDescription], in_flow: int, schedule: Any) -> None:
        self.nodes = nodes
        self.flow = ps.Flow("live", ticks="given")
        self.signals: dict[str, ps.Signal[Any]] = {}
        names = list(nodes)
        sources = [name for name in names if nodes[name].operator == "source"]
        first = names[: max(in_flow, len(sources))]
        for name in first:
            add(self.flow, self.signals, name, nodes[name])
        self.flow.sink("out", self.signals[first[-1]])
        self.engine = ps.Engine(self.flow, schedule=schedule)
        for name in names[len(first) :]:
            add(self.flow, self.signals, name, nodes[name])
        self.compiled = self._upstream({first[-1]}) | set(sources)
        self.oracle = SignalOracle({n: nodes[n] for n in nodes if n in self.compiled})
        self.subscribed: list[tuple[str, Subscription, list[Any], list[Any]]] = []

    def _upstream(self, names: set[str]) -> set[str]:
        found = set(names)
        for name in reversed(self.nodes):
            if name in found:
                found.update(self.nodes[name].of)
        return found

    def _alive(self) -> set[str]:
        return self._upstream({name for name, *_ in self.subscribed}) | self.compiled

    def subscribe(self, name: str) -> None:
        alive = self._alive()
        new = {n: self.nodes[n] for n in self.nodes if n in self._upstream({name}) and n not in alive}
        started = self.oracle.start(new)
        heard: list[Any] = []
        subscription = self.engine.subscribe(self.signals[name], heard.append)
        value = self.oracle.current(name) if name not in new else started.get(name, SILENT)
        self.subscribed.append((name, subscription, heard, [] if value is SILENT else [value]))

    def unsubscribe(self, at: int) -> None:
        before = self._alive()
        _, subscription, *_ = self.subscribed.pop(at)
        self.engine.unsubscribe(subscription)
        for name in before - self._alive():
            self.oracle.forget(name)

    def tick(self, event: dict[str, int]) -> None:
        fresh = self.oracle.tick(event)
        self.engine.tick(**event)
        for name, _, _, expected in self.subscribed:
            if name in fresh:
                expected.append(fresh[name])

    def check(self) -> None:
        for name, _, heard, expected in self.subscribed:
            assert heard == expected, name


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(data=st.data())
@examples(1)
def test_whoever_comes_late_sees_what_a_fresh_engine_shows_from_there(
    schedule: str, data: st.DataObject
) -> None:
    nodes = data.draw(graphs(sources=3, size=12))
    running = Running(nodes, data.draw(st.integers(1, len(nodes))), schedule)
    for event in data.draw(events_of(nodes)):
        running.tick(event)
        if data.draw(st.booleans()):
            running.subscribe(data.draw(st.sampled_from(list(nodes))))
        if running.subscribed and data.draw(st.integers(0, 3)) == 0:
            running.unsubscribe(data.draw(st.integers(0, len(running.subscribed) - 1)))
        running.check()


@given(data=st.data())
@examples(0.5)
def test_what_is_taken_back_leaves_nothing_behind(data: st.DataObject) -> None:
    nodes = data.draw(graphs(sources=3, size=8))
    running = Running(nodes, 1, "hybrid")
    (island,) = running.engine._machine.islands.values()
    names = list(nodes)
    for _ in range(2):
        for name in names:
            running.subscribe(name)
        for _ in names:
            running.unsubscribe(0)
    before = (
        set(island.machine.nodes),
        set(island.machine.module.variables),
        len(island.machine.arrangement.parts),
    )
    for name in names:
        running.subscribe(name)
    while running.subscribed:
        running.unsubscribe(data.draw(st.integers(0, len(running.subscribed) - 1)))
    after = (
        set(island.machine.nodes),
        set(island.machine.module.variables),
        len(island.machine.arrangement.parts),
    )
    assert after == before


def running_sum() -> tuple[ps.Engine, ps.Signal[float]]:
    flow = ps.Flow("sum")
    a = flow.signal("a", float)
    flow.sink("sum", a.scan(0.0, lambda sum, v: sum + v))
    return ps.Engine(flow), a


def test_a_late_subscriber_sees_the_current_value_at_once() -> None:
    engine, a = running_sum()
    engine.tick(a=2.0)
    heard: list[float] = []
    engine.subscribe(a * 10, heard.append)
    assert heard == [20.0]
    engine.tick(a=3.0)
    assert heard == [20.0, 30.0]


def test_a_subscriber_before_the_first_value_hears_of_that() -> None:
    engine, a = running_sum()
    heard: list[float] = []
    engine.subscribe(a + 1, heard.append)
    assert heard == []
    engine.tick(a=3.0)
    assert heard == [4.0]


def test_a_callback_may_subscribe_and_unsubscribe() -> None:
    engine, a = running_sum()
    heard: list[Any] = []

    def once(value: float) -> None:
        heard.append(("once", value))
        engine.unsubscribe(first)
        engine.subscribe(a + 100, lambda v: heard.append(("then", v)))

    first = engine.subscribe(a, once)
    engine.tick(a=1.0)
    engine.tick(a=2.0)
    assert heard == [("once", 1.0), ("then", 101.0), ("then", 102.0)]


def test_a_callback_may_run_a_tick_which_is_told_after_this_one() -> None:
    engine, a = running_sum()
    heard: list[Any] = []

    def again(value: float) -> None:
        heard.append(value)
        if value < 3:
            engine.tick(a=value + 1)

    engine.subscribe(a, again)
    engine.subscribe(a, lambda v: heard.append(-v))
    engine.tick(a=1.0)
    assert heard == [1.0, -1.0, 2.0, -2.0, 3.0, -3.0]


def test_what_a_callback_raises_reaches_who_made_the_tick_and_the_engine_goes_on() -> None:
    engine, a = running_sum()
    heard: list[float] = []

    def fail(value: float) -> None:
        raise ValueError("no")

    engine.subscribe(a, fail)
    engine.subscribe(a, heard.append)
    with pytest.raises(ValueError, match="no"):
        engine.tick(a=1.0)
    assert heard == [1.0]
    assert engine.ticks == 1


def test_an_operator_that_fails_on_the_current_value_is_not_added() -> None:
    engine, a = running_sum()
    engine.tick(a=0.0)
    with pytest.raises(UserFunctionFailed, match="when it was subscribed to"):
        engine.subscribe(1 / a, print)
    assert list(engine.tick(a=2.0)["sum"]) == [ps.insert(2.0)]


def test_a_replay_tells_subscribers_tick_by_tick() -> None:
    engine, a = running_sum()
    heard: list[float] = []
    subscription = engine.subscribe(
        a * 2, lambda v: (heard.append(v), v > 2 and engine.unsubscribe(subscription))
    )
    shown = engine.replay(a=[1.0, 2.0, 3.0])
    assert heard == [2.0, 4.0]
    assert list(shown["sum"]) == [(0, 1.0), (1, 3.0), (2, 6.0)]


def test_signals_of_other_flows_and_new_sources_are_refused() -> None:
    engine, a = running_sum()
    _, other = running_sum()
    with pytest.raises(BadInput, match="is of flow"):
        engine.subscribe(other, print)
    late = a.flow.signal("late", float)
    with pytest.raises(BadInput, match="cannot get one while it runs"):
        engine.subscribe(a + late, print)


def test_a_subscription_compiles_what_is_new_and_not_the_rest() -> None:
    flow = ps.Flow("wide")
    sources = [flow.signal(f"a{i}", int) for i in range(50)]
    for i, a in enumerate(sources):
        flow.sink(f"s{i}", a + 1)
    engine = ps.Engine(flow)
    (island,) = engine._machine.islands.values()
    compiled: list[int] = []
    compile_parts = island.machine.compile
    island.machine.compile = lambda parts: (compiled.append(len(parts)), compile_parts(parts))[1]  # type: ignore[method-assign]
    engine.subscribe(sources[3] * 2, print)
    engine.subscribe(sources[3] * 3, print)
    assert compiled == [2, 1]
