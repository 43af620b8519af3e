"""Sorted values of a group: whatever comes and goes in a tick, few or many, they stand in order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.expr.code_runtime import NAN
from headrace.expr.types import FLOAT64, INT64
from headrace.expr.value_keys import order_key
from headrace.operators.aggregate import extremes
from headrace.operators.aggregate.extremes import add_ordered_value, settle, settle_end

TICK = st.lists(st.tuples(st.integers(0, 60), st.integers(-2, 2)), max_size=80)


@given(st.lists(TICK, max_size=6))
def test_present_values_are_sorted_and_counts_are_sums(ticks: list[list[tuple[int, int]]]) -> None:
    group: list[Any] = [[], {}, {}]
    held: Counter[int] = Counter()
    for tick in ticks:
        for value, weight in tick:
            add_ordered_value(group, 0, value, weight)
            held[value] += weight
        settle(group, 0, order_key(INT64, False))
        assert group[0] == sorted(value for value, n in held.items() if n > 0)
        assert group[1] == {value: n for value, n in held.items() if n}
        assert not group[2]


@pytest.mark.parametrize("end", [0, -1])
@given(st.lists(TICK, max_size=12), st.integers(1, 3))
def test_the_values_at_an_end_are_kept_whatever_moves(
    end: int, ticks: list[list[tuple[int, int]]], least: int
) -> None:
    group: list[Any] = [[], {}, {}]
    held: Counter[int] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extremes, "_KEPT", 0)
        patch.setattr(extremes, "isqrt", lambda count: 1)
        for tick in ticks:
            for value, weight in tick:
                add_ordered_value(group, 0, value, weight)
                held[value] += weight
            settle_end(group, 0, order_key(INT64, True), least, end)
            present = sorted(value for value, n in held.items() if n > 0)
            kept = len(group[0])
            assert kept >= min(least, len(present))
            assert kept <= 2 * (least + 4)
            assert group[0] == (present[len(present) - kept :] if end else present[:kept])
            assert group[1] == {value: n for value, n in held.items() if n}
            assert not group[2]


@given(st.lists(st.sampled_from([1.0, -1.0, NAN, float("inf"), 0.0]), min_size=1, max_size=40))
def test_nan_stands_last_however_many_values_come(values: list[float]) -> None:
    group: list[Any] = [[], {}, {}]
    for value in values:
        add_ordered_value(group, 0, value, 1)
    settle(group, 0, order_key(FLOAT64, False))
    assert (group[0][-1] is NAN) == (NAN in values)
    assert group[0][: len(set(values) - {NAN})] == sorted(set(values) - {NAN})
