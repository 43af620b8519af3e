"""Event time in large ticks: the same outputs in the same order, the same late rows, the same state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("polars")

import headrace as hr
from headrace.engine.change import Change
from headrace.expr.constructors import col, left, right
from tests.engine.test_columnar import check_alike, noting_declines, runs
from tests.properties.effort import examples
from tests.random_flows.cases import Case, Tick, _taken_back

Stream = hr.Stream[Any, Any, Any, Any]
START = datetime(2026, 3, 1, tzinfo=UTC)


class Event(NamedTuple):
    """A row with times of both kinds."""

    k: int | None
    t: datetime
    n: int
    m: datetime | None
    s: str
    x: float


def _moment(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


@st.composite
def events(draw: st.DrawFn) -> list[Event]:
    """Rows whose times mostly rise. Some are as early or as late as there are times."""
    found: list[Event] = []
    for at in range(draw(st.integers(0, 14))):
        seconds = at + draw(st.integers(-6, 3))
        number = draw(st.sampled_from([seconds] * 20 + [-(2**63), 2**63 - 1]))
        time = draw(st.sampled_from([_moment(seconds)] * 20 + [datetime.min.replace(tzinfo=UTC)]))
        nullable = draw(st.sampled_from([_moment(seconds), _moment(seconds), None]))
        found.append(
            Event(
                draw(st.sampled_from([None, 0, 1, 2])),
                time,
                number,
                nullable,
                draw(st.sampled_from(["a", "b"])),
                draw(st.sampled_from([0.0, -0.0, 1.5, float("nan")])),
            )
        )
    return found


_TIMES: dict[str, Callable[[int], Any]] = {
    "t": lambda number: timedelta(seconds=number),
    "n": lambda number: number,
    "m": lambda number: timedelta(seconds=number),
}


def _windows(draw: st.DrawFn, rows: Stream, time: str, span: Callable[[int], Any]) -> Stream:
    size = draw(st.integers(1, 6))
    shapes = [
        hr.tumbling(col[time], span(size), offset=span(draw(st.integers(0, 2)))),
        hr.sliding(col[time], span(size), span(draw(st.integers(1, size)))),
        hr.session(col[time], span(size)),
    ]
    emit: Any = draw(st.sampled_from(["close", "updates"]))
    keys = draw(st.lists(st.sampled_from(["k", "s", "x"]), max_size=2, unique=True))
    aggregates: dict[str, Any] = {
        "rows": hr.count(), "present": hr.count(col.k), "total": hr.sum(col.k), "most": hr.max(col.s),
        "mean": hr.mean(col.k), "least": hr.min(col.x), "values": hr.count_distinct(col.k),
    }  # fmt: skip
    wanted = draw(st.lists(st.sampled_from(sorted(aggregates)), min_size=1, max_size=3, unique=True))
    named = {name: aggregates[name] for name in wanted}
    return rows.group_by(*keys, window=draw(st.sampled_from(shapes)), emit=emit).agg(**named)


@st.composite
def event_time_cases(draw: st.DrawFn) -> Case:
    """A flow of event time over one or two streams."""
    flow = hr.Flow("drawn", ticks="given")
    inputs: dict[str, list[Change[Any]]] = {}
    time = draw(st.sampled_from(sorted(_TIMES)))
    span = _TIMES[time]
    timed: list[Stream] = []
    for name in ("one", "other"):
        rows = flow.source(name, Event, bounded=draw(st.integers(0, 5)) == 0)
        if draw(st.booleans()):
            rows = rows.filter(col.s != "z")
        every = draw(st.sampled_from([None, None, span(2), span(5)]))
        timed.append(rows.watermark(col[time], lateness=span(draw(st.integers(0, 4))), every=every))
        inputs[name] = [Change(row, 1) for row in draw(events())]
    one, other = timed
    made = {
        "on time": lambda: one,
        "late": lambda: one.late(),
        "distinct": lambda: one.select("k", "s", time).distinct(),
        "near": lambda: one.first_within(span(2), by=["k"]),
        "windows": lambda: _windows(draw, one, time, span),
        "windows of both": lambda: _windows(draw, one.union(other), time, span),
        "join": lambda: _joined(draw, one, other, time, span),
    }
    for at, what in enumerate(draw(st.lists(st.sampled_from(sorted(made)), min_size=1, max_size=3))):
        flow.sink(f"out{at}", made[what]())
    return Case(flow, inputs)


@st.composite
def clocked_cases(draw: st.DrawFn) -> Case:
    """Rows that are there from or until a moment of a clock."""
    flow = hr.Flow("drawn")
    is_table = draw(st.booleans())
    rows = flow.table("rows", Event) if is_table else flow.source("rows", Event)
    given = draw(events())
    inputs: dict[str, list[Change[Any]]] = {"rows": [Change(row, 1) for row in given]}
    if is_table:
        inputs["rows"] = draw(_taken_back(inputs["rows"], settled=True))
    by = draw(st.sampled_from(["n", "t"]))
    clock = flow.source("clock", int if by == "n" else datetime)
    seconds = draw(st.lists(st.integers(-3, 20), max_size=8))
    inputs["clock"] = [Change(at if by == "n" else _moment(at), 1) for at in seconds]
    moment = draw(st.sampled_from([col.n, col.n + 2])) if by == "n" else draw(st.sampled_from([col.t, col.m]))
    made = draw(
        st.sampled_from(
            [
                lambda: rows.valid(clock, until=moment),
                lambda: rows.valid(clock, since=moment),
                lambda: rows.valid(clock, since=moment, until=col.n + 3 if by == "n" else col.m),
            ]
        )
    )()
    flow.sink("out", made)
    if draw(st.booleans()):
        flow.sink("counts", made.group_by("s").agg(n=hr.count()))
    return Case(flow, inputs)


@examples(2)
@given(runs(clocked_cases()))
def test_temporal_filters_are_the_same_in_columns(run: tuple[Case, list[Tick], list[bool]]) -> None:
    check_alike(*run)


def _joined(draw: st.DrawFn, one: Stream, other: Stream, time: str, span: Callable[[int], Any]) -> Stream:
    low = draw(st.integers(-3, 3))
    since, until = left[time] + span(low), left[time] + span(low + draw(st.integers(0, 3)))
    on: Any = right[time].between(since, until)
    for key in draw(st.lists(st.sampled_from(["k", "s"]), min_size=1, max_size=2, unique=True)):
        on = on & (left[key] == right[key])
    if draw(st.booleans()):
        on = on & (left.x != right.x)
    return one.join(other, on=on, suffix="_r")


@examples(2)
@given(runs(event_time_cases()))
def test_event_time_is_the_same_in_columns(run: tuple[Case, list[Tick], list[bool]]) -> None:
    check_alike(*run, in_order=True)


def _on_time(one: Stream, other: Stream) -> Stream:
    return one


def _late(one: Stream, other: Stream) -> Stream:
    return one.late()


def _tumbling(one: Stream, other: Stream) -> Stream:
    return one.group_by("k", window=hr.tumbling(col.t, "5s")).agg(n=hr.count())


def _sessions(one: Stream, other: Stream) -> Stream:
    return one.group_by("k", window=hr.session(col.t, "2s")).agg(n=hr.count(), most=hr.max(col.n))


def _sliding(one: Stream, other: Stream) -> Stream:
    return one.group_by("k", window=hr.sliding(col.t, "5s", "2s"), emit="updates").agg(n=hr.sum(col.n))


def _near(one: Stream, other: Stream) -> Stream:
    near = right.t.between(left.t - timedelta(seconds=3), left.t + timedelta(seconds=1))
    return one.join(other, on=(left.k == right.k) & near, suffix="_r")


def _valid(one: Stream, other: Stream) -> Stream:
    return one.valid(other.select(value=col.n), until=col.n + 5)


@pytest.mark.parametrize("build", [_sessions, _valid, _near, _on_time, _late, _tumbling, _sliding])
def test_what_has_a_columnar_form_runs_in_it(build: Callable[..., Stream]) -> None:
    flow = hr.Flow("columnar")
    flow.sink(
        "out", build(*(flow.source(n, Event).watermark(col.t, lateness="2s") for n in ("one", "other")))
    )
    with noting_declines() as declines:
        engine = hr.Engine(flow, columnar="always")
        for tick in range(4):
            rows = [Event(n % 3, _moment(n), n, None, "a", 0.5) for n in range(tick * 20, tick * 20 + 30)]
            engine.tick(one=rows, other=rows[::2])
    assert declines
    assert not any(declines)


@pytest.mark.parametrize("build", [_sessions, _near, _on_time, _late, _tumbling])
def test_a_watermark_beside_state_in_files(build: Callable[..., Stream]) -> None:
    flow = hr.Flow("limited", ticks="given")
    sides = (flow.source(name, Event).watermark(col.t, lateness="2s") for name in ("one", "other"))
    flow.sink("out", build(*sides))
    limited, unlimited = hr.Engine(flow, memory="1 MB"), hr.Engine(flow, columnar="never")
    for tick in range(3):
        rows = [Event(n % 3, _moment(n), n, None, "a", 0.5) for n in range(tick * 20, tick * 20 + 30)]
        made = [engine.tick(one=rows, other=rows[::2])["out"] for engine in (limited, unlimited)]
        assert [*made[0]] == [*made[1]]


def test_a_window_that_does_not_fit_is_refused_with_its_row() -> None:
    flow = hr.Flow("early")
    on_time = flow.source("rows", Event).watermark(col.t, lateness=timedelta(0))
    windows = on_time.group_by(window=hr.sliding(col.t, timedelta(seconds=2), timedelta(seconds=1)))
    flow.sink("windows", windows.agg(least=hr.min(col.x)))
    early = Event(None, datetime.min.replace(tzinfo=UTC), 1, START, "a", 0.0)
    rows = [early, *(early._replace(t=_moment(at)) for at in range(9))]
    told: list[str] = []
    for how in ("never", "always"):
        with pytest.raises(hr.errors.EvaluationError) as error:
            hr.Engine(flow, columnar=how).tick(rows=rows)
        told.append(str(error.value))
    assert told[0] == told[1]
    assert "The row was" in told[0]
