"""What stands side by side, and what comes before what: here the order of rows is looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.analysis import analyse
from headrace.errors import GuardMissing, NeedNotMet, WrongType
from headrace.testing import Backend, check_ticks

AnyStream = hr.Stream[Any, Any, Any, Any]


def in_order(
    build: Callable[[hr.Flow], AnyStream], ticks: Sequence[dict[str, list[Any]]], given: bool = True
) -> list[list[Any]]:
    """What `build` gives in each tick, in its order; rows of several columns as plain tuples."""
    flow = hr.Flow("in order", ticks="given" if given else "any")
    flow.sink("out", build(flow))
    engine = hr.Engine(flow)
    return [
        [tuple(row) if isinstance(row, tuple) else row for row, _ in engine.tick(**tick)["out"]]
        for tick in ticks
    ]


def numbers_and_words(flow: hr.Flow) -> tuple[AnyStream, AnyStream]:
    return flow.source("n", int), flow.source("words", str)


# -- zip --------------------------------------------------------------------------------------


def zipped(lifetime: Any) -> Callable[[hr.Flow], AnyStream]:
    def build(flow: hr.Flow) -> AnyStream:
        n, words = numbers_and_words(flow)
        return n.zip(words, lifetime=lifetime, suffix="_w")

    return build


MORE_NUMBERS_THEN_MORE_WORDS: list[dict[str, list[Any]]] = [
    {"n": [1, 2, 3], "words": ["a"]},
    {},
    {"words": ["b", "c", "d", "e"]},
    {"n": [4, 5, 6], "words": ["f"]},
]


def test_what_has_no_partner_waits_for_one() -> None:
    found = in_order(zipped("static"), MORE_NUMBERS_THEN_MORE_WORDS)
    assert found == [[(1, "a")], [], [(2, "b"), (3, "c")], [(4, "d"), (5, "e"), (6, "f")]]


def test_what_has_no_partner_in_its_tick_is_gone() -> None:
    found = in_order(zipped("tick"), MORE_NUMBERS_THEN_MORE_WORDS)
    assert found == [[(1, "a")], [], [], [(4, "f")]]


def test_one_side_may_wait_and_the_other_not() -> None:
    found = in_order(zipped(("static", "tick")), MORE_NUMBERS_THEN_MORE_WORDS)
    assert found == [[(1, "a")], [], [(2, "b"), (3, "c")], [(4, "f")]]
    found = in_order(zipped(("tick", "static")), MORE_NUMBERS_THEN_MORE_WORDS)
    assert found == [[(1, "a")], [], [], [(4, "b"), (5, "c"), (6, "d")]]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9))), st.data())
def test_positions_do_not_depend_on_the_cut(rows: list[tuple[bool, int]], data: st.DataObject) -> None:
    left, right = ([n for side, n in rows if side is which] for which in (True, False))

    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("left", int).zip(flow.source("right", int), suffix="_r")

    ticks: list[dict[str, list[Any]]] = []
    at = 0
    while at < len(rows):
        size = data.draw(st.integers(1, len(rows) - at))
        part = rows[at : at + size]
        ticks.append({"left": [n for s, n in part if s], "right": [n for s, n in part if not s]})
        at += size
    found = in_order(build, ticks, given=False)
    assert [pair for tick in found for pair in tick] == list(zip(left, right, strict=False))


@given(st.lists(st.tuples(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)))))
def test_a_side_of_a_tick_loses_what_is_left_over(ticks: list[tuple[list[int], list[int]]]) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        left, right = flow.source("left", int), flow.source("right", int)
        return left.zip(right, lifetime=("static", "tick"), suffix="_r")

    waiting: list[int] = []
    expected: list[list[tuple[int, int]]] = []
    for left, right in ticks:
        waiting += left
        expected.append(list(zip(waiting, right, strict=False)))
        del waiting[: len(right)]
    assert in_order(build, [{"left": a, "right": b} for a, b in ticks]) == expected


class Watched(dict[Any, Any]):
    """A slot that counts how often it is asked."""

    asked = 0

    def get(self, key: Any, default: Any = None) -> Any:
        self.asked += 1
        return super().get(key, default)


def test_a_side_that_waits_costs_what_comes_and_not_what_waits() -> None:
    flow = hr.Flow("waiting")
    flow.sink("out", flow.source("left", int).zip(flow.source("right", int), suffix="_r"))
    state = {slot.name: Watched() for slot in hr.Engine(flow).program.slots}
    engine = hr.Engine(flow, state=state)
    engine.tick(left=range(1000))
    before = sum(slot.asked for slot in state.values())
    assert engine.tick(right=[7])["out"][0].row == (0, 7)
    assert sum(slot.asked for slot in state.values()) - before < 10


def test_a_zip_needs_order_and_rows_that_stay() -> None:
    flow = hr.Flow("zip")
    n, words = numbers_and_words(flow)
    flow.sink("out", n.union(n).zip(words, suffix="_w"))
    with pytest.raises(NeedNotMet, match="ordered"):
        hr.Engine(flow)
    flow = hr.Flow("zip")
    n, table = flow.source("n", int), flow.table("words", str)
    flow.sink("out", n.zip(table, suffix="_w"))
    with pytest.raises(NeedNotMet):
        hr.Engine(flow)


def test_pairs_by_position_are_ordered_and_depend_on_no_cut() -> None:
    flow = hr.Flow("zip")
    n, words = numbers_and_words(flow)
    pairs = n.zip(words, suffix="_w")
    flow.sink("out", pairs)
    facts = analyse(flow.graph()).facts[pairs.node_id]
    assert facts.held == ("append", "ordered", "once", "det")


def test_columns_of_both_sides_need_different_names() -> None:
    n, words = numbers_and_words(hr.Flow("zip"))
    with pytest.raises(WrongType, match="both sides of the zip have a column 'value'"):
        n.zip(words)

    class Named(NamedTuple):
        value: int
        value_w: str

    assert n.zip(words, suffix="_w", into=Named).schema.row_class is Named


# -- zip_longest ------------------------------------------------------------------------------


def test_a_longer_side_goes_to_its_end_with_nulls(backend: Backend) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        n, words = numbers_and_words(flow)
        return n.zip_longest(words, suffix="_w", nondet="a page is printed per tick")

    check_ticks(
        backend,
        build,
        """
        tick | n       | words | out
        1    | 1; 2; 3 | a     | + 1 a; + 2 null; + 3 null
        2    |         | b     | + null b
        3    |         |       |
        4    | 4       | c; d  | + 4 c; + null d
    """,
    )


# -- chain ------------------------------------------------------------------------------------


def test_all_of_the_first_comes_before_any_of_the_second() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        n, late = flow.source("n", int), flow.source("late", int)
        # What is first in the chain is ready last: it stands behind an aggregate.
        return late.group_by("value").agg(n=hr.count(), lifetime="tick").select("value", into=int).chain(n)

    found = in_order(build, [{"n": [9, 8], "late": [2, 1]}, {"n": [7]}, {"late": [3, 3]}])
    assert found == [[2, 1, 9, 8], [7], [3]]


def test_a_chain_takes_back_like_a_union(backend: Backend) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.table("a", int).chain(flow.table("b", int))

    check_ticks(
        backend,
        build,
        """
        tick | a    | b       | out
        1    | 1; 2 | 1       | +2 1; + 2
        2    | - 1  | - 1; 3  | -2 1; + 3
        3    |      |         |
    """,
    )


def test_a_chain_is_ordered_where_the_first_comes_with_the_first_tick() -> None:
    for bounded in (True, False):
        flow = hr.Flow("chain")
        first = flow.source("first", int, bounded=True) if bounded else flow.source("first", int)
        chained = first.chain(flow.source("second", int))
        flow.sink("out", chained)
        assert analyse(flow.graph()).facts[chained.node_id].ordered is bounded


def test_the_first_n_rows_of_a_tick() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        a, b, c = (flow.source(name, int) for name in "abc")
        return a.chain_first_n(3, b, c)

    ticks: list[dict[str, list[Any]]] = [
        {"c": [5], "a": [1, 2], "b": [3, 4]},
        {"b": [6]},
        {"a": [1, 2, 3, 4]},
        {},
        {"c": [7, 8, 9, 10]},
    ]
    assert in_order(build, ticks) == [[1, 2, 3], [6], [1, 2, 3], [], [7, 8, 9]]
    assert in_order(lambda flow: flow.source("n", int).chain_first_n(0), [{"n": [1]}]) == [[]]


# -- order declared ---------------------------------------------------------------------------


def test_an_order_that_ticks_make_must_be_declared() -> None:
    flow = hr.Flow("union")
    n, more = flow.source("n", int), flow.source("more", int)
    flow.sink("out", n.union(more).assume_ordered().zip(n, suffix="_n"))
    with pytest.raises(GuardMissing):
        hr.Engine(flow)

    def build(flow: hr.Flow) -> AnyStream:
        n, more = flow.source("n", int), flow.source("more", int)
        return n.union(more).assume_ordered(nondet="first come, first served").zip(n, suffix="_n")

    found = in_order(build, [{"n": [1], "more": [2]}, {"n": [3]}], given=False)
    assert found == [[(1, 1)], [(2, 3)]]


def test_rows_keep_their_order_through_operators_of_a_tick() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        n, gone = flow.source("n", int), flow.source("gone", int)
        once = n.distinct(lifetime="tick")
        return (
            once.difference(gone, lifetime="tick")
            .anti_join(gone, on="value", lifetime="tick")
            .zip(once, suffix="_n", lifetime="tick")
        )

    assert in_order(build, [{"n": [3, 1, 3, 2], "gone": [1]}]) == [[(3, 3), (2, 1)]]


def test_a_single_row_goes_beside_rows_in_their_order() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        n, words = numbers_and_words(flow)
        return n.filter(col.value > 0).cross_singleton(words, lifetime="tick", suffix="_w")

    assert in_order(build, [{"n": [3, 0, 1, 2], "words": ["b", "a"]}]) == [[(3, "b"), (1, "b"), (2, "b")]]


def test_true_is_no_number_of_rows() -> None:
    numbers = hr.Flow("numbers").source("n", int)
    with pytest.raises(WrongType, match="chain_first_n needs a number of rows, got True"):
        numbers.chain_first_n(True, numbers)
    with pytest.raises(WrongType, match="tee needs a number of streams, got True"):
        numbers.tee(True)
