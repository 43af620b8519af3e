"""Float aggregates are exact: no order, cut or retraction shows in them."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.aggregate.exact_totals import float_add, float_sum

floats = st.floats(allow_nan=False, allow_infinity=False)


def total(values: list[tuple[float, int]]) -> list[object]:
    group: list[object] = [0, 1, 0, 0, 0]
    for value, weight in values:
        float_add(group, 0, value, weight)
    return group


@given(st.lists(floats, max_size=20))
def test_the_sum_is_the_exact_sum_rounded_once(values: list[float]) -> None:
    exact = sum(map(Fraction, values))
    try:
        expected = float(exact)
    except OverflowError:
        expected = math.inf if exact > 0 else -math.inf
    assert float_sum(total([(v, 1) for v in values]), 0) == expected


@given(st.lists(floats, max_size=10), st.lists(floats | st.sampled_from([math.inf, -math.inf, math.nan])))
def test_what_is_taken_back_leaves_nothing_behind(kept: list[float], gone: list[float]) -> None:
    group = total([(v, 1) for v in gone] + [(v, 1) for v in kept] + [(v, -1) for v in gone])
    assert float_sum(group, 0) == float_sum(total([(v, 1) for v in kept]), 0)
    if not kept:
        assert group == [0, 1, 0, 0, 0], "so that an empty group can be dropped"


@given(st.lists(st.tuples(floats, st.integers(-3, 3))), st.randoms(use_true_random=False))
def test_nothing_is_left_when_all_is_taken_back_in_any_order_and_number(
    changes: list[tuple[float, int]], rng: Random
) -> None:
    back = [(value, -weight) for value, weight in changes]
    rng.shuffle(back)
    assert total(changes + back) == [0, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([math.inf, 1.0], math.inf),
        ([-math.inf, 1.0], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, 1.0], math.nan),
    ],
)
def test_infinities_and_nan_sum_as_ieee_754_says(values: list[float], expected: float) -> None:
    result = float_sum(total([(v, 1) for v in values]), 0)
    assert result == expected or (math.isnan(result) and math.isnan(expected))
