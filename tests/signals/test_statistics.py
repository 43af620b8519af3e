"""Moving and expanding statistics are those of the window from scratch, whatever has passed through it.

Values come with offsets of 1e9 and 1e12, with spikes of 1e17 that enter and leave, with
repeats, infinities and holes. The oracle computes each window anew, in fractions; what is
allowed to differ is what adding up the window once in floats may differ.
"""

from __future__ import annotations

import math
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import EvaluationError
from headrace.operators.statistics import kernel_runtime
from headrace.operators.statistics.ewm import Decay, EwmMean, EwmVar
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
    Interpolation,
    Quantile,
    SignalFirst,
    SignalLast,
    SignalMax,
    SignalMin,
    SignalRank,
    Ties,
)
from headrace.operators.statistics.statistic import CountWindow, Expanding, Holes, TimeWindow, ValueWindow
from tests.signals.statistics_from_scratch import (
    NAN,
    START,
    Event,
    from_scratch,
    is_finite,
    root,
    squares,
    stepwise,
)

CLOSE = 1e-11
"""Of values of any offset, with spikes: far below what taking squares from squares would leave."""

SMALL = st.integers(-40, 40).map(lambda n: n / 8)
FINITE = st.one_of(
    SMALL,
    SMALL.map(lambda v: 1e9 + v),
    SMALL.map(lambda v: -1e12 + v),
    st.sampled_from([0.0, -0.0, 1e17, -1e17, 0.1]),
)
HOLES = st.sampled_from([NAN, None])
ANY = st.one_of(FINITE, FINITE, FINITE, HOLES, st.sampled_from([math.inf, -math.inf]))


@st.composite
def windows(draw: st.DrawFn) -> ValueWindow:
    least = draw(st.integers(0, 4))
    match draw(st.sampled_from(["count", "time", "all"])):
        case "count":
            size = draw(st.integers(1, 7))
            return CountWindow(size, min(least, size))
        case "time":
            return TimeWindow(timedelta(seconds=draw(st.integers(1, 8))), least)
        case _:
            return Expanding(least)


@st.composite
def runs(draw: st.DrawFn, values: st.SearchStrategy[Any] = ANY) -> list[Event]:
    gaps = draw(st.lists(st.integers(0, 5), max_size=40))
    events: list[Event] = []
    now = START
    for gap in gaps:
        now += timedelta(seconds=gap)
        events.append((draw(values), draw(values), now))
    return events


def check(got: list[Any], expected: list[Any], allowed: list[float] | float = 0.0) -> None:
    assert len(got) == len(expected)
    for at, (one, other) in enumerate(zip(got, expected)):
        bound = allowed[at] if isinstance(allowed, list) else allowed
        assert same(one, other, bound), f"value {at}: {one!r} instead of {other!r}: {got} / {expected}"


def same(one: Any, other: Any, bound: float = 0.0) -> bool:
    if one is SILENT or other is SILENT:
        return one is other
    if isinstance(one, tuple):
        return all(same(a, b, bound) for a, b in zip(one, other, strict=True))
    if one != one or other != other:
        return one != one and other != other
    return one == other or abs(one - other) <= bound


def bounds(window: ValueWindow, events: list[Event], of: Any, *, pairs: bool = False) -> list[float]:
    """What rounding may do to each answer; nothing where there is none."""
    found = from_scratch(window, events, of, pairs=pairs)
    return [0.0 if b is SILENT or b != b else b for b in found]


def xs(events: list[Event]) -> list[Any]:
    return [e[0] for e in events]


def ys(events: list[Event]) -> list[Any]:
    return [e[1] for e in events]


# -- sums ----------------------------------------------------------------------------------------------


@given(windows(), runs())
def test_count_counts_what_is_there(window: ValueWindow, events: list[Event]) -> None:
    check(stepwise(SignalCount(window), events), from_scratch(window, events, len))


