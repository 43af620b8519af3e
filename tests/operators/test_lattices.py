"""Merged values: lattices and their laws, in flows and in loops, and thresholds on what only grows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import BrokenClaim, NeedNotMet, WrongType
from headrace.expr.code_runtime import NAN
from headrace.lattice import BoolOr, Lattice, MapUnion, Max, Merging, Min, Pair, SetUnion
from headrace.testing import Backend, check_lattice, check_ticks

AnyStream = hr.Stream[Any, Any, Any, Any]
Build = Callable[[hr.Flow], AnyStream]


class Road(NamedTuple):
    start: str
    end: str
    length: int


class Reach(NamedTuple):
    node: str
    distance: int


def run(build: Build, *ticks: dict[str, Any]) -> list[list[Any]]:
    """The rows of each tick, in their order, of a flow whose ticks are given."""
    flow = hr.Flow("merged", ticks="given")
    flow.sink("out", build(flow))
    engine = hr.Engine(flow)
    return [[change.row for change in engine.tick(**tick)["out"]] for tick in ticks]


numbers = st.none() | st.integers(-3, 3) | st.sampled_from([0.5, float("inf"), NAN])
sets = st.frozensets(st.integers(0, 3), max_size=3)
VALUES: dict[str, tuple[Lattice, st.SearchStrategy[Any]]] = {
    "max": (Max(), numbers),
    "min": (Min(), numbers),
    "set union": (SetUnion(), sets),
    "bool or": (BoolOr(), st.booleans()),
    "pair": (Pair(Max(), SetUnion()), st.tuples(numbers, sets)),
    "map union": (
        MapUnion(Max()),
        st.dictionaries(st.sampled_from("ab"), st.integers(0, 2)).map(lambda d: frozenset(d.items())),
    ),
    "map of maps": (
        MapUnion(MapUnion(SetUnion())),
        st.dictionaries(
            st.sampled_from("ab"),
            st.dictionaries(st.sampled_from("xy"), sets.filter(bool), min_size=1).map(
                lambda d: frozenset(d.items())
            ),
        ).map(lambda d: frozenset(d.items())),
    ),
    "merging": (Merging(0, max), st.integers(0, 4)),
}


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_lattices_keep_their_laws(name: str, data: st.DataObject) -> None:
    lattice, values = VALUES[name]
    check_lattice(lattice, data.draw(st.lists(values, min_size=1, max_size=4)), examples=20)


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_merging_all_at_once_is_merging_one_by_one(name: str, data: st.DataObject) -> None:
    lattice, values = VALUES[name]
    items = data.draw(st.lists(values, max_size=4))
    merged = lattice.bottom
    for item in items:
        merged = lattice.absorb(merged, item)
    # As parts of tuples, NaN is NaN.
    assert (lattice.absorb_all(lattice.bottom, items),) == (merged,)


@pytest.mark.parametrize(
    ("broken", "merge"),
    [
        ("merge is not associative", lambda a, b: (a + b) / 2),
        ("merge is not commutative", lambda a, b: a),
        ("merge is not idempotent", lambda a, b: a + b),
        ("bottom does not merge into every value", lambda a, b: min(a, b)),
    ],
)
def test_a_broken_law_is_told_with_values(broken: str, merge: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(BrokenClaim) as found:
        check_lattice(Merging(0, merge), [0, 1, 2])
    assert found.value.law == broken  # type: ignore[attr-defined]
    assert len(found.value.values) <= 3  # type: ignore[attr-defined]


def test_an_order_of_its_own_must_be_that_of_the_merge() -> None:
    class Odd(Merging):
        def leq(self, one: Any, other: Any) -> bool:
            return True

    with pytest.raises(BrokenClaim, match="order is not that of its merge"):
        check_lattice(Odd(0, max), [1, 2])


def test_a_lattice_fold_shows_its_value_when_it_has_grown(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        words = flow.source("n", int)
        flow.sink("fold", words.lattice_fold(Max()))
        flow.sink("reduce", words.lattice_reduce(Max()))
        flow.sink("tick", words.lattice_fold(Max(), lifetime="tick", nondet="the highest of each tick"))

    check_ticks(
        backend,
        build,
        """
        tick | n    | fold       | reduce   | tick
        1    |      | + null     |          | + null
        2    | 3; 1 | - null; + 3 | + 3     | + 3
        3    | 2    |            |          | + 2
        4    | 5    | - 3; + 5   | - 3; + 5 | + 5
    """,
    )


def test_a_lattice_fold_per_key_has_a_row_per_key(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: flow.source("r", Reach).lattice_fold(Min(), value="distance", per="node"),
        """
        tick | r             | out
        1    | a 3; b 7; a 9 | + a 3; + b 7
        2    | b 9           |
        3    | b 1           | - b 7; + b 1
    """,
    )


@pytest.mark.parametrize("name", ["lattice_fold", "lattice_reduce"])
def test_a_lattice_without_a_least_value_folds_the_rows_of_a_tick(backend: Backend, name: str) -> None:
    def build(flow: hr.Flow) -> None:
        fold = getattr(flow.source("r", Reach), name)
        flow.sink("out", fold(Min(), value="distance", per="node", lifetime="tick", nondet="of each tick"))

    check_ticks(
        backend,
        build,
        """
        tick | r             | out
        1    | a 3; b 7; a 2 | + a 2; + b 7
        2    |               |
        3    | b 9           | + b 9
    """,
    )


@pytest.mark.parametrize("lattice", [SetUnion(), MapUnion(Max()), Pair(Max(), SetUnion())])
def test_a_null_makes_no_value_grow(lattice: Lattice) -> None:
    flow = hr.Flow("nulls", ticks="given")
    flow.sink("out", flow.source("items", object).lattice_fold(lattice))
    assert [change.row for change in hr.Engine(flow).tick(items=[None, None])["out"]] == [lattice.bottom]


@pytest.mark.parametrize(
    "lattice",
    [MapUnion(cast("Any", Max)), Pair(Max(), cast("Any", Max)), MapUnion(Pair(cast("Any", Max), Min()))],
)
def test_what_is_no_lattice_inside_another_is_named(lattice: Lattice) -> None:
    with pytest.raises(WrongType, match=r"(MapUnion|Pair) needs a lattice, got the class Max"):
        hr.Flow("wrong").source("n", object).lattice_fold(lattice)


@pytest.mark.parametrize("wrong", [Max, "max", None])
def test_what_is_no_lattice_is_named(wrong: Any) -> None:
    numbers = hr.Flow("wrong").source("n", int)
    for method in (numbers.lattice_fold, numbers.lattice_reduce, numbers.state):
        with pytest.raises(WrongType, match="needs a lattice, got"):
            method(wrong)


def test_nan_is_the_greatest_number_of_all(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        numbers = flow.source("x", float)
        flow.sink("max", numbers.lattice_reduce(Max()))
        flow.sink("min", numbers.lattice_reduce(Min()))

    check_ticks(
        backend,
        build,
        """
        tick | x        | max            | min
        1    | nan      | + nan          | + nan
        2    | 2.0; nan |                | - nan; + 2.0
        3    | 1.0      |                | - 2.0; + 1.0
    """,
    )


def test_sets_are_merged_from_collections_and_from_nothing_else() -> None:
    def union(flow: hr.Flow) -> AnyStream:
        return flow.source("lists", list[int]).lattice_reduce(SetUnion())  # type: ignore[arg-type]

    assert run(union, {"lists": [[1, 2], [2, 3]]}) == [[frozenset({1, 2, 3})]]
    with pytest.raises(WrongType):
        run(lambda flow: flow.source("n", int).lattice_fold(SetUnion()))


def test_the_rows_that_made_a_value_grow_pass(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        r = flow.source("r", Reach)
        flow.sink("ever", r.state(Min(), value="distance", per="node"))
        flow.sink("tick", r.state(Min(), value="distance", lifetime="tick", nondet="news of a tick"))

    check_ticks(
        backend,
        build,
        """
        tick | r             | ever         | tick
        1    | a 3; a 3; b 7 | + a 3; + b 7 | + a 3
        2    | b 9           |              | + b 9
        3    | b 1; a 3      | + b 1        | + b 1
    """,
    )


def counting_to(limit: int) -> Build:
    def build(flow: hr.Flow) -> AnyStream:
        back = flow.feedback(int)
        top = flow.source("n", int).union(back).lattice_fold(Max())
        back.close(top.filter(col.value < limit).map(lambda n: n + 1, returns=int))
        return top

    return build


def test_a_lattice_fold_in_a_cycle_grows_to_a_fixpoint_within_the_tick() -> None:
    assert run(counting_to(5), {"n": [2]}, {}, {"n": [1]}, {"n": [7]}) == [[2, 3, 4, 5], [], [], [7]]


def shortest(flow: hr.Flow) -> AnyStream:
    """Distances from the starts, kept as the least that was found."""
    roads, starts = flow.source("roads", Road), flow.source("starts", Reach)
    found = flow.feedback(Reach)
    least = starts.union(found).lattice_fold(Min(), value="distance", per="node")
    step = least.join(roads, on=hr.left.node == hr.right.start)
    found.close(step.select(node=col.end, distance=col.distance + col.length, into=Reach))
    return least.lattice_fold(Min(), value="distance", per="node")


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), st.integers(1, 5)), max_size=8),
    st.integers(0, 8),
)
def test_shortest_paths_by_merging_are_those_found_by_search(roads: list[Any], cut: int) -> None:
    flow = hr.Flow("shortest", ticks="given")
    flow.sink("out", shortest(flow))
    engine = hr.Engine(flow)
    held: dict[Any, int] = {}
    for tick in ({"roads": roads[:cut], "starts": [Reach("a", 0)]}, {"roads": roads[cut:]}):
        for row, weight in engine.tick(**tick)["out"]:
            held[tuple(row)] = held.get(tuple(row), 0) + weight
    distances = {"a": 0}
    for _ in range(len(roads)):
        for start, end, length in roads:
            if start in distances:
                distances[end] = min(distances.get(end, 1000), distances[start] + length)
    assert {row for row, n in held.items() if n} == set(distances.items())


def test_a_threshold_is_passed_once_and_never_taken_back(backend: Backend) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        r = flow.source("r", Reach)
        return r.group_by("node").agg(n=hr.count(), top=hr.max(col.distance)).at_least(2, column="n")

    check_ticks(
        backend,
        build,
        """
        tick | r             | out
        1    | a 1; b 1      |
        2    | a 1           | + a 2
        3    | a 9; b 1; b 1 | + b 2
        4    | b 1           |
    """,
    )


def test_a_threshold_sees_through_renaming_and_a_choice_of_keys(backend: Backend) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        counts = flow.source("w", str).group_by("value").agg(n=hr.count())
        return counts.filter(col.value != "b").select(word=col.value, times=col.n).at_least(2)

    check_ticks(
        backend,
        build,
        """
        tick | w       | out
        1    | a; b; b |
        2    | a       | + a 2
    """,
    )


@pytest.mark.parametrize(
    "build",
    [
        lambda n: n.fold(0, lambda top, x: max(top, x), monotone=True),
        lambda n: n.reduce(max, monotone=True),
        lambda n: n.lattice_fold(Max()),
        lambda n: n.group_by().agg(top=hr.max(col.value)),
    ],
)
def test_a_value_of_all_rows_may_pass_a_threshold(build: Callable[[AnyStream], AnyStream]) -> None:
    def flow_of(flow: hr.Flow) -> AnyStream:
        return build(flow.source("n", int)).at_least(3)

    ticks = run(flow_of, {"n": [1]}, {"n": [5]}, {"n": [7]})
    assert [[tuple(r) if isinstance(r, tuple) else (r,) for r in rows] for rows in ticks] == [[], [(3,)], []]


def test_a_threshold_is_on_a_column_by_its_name_or_itself() -> None:
    counts = hr.Flow("columns").source("n", int).group_by("value").agg(n=hr.count(), top=hr.max(col.value))
    assert counts.at_least(2, column=col.n).schema == counts.at_least(2, column="n").schema
    with pytest.raises(WrongType, match="at_least needs a column, got"):
        counts.at_least(2, column=col.n + 1)  # type: ignore[arg-type]


def test_what_is_counted_of_counts_may_fall() -> None:
    flow = hr.Flow("counts of counts")
    counts = flow.source("n", int).group_by("value").agg(n=hr.count())
    flow.sink("out", counts.group_by("n").agg(values=hr.count()).at_least(2))
    with pytest.raises(NeedNotMet, match="needs 'values' to only grow, and it may fall"):
        hr.Engine(flow)


def test_a_threshold_of_a_set_is_passed_when_it_is_part_of_it() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("lists", list[int]).lattice_fold(SetUnion()).at_least(frozenset({1, 2}))  # type: ignore[arg-type]

    assert run(build, {"lists": [[1]]}, {"lists": [[3]]}, {"lists": [[2]]}) == [[], [], [frozenset({1, 2})]]


def test_a_threshold_may_stand_in_a_cycle() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        back = flow.feedback(int)
        top = flow.source("n", int).union(back).lattice_fold(Max())
        more = top.filter(col.value < 9).map(lambda n: n + 1, returns=int)
        back.close(more.union(top.at_least(5).map(lambda n: 20, returns=int)))
        return top

    assert run(build, {"n": [4]}) == [[4, 5, 6, 20]]
