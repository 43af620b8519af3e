"""Loops without retractions whose rounds run on frames, in rows, or some here and some there."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col, left, right
from headrace.analysis import analyse
from headrace.columns.columns import ColumnarDeclined, rows_to_columns
from headrace.engine import loop_code
from headrace.engine.change import Change
from headrace.engine.columnar import loop_rounds
from headrace.engine.columnar.arranged_slot import ArrangedSlot
from headrace.engine.columnar.columnar_flow import large_ticks_code
from headrace.engine.columnar.columnar_option import Columnar, explain_large_ticks
from headrace.engine.columnar.loop_rounds import ColumnarLoop
from headrace.engine.program import Program, compile_program
from headrace.errors import NoFixpoint
from headrace.expr.code_runtime import NAN
from headrace.expr.typing_rules import CodeBounds, bounded_code
from headrace.graph.node import FlowGraph
from headrace.testing.strategies import rows
from tests.engine.test_columnar import ALWAYS, Plain, Run, _inside, _join, noting_declines
from tests.properties.effort import examples
from tests.properties.test_recursion import RULES
from tests.properties.test_recursion import Program as Rules
from tests.random_flows.cases import Case, Tick, _add_sinks, cuts
from tests.random_flows.grow import LOOPS, Grown, _distinct, _filter, _select, _union, grow

pytest.importorskip("polars")


Rows = list[tuple[Any, ...]]


def compiled(graph: FlowGraph, large_round: int = 2) -> Program:
    """Compile a flow whose loops in rows hand on rounds with this many rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_code, "LARGE_ROUND", large_round)
        program = compile_program(graph)
        large_ticks_code(program, arranged=True)
    return program


@contextmanager
def noting_rounds() -> Generator[list[str]]:
    """Note each round that ran on frames, and each time that rows went on from there or back."""
    noted: list[str] = []
    rounds: Any = ColumnarLoop._rounds
    in_rows: Any = ColumnarLoop._go_on_in_rows
    go_on: Any = ColumnarLoop.go_on

    def some(self: ColumnarLoop, begun: int, *rest: Any) -> Any:
        made = rounds(self, begun, *rest)
        noted.extend(["frames"] * (made[0] - begun))
        return made

    def rest(self: ColumnarLoop, *given: Any) -> Any:
        noted.append("rows")
        return in_rows(self, *given)

    def back(self: ColumnarLoop, *given: Any) -> Any:
        made = go_on(self, *given)
        noted.append("stays" if made is None else "back")
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ColumnarLoop, "_rounds", some)
        patch.setattr(ColumnarLoop, "_go_on_in_rows", rest)
        patch.setattr(ColumnarLoop, "go_on", back)
        yield noted


def check_rounds(
    program: Program, ticks: Sequence[Mapping[str, Rows]], large: list[bool], least: int
) -> list[Run]:
    """Outputs and state are those of rows, wherever a tick and a round run.

    program: with large rounds of two rows. large: whether a tick of the last runs begins on frames.
    least: new rows of a round that runs on frames in one of these.
    """
    in_rows, always = Run(program, None), Run(program, ALWAYS)
    mixed, within = Run(program, ALWAYS), Run(program, Columnar(least, True, lambda slot: None))
    for tick, is_large in zip(ticks, large, strict=True):
        wanted = in_rows.tick(tick, in_order=True)
        with noting_declines() as declines:
            assert always.tick(tick, in_order=True) == wanted
            for run in (mixed, within):
                run.machine.least = 1 if is_large else 10**9
                assert run.tick(tick, in_order=True) == wanted
        if isinstance(wanted, str):
            return []
        assert all(why is None or isinstance(why, ColumnarDeclined) for why in declines)
    for run in (always, mixed, within):
        assert run.settled() == in_rows.settled()
    return [always, mixed, within]


@st.composite
def looping_cases(draw: st.DrawFn) -> Case:
    """Flows with loops over sources that grow."""
    flow = hr.Flow("random")
    sources: list[Grown] = []
    inputs: dict[str, list[Change[Any]]] = {}
    for at in range(draw(st.integers(1, 2))):
        stream = flow.source(f"s{at}", Plain)
        drawn = draw(st.lists(rows(stream.schema), max_size=10))
        inputs[f"s{at}"] = [Change(row, 1) for row in drawn]
        sources.append(Grown(stream, max(1, len(drawn))))
    ways = (*LOOPS, *LOOPS, _select, _filter, _union, _join, _distinct)
    streams = grow(draw, sources, draw(st.integers(1, 4)), ways)
    _add_sinks(draw, flow, streams)
    return Case(flow, inputs)