@given(windows(), runs())
def test_sum_and_mean_are_those_of_the_window(window: ValueWindow, events: list[Event]) -> None:
    def total(there: list[Event]) -> float:
        values = xs(there)
        return math.fsum(values) if is_finite(values) else sum(values)

    def rounding(there: list[Event]) -> float:
        values = xs(there)
        return len(values) * 2.3e-16 * math.fsum(map(abs, values)) if is_finite(values) else 0.0

    allowed = bounds(window, events, rounding)
    check(stepwise(SignalSum(window), events), from_scratch(window, events, total), allowed)

    def mean(there: list[Event]) -> float:
        return total(there) / len(there) if there else NAN

    check(stepwise(SignalMean(window), events), from_scratch(window, events, mean), allowed)


@given(runs(FINITE))
def test_an_expanding_sum_loses_no_digit(events: list[Event]) -> None:
    window = Expanding(1)
    exact = from_scratch(window, events, lambda there: math.fsum(xs(there)))
    allowed = bounds(
        window,
        events,
        lambda there: 3e-16 * abs(math.fsum(xs(there))) + 1e-29 * math.fsum(map(abs, xs(there))),
    )
    check(stepwise(SignalSum(window), events), exact, allowed)


@given(windows(), runs(), st.integers(0, 2))
def test_variance_and_deviation_keep_their_digits(
    window: ValueWindow, events: list[Event], ddof: int
) -> None:
    def variance(there: list[Event]) -> float:
        n, values = len(there), xs(there)
        if n <= ddof or not is_finite(values):
            return NAN
        return float(squares(values, values) / (n * (n - ddof)))

    exact = from_scratch(window, events, variance)
    allowed = [0.0 if v is SILENT or v != v else v * CLOSE for v in exact]
    check(stepwise(Var(window, ddof), events), exact, allowed)
    deviation = [v if v is SILENT else math.sqrt(v) for v in exact]
    allowed = [0.0 if v is SILENT or v != v else v * CLOSE for v in deviation]
    check(stepwise(Std(window, ddof), events), deviation, allowed)


@given(windows(), runs())
def test_covariance_and_correlation_keep_their_digits(window: ValueWindow, events: list[Event]) -> None:
    def covariance(there: list[Event]) -> float:
        n = len(there)
        if n < 2 or not is_finite(xs(there)) or not is_finite(ys(there)):
            return NAN
        return float(squares(xs(there), ys(there)) / (n * (n - 1)))

    def scale(there: list[Event]) -> float:
        n = len(there)
        if n < 2 or not is_finite(xs(there)) or not is_finite(ys(there)):
            return 0.0
        vx, vy = squares(xs(there), xs(there)), squares(ys(there), ys(there))
        return CLOSE * root(vx) * root(vy) / (n * (n - 1))

    def correlation(there: list[Event]) -> float:
        if not is_finite(xs(there)) or not is_finite(ys(there)):
            return NAN
        vx, vy = squares(xs(there), xs(there)), squares(ys(there), ys(there))
        return float(squares(xs(there), ys(there))) / (root(vx) * root(vy)) if vx and vy else NAN

    exact = from_scratch(window, events, covariance, pairs=True)
    check(stepwise(Cov(window), events), exact, bounds(window, events, scale, pairs=True))
    check(stepwise(Corr(window), events), from_scratch(window, events, correlation, pairs=True), CLOSE)


