"""Order, ticks and event time in shards: answers as in one process, under any cut and any way. No Spark."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import Engine, Flow, col, left, right
from headrace.errors import BadInput, HeadraceError, NotOnSpark
from headrace.spark.placing.pushdown import insert_partial_operators
from headrace.spark.placing.stages import cut_stages
from headrace.spark.ticks.ticker import Ends
from tests.random_flows.cases import Case, Tick, cases, cuts
from tests.spark.tasks_in_process import SPOOLED, InProcessTasks
from tests.spark.test_stream_stages import routes_of, stages_of


class Event(NamedTuple):
    key: int
    at: int
    value: int


def timed(flow: Flow, name: str = "events") -> Any:
    return flow.source(name, Event).watermark(col.at, lateness=3, late=f"late {name}")


def add(total: int, value: int) -> int:
    return total * 3 + value


def carried(total: int, event: Event) -> tuple[int, int]:
    return total + event.value, total * 2 - event.at


def windows(
    shape: Any, emit: Literal["close", "updates"], keys: tuple[str, ...] = ("key",)
) -> Callable[[], Flow]:
    def build() -> Flow:
        flow = Flow("windows")
        answers = (
            timed(flow)
            .group_by(*keys, window=shape, emit=emit)
            .agg(n=hr.count(), sum=hr.sum(col.value), values=hr.collect(col.value))
        )
        flow.sink("out", answers)
        return flow

    return build


def in_slices(shape: Any, emit: Literal["close", "updates"]) -> Callable[[], Flow]:
    def build() -> Flow:
        flow = Flow("slices")
        answers = timed(flow).group_by("key", window=shape, emit=emit)
        sums = answers.agg(
            n=hr.count(), sum=hr.sum(col.value), most=hr.max(col.value), mean=hr.mean(col.value)
        )
        flow.sink("out", sums)
        return flow

    return build


def of_two_streams() -> Flow:
    flow = Flow("two streams")
    events, others = timed(flow), timed(flow, "others")
    near = (left.key == right.key) & (right.at >= left.at) & (right.at <= left.at + 4)
    flow.sink("joined", events.join(others, on=near, suffix="_other"))
    both = events.union(others)
    flow.sink("counts", both.group_by("key", window=hr.tumbling(col.at, 5)).agg(n=hr.count()))
    flow.sink("distinct", events.distinct())
    flow.sink("first", events.first_within(4, by="key"))
    return flow


def windows_of_windows() -> Flow:
    flow = Flow("windows of windows")
    small = timed(flow).group_by("key", window=hr.tumbling(col.at, 3)).agg(n=hr.count())
    large = small.group_by(window=hr.tumbling(col.window_end, 9)).agg(n=hr.sum(col.n), windows=hr.count())
    flow.sink("large", large)
    return flow


def of_order() -> Flow:
    flow = Flow("order")
    events, others = flow.source("events", Event), flow.source("others", Event)
    odd = events.filter(col.value % 2 == 1)
    flow.sink("scan", odd.scan(0, carried))
    flow.sink("folds", odd.fold_keyed("key", 0, add, value="value", into="total"))
    flow.sink("zip", odd.select(col.value).zip(others.select(other=col.value)))
    flow.sink("numbers", odd.unique().enumerate().filter(col.index % 2 == 0))
    flow.sink("last", events.select(col.value).reduce(lambda a, b: b))
    return flow


FLOWS: dict[str, Callable[[], Flow]] = {
    "tumbling": windows(hr.tumbling(col.at, 5), "close"),
    "tumbling of all": windows(hr.tumbling(col.at, 5), "close", ()),
    "sliding updates": windows(hr.sliding(col.at, 6, 2), "updates"),
    "sessions": windows(hr.session(col.at, 3), "close"),
    "session updates": windows(hr.session(col.at, 3), "updates"),
    "slices": in_slices(hr.tumbling(col.at, 5), "close"),
    "slices of sliding windows": in_slices(hr.sliding(col.at, 6, 2), "close"),
    "slices of updates": in_slices(hr.sliding(col.at, 9, 3), "updates"),
    "uneven slices": in_slices(hr.sliding(col.at, 5, 3), "close"),
    "two streams": of_two_streams,
    "windows of windows": windows_of_windows,
    "order": of_order,
}
EVENTS = st.lists(st.builds(Event, st.integers(0, 3), st.integers(0, 40), st.integers(-3, 9)), max_size=25)
TICKS = st.lists(st.fixed_dictionaries({"events": EVENTS, "others": EVENTS}), min_size=1, max_size=4)


@pytest.mark.parametrize("name", FLOWS)
@settings(max_examples=12)
@given(
    ticks=TICKS,
    shards=st.integers(1, 3),
    way=st.sampled_from(["one task", "stages"]),
    parts=st.integers(1, 3),
    reading=st.sampled_from([SPOOLED, None]),
    ends=st.booleans(),
)
def test_every_tick_and_the_end_answer_what_the_engine_answers(
    name: str,
    ticks: list[dict[str, list[Event]]],
    shards: int,
    way: str,
    parts: int,
    reading: object,
    ends: bool,
) -> None:
    flow = FLOWS[name]()
    sources = tuple(flow.graph().sources)
    engine = Engine(flow)
    with tempfile.TemporaryDirectory() as folder:
        tasks = InProcessTasks(flow, shards, Path(folder), way, parts, reading=reading)
        for given_rows in ticks:
            tick = {source: given_rows[source] for source in sources}
            check_equal(engine.tick(**tick), tasks.tick(tick))
        if ends:
            check_equal(engine.end(sources[0]), tasks.tick({}, ended=sources[:1]))
            check_equal(engine.end(), tasks.tick({}, ended=sources))


@settings(max_examples=25)
@given(
    (cases(order=True) | cases(ticks=True)).flatmap(lambda case: st.tuples(st.just(case), cuts(case))),
    st.integers(2, 3),
    st.sampled_from(["one task", "stages"]),
)
def test_any_flow_that_shows_order_or_ticks_answers_what_the_engine_answers(
    cut_case: tuple[Case, list[Tick]], shards: int, way: str
) -> None:
    case, ticks = cut_case
    engine = Engine(case.flow)
    with tempfile.TemporaryDirectory() as folder:
        tasks = InProcessTasks(case.flow, shards, Path(folder), way)
        for tick in [*ticks, dict[str, list[Any]](), dict[str, list[Any]]()]:
            try:
                expected = engine.tick(**tick)
            except HeadraceError:
                reject()
            check_equal(expected, tasks.tick(tick))
            assert bool(tasks.pending) == engine.pending


def check_equal(expected: dict[str, Any], found: dict[str, list[tuple[Any, ...]]]) -> None:
    changes = {name: Counter(map(plain, c.raw)) for name, c in expected.items() if len(c)}
    assert {name: Counter(map(plain, rows)) for name, rows in found.items()} == changes


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(tuple(v) if isinstance(v, list) else v for v in row)


def test_windows_with_keys_run_on_all_shards_behind_one_watermark() -> None:
    plan = cut_stages(windows(hr.tumbling(col.at, 5), "close")().graph(), 3)
    assert stages_of(plan)[1:] == [
        ["watermark", "late_rows", "sink", "watermark_time"],
        ["window", "sink"],
    ]
    assert routes_of(plan)[-2:] == ["1->2 by key", "1->2 to all"]


def test_windows_on_a_grid_are_summed_up_by_slice_before_they_are_sent() -> None:
    plan = cut_stages(insert_partial_operators(in_slices(hr.sliding(col.at, 6, 2), "close")().graph()), 3)
    assert "partial window" in stages_of(plan)[1]
    assert stages_of(plan)[2] == ["window", "sink"]
    assert routes_of(plan)[-2:] == ["1->2 by key 0", "1->2 to all"]
    uneven = cut_stages(insert_partial_operators(in_slices(hr.sliding(col.at, 5, 3), "close")().graph()), 3)
    assert "partial window" in stages_of(uneven)[1]


def test_what_hands_on_an_order_that_is_read_stays_on_one_shard() -> None:
    flow = Flow("numbered")
    flow.sink("out", flow.source("events", Event).unique().enumerate())
    assert set(routes_of(cut_stages(flow.graph(), 3))) == {"0->1 all to one"}
    unread = Flow("unread")
    unread.sink("out", unread.source("events", Event).unique())
    assert routes_of(cut_stages(unread.graph(), 3)) == ["0->1 by key, at, value"]


def test_an_order_goes_along_only_where_somebody_reads_it() -> None:
    flow = Flow("numbered")
    events = flow.source("events", Event)
    flow.sink("numbered", events.unique().enumerate())
    flow.sink("joined", events.join(flow.source("others", Event), on="key", suffix="_other"))
    exchanges = {str(e.route): e.ordered for e in cut_stages(flow.graph(), 3).exchanges}
    assert exchanges == {"all to one": True, "by key": False}
    ties = Flow("ties")
    events = ties.source("events", Event)
    ties.sink("sorted", events.unique().sort(col.key, lifetime="tick", nondet="a page at a time"))
    assert [(str(e.route), e.ordered) for e in cut_stages(ties.graph(), 3).exchanges] == [
        ("all to one", True)
    ]


@pytest.mark.parametrize("way", ["one task", "stages"])
def test_what_speaks_in_every_tick_speaks_on_one_shard_only(way: str, tmp_path: Path) -> None:
    flow = Flow("spoken", ticks="given")
    events = flow.source("events", Event)
    flow.sink("sums", events.fold(0, lambda n, e: n + e.value, commutative=True, lifetime="tick"))
    # Neither of them keeps anything, and this one is reached on all shards.
    flow.sink("different", events.distinct(lifetime="tick"))
    engine, tasks = Engine(flow), InProcessTasks(flow, 3, tmp_path, way)
    for rows in ([Event(n, n, n) for n in range(20)], [Event(1, 1, 1)], list[Event]()):
        check_equal(engine.tick(events=rows), tasks.tick({"events": rows}))


def test_rows_of_a_source_that_has_ended_are_refused() -> None:
    flow = windows(hr.tumbling(col.at, 5), "close")()
    ends = Ends.of(cut_stages(flow.graph(), 2).stages[0].graph)
    assert ends.awaited == {"events"}
    ends.check([], {"events": 3})
    ends.check(["events"], {"events": 0})
    with pytest.raises(BadInput, match="has ended, and brings more rows"):
        ends.check(["events"], {"events": 1})


def test_signals_are_refused_with_a_way_out() -> None:
    flow = Flow("signals")
    flow.sink("out", flow.signal("a", float) + 1)
    with pytest.raises(NotOnSpark, match="order of values") as refused:
        cut_stages(flow.graph(), 2)
    assert "headrace.run" in (refused.value.fix or "")