@st.composite
def looping_runs(draw: st.DrawFn) -> tuple[Case, list[Tick], list[bool], int]:
    case = draw(looping_cases())
    ticks = draw(cuts(case))
    large = draw(st.lists(st.booleans(), min_size=len(ticks), max_size=len(ticks)))
    return case, ticks, large, draw(st.integers(1, 4))


@examples(0.5)
@given(looping_runs())
def test_random_loops_are_the_same_in_columns(run: tuple[Case, list[Tick], list[bool], int]) -> None:
    case, ticks, large, least = run
    check_rounds(compiled(case.graph), [_inside(case, tick) for tick in ticks], large, least)


_RULES = sorted(
    name for name in RULES if not any(word in name for word in ("function", "map", "unmarked", "with"))
)


@st.composite
def rule_runs(draw: st.DrawFn) -> tuple[Rules, Sequence[Mapping[str, Rows]], list[bool], int]:
    """Recursive programs of one or two feedbacks over three sources that grow."""
    count = draw(st.integers(1, 2))
    chain = st.tuples(
        st.integers(0, count - 1), st.lists(st.sampled_from(_RULES), min_size=1, max_size=3).map(tuple)
    )
    rules = [draw(st.lists(chain, min_size=1, max_size=2)) for _ in range(count)]
    pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=5)
    sources: dict[str, Any] = dict.fromkeys(("edges", "marks", "seeds"), pairs)
    ticks = draw(st.lists(st.fixed_dictionaries(sources), min_size=1, max_size=5))
    large = draw(st.lists(st.booleans(), min_size=len(ticks), max_size=len(ticks)))
    drawn = Rules(tuple(tuple(r) for r in rules), frozenset(), counted=False)
    return drawn, ticks, large, draw(st.integers(1, 4))


@examples(1.5)
@given(rule_runs())
def test_recursive_rules_are_the_same_in_columns(
    run: tuple[Rules, Sequence[Mapping[str, Rows]], list[bool], int],
) -> None:
    rules, ticks, large, least = run
    graph = rules.flow().graph()
    program = compiled(graph)
    assert not any(map(analyse(graph).is_changing, analyse(graph).loops))
    check_rounds(program, ticks, large, least)


class Edge(NamedTuple):
    a: int
    b: int


def reach(**limits: int) -> hr.Flow:
    """Nodes that are reached from some roots, and how many there are."""
    flow = hr.Flow("reach")
    edges, roots = flow.source("edges", Edge), flow.source("roots", int)

    def further(found: Any) -> Any:
        return found.join(edges, on=left.value == right.a).select(value=col.b, into=int)

    reached = flow.fixpoint(further, roots, **limits)
    flow.sink("reached", reached)
    flow.sink("many", reached.group_by().agg(n=hr.count()))
    return flow


def both_runs(flow: hr.Flow, least: int = 1, large_round: int = 300) -> tuple[Run, Run]:
    program = compiled(flow.graph(), large_round)
    return Run(program, None), Run(program, Columnar(least, True, lambda slot: None))


def chain(*nodes: int) -> Rows:
    return list(pairwise(nodes))


def test_all_rounds_of_a_loop_run_on_frames() -> None:
    in_rows, on_frames = both_runs(reach())
    for tick in (
        {"edges": chain(1, 2, 3, 4), "roots": [(1,)]},
        {"edges": chain(4, 5, 1), "roots": [(1,)]},
        {"roots": [(9,), (9,)]},
        {"edges": chain(9, 8, 7, 2)},
    ):
        with noting_declines() as declines, noting_rounds() as rounds:
            assert on_frames.tick(tick) == in_rows.tick(tick)
        assert declines == [None]
        assert set(rounds) == {"frames"}
    assert on_frames.settled() == in_rows.settled()
    slots = {name: on_frames.machine.slot(name) for name in on_frames.names}
    assert all(isinstance(slot, ArrangedSlot) for slot in slots.values())


def test_a_small_round_goes_on_in_rows_and_a_large_one_comes_back() -> None:
    in_rows, on_frames = both_runs(reach(), 2, large_round=3)
    fan = [(4, n) for n in range(10, 15)]
    tick = {"edges": [*chain(1, 2, 3, 4), *fan, *chain(14, 15, 16)], "roots": [(1,)]}
    with noting_declines() as declines, noting_rounds() as rounds:
        assert on_frames.tick(tick) == in_rows.tick(tick)
    assert declines == [None]
    assert rounds == ["frames", "rows", "frames", "back"]
    tick = {"edges": chain(16, 17, 18)}
    on_frames.machine.least = 10**9
    assert on_frames.tick(tick) == in_rows.tick(tick)
    assert on_frames.settled() == in_rows.settled()