@given(windows(), runs(st.one_of(FINITE, HOLES)), st.sampled_from(Against))
def test_a_regression_is_the_line_of_least_squares(
    window: ValueWindow, events: list[Event], against: Against
) -> None:
    match against:
        case Against.SIGNAL:
            explained = events
        case Against.INDEX:
            explained = [(x, at, t) for at, (x, _, t) in enumerate(events)]
        case Against.TIME:
            explained = [(x, (t - START).total_seconds(), t) for x, _, t in events]

    def line(there: list[Event]) -> tuple[float, float, float]:
        values = xs(there)
        by = [y if against is Against.SIGNAL else y - there[0][1] for y in ys(there)]
        vx, vy, vxy = squares(values, values), squares(by, by), squares(values, by)
        if not vy:
            return NAN, NAN, NAN
        slope = vxy / vy
        mean = squares(values, [1.0] * len(by))  # 0: keeps the type
        mean = sum(map(Fraction, values), mean) / len(by)
        intercept = mean - slope * sum(map(Fraction, by), squares([], [])) / len(by)
        return float(slope), float(intercept), float(vxy * vxy / (vx * vy)) if vx else NAN

    def rounding(there: list[Event]) -> tuple[float, float, float]:
        values = xs(there)
        by = [y if against is Against.SIGNAL else y - there[0][1] for y in ys(there)]
        vx, vy = squares(values, values), squares(by, by)
        if not vy:
            return 0.0, 0.0, 0.0
        slope = root(vx) / root(vy) + 1e-300
        return slope * CLOSE, CLOSE * (slope * max(map(abs, by)) + max(map(abs, values))), CLOSE

    got = stepwise(Regression(window, against), events)
    exact = from_scratch(window, explained, line, pairs=True)
    allowed = from_scratch(window, explained, rounding, pairs=True)
    for one, other, bound in zip(got, exact, allowed, strict=True):
        if isinstance(other, tuple):
            assert all(same(a, b, c) for a, b, c in zip(one, other, bound, strict=True)), (one, other, bound)
        else:
            assert same(one, other) or (isinstance(one, tuple) and all(v != v for v in one))


def test_of_equal_values_the_variance_is_0_and_nothing_correlates() -> None:
    events: list[Event] = [(0.1, 1e9, None)] * 50
    assert set(stepwise(Var(CountWindow(7, 2)), events)[1:]) == {0.0}
    assert all(math.isnan(v) for v in stepwise(Corr(CountWindow(7, 7)), events)[6:])


def test_sums_of_whole_numbers_are_exact() -> None:
    big = 10**25
    events: list[Event] = [(big + i, None, None) for i in range(9)]
    assert stepwise(SignalSum(CountWindow(3, 3)), events, Holes.NONE)[2:] == [
        3 * big + 3 * i for i in range(1, 8)
    ]
    assert set(stepwise(Var(CountWindow(3, 3)), events, Holes.NONE)[2:]) == {1.0}


def test_an_expanding_variance_keeps_its_digits_in_a_long_run() -> None:
    steps = [at * 7919 % 1009 for at in range(20_000)]
    events: list[Event] = [(1e9 + step / 2**20, 3e9 - step / 2**20, None) for step in steps]
    n, square = len(steps), len(steps) * sum(s * s for s in steps) - sum(steps) ** 2
    exact = square / (n * (n - 1)) / 2**40
    assert stepwise(Var(Expanding(2)), events)[-1] == pytest.approx(exact, rel=1e-12, abs=0)
    assert stepwise(Cov(Expanding(2)), events)[-1] == pytest.approx(-exact, rel=1e-12, abs=0)


