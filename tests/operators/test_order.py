"""Operators that read or make the order of rows: scan, enumerate, unique, sort."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import EvaluationError, UserFunctionFailed, WrongType
from headrace.testing import Backend, check_ticks

AnyStream = hr.Stream[Any, Any, Any, Any]


class Word(NamedTuple):
    text: str
    at: int


class Reading(NamedTuple):
    name: str | None
    value: float | None


def total(sum_: int, n: int) -> tuple[int, int] | None:
    """Sums so far, until there would be one above 5."""
    return None if sum_ + n > 5 else (sum_ + n, sum_ + n)


def run(build: Callable[[hr.Flow], AnyStream], *ticks: dict[str, Any]) -> list[list[Any]]:
    """The rows of each tick, in their order, of a flow whose ticks are given."""
    flow = hr.Flow("ordered", ticks="given")
    flow.sink("out", build(flow))
    engine = hr.Engine(flow)
    return [[change.row for change in engine.tick(**tick)["out"]] for tick in ticks]


def test_a_scan_answers_each_row_and_ends_for_ever_or_until_the_tick_does(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        numbers = flow.source("n", int)
        flow.sink("ever", numbers.scan(0, total))
        flow.sink("tick", numbers.scan(0, total, lifetime="tick", nondet="sums of a tick"))

    check_ticks(
        backend,
        build,
        """
        tick | n       | ever     | tick
        1    | 1; 2    | + 1; + 3 | + 1; + 3
        2    |         |          |
        3    | 2; 4; 1 | + 5      | + 2
        4    | 0; 1    |          | + 0; + 1
    """,
    )


def test_a_scan_per_key_carries_and_ends_key_by_key() -> None:
    def lengths(left: int, word: Word) -> tuple[int, str] | None:
        return (left - 1, f"{word.text}{word.at}") if left else None

    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("words", Word).scan(2, lengths, per="text")

    words = [Word("a", 1), Word("b", 2), Word("a", 3), Word("a", 4)]
    assert run(build, {"words": words}, {"words": [Word("b", 5), Word("a", 6)]}) == [
        ["a1", "b2", "a3"],
        ["b5"],
    ]


def test_what_a_scan_begins_with_is_its_own_for_each_key_and_each_engine() -> None:
    def collected(words: list[int], word: Word) -> tuple[list[int], str]:
        words.append(word.at)
        return words, f"{word.text}{words}"

    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("words", Word).scan([], collected, per="text")

    for _ in range(2):
        tick = {"words": [Word("a", 1), Word("b", 2), Word("a", 3)]}
        assert run(build, tick) == [["a[1]", "b[2]", "a[1, 3]"]]

    flow = hr.Flow("twice", ticks="given")
    flow.sink("out", build(flow))
    for _ in range(2):
        changes = hr.Engine(flow).tick(words=[Word("a", 1)])["out"]
        assert [change.row for change in changes] == ["a[1]"]


@pytest.mark.parametrize("made", [7, "ab", (1, 2, 3), {1: 1, 2: 2}])
def test_a_scan_that_gives_no_pair_is_named(made: Any) -> None:
    flow = hr.Flow("failing")
    flow.sink("out", flow.source("n", int).scan(0, lambda sum, n: made, name="sums"))
    with pytest.raises(UserFunctionFailed, match=r"no pair \(carried, row\), nor None") as failed:
        hr.Engine(flow).tick(n=[7])
    assert (failed.value.operator, failed.value.row) == ("sums", (7,))  # type: ignore[attr-defined]


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 20)))
def test_a_scan_and_an_enumeration_do_not_see_the_cut_into_ticks(numbers: list[int], cuts: list[int]) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        sums = flow.source("n", int).scan(0, lambda sum, n: (sum + n, sum + n), returns=int)
        return sums.enumerate(per=col.value)

    places = [0, *sorted(min(c, len(numbers)) for c in cuts), len(numbers)]
    ticks = [{"n": numbers[a:b]} for a, b in pairwise(places)]
    sums = [sum(numbers[: at + 1]) for at in range(len(numbers))]
    expected = [(sums[:at].count(n), n) for at, n in enumerate(sums)]
    assert [row for tick in run(build, *ticks) for row in tick] == expected


def test_numbers_go_on_from_tick_to_tick_or_begin_again(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        words = flow.source("w", str)
        flow.sink("ever", words.enumerate())
        flow.sink("tick", words.enumerate(start=5, lifetime="tick", nondet="places on a page"))

    check_ticks(
        backend,
        build,
        """
        tick | w    | ever       | tick
        1    | a; b | + 0 a; + 1 b | + 5 a; + 6 b
        2    |      |            |
        3    | a    | + 2 a      | + 5 a
    """,
    )


@pytest.mark.parametrize("start", [-3, 0, 1, 7])
def test_numbers_per_key_begin_at_start(start: int) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("w", str).enumerate(start=start, per="value", index="n")

    first, second = run(build, {"w": ["a", "b", "a"]}, {"w": ["b", "a"]})
    assert [(row.n - start, row.value) for row in (*first, *second)] == [
        (0, "a"),
        (0, "b"),
        (1, "a"),
        (1, "b"),
        (2, "a"),
    ]


@pytest.mark.parametrize("per", [(), "value"])
def test_numbers_stay_within_their_type(per: Any) -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("w", str).enumerate(start=2**63 - 2, per=per, index="n")

    assert [row.n for row in run(build, {"w": ["a", "a"]})[0]] == [2**63 - 2, 2**63 - 1]
    with pytest.raises(EvaluationError, match="does not fit int64"):
        run(build, {"w": ["a", "a"]}, {"w": ["a"]})


@pytest.mark.parametrize(
    "wrong", [{"start": "1"}, {"start": 1.5}, {"start": True}, {"start": 2**63}, {"index": 3}]
)
def test_numbers_begin_with_a_number_and_have_a_column(wrong: Any) -> None:
    with pytest.raises(WrongType, match="enumerate"):
        hr.Flow("numbers").source("n", int).enumerate(**wrong)


def test_the_first_of_equal_rows_passes_once_for_ever_or_per_tick(backend: Backend) -> None:
    def build(flow: hr.Flow) -> None:
        numbers = flow.source("n", int)
        flow.sink("ever", numbers.unique())
        flow.sink("tick", numbers.unique(lifetime="tick", nondet="a list per tick"))

    check_ticks(
        backend,
        build,
        """
        tick | n       | ever     | tick
        1    | 1; 1; 2 | + 1; + 2 | + 1; + 2
        2    |         |          |
        3    | 2; 3    | + 3      | + 2; + 3
    """,
    )


def test_unique_rows_of_a_table_leave_with_their_last_copy(backend: Backend) -> None:
    check_ticks(
        backend,
        lambda flow: flow.table("n", int).unique(),
        """
        tick | n    | out
        1    | 1; 1 | + 1
        2    | - 1  |
        3    | - 1  | - 1
    """,
    )


def test_unique_rows_keep_their_order_so_that_order_may_be_read_after_it() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("n", int).unique().enumerate()

    assert run(build, {"n": [3, 1, 3]}, {"n": [2, 1]}) == [[(0, 3), (1, 1)], [(2, 2)]]


def test_a_bounded_stream_is_sorted_by_its_columns() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("words", Word, bounded=True).sort()

    words = [Word("b", 1), Word("a", 2), Word("a", 1)]
    assert run(build, {"words": words}, {}) == [[("a", 1), ("a", 2), ("b", 1)], []]


def test_each_tick_is_sorted_by_itself() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("n", int).sort(lifetime="tick")

    assert run(build, {"n": [3, 1]}, {}, {"n": [2, 0]}) == [[1, 3], [], [0, 2]]


def test_rows_are_sorted_in_the_order_of_expressions() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("readings", Reading).sort(["value", col.name.desc()], lifetime="tick")

    nan = float("nan")
    readings = [
        Reading("a", nan),
        Reading(None, 1.0),
        Reading("b", None),
        Reading("a", 1.0),
        Reading("b", 1.0),
    ]
    assert [(name, repr(value)) for name, value in run(build, {"readings": readings})[0]] == [
        ("b", "None"),
        ("b", "1.0"),
        ("a", "1.0"),
        (None, "1.0"),
        ("a", "nan"),
    ]


def test_equal_rows_stay_in_the_order_in_which_they_came() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("words", Word).sort_by(lambda word: len(word.text), lifetime="tick")

    words = [Word("bb", 1), Word("a", 2), Word("aa", 3), Word("c", 4)]
    assert run(build, {"words": words}) == [[("a", 2), ("c", 4), ("bb", 1), ("aa", 3)]]


def test_where_order_meant_nothing_before_equal_rows_are_ordered_by_all_columns() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("words", Word).distinct().sort(lambda word: len(word.text), lifetime="tick")

    words = [Word("bb", 1), Word("a", 2), Word("aa", 3), Word("a", 1)]
    assert run(build, {"words": words}) == [[("a", 1), ("a", 2), ("aa", 3), ("bb", 1)]]


def test_values_of_any_type_are_sorted_kind_by_kind() -> None:
    def build(flow: hr.Flow) -> AnyStream:
        return flow.source("things", object).sort(lifetime="tick")

    assert run(build, {"things": ["b", 2, None, (1, "x"), "a", 1.5]}) == [[None, 1.5, 2, "a", "b", (1, "x")]]


def test_rows_that_cannot_be_compared_are_refused_by_name() -> None:
    flow = hr.Flow("failing", ticks="given")
    things = flow.source("things", object)
    flow.sink("out", things.sort_by(lambda thing: thing, lifetime="tick", name="sorted things"))
    with pytest.raises(EvaluationError, match="cannot be put in order") as failed:
        hr.Engine(flow).tick(things=[1, "a"])
    assert failed.value.operator == "sorted things"  # type: ignore[attr-defined]