def test_a_small_tick_with_a_large_round_takes_it_to_frames() -> None:
    in_rows, mixed = both_runs(reach(), 2, large_round=3)
    tick = {"edges": [*chain(1, 2), *((2, n) for n in range(10, 20)), *chain(19, 20, 21)]}
    with noting_rounds() as rounds:
        assert mixed.tick(tick) == in_rows.tick(tick)
        mixed.machine.least = 10**9
        assert mixed.tick({"roots": [(1,)]}) == in_rows.tick({"roots": [(1,)]})
    assert rounds == ["frames", "frames", "back"]
    assert mixed.settled() == in_rows.settled()


class Wide(NamedTuple):
    a: int
    b: int
    c: float


def growing() -> hr.Flow:
    """Numbers that double until they are too large for an integer."""
    flow = hr.Flow("growing")
    numbers = flow.source("numbers", int)

    def doubled(found: Any) -> Any:
        return found.filter(col.value > 0).select(value=col.value * 2, into=int)

    flow.sink("out", flow.fixpoint(doubled, numbers))
    return flow


@pytest.mark.parametrize("least", [1, 4])
def test_what_fails_in_a_late_round_fails_as_in_rows(least: int) -> None:
    in_rows, on_frames = both_runs(growing(), least)
    tick: dict[str, Rows] = {"numbers": [(1,), (3,), (5,), (7,), (9,), (11,)]}
    with noting_declines() as declines:
        assert on_frames.tick(tick) == in_rows.tick(tick)
    assert [type(why) for why in declines] == [ColumnarDeclined]


def declining(flow: hr.Flow, least: int, at: str) -> tuple[Run, Run]:
    """Run a tick on frames and decline the next one, behind the loop or in one of its rounds."""
    in_rows, on_frames = both_runs(flow, least, large_round=2)
    tick = {"edges": [*chain(1, 2, 3), *chain(2, 10)], "roots": [(1,)]}
    assert on_frames.tick(tick) == in_rows.tick(tick)
    calls: list[int] = []
    whole: Any = ColumnarLoop.answer if at == "behind" else ColumnarLoop._closed

    def declined(self: ColumnarLoop, *given: Any) -> Any:
        made = whole(self, *given)
        calls.append(1)
        if at == "behind" or len(calls) == 3:
            raise ColumnarDeclined
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ColumnarLoop, "answer" if at == "behind" else "_closed", declined)
        tick = {"edges": [*chain(3, 4, 5, 6), *chain(3, 11, 12, 13, 14), *chain(10, 20, 21)]}
        assert on_frames.tick(tick) == in_rows.tick(tick)
    assert calls
    return in_rows, on_frames


@pytest.mark.parametrize("at", ["behind", "in a round"])
@pytest.mark.parametrize("least", [1, 2, 3, 4])
def test_a_tick_that_is_declined_late_leaves_the_state_as_it_was(least: int, at: str) -> None:
    in_rows, on_frames = declining(reach(), least, at)
    assert on_frames.settled() == in_rows.settled()
    tick = {"edges": chain(6, 7, 8), "roots": [(20,)]}
    assert on_frames.tick(tick) == in_rows.tick(tick)
    assert on_frames.settled() == in_rows.settled()


@pytest.mark.parametrize("least", [1, 2])
@pytest.mark.parametrize("rounds", [3, 12])
def test_a_loop_that_does_not_end_is_the_same_error(least: int, rounds: int) -> None:
    def flow() -> hr.Flow:
        flow = hr.Flow("doubling")
        seed = flow.source("seed", int)

        def twice(numbers: Any) -> Any:
            return numbers.select(value=col.value + 1, into=int)

        flow.sink("numbers", flow.fixpoint(twice, seed, max_iterations=rounds))
        return flow

    texts: list[str] = []
    for options in ({"columnar": "never"}, {"columnar": "always", "columnar_rows": least}):
        with pytest.raises(NoFixpoint) as raised:
            hr.Engine(flow(), **options).tick(seed=[1, 10_000, 20_000])  # pyright: ignore[reportArgumentType]
        texts.append(str(raised.value))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("least", [1, 2, 3])