@given(runs(st.one_of(FINITE, HOLES)), st.floats(0.001, 1.0), st.booleans())
def test_weighted_statistics_keep_their_digits(events: list[Event], alpha: float, adjust: bool) -> None:
    keep, weight = Fraction(1.0 - alpha), Fraction(1.0 if adjust else alpha)
    means: list[Any] = []
    variances: list[Any] = []
    weights: list[Fraction] = []
    values: list[Fraction] = []
    for x, _, _ in events:
        weights = [w * keep for w in weights]
        if x is not None and x == x:
            weights.append(weight)
            values.append(Fraction(x))
            if not adjust:
                weights = [w / sum(weights) for w in weights]
        if not values:
            means.append(SILENT)
            variances.append(SILENT)
            continue
        total = sum(weights)
        mean = sum(w * v for w, v in zip(weights, values)) / total if total else values[-1]
        square = sum(w * (v - mean) ** 2 for w, v in zip(weights, values))
        pairs = total**2 - sum(w * w for w in weights)
        means.append(float(mean))
        variances.append(float(square * total / pairs) if pairs and alpha < 0.999 else NAN)
    largest = max((abs(float(v)) for v in values), default=0.0)
    check(stepwise(EwmMean(Decay(alpha=alpha, adjust=adjust), 1), events), means, largest * 1e-14)
    got = stepwise(EwmVar(Decay(alpha=alpha, adjust=adjust), 1), events)
    for one, other in zip(got, variances, strict=True):
        if alpha < 0.999:
            assert same(one, other, abs(other) * 1e-9 if other is not SILENT else 0.0)


@pytest.mark.parametrize("adjust", [True, False])
def test_a_weighted_mean_never_gets_rid_of_infinity(adjust: bool) -> None:
    events: list[Event] = [(v, None, None) for v in (1.0, math.inf, 2.0, -math.inf, 1.0)]
    found = stepwise(EwmMean(Decay(alpha=0.5, adjust=adjust), 1), events)
    assert found[:3] == [1.0, math.inf, math.inf]
    assert all(map(math.isnan, found[3:]))
    first = stepwise(EwmVar(Decay(alpha=0.5, adjust=adjust), 1), [(math.inf, None, None)] * 2)
    assert all(map(math.isnan, first))


# -- order ---------------------------------------------------------------------------------------------


@given(windows(), runs())
def test_least_greatest_oldest_and_newest_are_those_of_the_window(
    window: ValueWindow, events: list[Event]
) -> None:
    for statistic, answer in (
        (SignalMin(window), lambda there: min(xs(there), default=NAN)),
        (SignalMax(window), lambda there: max(xs(there), default=NAN)),
        (SignalFirst(window), lambda there: there[0][0] if there else NAN),
        (SignalLast(window), lambda there: there[-1][0] if there else NAN),
    ):
        check(stepwise(statistic, events), from_scratch(window, events, answer))


@given(windows(), runs(), st.floats(0, 1), st.sampled_from(Interpolation))
def test_quantiles_are_those_of_the_sorted_window(
    window: ValueWindow, events: list[Event], q: float, interpolation: Interpolation
) -> None:
    def quantile(there: list[Event]) -> float:
        if not there:
            return NAN
        ordered = sorted(xs(there))
        place = q * (len(ordered) - 1)
        low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
        match interpolation:
            case Interpolation.LOWER:
                return low
            case Interpolation.HIGHER:
                return high
            case Interpolation.NEAREST:
                return ordered[round(place)]
            case Interpolation.MIDPOINT:
                part = 0.5
            case Interpolation.LINEAR:
                part = place - math.floor(place)
        if low == high or not is_finite([low, high]):
            # Between an infinity and a number all is infinite, between the two infinities nothing is known.
            return low if low == high else low + high
        return low + (high - low) * part

    got = stepwise(Quantile(window, q, interpolation), events)
    check(got, from_scratch(window, events, quantile))


@given(windows(), runs(), st.sampled_from(Ties), st.booleans())
def test_rank_is_the_place_of_the_newest_value(
    window: ValueWindow, events: list[Event], ties: Ties, pct: bool
) -> None:
    got = stepwise(SignalRank(window, ties, pct), events)
    counts = from_scratch(window, events, lambda there: there)
    for one, there, (newest, _, _) in zip(got, counts, events, strict=True):
        if there is SILENT:
            assert one is SILENT
        elif not isinstance(there, list) or newest is None or newest != newest:
            assert one != one
        else:
            less = sum(v < newest for v in xs(there))
            upto = sum(v <= newest for v in xs(there))
            rank = {Ties.MIN: less + 1, Ties.MAX: upto, Ties.AVERAGE: (less + 1 + upto) / 2}[ties]
            assert one == (rank / len(there) if pct else rank)


