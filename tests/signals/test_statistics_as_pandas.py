"""Where pandas has a statistic it is the same one: names, parameters, missing values, windows.

pandas takes infinite values for missing ones and fills its first answers with NaN; here
these are silent. Its running sums lose digits to large values that have left, so values
here are of one size.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.operators.statistics.downsampling import Diff, PctChange
from headrace.operators.statistics.ewm import Decay, EwmMean, EwmStd, EwmVar
from headrace.operators.statistics.kernel import SILENT
from headrace.operators.statistics.moments import Corr, Cov, SignalCount, SignalMean, SignalSum, Std, Var
from headrace.operators.statistics.ordering import (
    Interpolation,
    Quantile,
    SignalMax,
    SignalMin,
    SignalRank,
    Ties,
)
from headrace.operators.statistics.statistic import CountWindow, Expanding, Statistic, TimeWindow
from tests.signals.statistics_from_scratch import NAN, START, Event, stepwise

np = pytest.importorskip("numpy", reason="compared with NumPy, which comes with the extra dev")
pd = pytest.importorskip("pandas", reason="compared with pandas, which comes with the extra dev")

NUMBERS = st.one_of(
    st.integers(-30, 30).map(lambda n: n / 4), st.floats(-100, 100).map(lambda v: round(v, 3))
)
VALUES = st.one_of(NUMBERS, NUMBERS, NUMBERS, st.just(NAN))


@st.composite
def events(draw: st.DrawFn) -> list[Event]:
    offset = draw(st.sampled_from([0.0, 1e3]))
    now, made = START, []
    for gap in draw(st.lists(st.integers(0, 4), min_size=1, max_size=40)):
        now += timedelta(seconds=gap)
        made.append((draw(VALUES) + offset, draw(VALUES), now))
    return made


def series(run: list[Event], which: int = 0) -> Any:
    return pd.Series([e[which] for e in run], index=pd.DatetimeIndex([e[2] for e in run]), dtype=float)


def check(statistic: Statistic, run: list[Event], expected: Any, near: float = 1e-7) -> None:
    got = [NAN if v is SILENT else float(v) for v in stepwise(statistic, run)]
    np.testing.assert_allclose(got, np.asarray(expected, dtype=float), rtol=near, atol=near)


@given(events(), st.integers(1, 6), st.integers(0, 6))
def test_a_moving_statistic_is_that_of_rolling(run: list[Event], size: int, least: int) -> None:
    window = CountWindow(size, min(least, size))
    compare_windows(window, run, series(run).rolling(size, min_periods=window.min_periods), series(run, 1))


@given(events(), st.integers(1, 9), st.integers(0, 4))
def test_by_time_too(run: list[Event], seconds: int, least: int) -> None:
    window = TimeWindow(timedelta(seconds=seconds), least)
    compare_windows(window, run, series(run).rolling(f"{seconds}s", min_periods=least), None)


@given(events(), st.integers(0, 4))
def test_an_expanding_statistic_is_that_of_expanding(run: list[Event], least: int) -> None:
    compare_windows(Expanding(least), run, series(run).expanding(least), series(run, 1))


def compare_windows(window: Any, run: list[Event], pandas: Any, other: Any) -> None:
    check(SignalSum(window), run, pandas.sum())
    check(SignalMean(window), run, pandas.mean())
    check(Var(window), run, pandas.var(), 1e-4)
    check(Std(window, 0), run, pandas.std(ddof=0), 1e-4)
    check(SignalMin(window), run, pandas.min())
    check(SignalMax(window), run, pandas.max())
    check(Quantile(window), run, pandas.median())
    for interpolation in Interpolation:
        expected = pandas.quantile(0.3, interpolation=interpolation.value)
        check(Quantile(window, 0.3, interpolation), run, expected)
    for ties in Ties:
        check(SignalRank(window, ties), run, pandas.rank(method=ties.value))
        check(SignalRank(window, ties, pct=True), run, pandas.rank(method=ties.value, pct=True))
    if window.min_periods:
        check(SignalCount(window), run, pandas.count().where(pandas.count() >= window.min_periods))
    if other is not None:
        check(Cov(window), run, pandas.cov(other), 1e-4)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=30), st.integers(3, 8))
def test_correlation_is_that_of_rolling(pairs: list[tuple[float, float]], size: int) -> None:
    run: list[Event] = [(x, y, START) for x, y in pairs]
    got = stepwise(Corr(CountWindow(size, size)), run)
    for at, one in enumerate(got):
        part = pairs[max(0, at + 1 - size) : at + 1]
        if len(part) < size:
            assert one is SILENT
            continue
        with np.errstate(all="ignore"):
            expected = np.corrcoef(np.array(part).T)[0, 1]
        if min(np.ptp(part, axis=0)) > 1e-3:
            assert one == pytest.approx(expected, abs=1e-7)
        elif min(np.ptp(part, axis=0)) == 0:
            assert one != one


DECAYS = st.one_of(
    st.builds(
        Decay,
        alpha=st.floats(0.01, 0.9),
        adjust=st.booleans(),
        ignore_na=st.booleans(),
    )
)


@given(events(), DECAYS, st.integers(1, 4), st.booleans())
def test_ewm_is_that_of_ewm(run: list[Event], decay: Decay, least: int, bias: bool) -> None:
    pandas = series(run).ewm(
        alpha=decay.alpha, adjust=decay.adjust, ignore_na=decay.ignore_na, min_periods=least
    )
    check(EwmMean(decay, least), run, pandas.mean())
    check(EwmVar(decay, least, bias), run, pandas.var(bias=bias), 1e-5)
    check(EwmStd(decay, least, bias), run, pandas.std(bias=bias), 1e-3)


@given(events(), st.floats(0.1, 20.0), st.integers(1, 4))
def test_ewm_by_time_is_that_of_ewm_with_times(run: list[Event], half_life: float, least: int) -> None:
    span = timedelta(seconds=round(half_life, 3))
    pandas = series(run).ewm(
        halflife=pd.Timedelta(span), times=pd.DatetimeIndex([e[2] for e in run]), min_periods=least
    )
    check(EwmMean(Decay(half_life=span), least), run, pandas.mean())


@given(events(), st.floats(0.5, 20.0), st.booleans())
def test_ewm_variance_by_time_is_that_of_the_weights(run: list[Event], half_life: float, bias: bool) -> None:
    span = timedelta(seconds=round(half_life, 3))
    expected: list[float] = []
    for at, (_, _, now) in enumerate(run):
        there = [(x, 0.5 ** ((now - t) / span)) for x, _, t in run[: at + 1] if x == x]
        if not there:
            expected.append(NAN)
            continue
        x, w = np.array(there).T
        total = w.sum()
        square = (w * (x - (w * x).sum() / total) ** 2).sum()
        if bias:
            expected.append(square / total)
        else:
            expected.append(square * total / (total**2 - (w**2).sum()) if len(x) > 1 else NAN)
    check(EwmVar(Decay(half_life=span), 1, bias), run, expected, 1e-5)


@given(events(), st.integers(1, 5))
def test_diff_and_pct_change_are_those_of_pandas(run: list[Event], count: int) -> None:
    check(Diff(count), run, series(run).diff(count))
    check(PctChange(count), run, series(run).pct_change(count, fill_method=None))
