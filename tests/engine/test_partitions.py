"""Window functions that ignore nulls: right after any changes, and linear in the rows of a tick."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.over.frames import RowBounds
from headrace.operators.over.partitions import PartitionFunction, PartitionRule, PartitionState
from headrace.operators.over.row_functions import LagFunction, NthValueFunction

ROWS = 600


class Looks:
    """Value of a row, which counts how often it is asked for."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, row: Any) -> Any:
        self.count += 1
        return row[1]


def function(kind: str, value: Any, *arguments: Any) -> PartitionFunction:
    if kind == "lag":
        return LagFunction(value, lambda row: "default", arguments[0], True)
    start, end, n = arguments
    return NthValueFunction(RowBounds(start, end), value, n, True)


@pytest.mark.parametrize(
    "which",
    [
        ("lag", 1),
        ("lag", -3),
        ("nth", None, 0, -1),
        ("nth", None, 0, 2),
        ("nth", 0, None, 1),
        ("nth", 0, None, -2),
        ("nth", -200, 200, -1),
        ("nth", -200, 200, 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("values", [{}, {0: 1}, {ROWS - 1: 1}], ids=["none", "first", "last"])
def test_a_tick_looks_at_each_row_a_few_times(which: Any, values: dict[int, int]) -> None:
    looks = Looks()
    rule = PartitionRule((function(which[0], looks, *which[1:]),), lambda row: row[0])
    rule.update([[], [], {}], {(at, values.get(at)): 1 for at in range(ROWS)})
    assert looks.count <= 2 * ROWS


TICK = st.dictionaries(
    st.tuples(st.integers(0, 30), st.none() | st.integers(0, 3)), st.integers(-2, 2), max_size=30
)


def row_order(row: Any) -> Any:
    return row[0], row[1] is not None, row[1] or 0


def answer(kind: str, rows: list[Any], at: int, *arguments: Any) -> Any:
    """Recompute the answer of one row."""
    if kind == "lag":
        (offset,) = arguments
        others, n, nothing = rows[:at] if offset > 0 else rows[at + 1 :], -offset, "default"
    else:
        start, end, n = arguments
        first = 0 if start is None else max(0, at + start)
        others, nothing = rows[first : None if end is None else max(0, at + end + 1)], None
    present = [value for _, value in others if value is not None]
    if abs(n) > len(present):
        return nothing
    return present[n - 1 if n > 0 else n]


BOUND = st.none() | st.integers(-3, 3)
WHICH = st.one_of(
    st.tuples(st.just("lag"), st.integers(-3, 3).filter(bool)),
    st.tuples(st.just("nth"), BOUND, BOUND, st.sampled_from([-2, -1, 1, 2])),
)


@given(which=WHICH, ticks=st.lists(TICK, max_size=5))
def test_answers_are_those_of_the_rows_that_are_there(which: Any, ticks: list[dict[Any, int]]) -> None:
    kind, *arguments = which
    rule = PartitionRule((function(kind, lambda row: row[1], *arguments),), row_order)
    partition: PartitionState = [[], [], {}]
    held: Counter[Any] = Counter()
    output: Counter[Any] = Counter()
    for tick in ticks:
        held.update(tick)
        for row, weight in rule.update(partition, tick):
            output[row] += weight
        rows = sorted((row for row in held for _ in range(held[row])), key=row_order)
        expected = Counter((*row, answer(kind, rows, at, *arguments)) for at, row in enumerate(rows))
        assert {row: n for row, n in output.items() if n} == expected
