"""Expressions that come and go while an engine runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import add as plus
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.signals.engine_mixin import SignalSubscription
from headrace.engine.signals.signal_machine import SignalMachine
from headrace.errors import BadInput, UserFunctionFailed
from headrace.operators.signals.statistic_signal import StatisticSignal
from headrace.operators.statistics.kernel import SILENT as NO_ANSWER
from headrace.operators.statistics.kernel import InputValues, compile_kernel, kernel_of
from headrace.operators.statistics.kernel_runtime import FUNCTIONS
from tests.conformance.signal_cases import SCHEDULES, NodeDescription, add_signal_node
from tests.properties.effort import examples
from tests.signals.oracle import SILENT, SignalOracle
from tests.signals.test_propagation import NUMBERS, bounded_sum, events_of, graphs, one_input

Build = Callable[..., hr.Signal[Any]]
OF_ONE: Mapping[str, Build] = {
    "moving sum": lambda a: a.moving(3, min_periods=1).sum(),
    "moving mean": lambda a: a.moving(2).mean(),
    "moving deviation": lambda a: a.moving(3, min_periods=2).std(),
    "moving median": lambda a: a.moving(3, min_periods=1).median(),
    "count": lambda a: a.moving(3).count(),
    "deviation": lambda a: a.expanding().std(),
    "least": lambda a: a.expanding(2).min(),
    "weighted mean": lambda a: a.ewm(alpha=0.5).mean(),
    "difference": lambda a: a.diff(1),
    "every second": lambda a: a.every(2),
    "bars": lambda a: a.ohlc(2),
}
OF_TWO: Mapping[str, Build] = {
    "correlation": lambda a, b: a.moving(4, min_periods=2).corr(b),
    "crossed": lambda a, b: a.crossed(b),
}
BY_TIME: Mapping[str, Build] = {
    "sum by time": lambda a, at: a.moving("2s", at=at).sum(),
    "weighted by time": lambda a, at: a.ewm(halflife="1s", at=at).mean(),
    "throttle": lambda a, at: a.throttle("2s", at=at),
    "debounce": lambda a, at: a.debounce("1s", at=at),
    "bars by time": lambda a, at: a.ohlc("2s", at=at),
}


def whole(value: Any) -> int:
    """Any answer of a statistic as a small number, so that whatever takes numbers can read it."""
    if isinstance(value, tuple):
        return bounded_sum(*map(whole, value))
    return 0 if value != value else round(value * 8) % 11 - 5


@st.composite
def live_graphs(draw: st.DrawFn) -> dict[str, NodeDescription]:
    """Any graph of operators with and without memory, in layers that mostly read the one before."""
    nodes = {f"s{i}": NodeDescription("source", (), {}) for i in range(draw(st.integers(2, 3)))}
    numbers = list(nodes)
    for at in range(draw(st.integers(4, 14))):
        before = len(numbers) - at % 3
        name, read = (
            f"n{at}",
            st.sampled_from(numbers[max(before - 3, 0) : before] if draw(st.integers(0, 4)) else numbers),
        )
        kinds = (*["lift"] * 5, "one", "one", "statistic", "statistic", "of two", "by time", "zip", "sample")
        kind = draw(st.sampled_from(kinds))
        if kind in ("lift", "zip"):
            of = tuple(draw(read) for _ in range(draw(st.sampled_from([1, 2, 2, 3]))))
            align = "zip" if kind == "zip" else "latest"
            nodes[name] = NodeDescription("lift", of, {"fn": bounded_sum, "align": align})
        elif kind == "sample":
            nodes[name] = NodeDescription("sample", (draw(read), draw(read)), {})
        elif kind == "one":
            operator, arguments = one_input(draw)
            nodes[name] = NodeDescription(operator, (draw(read),), arguments)
        else:
            of = (draw(read),) if kind == "statistic" else (draw(read), draw(read))
            builds = {"statistic": OF_ONE, "of two": OF_TWO, "by time": BY_TIME}[kind]
            if kind == "by time":
                nodes[f"{name} time"] = NodeDescription("scan", of[1:], {"fn": max, "init": 0})
                of = (of[0], f"{name} time")
            build = builds[draw(st.sampled_from(list(builds)))]
            nodes[f"{name} answer"] = NodeDescription("statistic", of, {"build": build})
            nodes[name] = NodeDescription("lift", (f"{name} answer",), {"fn": whole})
        numbers.append(name)
    return nodes


class StatisticsOracle(SignalOracle):
    """The rules of signals, also for statistics: by their kernels, which have an oracle of their own."""

    def __init__(self, nodes: Mapping[str, NodeDescription], signals: Mapping[str, hr.Signal[Any]]) -> None:
        super().__init__(nodes)
        self._signals = signals

    def _value(self, name: str, node: NodeDescription, fresh: Mapping[str, Any]) -> Any:
        if node.operator != "statistic":
            return super()._value(name, node, fresh)
        signal = self._signals[name]
        operator = signal.flow.node(signal.node_id).operator
        assert isinstance(operator, StatisticSignal)
        heard = any(node.of[port] in fresh for port in operator.triggers())
        if not heard or any(read not in self._values for read in node.of):
            return SILENT
        count = operator.statistic.inputs
        if name not in self._memory:
            kernel = kernel_of(operator.statistic, InputValues(count, operator.holes, operator.times))
            self._memory[name] = kernel.start(FUNCTIONS), compile_kernel(kernel, FUNCTIONS)
        state, step = self._memory[name]
        values = [self._values[read] for read in node.of]
        x, y, t = values[0], values[1] if count == 2 else None, values[-1]
        found = step(state, x, y, t, any(read in fresh for read in node.of[:count]))
        return SILENT if found is NO_ANSWER else found


class Running:
    """Engines with subscriptions and, beside them, what all of them must show."""

    def __init__(
        self, nodes: dict[str, NodeDescription], in_flow: int, schedules: Sequence[Any] = SCHEDULES
    ) -> None:
        self.nodes = nodes
        self.flow = hr.Flow("live", ticks="given")
        self.signals: dict[str, hr.Signal[Any]] = {}
        names = list(nodes)
        sources = [name for name in names if nodes[name].operator == "source"]
        first = names[: max(in_flow, len(sources))]
        for name in first:
            self._add(name)
        self.flow.sink("out", self.signals[first[-1]])
        self.engines = [hr.Engine(self.flow, schedule=schedule) for schedule in schedules]
        for name in names[len(first) :]:
            self._add(name)
        self.compiled = self._upstream({first[-1]}) | set(sources)
        self.oracle = StatisticsOracle({n: nodes[n] for n in nodes if n in self.compiled}, self.signals)
        self.subscribed: list[tuple[str, list[SignalSubscription], list[list[Any]], list[Any]]] = []

    def _add(self, name: str) -> None:
        node = self.nodes[name]
        if node.operator == "statistic":
            self.signals[name] = node.arguments["build"](*(self.signals[read] for read in node.of))
        else:
            add_signal_node(self.flow, self.signals, name, node)

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
        heard: list[list[Any]] = [[] for _ in self.engines]
        subscriptions = [
            engine.subscribe(self.signals[name], values.append)
            for engine, values in zip(self.engines, heard, strict=True)
        ]
        value = self.oracle.current(name) if name not in new else started.get(name, SILENT)
        self.subscribed.append((name, subscriptions, heard, [] if value is SILENT else [value]))

    def unsubscribe(self, at: int) -> None:
        before = self._alive()
        _, subscriptions, *_ = self.subscribed.pop(at)
        for engine, subscription in zip(self.engines, subscriptions, strict=True):
            engine.unsubscribe(subscription)
        for name in before - self._alive():
            self.oracle.forget(name)

    def tick(self, event: dict[str, int]) -> None:
        self._expect(event)
        for engine in self.engines:
            engine.tick(**event)

    def replay(self, events: list[dict[str, int]]) -> None:
        for event in events:
            self._expect(event)
        for engine in self.engines:
            engine.replay(events)

    def _expect(self, event: dict[str, int]) -> None:
        fresh = self.oracle.tick(event)
        for name, _, _, expected in self.subscribed:
            if name in fresh:
                expected.append(fresh[name])

    def check(self) -> None:
        for name, _, heard, expected in self.subscribed:
            # By their texts, for a NaN equals no other.
            assert [str(values) for values in heard] == [str(expected)] * len(heard), name


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(data=st.data())
@examples(1)
def test_whoever_comes_late_sees_what_a_fresh_engine_shows_from_there(
    schedule: str, data: st.DataObject
) -> None:
    nodes = data.draw(graphs(sources=3, size=12))
    running = Running(nodes, data.draw(st.integers(1, len(nodes))), [schedule])
    for event in data.draw(events_of(nodes)):
        running.tick(event)
        if data.draw(st.booleans()):
            running.subscribe(data.draw(st.sampled_from(list(nodes))))
        if running.subscribed and data.draw(st.integers(0, 3)) == 0:
            running.unsubscribe(data.draw(st.integers(0, len(running.subscribed) - 1)))
        running.check()


@given(data=st.data())
@examples(2)
def test_all_schedules_hear_the_same_whoever_comes_and_goes(data: st.DataObject) -> None:
    nodes = data.draw(live_graphs())
    sources = [name for name, node in nodes.items() if node.operator == "source"]
    # Mostly all sources have values and few operators are there: then many begin at once.
    running = Running(nodes, data.draw(st.sampled_from([1, 1, 1, len(nodes) // 2])))
    late = st.sampled_from(list(nodes)[-6:])
    events = st.dictionaries(st.sampled_from(sources), NUMBERS)
    running.tick(dict.fromkeys(sources, 1) if data.draw(st.integers(0, 3)) else {})
    actions = st.sampled_from(["subscribe"] * 3 + ["tick"] * 2 + ["unsubscribe", "replay"])
    for _ in range(data.draw(st.integers(3, 10))):
        match data.draw(actions):
            case "subscribe":
                running.subscribe(data.draw(late))
            case "unsubscribe" if running.subscribed:
                running.unsubscribe(data.draw(st.integers(0, len(running.subscribed) - 1)))
            case "replay":
                running.replay(data.draw(st.lists(events, max_size=3)))
            case _:
                running.tick(data.draw(events))
        running.check()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_join_of_two_new_operators_over_two_sources_begins_with_its_current_value(schedule: Any) -> None:
    flow = hr.Flow("joined late")
    a, b = flow.signal("a", int), flow.signal("b", int)
    flow.sink("a", a)
    engine = hr.Engine(flow, schedule=schedule)
    engine.tick(a=1, b=2)
    heard: list[list[Any]] = [[], [], [], []]
    both = (a + 1) + (b + 1)
    for at, signal in enumerate([both, both.scan(0, plus), both.window(2), both.moving(2).sum()]):
        engine.subscribe(signal, heard[at].append)
    engine.tick(a=5)
    assert heard == [[5, 9], [5, 14], [[5], [5, 9]], [14]]


@given(data=st.data())
@examples(0.5)
def test_what_is_taken_back_leaves_nothing_behind(data: st.DataObject) -> None:
    nodes = data.draw(graphs(sources=3, size=8))
    running = Running(nodes, 1, ["hybrid"])
    (signal_part,) = running.engines[0]._machine.signal_parts.values()
    names = list(nodes)
    for _ in range(2):
        for name in names:
            running.subscribe(name)
        for _ in names:
            running.unsubscribe(0)
    before = (
        set(signal_part.machine.nodes),
        set(signal_part.machine.module.variables),
        len(signal_part.machine.arrangement.parts),
    )
    for name in names:
        running.subscribe(name)
    while running.subscribed:
        running.unsubscribe(data.draw(st.integers(0, len(running.subscribed) - 1)))
    after = (
        set(signal_part.machine.nodes),
        set(signal_part.machine.module.variables),
        len(signal_part.machine.arrangement.parts),
    )
    assert after == before


def running_sum() -> tuple[hr.Engine, hr.Signal[float]]:
    flow = hr.Flow("sum")
    a = flow.signal("a", float)
    flow.sink("sum", a.scan(0.0, lambda sum, v: sum + v))
    return hr.Engine(flow), a


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


def test_a_mistake_of_ours_is_raised_as_it_is_and_is_not_its_own_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, a = running_sum()
    engine.subscribe(a, print)

    def broken(*_: object) -> None:
        raise IndexError("nobody thought of it")

    monkeypatch.setattr(SignalMachine, "_run_parts", broken)
    with pytest.raises(IndexError) as caught:
        engine.tick(a=1.0)
    assert caught.value.__cause__ is None


def test_an_operator_that_fails_on_the_current_value_is_not_added() -> None:
    engine, a = running_sum()
    engine.tick(a=0.0)
    with pytest.raises(UserFunctionFailed, match="when it was subscribed to"):
        engine.subscribe(1 / a, print)
    assert list(engine.tick(a=2.0)["sum"]) == [hr.insert(2.0)]


def test_a_replay_tells_subscribers_tick_by_tick() -> None:
    engine, a = running_sum()
    heard: list[float] = []
    subscription = engine.subscribe(
        a * 2, lambda v: (heard.append(v), v > 2 and engine.unsubscribe(subscription))
    )
    shown = engine.replay(a=[1.0, 2.0, 3.0])
    assert heard == [2.0, 4.0]
    assert list(shown["sum"]) == [(0, 1.0), (1, 3.0), (2, 6.0)]


def test_a_replay_after_the_last_unsubscribe_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, a = running_sum()
    with pytest.raises(BadInput, match="is of flow"):
        engine.subscribe(running_sum()[1], print)
    for subscription in [engine.subscribe(a * 2, print), engine.subscribe(a, print)]:
        engine.unsubscribe(subscription)
    monkeypatch.delattr(hr.Engine, "tick")
    assert list(engine.replay(a=[1.0, 2.0])["sum"]) == [(0, 1.0), (1, 3.0)]


def test_signals_of_other_flows_and_new_sources_are_refused() -> None:
    engine, a = running_sum()
    _, other = running_sum()
    with pytest.raises(BadInput, match="is of flow"):
        engine.subscribe(other, print)
    late = a.flow.signal("late", float)
    with pytest.raises(BadInput, match="cannot get one while it runs"):
        engine.subscribe(a + late, print)


def test_a_subscription_compiles_what_is_new_and_not_the_rest() -> None:
    flow = hr.Flow("wide")
    sources = [flow.signal(f"a{i}", int) for i in range(50)]
    for i, a in enumerate(sources):
        flow.sink(f"s{i}", a + 1)
    engine = hr.Engine(flow)
    (signal_part,) = engine._machine.signal_parts.values()
    compiled: list[int] = []
    compile_parts = signal_part.machine.compile
    signal_part.machine.compile = lambda parts: (compiled.append(len(parts)), compile_parts(parts))[1]  # type: ignore[method-assign]
    engine.subscribe(sources[3] * 2, print)
    engine.subscribe(sources[3] * 3, print)
    assert compiled == [2, 1]