@pytest.mark.parametrize("limit", [8, 16, 24, 32, 100, 1000])
def test_the_limit_of_a_tick_is_the_same(limit: int, least: int) -> None:
    with bounded_code(CodeBounds(limit, 20)):
        in_rows, on_frames = both_runs(reach(), least, large_round=3)
    for tick in (
        {"edges": [*chain(1, 2, 3, 4), *((3, n) for n in range(10, 14))], "roots": [(1,)]},
        {"edges": chain(*range(13, 20))},
        {"edges": chain(*range(19, 60))},
    ):
        wanted = in_rows.tick(tick)
        assert on_frames.tick(tick) == wanted
        if isinstance(wanted, str):
            return
    assert on_frames.settled() == in_rows.settled()


def test_a_loop_goes_on_from_state_in_columns() -> None:
    """The state of large ticks is that of small ones in a checkpoint's form, too."""
    in_rows, on_frames = both_runs(reach())
    for at in range(6):
        tick = {"edges": chain(at, at + 1, at + 2), "roots": [(0,)]}
        on_frames.machine.least = 1 if at % 2 == 0 else 10**9
        assert on_frames.tick(tick) == in_rows.tick(tick)
        assert on_frames.settled() == in_rows.settled()


def test_a_first_load_whose_loop_is_deep_and_narrow_leaves_state_to_rows() -> None:
    program = compiled(reach().graph())
    in_rows, run = Run(program, None), Run(program, Columnar(10, release=lambda slot: None))
    graph = program.graph.nodes
    (edges, roots) = (graph[program.graph.sources[name]].schema for name in ("edges", "roots"))

    def load(begin: int, end: int) -> bool:
        rows: dict[str, Rows] = {"edges": chain(*range(begin, end)), "roots": [(begin,)]}
        columns: Any = {"edges": rows_to_columns(edges, True, rows["edges"])}
        columns["roots"] = rows_to_columns(roots, True, rows["roots"])
        with noting_declines() as declines:
            assert run.tick(columns) == in_rows.tick(rows)
        assert run.settled() == in_rows.settled()
        return bool(declines)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_rounds, "ROUND", 5)
        # Each round finds one node. It is tried again with four times as many rows.
        assert [load(0, 12), load(12, 24), load(24, 64), load(100, 400)] == [True, False, False, True]
    assert all(isinstance(run.machine.slot(name), dict) for name in run.names)


def explained(flow: hr.Flow) -> list[str]:
    return list(explain_large_ticks(flow.graph()))


def test_a_loop_with_retractions_says_why_it_stays_in_rows() -> None:
    flow = hr.Flow("reach")
    edges, roots = flow.table("edges", Edge), flow.table("roots", int)
    flow.sink(
        "out",
        flow.fixpoint(lambda f: f.join(edges, on=left.value == right.a).select(value=col.b, into=int), roots),
    )
    assert explained(flow) == [
        "in rows: feedback: a loop whose rows may be retracted keeps differences by round, in rows"
    ]


def test_a_function_in_a_loop_keeps_it_in_rows() -> None:
    flow = hr.Flow("reach")
    numbers = flow.source("numbers", int)
    flow.sink("out", flow.fixpoint(lambda f: f.filter(lambda n: n < 3), numbers))
    assert explained(flow) == ["in rows: filter: it calls a function on each row"]


def test_a_loop_runs_on_frames_whose_set_is_read_row_by_row() -> None:
    flow = hr.Flow("reach")
    edges, roots = flow.source("edges", Edge), flow.source("roots", int)
    reached = flow.fixpoint(
        lambda f: f.join(edges, on=left.value == right.a).select(value=col.b, into=int), roots
    )
    flow.sink("even", reached.filter(lambda n: n % 2 == 0))
    assert explained(flow)[0] == "on frames: feedback, join, select, union"


def test_wide_rows_with_floats_go_round_as_one_zero() -> None:
    flow = hr.Flow("wide")
    wide = flow.source("wide", Wide)

    def less(found: Any) -> Any:
        return found.filter(col.a > 0).with_columns(a=col.a - 1, c=-col.c, into=Wide)

    flow.sink("out", flow.fixpoint(less, wide))
    in_rows, on_frames = both_runs(flow)
    for tick in ([(2, 1, 0.0), (3, 1, NAN)], [(2, 1, -0.0), (4, 1, NAN), (1, 1, 1.5)]):
        assert on_frames.tick({"wide": tick}) == in_rows.tick({"wide": tick})
    assert on_frames.settled() == in_rows.settled()
