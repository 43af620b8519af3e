"""Loops that are cut by key: where they are cut, and that rounds of tasks mean the same. No Spark needed."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import Engine, Flow, col, left, right
from headrace.errors import NoFixpoint, UnreadableSource
from headrace.spark.explanation import explain_on_spark
from headrace.spark.placing.stages import StagePlan, cut_stages
from headrace.spark.resharding import reshard
from headrace.spark.ticks.round_task import Sent, fetch_messages
from tests.properties import test_recursion
from tests.properties.test_recursion import RULES, Given, Pair
from tests.spark.tasks_in_process import InProcessTasks
from tests.spark.tasks_with_checkpoint import CheckpointedTasks

AnyStream = hr.Stream[Any, Any, Any, Any]


def reached(flow: Flow, seeds: AnyStream, edges: AnyStream, **more: Any) -> AnyStream:
    return flow.fixpoint(
        lambda found: found.join(edges, on=left.value == right.a).select(value=col.b, into=int), seeds, **more
    )


def reachability(**more: Any) -> Flow:
    flow = Flow("reachability")
    nodes = reached(flow, flow.source("start", int), flow.source("edges", Pair), **more)
    flow.sink("reached", nodes)
    flow.sink("count", nodes.group_by().agg(n=hr.count()))
    return flow


def closure(by: str = "edges") -> Flow:
    flow = Flow("closure")
    edges = flow.source("edges", Pair)
    paths = flow.fixpoint(lambda found: step(found, edges if by == "edges" else found), edges)
    flow.sink("paths", paths)
    flow.sink("far", paths.group_by("a").agg(n=hr.count()).join(edges, on=["a"]))
    return flow


def step(found: AnyStream, further: AnyStream) -> AnyStream:
    return found.join(further, on=left.b == right.a, suffix="_2").select("a", b=col.b_2, into=Pair)


def stages_of(plan: StagePlan) -> list[list[str]]:
    return [
        [n.operator.kind for n, origin in zip(s.graph.nodes, s.origins, strict=True) if origin is not None]
        for s in plan.stages
    ]


def ways_back(plan: StagePlan) -> list[str]:
    return [f"{e.from_stage}->{e.to_stage} {e.route}" for e in plan.exchanges if e.to_stage <= e.from_stage]


def test_a_loop_that_goes_round_by_one_key_has_one_stage_and_its_readers_come_behind_it() -> None:
    plan = cut_stages(reachability().graph(), 3, rounds=True)
    assert stages_of(plan)[1] == ["feedback", "join", "select", "union", "sink"]
    assert ways_back(plan) == ["1->1 by value"]
    assert [(loop.first, loop.last) for loop in plan.loops] == [(1, 1)]
    assert all("aggregate" in kinds for kinds in stages_of(plan)[2:3])


def test_a_feedback_is_spread_by_what_the_join_behind_it_wants() -> None:
    assert ways_back(cut_stages(closure().graph(), 3, rounds=True)) == ["1->1 by b"]


def test_a_loop_that_needs_two_keys_has_two_stages() -> None:
    plan = cut_stages(closure(by="paths").graph(), 3, rounds=True)
    assert [(loop.first, loop.last) for loop in plan.loops] == [(1, 2)]
    assert ways_back(plan) == ["2->1 by b"]


def test_a_loop_has_its_stages_for_itself() -> None:
    flow = Flow("beside")
    edges = flow.source("edges", Pair)
    flow.sink("reached", reached(flow, flow.source("start", int), edges))
    flow.sink("later", edges.defer_tick())
    kinds = stages_of(cut_stages(flow.graph(), 3, rounds=True))
    assert not any("feedback" in stage and "defer_tick" in stage for stage in kinds)


def test_a_loop_behind_a_loop_begins_when_that_is_over() -> None:
    flow = Flow("two loops")
    edges = flow.source("edges", Pair)
    first = reached(flow, flow.source("start", int), edges)
    flow.sink("twice", reached(flow, first.select(value=col.value + 1, into=int), edges))
    (one, other) = cut_stages(flow.graph(), 3, rounds=True).loops
    assert one.last < other.first


def test_a_chain_of_a_loop_and_other_rows_comes_behind_the_loop(tmp_path: Path) -> None:
    flow = Flow("chained")
    edges = flow.source("edges", Pair)
    paths = flow.fixpoint(lambda found: step(found, edges), edges)
    flow.sink("first", paths.chain(edges))
    flow.sink("last", edges.chain(paths))
    engine, tasks = Engine(flow), InProcessTasks(flow, 3, tmp_path, "stages", rounds=True)
    for tick in ([Pair(0, 1), Pair(1, 2)], [Pair(2, 0)]):
        expected = {n: net(c.raw, engine, n) for n, c in engine.tick(edges=tick).items() if len(c)}
        found = tasks.tick({"edges": tick})
        assert {n: net(rows, engine, n) for n, rows in found.items()} == expected


@pytest.mark.parametrize("why", ["rows may be taken back", "no key", "deferred"])
def test_a_loop_that_cannot_be_cut_by_key_stays_on_one_shard(why: str) -> None:
    flow = Flow("whole")
    edges = flow.table("edges", Pair) if why == "rows may be taken back" else flow.source("edges", Pair)

    def body(found: AnyStream) -> AnyStream:
        if why == "no key":
            return found.cross_join(edges, suffix="_2").select("a", b=col.b_2, into=Pair)
        further = step(found, edges)
        return further.defer_tick() if why == "deferred" else further

    flow.sink("out", flow.fixpoint(body, flow.source("start", Pair)))
    plan = cut_stages(flow.graph(), 3, rounds=True)
    assert plan.loops == ()
    assert ways_back(plan) == []


@pytest.mark.parametrize("append", [True, False])
def test_explain_says_whether_a_loop_can_run_in_rounds(append: bool) -> None:
    flow = Flow("reachability")
    edges = flow.source("edges", Pair) if append else flow.table("edges", Pair)
    flow.sink("out", reached(flow, flow.source("start", int), edges))
    text = explain_on_spark(flow.graph())
    if append:
        assert 'a loop; loops="rounds" cuts it by key' in text
    else:
        assert "a loop that cannot run in rounds: Rows of 'feedback_2' in it may be taken back." in text
    # A batch is complete before a loop begins: nothing goes.
    assert "in one task; beyond 2,000,000 rows (loop_rows) in rounds over parts" in text


# --- what they mean ------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How a tick is run.

    few: rows of a round that one task runs, in a tick of several jobs.
    """

    shards: int
    way: str
    few: int


