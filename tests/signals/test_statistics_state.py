"""The state of a statistic is plain data: stored and taken up again, nothing shows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.signals.statistic_signal import as_cell
from headrace.operators.statistics import kernel_runtime
from headrace.operators.statistics.downsampling import (
    BarsByCount,
    BarsByTime,
    Crossed,
    Debounce,
    Diff,
    Direction,
    EveryNth,
    PctChange,
    Throttle,
    Timer,
)
from headrace.operators.statistics.ewm import Decay, EwmMean, EwmStd, EwmVar
from headrace.operators.statistics.kernel import SILENT, InputValues, compile_kernel, kernel_of
from headrace.operators.statistics.kernel_runtime import FUNCTIONS
from headrace.operators.statistics.moments import (
    Against,
    Corr,
    Cov,
    Regression,
    SignalCount,
    SignalMean,
    SignalSum,
    Std,
    Var,
)
from headrace.operators.statistics.ordering import (
    Quantile,
    SignalFirst,
    SignalLast,
    SignalMax,
    SignalMin,
    SignalRank,
)
from headrace.operators.statistics.statistic import CountWindow, Expanding, Statistic, TimeWindow
from headrace.state.codec import decode, value_encoder
from tests.properties.effort import examples

SPAN = timedelta(seconds=4)
WINDOWED = (
    SignalCount,
    SignalSum,
    SignalMean,
    Var,
    Std,
    Cov,
    Corr,
    SignalMin,
    SignalMax,
    SignalFirst,
    SignalLast,
    Quantile,
    SignalRank,
    Regression,
)
WINDOWS = (CountWindow(4, 2), TimeWindow(SPAN, 2), Expanding(2))
STATISTICS: list[Statistic] = [
    *(statistic(window) for statistic in WINDOWED for window in WINDOWS),
    *(Regression(window, Against.TIME) for window in WINDOWS),
    *(
        statistic(decay, 1)
        for statistic in (EwmMean, EwmVar, EwmStd)
        for decay in (Decay(alpha=0.3), Decay(alpha=0.3, adjust=False), Decay(half_life=SPAN))
    ),
    Diff(2),
    PctChange(2),
    Crossed(Direction.BOTH),
    EveryNth(3),
    Throttle(SPAN),
    Debounce(SPAN),
    Timer(SPAN),
    BarsByCount(3),
    BarsByTime(SPAN),
]
LARGE = st.sampled_from([float("inf"), 2**60 + 1, 1e-200, -1.7e308])
VALUES = st.one_of(st.integers(-5, 5), st.integers(-5, 5).map(float), st.just(float("nan")), LARGE)


@pytest.mark.parametrize("statistic", STATISTICS, ids=str)
@examples(0.2)
@given(data=st.data())
def test_a_state_stored_and_taken_up_again_goes_on_the_same(
    statistic: Statistic, data: st.DataObject
) -> None:
    run = data.draw(st.lists(st.tuples(VALUES, VALUES, st.integers(0, 3), st.booleans()), max_size=25))
    kernel = kernel_of(statistic, InputValues(statistic.inputs))
    step = compile_kernel(kernel, FUNCTIONS)
    cells = [as_cell(v) for v in kernel.variables]
    kept, stored = kernel.start(FUNCTIONS), kernel.start(FUNCTIONS)
    now = 0.0
    for x, y, gap, again in run:
        now += gap
        if again:
            frozen = [cell.freeze(value) for cell, value in zip(cells, stored, strict=True)]
            stored = [
                cell.thaw(decode(value_encoder()(value))) for cell, value in zip(cells, frozen, strict=True)
            ]
        one, other = step(kept, x, y, now), step(stored, x, y, now)
        assert same(one, other)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return all(map(same, one, other))
    return one is other or one == other or (one is not SILENT and one != one and other != other)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=100))
def test_sorted_blocks_are_a_sorted_list(changes: list[tuple[bool, int]]) -> None:
    whole: list[int] = []
    blocks: list[list[int]] = []
    greatest: list[int] = []
    counts: list[int] = []
    for comes, value in changes:
        if comes:
            kernel_runtime.put(blocks, greatest, counts, value)
            whole.append(value)
        elif value in whole:
            kernel_runtime.take(blocks, greatest, counts, value)
            whole.remove(value)
        whole.sort()
        assert [kernel_runtime.at(blocks, counts, i) for i in range(len(whole))] == whole
        expected = sum(v < value for v in whole), sum(v <= value for v in whole)
        assert kernel_runtime.places(blocks, greatest, counts, value) == expected


def test_many_blocks_are_a_sorted_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_runtime, "_LARGEST", 3)
    test_sorted_blocks_are_a_sorted_list()
