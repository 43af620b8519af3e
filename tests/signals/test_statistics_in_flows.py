"""Statistics as methods of signals: what users write, in one tick after the other and in replays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.engine.program import compile_program
from headrace.flow.signal import Signal
from headrace.operators.signals.statistic_signal import StatisticSignal
from headrace.operators.statistics.kernel import SILENT, InputValues, compile_kernel, kernel_of
from headrace.operators.statistics.kernel_runtime import FUNCTIONS
from headrace.state.codec import decode, value_encoder
from tests.properties.effort import examples

Make = Callable[[Signal[float], Signal[float], Signal[float]], Signal[Any]]

STATISTICS: dict[str, Make] = {
    "count": lambda a, b, t: a.moving(3).count(),
    "sum": lambda a, b, t: a.moving("2s", at=t).sum(),
    "mean": lambda a, b, t: a.moving(3).mean(),
    "var": lambda a, b, t: a.expanding().var(),
    "std": lambda a, b, t: a.moving(4, min_periods=2).std(),
    "min": lambda a, b, t: a.moving("2s", at=t, min_periods=2).min(),
    "max": lambda a, b, t: a.expanding(3).max(),
    "first": lambda a, b, t: a.moving(3).first(),
    "last": lambda a, b, t: a.moving(3, min_periods=1).last(),
    "median": lambda a, b, t: a.moving(3).median(),
    "quantile": lambda a, b, t: a.expanding().quantile(0.25, interpolation="lower"),
    "rank": lambda a, b, t: a.rank(3, method="min", pct=True),
    "cov": lambda a, b, t: a.moving(3).cov(b),
    "corr": lambda a, b, t: a.moving("3s", at=t).corr(b),
    "regression": lambda a, b, t: a.moving(3).regression(),
    "regression by a signal": lambda a, b, t: a.moving(3).regression(b),
    "regression by time": lambda a, b, t: a.moving("3s", at=t).regression("time"),
    "ewm mean": lambda a, b, t: a.ewm(span=3).mean(),
    "ewm var": lambda a, b, t: a.ewm(com=2, adjust=False).var(),
    "ewm std": lambda a, b, t: a.ewm(halflife="2s", at=t).std(bias=True),
    "diff": lambda a, b, t: a.diff(2),
    "pct_change": lambda a, b, t: a.pct_change(),
    "crossed": lambda a, b, t: a.crossed(b),
    "crossed a level": lambda a, b, t: a.crossed_above(0.5),
    "every": lambda a, b, t: a.every(2),
    "throttle": lambda a, b, t: a.throttle("2s", at=t),
    "debounce": lambda a, b, t: a.debounce("2s", at=t),
    "bars": lambda a, b, t: a.ohlc(2),
    "bars by time": lambda a, b, t: a.ohlc("2s", at=t),
    "timer": lambda a, b, t: hr.timer("2s", at=t),
    "of what is computed": lambda a, b, t: (a + b).moving(2).mean() - a,
}

Event = dict[str, float]


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    value = st.one_of(st.integers(-4, 4).map(float), st.just(math.nan))
    now, made = 0.0, []
    for names in draw(st.lists(st.sets(st.sampled_from("abt"), min_size=1), max_size=25)):
        now += draw(st.integers(0, 3))
        made.append({n: now if n == "t" else draw(value) for n in sorted(names)})
    return made


def flow_of(make: Make) -> hr.Flow:
    flow = hr.Flow("a statistic")
    a, b, t = (flow.signal(name, float) for name in "abt")
    flow.sink("out", make(a, b, t))
    flow.sink("all", hr.lift(lambda *values: values)(a, b, t))
    return flow


def in_one_replay(flow: hr.Flow, history: Sequence[Event]) -> list[Any]:
    return list(hr.Engine(flow).replay(history)["out"])


def tick_by_tick(flow: hr.Flow, history: Sequence[Event]) -> list[Any]:
    engine = hr.Engine(flow)
    ticks = [[change.row for change in engine.tick(**event)["out"]] for event in history]
    return [(tick, value) for tick, values in enumerate(ticks) for value in values]


def by_hand(flow: hr.Flow, history: Sequence[Event]) -> list[Any]:
    """Its kernel on the current values, whenever one that it hears of fires and all have one."""
    node = next(n for n in flow.nodes if isinstance(n.operator, StatisticSignal))
    operator = node.operator
    assert isinstance(operator, StatisticSignal)
    kernel = kernel_of(operator.statistic, InputValues(operator.statistic.inputs, operator.holes))
    state, step = kernel.start(FUNCTIONS), compile_kernel(kernel, FUNCTIONS)
    reads = ["abt"[i] for i in node.inputs]
    values = reads[: operator.statistic.inputs]
    hears = [reads[port] for port in operator.triggers()]
    now: Event = {}
    found: list[Any] = []
    for tick, event in enumerate(history):
        now.update(event)
        if any(name in event for name in hears) and all(name in now for name in reads):
            arguments = dict(zip("xy", (now[name] for name in values)))
            fresh = any(name in event for name in values)
            answer = step(state, **arguments, t=now.get("t"), fresh=fresh)
            if answer is not SILENT:
                found.append((tick, answer))
    return found


@pytest.mark.parametrize("name", STATISTICS)
@examples(0.1)
@given(history=histories(), cut=st.integers(0, 25))
def test_a_statistic_in_a_flow_is_its_kernel_on_current_values(
    name: str, history: list[Event], cut: int
) -> None:
    flow = flow_of(STATISTICS[name])
    found = in_one_replay(flow, history)
    assert repr(found) == repr(tick_by_tick(flow, history))
    engine = hr.Engine(flow)
    pieces = [*engine.replay(history[:cut])["out"], *engine.replay(history[cut:])["out"]]
    assert repr(found) == repr(pieces)
    if name != "of what is computed":
        assert repr(found) == repr(by_hand(flow, history))


@pytest.mark.parametrize("name", STATISTICS)
def test_a_replay_of_columns_is_one_of_events(name: str) -> None:
    flow = flow_of(STATISTICS[name])
    columns = {
        "a": [float(i * i % 11) for i in range(40)],
        "b": [float(i * 5 % 7) for i in range(40)],
        "t": [i * 0.7 + i // 10 * 3 for i in range(40)],
    }
    events = [dict(zip(columns, row)) for row in zip(*columns.values())]
    found = list(hr.Engine(flow).replay(**columns)["out"])
    assert found
    assert repr(found) == repr(tick_by_tick(flow, events))


@pytest.mark.parametrize("name", STATISTICS)
@examples(0.05)
@given(history=histories(), cut=st.integers(0, 25))
def test_an_engine_that_goes_on_from_stored_state_shows_no_seam(
    name: str, history: list[Event], cut: int
) -> None:
    flow = flow_of(STATISTICS[name])
    encode = value_encoder()
    state: dict[str, dict[Any, Any]] = {s.name: {} for s in compile_program(flow.graph()).slots}
    found = list(hr.Engine(flow, state=state).replay(history[:cut])["out"])
    state = {n: {k: decode(encode(v)) for k, v in slot.items()} for n, slot in state.items()}
    engine = hr.Engine(flow, state=state, first_tick=len(history[:cut]))
    found += engine.replay(history[cut:])["out"]
    assert repr(found) == repr(in_one_replay(flow, history))


def test_statistics_have_types_where_these_are_known() -> None:
    flow = hr.Flow("types")
    a, n, any_ = flow.signal("a", float), flow.signal("n", int), flow.signal("any", object)
    types = {
        "float64": [
            a.moving(3).mean(),
            n.expanding().std(),
            any_.ewm(span=2).var(),
            a.moving(2).max(),
            a.diff(),
        ],
        "bool": [a.crossed(n)],
        "int64": [n.every(2)],
        "any": [n.moving(2).max(), any_.diff(), n.moving(2).sum(), a.ohlc(3), any_.every(3)],
    }
    for name, signals in types.items():
        assert [str(s.schema.fields[0].type) for s in signals] == [name] * len(signals)


def test_a_statistic_is_silent_until_it_has_enough_values_and_nan_afterwards() -> None:
    flow = hr.Flow("means")
    flow.sink("mean", flow.signal("a", float).moving(2).mean())
    found = list(hr.Engine(flow).replay(a=[math.nan, 1.0, 3.0, math.nan, 5.0, 7.0])["mean"])
    assert [tick for tick, _ in found] == [2, 3, 4, 5]
    assert [value for _, value in found if value == value] == [2.0, 6.0]


def test_count_is_never_silent_unless_asked_to_be() -> None:
    flow = hr.Flow("counts")
    a = flow.signal("a", float)
    flow.sink("any", a.moving(3).count())
    flow.sink("two", a.moving(3, min_periods=2).count())
    found = hr.Engine(flow).replay(a=[math.nan, 1.0, 2.0, 3.0])
    assert list(found["any"]) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert list(found["two"]) == [(2, 2), (3, 3)]


def test_times_may_be_dates() -> None:
    flow = hr.Flow("by date")
    a, day = flow.signal("a", int), flow.signal("day", datetime)
    flow.sink("sum", a.moving("2 days", at=day).sum())
    flow.sink("slope", a.moving("3 days", at=day).regression("time")[0] * 86400)
    days = [datetime(2024, 2, d, tzinfo=UTC) for d in (27, 28, 29)] + [datetime(2024, 3, 2, tzinfo=UTC)]
    found = hr.Engine(flow).replay(a=[1, 2, 4, 8], day=days)
    assert list(found["sum"].values) == [1, 3, 6, 8]
    assert found["slope"].values[2] == pytest.approx(1.5)


def test_the_time_may_be_part_of_a_row() -> None:
    flow = hr.Flow("rows")
    rows = flow.signal("rows", object)
    flow.sink("sum", rows[1].moving(timedelta(seconds=5), at=rows[0]).sum())
    start = datetime(2024, 1, 1, tzinfo=UTC)
    history = [(start + timedelta(seconds=s), s) for s in (1, 3, 6, 20)]
    assert hr.Engine(flow).replay(rows=history)["sum"].values == [1, 4, 9, 20]


def test_values_at_every_ring_of_a_timer_are_a_sample_by_time() -> None:
    flow = hr.Flow("sample by time")
    a, t = flow.signal("a", float), flow.signal("t", float)
    flow.sink("seen", a.sample(hr.timer("1s", at=t)))
    assert list(hr.Engine(flow).replay(a=[1.0, 2.0, 3.0, 4.0], t=[0.5, 0.9, 1.1, 3.5])["seen"]) == [
        (2, 3.0),
        (3, 4.0),
    ]


def test_a_statistic_that_fails_says_where() -> None:
    flow = hr.Flow("strings")
    flow.sink("mean", flow.signal("a", object).moving(2).mean())
    with pytest.raises(hr.HeadraceError, match="statistic") as error:
        hr.Engine(flow).replay(a=[1.0, "two"])
    assert error.value.where[0].location.file == __file__


def test_time_that_goes_back_says_where() -> None:
    flow = hr.Flow("times")
    a, t = flow.signal("a", float), flow.signal("t", float)
    flow.sink("mean", a.moving("2s", at=t).mean())
    with pytest.raises(hr.HeadraceError, match=r"time went back from 2.0 to 1.0"):
        hr.Engine(flow).replay(a=[1.0, 1.0], t=[2.0, 1.0])


@pytest.mark.parametrize(
    ("function", "method"),
    [
        (lambda a: hr.moving_mean(a, 2), lambda a: a.moving(2).mean()),
        (lambda a: hr.ewm(a, span=3).mean(), lambda a: a.ewm(span=3).mean()),
        (lambda a: hr.lag(a, 2), lambda a: a.lag(2)),
        (lambda a: hr.diff(a), lambda a: a.diff()),
        (lambda a: hr.crossed(a, 1), lambda a: a.crossed(1)),
    ],
)
def test_functions_are_the_methods_of_their_names(function: Any, method: Any) -> None:
    flow = hr.Flow("both")
    a = flow.signal("a", float)
    flow.sink("one", function(a))
    flow.sink("other", method(a))
    found = hr.Engine(flow).replay(a=[1.0, 4.0, 0.0, 2.0])
    assert list(found["one"]) == list(found["other"]) != []