ways = st.builds(
    Way,
    st.integers(1, 3),
    st.sampled_from(["one task", "stages"]),
    st.sampled_from([0, 2, 1_000_000]),
)
GROWING = (
    "along edges", "edges before", "along edges unlike", "along paths", "along others", "along itself",
    "less", "filter", "filter by function", "map", "filter map", "flat map", "distinct", "union with edges",
    "union with others", "marked", "marked edges", "reached edges", "whole rows marked",
)  # fmt: skip


@st.composite
def programs(draw: st.DrawFn) -> Flow:
    """A loop of one or two feedbacks, and what reads it; now and then another loop behind it."""
    count = draw(st.integers(1, 2))
    chain = st.tuples(st.integers(0, count - 1), st.lists(st.sampled_from(GROWING), min_size=1, max_size=3))
    rules = [draw(st.lists(chain, min_size=1, max_size=2)) for _ in range(count)]
    flow = Flow("recursion")
    edges, marks, seeds = (flow.source(name, Pair) for name in ("edges", "marks", "seeds"))
    feedbacks = [flow.feedback(Pair, changes=True) for _ in rules]
    for at, chains in enumerate(rules):
        closing: list[AnyStream] = [seeds] if at == 0 else []
        for start, names in chains:
            rows: AnyStream = feedbacks[start]
            for name in names:
                rows = RULES[name](rows, Given(feedbacks[start], feedbacks[at], edges, marks))
            closing.append(rows)
        feedbacks[at].close(closing[0].union(*closing[1:]) if len(closing) > 1 else closing[0])
        flow.sink(f"out{at}", feedbacks[at])
    out: AnyStream = feedbacks[0]
    flow.sink("swapped", out.select(a=col.b, b=col.a, into=Pair))
    flow.sink("counted", out.group_by("a").agg(n=hr.count()))
    if draw(st.booleans()):
        flow.sink("others", marks.difference(out))
        flow.sink("later", out.defer_tick())
    if draw(st.booleans()):
        flow.sink("again", flow.fixpoint(lambda found: step(found, marks), out.union(edges)))
    return flow


