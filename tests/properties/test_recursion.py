"""Random recursive programs over rows that come and go, against recomputation after every tick."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import Engine, col, left, right
from headrace.engine.change import Change
from headrace.testing.oracle import answers
from tests.properties.effort import examples

AnyStream: TypeAlias = hr.Stream[Any, Any, Any, Any]


class Pair(NamedTuple):
    a: int
    b: int


def swapped(pair: Pair) -> Pair:
    return Pair(pair.b, pair.a)


def downhill(pair: Pair) -> Pair | None:
    return pair if pair.a > pair.b else None


def both_ways(pair: Pair) -> list[Pair]:
    return [pair, swapped(pair), pair]


def is_small(pair: Pair) -> bool:
    return pair.a + pair.b < 6


@dataclass(frozen=True)
class Given:
    """What a rule may read: the paths that go round (of one feedback or another), and tables from outside."""

    paths: AnyStream
    others: AnyStream
    edges: AnyStream
    marks: AnyStream


Rule: TypeAlias = Callable[[AnyStream, Given], AnyStream]


def along(rows: AnyStream, further: AnyStream, more: Any = None) -> AnyStream:
    on = left.b == right.a
    joined = rows.join(further, on=on if more is None else on & more, suffix="_2")
    return joined.select("a", b=col.b_2, into=Pair)


def with_mark(rows: AnyStream, given: Given) -> AnyStream:
    marked = rows.join(given.marks, on=left.b == right.a, how="left", suffix="_2")
    return marked.select("a", b=hr.coalesce(col.b_2, col.b), into=Pair)


def with_greater_mark(rows: AnyStream, given: Given) -> AnyStream:
    on = (left.b == right.a) & (left.a < right.b)
    marked = rows.join(given.marks, on=on, how="left", suffix="_2")
    return marked.select("a", b=hr.coalesce(col.b_2, col.b), into=Pair)


def less(rows: AnyStream, given: Given) -> AnyStream:
    return rows.filter(col.b > 0).select("a", b=col.b - 1, into=Pair)


RULES: dict[str, Rule] = {
    "along edges": lambda rows, given: along(rows, given.edges),
    "edges before": lambda rows, given: along(given.edges, rows),
    "along edges unlike": lambda rows, given: along(rows, given.edges, left.a != right.b),
    "along paths": lambda rows, given: along(rows, given.paths),
    "along others": lambda rows, given: along(rows, given.others),
    "along itself": lambda rows, given: along(rows, rows),
    "less": less,
    "filter": lambda rows, given: rows.filter(col.a != col.b),
    "filter by function": lambda rows, given: rows.filter(is_small),
    "map": lambda rows, given: rows.map(swapped),
    "filter map": lambda rows, given: rows.filter_map(downhill, returns=Pair),
    "flat map": lambda rows, given: rows.flat_map(both_ways),
    "distinct": lambda rows, given: rows.distinct(),
    "union with edges": lambda rows, given: rows.union(given.edges),
    "union with others": lambda rows, given: rows.union(given.others),
    "marked": lambda rows, given: rows.join(given.marks, on=left.a == right.a, how="semi"),
    "marked edges": lambda rows, given: given.edges.join(rows, on=left.a == right.b, how="semi"),
    "reached edges": lambda rows, given: rows.join(given.others, on=left.b == right.a, how="semi"),
    "marked alike": lambda rows, given: rows.join(
        given.marks, on=(left.a == right.a) & (left.b <= right.b), how="semi"
    ),
    "unmarked": lambda rows, given: rows.join(given.marks, on=left.a == right.a, how="anti"),
    "unmarked alike": lambda rows, given: rows.join(
        given.marks, on=(left.a == right.a) & (left.b <= right.b), how="anti"
    ),
    "whole rows unmarked": lambda rows, given: rows.difference(given.marks),
    "whole rows marked": lambda rows, given: rows.join(given.marks, on=["b", "a"], how="semi"),
    "with mark": with_mark,
    "with greater mark": with_greater_mark,
}


@dataclass(frozen=True)
class Program:
    """Per feedback, chains of rules that all close it, each from a feedback on.

    rules: of each feedback, pairs of the feedback that the chain begins with and the rules.
    tables: of edges, marks and seeds, those whose rows may be taken back.
    counted: marks are what a count of edges gives.
    """

    rules: tuple[tuple[tuple[int, tuple[str, ...]], ...], ...]
    tables: frozenset[str]
    counted: bool

    def flow(self) -> hr.Flow:
        flow = hr.Flow("recursion")
        sources = {
            name: (flow.table if name in self.tables else flow.source)(name, Pair)
            for name in ("edges", "marks", "seeds")
        }
        marks = sources["marks"]
        if self.counted:
            counts = sources["edges"].group_by("a").agg(b=hr.count(), into=Pair)
            marks = marks.union(counts)
        feedbacks = [flow.feedback(Pair, changes=True) for _ in self.rules]
        for at, chains in enumerate(self.rules):
            closing = [sources["seeds"]] if at == 0 else []
            for start, names in chains:
                rows: AnyStream = feedbacks[start]
                given_ = Given(feedbacks[start], feedbacks[at], sources["edges"], marks)
                for name in names:
                    rows = RULES[name](rows, given_)
                closing.append(rows)
                flow.sink(f"rows{at}_{len(closing)}", rows)
            feedbacks[at].close(closing[0].union(*closing[1:]) if len(closing) > 1 else closing[0])
            flow.sink(f"out{at}", feedbacks[at])
        flow.sink("counted", feedbacks[0].group_by("a").agg(n=hr.count()))
        return flow


Changes: TypeAlias = dict[str, list[Change[Pair]]]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    count = draw(st.integers(1, 2))
    chain = st.tuples(
        st.integers(0, count - 1), st.lists(st.sampled_from(sorted(RULES)), min_size=1, max_size=3).map(tuple)
    )
    rules = [draw(st.lists(chain, min_size=1, max_size=2)) for _ in range(count)]
    tables = draw(st.sets(st.sampled_from(["edges", "marks", "seeds"]), min_size=1))
    return Program(tuple(tuple(r) for r in rules), frozenset(tables), draw(st.booleans()))


@st.composite
def histories(draw: st.DrawFn, program: Program, *, settled: bool = True) -> list[Changes]:
    """Some ticks, and one that takes back all that can be.

    settled: nothing is taken back before it came.
    """
    # Few different rows, so that they are there several times.
    pair = st.builds(Pair, st.integers(0, 3), st.integers(0, 3))
    there: dict[str, Counter[Pair]] = {name: Counter() for name in ("edges", "marks", "seeds")}
    ticks: list[Changes] = []
    for _ in range(draw(st.integers(1, 5))):
        tick: Changes = {}
        for name, rows in there.items():
            drawn = draw(st.lists(pair, max_size=5))
            changes: list[Change[Pair]] = [
                Change(row, 1) for row in drawn for _ in range(draw(st.integers(1, 2)))
            ]
            rows.update(change.row for change in changes)
            if name in program.tables:
                for row in draw(st.lists(st.sampled_from(sorted(rows)), max_size=4) if rows else st.just([])):
                    if not settled or rows[row] > 0:
                        rows[row] -= 1
                        changes.insert(draw(st.integers(0, len(changes))), Change(row, -1))
                if not settled and draw(st.booleans()):
                    early = draw(pair)
                    rows[early] -= 1
                    changes.append(Change(early, -1))
            tick[name] = changes
        ticks.append(tick)
    last = {n: [Change(r, -k) for r, k in there[n].items() if k] for n in sorted(program.tables)}
    return [*ticks, last, {}]


def run(program: Program, ticks: list[Changes], *, settled: bool = True) -> dict[str, Any]:
    """Run the ticks, compare with the oracle after each; the state in the end."""
    flow = program.flow()
    graph = flow.graph()
    state: dict[str, Any] = {slot.name: {} for slot in Engine(flow).program.slots}
    engine = Engine(flow, state=state)
    held: dict[str, Counter[Any]] = {name: Counter() for name in graph.sinks}
    so_far: dict[str, Counter[Any]] = {name: Counter() for name in graph.sources}
    for tick in ticks:
        for name, changes in tick.items():
            for change in changes:
                so_far[name][tuple(change.row)] += change.weight
        inputs = {
            name: list(changes) if name in program.tables else [c.row for c in changes]
            for name, changes in tick.items()
        }
        for name, changes in engine.tick(**inputs).items():
            for row in changes.raw:
                held[name][row[:-1]] += row[-1]
                assert row[-1], f"a change that is none: {row}"
        if settled or all(n >= 0 for rows in so_far.values() for n in rows.values()):
            expected = answers(graph, so_far)
            assert {n: +rows for n, rows in held.items()} == {n: +rows for n, rows in expected.items()}
            assert all(n >= 0 for rows in held.values() for n in rows.values())
    return state


@examples(2)
@given(programs().flatmap(lambda program: st.tuples(st.just(program), histories(program))))
def test_after_every_tick_a_loop_holds_the_least_fixpoint_of_the_input_so_far(
    drawn: tuple[Program, list[Changes]],
) -> None:
    program, ticks = drawn
    state = run(program, ticks)
    if program.tables == {"edges", "marks", "seeds"}:
        assert {name: slot for name, slot in state.items() if slot} == {}


@examples(1.5)
@given(programs().flatmap(lambda program: st.tuples(st.just(program), histories(program, settled=False))))
def test_rows_that_are_taken_back_before_they_come_do_a_loop_no_lasting_harm(
    drawn: tuple[Program, list[Changes]],
) -> None:
    program, ticks = drawn
    state = run(program, ticks, settled=False)
    if program.tables == {"edges", "marks", "seeds"}:
        assert {name: slot for name, slot in state.items() if slot} == {}


class Part(NamedTuple):
    whole: int
    part: int
    count: int


@st.composite
def assemblies(draw: st.DrawFn) -> list[list[Change[Part]]]:
    """What goes into what, with no whole in its own parts: some ticks, and one that takes all back."""
    there: Counter[Part] = Counter()
    ticks: list[list[Change[Part]]] = []
    for _ in range(draw(st.integers(1, 4))):
        tick: list[Change[Part]] = []
        for whole, more, count in draw(
            st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2), st.integers(1, 2)), max_size=5)
        ):
            row = Part(whole, whole + more, count)
            weight = draw(st.sampled_from([1, 2, -1]))
            there[row] += weight
            tick.append(Change(row, weight))
        ticks.append(tick)
    return [*ticks, [Change(row, -n) for row, n in there.items() if n]]


@examples(1)
@given(assemblies())
def test_a_bag_that_goes_round_takes_back_what_followed_from_a_row(ticks: list[list[Change[Part]]]) -> None:
    flow = hr.Flow("bill of materials")
    parts = flow.table("parts", Part)
    needed = flow.feedback(Part, changes=True, distinct=False)
    within = needed.join(parts, on=left.part == right.whole, suffix="_2")
    more = within.select("whole", part=col.part_2, count=col.count * col.count_2, into=Part)
    needed.close(parts.union(more))
    flow.sink("needed", needed)
    flow.sink("more", more)
    state: dict[str, Any] = {slot.name: {} for slot in Engine(flow).program.slots}
    engine = Engine(flow, state=state)
    held: dict[str, Counter[Any]] = {name: Counter() for name in flow.graph().sinks}
    so_far: Counter[Any] = Counter()
    for tick in ticks:
        for change in tick:
            so_far[tuple(change.row)] += change.weight
        for name, changes in engine.tick(parts=tick).items():
            for row in changes.raw:
                held[name][row[:-1]] += row[-1]
        if all(n >= 0 for n in so_far.values()):
            expected = answers(flow.graph(), {"parts": so_far})
            assert {n: +rows for n, rows in held.items()} == {n: +rows for n, rows in expected.items()}
    assert {name: slot for name, slot in state.items() if slot} == {}


class Road(NamedTuple):
    start: int
    end: int
    lanes: int


class Trip(NamedTuple):
    at: int
    load: int


@examples(1)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6), min_size=1, max_size=5)
)
def test_nothing_in_a_loop_is_computed_on_a_pair_that_was_never_there(
    ticks: list[list[tuple[int, int]]],
) -> None:
    """A trip that goes would meet, if changes were taken one by one, the roads that come."""

    def by_expression(found: AnyStream, roads: AnyStream) -> AnyStream:
        pairs = found.join(roads, on=left.at == right.start)
        return pairs.filter(col.load // (col.load - col.lanes) != 9).select(
            at=col.end, load=col.load, into=Trip
        )

    def by_residual(found: AnyStream, roads: AnyStream) -> AnyStream:
        on = (left.at == right.start) & (left.load // (left.load - right.lanes) != 9)
        return found.join(roads, on=on).select(at=col.end, load=col.load, into=Trip)

    for further in (by_expression, by_residual):
        flow = hr.Flow("trips")
        roads, trips = flow.table("roads", Road), flow.table("trips", Trip)
        flow.sink("out", flow.fixpoint(lambda found, f=further, r=roads: f(found, r), trips))
        engine = Engine(flow)
        for at, drawn in enumerate(ticks):
            # The roads of a tick have as many lanes as the trip that goes in it has load.
            now = [hr.insert(Road(a, b, 2 * at - 1)) for a, b in dict.fromkeys(drawn)]
            gone = [hr.delete(Road(a, b, 2 * at - 3)) for a, b in dict.fromkeys(ticks[at - 1])] if at else []
            before = [hr.delete(Trip(0, 2 * at - 1))] if at else []
            engine.tick(roads=[*now, *gone], trips=[hr.insert(Trip(0, 2 * at + 1)), *before])


def test_a_large_tick_is_read_by_a_loop_too() -> None:
    flow = hr.Flow("reachability")
    edges, start = flow.table("edges", Pair), flow.table("start", Pair)
    flow.sink("out", flow.fixpoint(lambda found: along(found, edges), start))
    engine = Engine(flow)
    path = [hr.insert(Pair(n, n + 1)) for n in range(3_000)]
    assert len(engine.tick(edges=path, start=[Pair(0, 0)])["out"]) == 3_001
    assert len(engine.tick(edges=[hr.delete(Pair(1_000, 1_001))])["out"]) == 2_000


def test_a_row_that_is_there_twice_is_taken_back_once_without_harm() -> None:
    flow = hr.Flow("reachability")
    edges, start = flow.table("edges", Pair), flow.table("start", Pair)
    flow.sink("out", flow.fixpoint(lambda found: along(found, edges), start))
    engine = Engine(flow)
    engine.tick(edges=[Pair(0, 1)])
    engine.tick(edges=[Pair(0, 1)])
    engine.tick(start=[Pair(0, 0)])
    assert list(engine.tick(edges=[hr.delete(Pair(0, 1))])["out"]) == []
    assert list(engine.tick(edges=[hr.delete(Pair(0, 1))])["out"]) == [hr.delete(Pair(0, 1))]


def test_a_row_taken_back_too_early_does_not_keep_a_loop_from_its_rest() -> None:
    flow = hr.Flow("squares")
    seed, back = flow.table("seed", Pair), flow.feedback(Pair, changes=True)
    rows = seed.union(back)
    back.close(along(rows, rows))
    flow.sink("out", back)
    engine = Engine(flow)
    # As -1 of a row times -1 of it, it would come in one round and go in the next, for ever.
    assert list(engine.tick(seed=[hr.delete(Pair(0, 0))])["out"]) == []
    assert list(engine.tick(seed=[Pair(0, 0)])["out"]) == []
    assert list(engine.tick(seed=[Pair(0, 0)])["out"]) == [hr.insert(Pair(0, 0))]