# -- windows -------------------------------------------------------------------------------------------


def test_a_window_by_time_is_open_on_the_left_and_closed_on_the_right() -> None:
    window = TimeWindow(timedelta(seconds=10), 1)
    events: list[Event] = [(1, None, 0), (1, None, 9.5), (1, None, 10), (1, None, 10)]
    assert stepwise(SignalCount(window), events) == [1, 2, 2, 3]


def test_times_may_be_numbers_of_seconds() -> None:
    window = TimeWindow(timedelta(milliseconds=1500), 1)
    events: list[Event] = [(1.0, None, 0.0), (2.0, None, 1.0), (4.0, None, 1.5), (8.0, None, 2.25)]
    assert stepwise(SignalSum(window), events) == [1.0, 3.0, 6.0, 14.0]


def test_a_time_before_the_last_one_is_an_error() -> None:
    window = TimeWindow(timedelta(seconds=1), 1)
    with pytest.raises(EvaluationError, match="time went back from 5 to 4"):
        stepwise(SignalSum(window), [(1.0, None, 5), (1.0, None, 4)])


@pytest.mark.parametrize("times", [[5.0, NAN], [NAN, 5.0]])
def test_a_time_that_is_nan_is_named(times: list[float]) -> None:
    window = TimeWindow(timedelta(seconds=1), 1)
    with pytest.raises(EvaluationError, match="NaN is no time"):
        stepwise(SignalSum(window), [(1.0, None, time) for time in times])


def test_a_value_beyond_all_bounds_leaves_nothing_behind() -> None:
    quiet = [(float(v), None, None) for v in (1, 2, 4, 8, 16, 32)]
    for loud in (1e300, math.inf, -math.inf, NAN):
        events: list[Event] = [*quiet, (loud, None, None), *quiet]
        for statistic in (SignalSum, SignalMean, Var, SignalMin, SignalMax):
            got = stepwise(statistic(CountWindow(3, 3)), events)
            assert got[-4:] == stepwise(statistic(CountWindow(3, 3)), quiet)[-4:]


def test_what_others_were_measured_from_leaves_nothing_behind_either() -> None:
    # Others are measured from 1e17, the newest value before the holes, which leaves before these do.
    values = [5.0, 1e17, NAN, NAN, 1.0, 2.0, 4.0]
    events: list[Event] = [(v, v, None) for v in values]
    assert stepwise(Var(CountWindow(4, 2)), events)[5] == 0.5
    assert stepwise(Cov(CountWindow(4, 2)), events)[5] == 0.5
    assert stepwise(Regression(CountWindow(4, 2)), events)[5] == (1.0, 1.0, 1.0)


def test_old_parts_are_made_about_once_per_window() -> None:
    made = 0

    def counting(*given: Any) -> Any:
        nonlocal made
        made += 1
        return kernel_runtime.deviations(*given)

    kernel = kernel_of(Var(CountWindow(50, 50)), InputValues())
    state, step = kernel.start(FUNCTIONS), compile_kernel(kernel, {**FUNCTIONS, "deviations": counting})
    for value in range(1_000):
        step(state, float(value % 13) if value % 5 else NAN)
    assert made <= 2 * 1_000 / 50


def test_the_state_is_as_large_as_the_window() -> None:
    window = TimeWindow(timedelta(seconds=20), 1)
    for statistic in (Var(window), Median := Quantile(window), Corr(window)):
        kernel = kernel_of(statistic, InputValues(statistic.inputs))
        state, step = kernel.start(FUNCTIONS), compile_kernel(kernel, FUNCTIONS)
        for t in range(5_000):
            step(state, float(t % 7), float(t % 5), t)
        assert max(len(part) for part in state if isinstance(part, list)) < 70, Median