pairs = st.lists(st.builds(Pair, st.integers(0, 4), st.integers(0, 4)), max_size=5)
ticks_of_rows = st.lists(
    st.fixed_dictionaries({"edges": pairs, "marks": pairs, "seeds": pairs}), min_size=1, max_size=4
)


@settings(max_examples=40)
@given(programs(), ticks_of_rows, ways, st.booleans())
def test_any_loop_over_rows_that_stay_gives_every_tick_what_the_engine_gives(
    flow: Flow, ticks: list[dict[str, list[Pair]]], how: Way, in_rounds: bool
) -> None:
    engine = Engine(flow)
    with tempfile.TemporaryDirectory() as folder:
        tasks = InProcessTasks(flow, how.shards, Path(folder), how.way, rounds=in_rounds, few=how.few)
        waiting = list(ticks)
        while waiting or engine.pending:
            tick = waiting.pop(0) if waiting else {}
            expected = {n: net(c.raw, engine, n) for n, c in engine.tick(**tick).items() if len(c)}
            found = tasks.tick(tick)
            assert {n: net(rows, engine, n) for n, rows in found.items()} == expected


@settings(max_examples=15)
@given(test_recursion.programs().flatmap(lambda p: st.tuples(st.just(p), test_recursion.histories(p))), ways)
def test_a_loop_whose_rows_may_be_taken_back_gives_on_its_shard_what_the_engine_gives(
    drawn: tuple[test_recursion.Program, list[test_recursion.Changes]], how: Way
) -> None:
    program, ticks = drawn
    engine = Engine(program.flow())
    with tempfile.TemporaryDirectory() as folder:
        tasks = InProcessTasks(program.flow(), how.shards, Path(folder), how.way, rounds=True)
        for tick in ticks:
            given_ = {n: list(c) if n in program.tables else [x.row for x in c] for n, c in tick.items()}
            expected = {n: Counter(c.raw) for n, c in engine.tick(**given_).items() if len(c)}
            assert {n: Counter(rows) for n, rows in tasks.tick(given_).items()} == expected


def net(rows: Any, engine: Engine, sink: str) -> Counter[Any]:
    """The rows of a tick; those of an append stream may come in several copies, the others once."""
    found = Counter[Any]()
    for *row, weight in rows:
        assert engine.program.sink_append[sink] or tuple(row) not in found, f"{sink}: {row} twice"
        found[tuple(row)] += weight
    return found


@pytest.mark.parametrize("way", ["one task", "stages"])
@pytest.mark.parametrize("few", [0, 1_000_000])
def test_a_loop_without_end_is_an_error_that_names_its_edge(way: str, few: int, tmp_path: Path) -> None:
    flow = Flow("endless")
    flow.sink(
        "out",
        flow.fixpoint(
            lambda n: n.select(value=col.value + 1, into=int).distinct(),
            flow.source("start", int),
            max_iterations=20,
        ),
    )
    tasks = InProcessTasks(flow, 2, tmp_path, way, rounds=True, few=few)
    with pytest.raises(NoFixpoint, match="after 20 rounds") as caught:
        tasks.tick({"start": [1]})
    (edge,) = caught.value.facts["edges"]
    assert edge.startswith("union")
    assert "-> feedback" in edge
    assert all(step.location.file.endswith("test_rounds.py") for step in caught.value.where)


@pytest.mark.parametrize("way", ["one task", "stages"])
def test_a_loop_may_take_as_many_rounds_as_its_bound_says(way: str, tmp_path: Path) -> None:
    # A path of 20 edges: the engine needs 21 rounds, the first node included.
    path = [Pair(n, n + 1) for n in range(20)]
    Engine(reachability(max_iterations=21)).tick(edges=path, start=[0])
    tasks = InProcessTasks(reachability(max_iterations=21), 2, tmp_path, way, rounds=True)
    assert len(tasks.tick({"edges": path, "start": [0]})["reached"]) == 21


def test_rounds_that_one_task_took_over_count_as_well(tmp_path: Path) -> None:
    # A path, which one task follows, then a fan of paths, which is too much for it.
    path = [Pair(n, n + 1) for n in range(10)]
    fan = [Pair(10 + k * 10 * (n > 0) + n, 11 + k * 10 + n) for k in range(4) for n in range(9)]
    flow = reachability(max_iterations=15)
    with pytest.raises(NoFixpoint):
        Engine(flow).tick(edges=path + fan, start=[0])
    tasks = InProcessTasks(flow, 2, tmp_path, "stages", rounds=True, few=2)
    with pytest.raises(NoFixpoint, match="after 15 rounds"):
        tasks.tick({"edges": path + fan, "start": [0]})


def test_rounds_that_are_lost_change_nothing(tmp_path: Path) -> None:
    tasks = InProcessTasks(closure(), 2, tmp_path, "stages", rounds=True)
    tasks.tick({"edges": [Pair(n, n + 1) for n in range(5)]})
    more = {"edges": [Pair(n, n + 1) for n in range(5, 9)]}
    first, second = tasks.attempt(more).rows, tasks.attempt(more).rows
    assert {n: Counter(rows) for n, rows in first.items()} == {n: Counter(rows) for n, rows in second.items()}
    other = Engine(closure())
    other.tick(edges=[Pair(n, n + 1) for n in range(5)])
    less = [Pair(4, 0)]
    expected = {n: Counter(c.raw) for n, c in other.tick(edges=less).items()}
    assert {n: Counter(rows) for n, rows in tasks.tick({"edges": less}).items()} == expected


def test_the_state_of_a_loop_in_rounds_can_be_divided_anew(tmp_path: Path) -> None:
    engine = Engine(closure())
    edges = [Pair(n % 7, n * n % 11) for n in range(12)]

    def check(tasks: CheckpointedTasks, given: list[Pair]) -> None:
        expected = {n: Counter(c.raw) for n, c in engine.tick(edges=given).items() if len(c)}
        assert {n: Counter(rows) for n, rows in tasks.tick({"edges": given}).items()} == expected

    with CheckpointedTasks(closure(), tmp_path, shards=3, way="stages", loops="rounds") as tasks:
        check(tasks, edges[:4])
        check(tasks, edges[4:8])
    reshard(tmp_path, 2, closure())
    with CheckpointedTasks(closure(), tmp_path, way="stages") as tasks:
        check(tasks, edges[8:])
        check(tasks, [Pair(5, 0), Pair(10, 5)])


def test_a_file_that_another_host_does_not_see_is_named(tmp_path: Path) -> None:
    sent = Sent(1, 0, 0, 0, str(tmp_path / "x.sent"), 0, 10, 1)
    with pytest.raises(UnreadableSource, match="every host must see") as caught:
        list(fetch_messages([sent.reference()]))
    assert caught.value.facts["path"] == str(tmp_path / "x.sent")
    assert list(fetch_messages([sent.reference()], of=2)) == [sent.reference()]
