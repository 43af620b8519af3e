"""Statistics of numbers at the ends of what there is: whole numbers beyond a float's digits and range,
floats whose squares overflow or vanish, subnormal ones, infinities, and all of these in one window.

The oracle computes each window anew, in fractions. Of whole numbers alone the answer is the
exact one, rounded once; else what adding up the window once in floats may differ is allowed.
"""

from __future__ import annotations

import math
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headrace as hr
from headrace.operators.statistics.downsampling import PctChange
from headrace.operators.statistics.ewm import Decay, EwmMean, EwmStd, EwmVar
from headrace.operators.statistics.kernel import SILENT
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
from headrace.operators.statistics.ordering import Interpolation, Quantile, SignalMax, SignalMin
from headrace.operators.statistics.statistic import CountWindow, Expanding, Holes, TimeWindow, ValueWindow
from tests.properties.effort import examples
from tests.signals.statistics_from_scratch import NAN, START, Event, from_scratch, is_missing, root, stepwise
from tests.signals.test_statistics import windows

CLOSE = Fraction(1, 10**11)
LEAST = Fraction(5e-324)
"""The distance of two subnormal floats: no answer can be nearer than half of it."""

SMALL = st.integers(-5, 5)
WHOLE = st.one_of(
    SMALL,
    st.builds(lambda v, base: base + v, SMALL, st.sampled_from([2**53, -(2**53), 2**60, -(2**62), 10**25])),
    st.builds(lambda v, base: base * v, SMALL, st.sampled_from([10**155, 10**308, 10**400])),
)
FLOATS = st.one_of(
    SMALL.map(float),
    st.builds(
        lambda v, unit: v * unit,
        SMALL,
        st.sampled_from([5e-324, 1e-310, 1e-200, 1e-161, 1e-130, 1e-120, 1e140, 1e150, 1e200, 3e307]),
    ),
    st.builds(lambda v, base: base + v, SMALL, st.sampled_from([1e15, 2.0**53, 1e16])),
    st.sampled_from([1.7e308, -1.7e308, math.inf, -math.inf, 0.1, -0.0]),
    st.floats(allow_nan=False),
)
NUMBERS = {
    Holes.NONE: WHOLE,
    Holes.NAN: st.one_of(FLOATS, FLOATS, FLOATS, st.just(NAN)),
    Holes.NAN_NONE: st.one_of(WHOLE, WHOLE, FLOATS, FLOATS, st.sampled_from([NAN, None, True])),
}


@st.composite
def runs(draw: st.DrawFn, holes: Holes) -> list[Event]:
    """Values of one kind, often many of the same few: then they are alike, or all far from 1."""
    values = NUMBERS[holes]
    if draw(st.booleans()):
        values = st.one_of(values, st.sampled_from(draw(st.lists(values, min_size=1, max_size=4))))
    now, events = START, []
    for gap in draw(st.lists(st.integers(0, 5), max_size=25)):
        now += timedelta(seconds=gap)
        events.append((draw(values), draw(values), now))
    return events


def rounded(number: Fraction) -> float:
    """The nearest float; beyond the greatest, infinity."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def infinite_sum(values: list[Any]) -> float | None:
    """The sum of values among which one is infinite, else None."""
    infinite = {v for v in values if v in (math.inf, -math.inf)}
    return None if not infinite else infinite.pop() if len(infinite) == 1 else NAN


def finite(*columns: list[Any]) -> bool:
    return all(infinite_sum(column) is None for column in columns)


def whole(*columns: list[Any]) -> bool:
    return all(isinstance(v, int) for column in columns for v in column)


def exact(values: list[Any]) -> list[Fraction]:
    return [Fraction(v) for v in values]


def products(xs: list[Any], ys: list[Any]) -> Fraction:
    """The count times the sum of the products of deviations from the means."""
    x, y = exact(xs), exact(ys)
    return len(x) * sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0)) - sum(x) * sum(y)


def columns(there: list[Event]) -> tuple[list[Any], list[Any]]:
    return [e[0] for e in there], [e[1] for e in there]


Answer = tuple[Fraction | float, Fraction]
"""What is right, and by how much an answer may differ."""


def check(got: list[Any], expected: list[Any]) -> None:
    assert len(got) == len(expected)
    for at, (one, other) in enumerate(zip(got, expected, strict=True)):
        if other is SILENT:
            assert one is SILENT, (at, one)
        else:
            right, allowed = other if isinstance(other, tuple) else (other, Fraction(0))
            assert near(one, right, allowed), f"value {at}: {one!r}, not {right_float(right)!r}: {got}"


def right_float(right: Fraction | float) -> float:
    return rounded(right) if isinstance(right, Fraction) else right


def near(one: float, right: Fraction | float, allowed: Fraction) -> bool:
    if isinstance(right, float) and not math.isfinite(right):
        return one == right or (one != one and right != right)
    if one != one:
        return False
    best = rounded(Fraction(right))
    if math.isinf(one) or math.isinf(best):
        # A little less than the greatest float may round to it, or beyond.
        return one == best or (
            allowed and abs(Fraction(one if math.isinf(best) else best)) > Fraction(1.79e308)
        )
    return one == best or abs(Fraction(one) - Fraction(right)) <= allowed + LEAST


KINDS = st.sampled_from(Holes)


@given(data=st.data(), holes=KINDS, window=windows())
@examples(2)
def test_sums_and_means(data: st.DataObject, holes: Holes, window: ValueWindow) -> None:
    events = data.draw(runs(holes))

    def answer(there: list[Event], count: int) -> Any:
        values, _ = columns(there)
        if not finite(values):
            return infinite_sum(values)
        numbers = exact(values)
        allowed = Fraction(0 if whole(values) else 2.3e-16) * len(values) * sum(map(abs, numbers))
        return sum(numbers, Fraction(0)) / count, allowed / count

    got = stepwise(SignalSum(window), events, holes)
    sums = from_scratch(window, events, lambda there: there)
    for one, there in zip(got, sums, strict=True):
        if isinstance(there, list) and whole(columns(there)[0]):
            assert isinstance(one, int)
            assert one == sum(columns(there)[0])
    check(
        [right_float(Fraction(v)) if isinstance(v, int) else v for v in got],
        from_scratch(window, events, lambda there: answer(there, 1)),
    )
    check(
        stepwise(SignalMean(window), events, holes),
        from_scratch(window, events, lambda there: answer(there, len(there)) if there else NAN),
    )
    check(
        stepwise(SignalCount(window), events, holes),
        from_scratch(window, events, lambda there: Fraction(len(there))),
    )


@given(data=st.data(), holes=KINDS, window=windows(), ddof=st.integers(0, 2))
@examples(2)
def test_variances_and_deviations(data: st.DataObject, holes: Holes, window: ValueWindow, ddof: int) -> None:
    events = data.draw(runs(holes))

    def variance(there: list[Event]) -> Any:
        values, _ = columns(there)
        n = len(values)
        if n <= ddof or not finite(values):
            return NAN
        right = products(values, values) / (n * (n - ddof))
        return right, Fraction(0) if whole(values) else right * CLOSE

    def deviation(there: list[Event]) -> Any:
        found = variance(there)
        if found is NAN:
            return NAN
        try:
            right = root(found[0])
        except OverflowError:
            return math.inf
        return right, Fraction(right) * CLOSE

    check(stepwise(Var(window, ddof), events, holes), from_scratch(window, events, variance))
    check(stepwise(Std(window, ddof), events, holes), from_scratch(window, events, deviation))


@given(data=st.data(), holes=KINDS, window=windows())
@examples(2)
def test_covariances_correlations_and_lines(data: st.DataObject, holes: Holes, window: ValueWindow) -> None:
    events = data.draw(runs(holes))

    def covariance(there: list[Event]) -> Any:
        xs, ys = columns(there)
        n = len(xs)
        if n < 2 or not finite(xs, ys):
            return NAN
        right = products(xs, ys) / (n * (n - 1))
        scale = square_root(products(xs, xs) * products(ys, ys)) / (n * (n - 1))
        return right, Fraction(0) if whole(xs, ys) else scale * CLOSE

    def correlation(there: list[Event]) -> Any:
        xs, ys = columns(there)
        if not there or not finite(xs, ys):
            return NAN
        vx, vy = products(xs, xs), products(ys, ys)
        return (products(xs, ys) / square_root(vx * vy), CLOSE) if vx and vy else NAN

    check(stepwise(Cov(window), events, holes), from_scratch(window, events, covariance, pairs=True))
    check(stepwise(Corr(window), events, holes), from_scratch(window, events, correlation, pairs=True))
    for against in Against:
        check_lines(window, events, holes, against)


def check_lines(window: ValueWindow, events: list[Event], holes: Holes, against: Against) -> None:
    def line(there: list[Event]) -> Any:
        xs, ys = columns(there)
        if not there or not finite(xs, ys):
            return [NAN] * 3
        by = exact(ys) if against is Against.SIGNAL else [v - Fraction(ys[0]) for v in exact(ys)]
        vx, vy, vxy = products(xs, xs), products(by, by), products(xs, by)
        if not vy:
            return [NAN] * 3
        slope, scale = vxy / vy, square_root(vx / vy)
        intercept = (sum(exact(xs)) - slope * sum(by)) / len(xs)
        largest = scale * max(map(abs, by)) + max(map(abs, exact(xs)))
        return [
            (slope, scale * CLOSE),
            (intercept, largest * CLOSE),
            (vxy * vxy / (vx * vy), CLOSE) if vx else NAN,
        ]

    match against:
        case Against.SIGNAL:
            explained = events
        case Against.INDEX:
            explained = [(x, at, t) for at, (x, _, t) in enumerate(events)]
        case Against.TIME:
            explained = [(x, (t - START).total_seconds(), t) for x, _, t in events]
    got = stepwise(Regression(window, against), events, holes)
    lines = from_scratch(window, explained, line, pairs=True)
    for at in range(3):
        check(
            [v[at] if isinstance(v, tuple) else v for v in got],
            [v[at] if isinstance(v, list) else v for v in lines],
        )


def square_root(square: Fraction) -> Fraction:
    """The square root, to 60 digits."""
    digits = 10**60 * max(1, square.denominator)
    return Fraction(math.isqrt(int(square * digits * digits)), digits)


@given(data=st.data(), holes=KINDS, window=windows(), q=st.sampled_from([0.5, 0.25, 0.1, 0.9, 1.0, 1 / 3]))
@examples(2)
@example(None, Holes.NAN, Expanding(1), 0.5)
def test_quantiles(data: st.DataObject | None, holes: Holes, window: ValueWindow, q: float) -> None:
    if data is None:
        events: list[Event] = [(v, None, START) for v in (-1.7e308, 1.7e308, -1.7e308, 1.7e308)]
    else:
        events = data.draw(runs(holes))

    def between(there: list[Event], middle: float | None) -> Any:
        values = sorted(columns(there)[0])
        if not values:
            return NAN
        place = q * (len(values) - 1)
        low, high = values[math.floor(place)], values[math.ceil(place)]
        part = place - math.floor(place)
        if low == high:
            return low if not finite([low]) else Fraction(low)
        if not finite([low, high]):
            return infinite_sum([low, high])
        part = Fraction(part if middle is None else middle)
        largest = max(abs(Fraction(low)), abs(Fraction(high)))
        allowed = Fraction(0) if whole([low, high]) else largest * Fraction(5e-16)
        return Fraction(low) * (1 - part) + Fraction(high) * part, allowed

    for how, middle in ((Interpolation.LINEAR, None), (Interpolation.MIDPOINT, 0.5)):
        got = stepwise(Quantile(window, q, how), events, holes)
        got = [right_float(Fraction(v)) if isinstance(v, int) else v for v in got]
        check(got, from_scratch(window, events, lambda there, middle=middle: between(there, middle)))


@given(data=st.data(), holes=KINDS, window=windows())
def test_least_and_greatest(data: st.DataObject, holes: Holes, window: ValueWindow) -> None:
    events = data.draw(runs(holes))
    for statistic, best in ((SignalMin(window), min), (SignalMax(window), max)):
        got = stepwise(statistic, events, holes)
        expected = from_scratch(window, events, lambda there, best=best: best(columns(there)[0], default=NAN))
        assert all(a == b or (a != a and b != b) for a, b in zip(got, expected, strict=True))


DECAYS = st.one_of(
    st.builds(
        Decay,
        alpha=st.sampled_from([0.5, 0.3, 0.01, 0.9, 1 - 1e-9, 1.0]),
        adjust=st.booleans(),
        ignore_na=st.booleans(),
    ),
    st.builds(lambda ms: Decay(half_life=timedelta(milliseconds=ms)), st.sampled_from([100, 1000, 60_000])),
)


@given(data=st.data(), holes=KINDS, decay=DECAYS, bias=st.booleans())
@examples(2)
def test_weighted_statistics(data: st.DataObject, holes: Holes, decay: Decay, bias: bool) -> None:
    events = data.draw(runs(holes))
    means: list[Any] = []
    variances: list[Any] = []
    deviations: list[Any] = []
    weights: list[Fraction] = []
    values: list[Any] = []
    before = START
    for x, _, now in events:
        keep = Fraction(1.0 - (decay.alpha or 0.0))
        if decay.half_life is not None:
            keep, before = Fraction(0.5 ** ((now - before) / decay.half_life)), now
        if not (decay.ignore_na and is_missing(x)) and not (is_missing(x) and decay.alpha == 1):
            weights = [w * keep for w in weights]
        if not is_missing(x):
            weights.append(Fraction(1.0 if decay.adjust else decay.alpha or 0.0))
            values.append(x)
            if not decay.adjust:
                weights = [w / sum(weights) for w in weights]
        if not values:
            found: tuple[Any, Any, Any] = (SILENT, SILENT, SILENT)
        else:
            found = weighted(weights, values, bias)
        means.append(found[0])
        variances.append(found[1])
        deviations.append(found[2])
    check(stepwise(EwmMean(decay, 1), events, holes), means)
    check(stepwise(EwmVar(decay, 1, bias), events, holes), variances)
    check(stepwise(EwmStd(decay, 1, bias), events, holes), deviations)


def weighted(weights: list[Fraction], values: list[Any], bias: bool) -> tuple[Any, Any, Any]:
    """Mean, variance and deviation."""
    # A whole number beyond all floats is infinite among them.
    seen = [v if v in (math.inf, -math.inf) else rounded(Fraction(v)) for v in values]
    if not finite(seen):
        return infinite_sum(seen), NAN, NAN
    numbers, total = exact(values), sum(weights)
    mean = sum(w * v for w, v in zip(weights, numbers, strict=True)) / total
    square = sum(w * (v - mean) ** 2 for w, v in zip(weights, numbers, strict=True))
    below = total**2 if bias else total**2 - sum(w * w for w in weights)
    largest = max(map(abs, numbers))
    right = mean, largest * Fraction(1e-14)
    if not below:
        return right, NAN, NAN
    variance = square * total / below
    deviation, near = square_root(variance), Fraction(1e-12)
    # The mean is two floats.
    least = largest * Fraction(1e-31)
    return right, (variance, variance * near + least**2), (deviation, deviation * near + least)


@given(data=st.data(), holes=KINDS, count=st.integers(1, 3))
def test_relative_changes(data: st.DataObject, holes: Holes, count: int) -> None:
    events = data.draw(runs(holes))
    expected: list[Any] = []
    for at, (now, _, _) in enumerate(events):
        old = events[at - count][0] if at >= count else SILENT
        if old is SILENT:
            expected.append(SILENT)
        elif is_missing(now) or is_missing(old) or not finite([old]) or now == old == 0:
            expected.append(NAN)
        elif not finite([now]) or old == 0:
            below = old < 0 or (old == 0 and math.copysign(1.0, old) < 0)
            expected.append(math.inf if (now < 0) == below else -math.inf)
        else:
            change = (Fraction(now) - Fraction(old)) / Fraction(old)
            allowed = Fraction(0) if whole([now, old]) else abs(change) * Fraction(4e-16)
            expected.append((change, allowed))
    check(stepwise(PctChange(count), events, holes), expected)


# -- cases ---------------------------------------------------------------------------------------------


def values_of(signal: Any, type: Any, values: list[Any]) -> list[Any]:
    flow = hr.Flow("extremes")
    flow.sink("out", signal(flow.signal("a", type)))
    return hr.Engine(flow).replay(a=values)["out"].values


def test_whole_numbers_beyond_the_digits_of_floats_are_not_rounded() -> None:
    large = [2**60, 2**60 + 2, 2**60 + 5]
    for type in (int, object):
        found = values_of(lambda a: a.expanding().std(), type, large)
        assert found[1:] == pytest.approx([math.sqrt(2), math.sqrt(19 / 3)], rel=1e-15)
        assert values_of(lambda a: a.moving(3).var(), type, large) == [19 / 3]
        assert values_of(lambda a: a.ewm(alpha=0.5).std(bias=True), type, large)[1] == pytest.approx(
            math.sqrt(8 / 9), rel=1e-12
        )


def test_a_median_overflows_nowhere_and_knows_infinities() -> None:
    assert values_of(lambda a: a.expanding().median(), float, [-1.7e308, 1.7e308])[1] == 0.0
    assert values_of(lambda a: a.expanding().median(), float, [-math.inf, 1.0])[1] == -math.inf
    assert values_of(lambda a: a.expanding().median(), float, [1.0, math.inf])[1] == math.inf
    assert math.isnan(values_of(lambda a: a.expanding().median(), float, [-math.inf, math.inf])[1])


def test_a_change_from_a_zero_of_floats_to_a_whole_number_that_is_no_float_is_infinite() -> None:
    for zero, now, change in (
        (0.0, 10**400, math.inf),
        (-0.0, 10**400, -math.inf),
        (0.0, -(10**400), -math.inf),
    ):
        assert values_of(lambda a: a.pct_change(1), object, [zero, now])[-1] == change


def test_deviations_whose_squares_are_no_floats_are_right() -> None:
    for unit in (5e-324, 1e-200, 1e200):
        found = values_of(lambda a: a.moving(3).std(), float, [unit, 2 * unit, 3 * unit])
        assert found == pytest.approx([unit], rel=1e-15)
        both = values_of(lambda a: a.moving(3).corr(a), float, [unit, 2 * unit, 4 * unit])
        assert both == pytest.approx([1.0], rel=1e-15)


def test_a_fraction_that_has_left_leaves_nothing_behind_in_whole_numbers() -> None:
    values = [2.5, 2**60, 2**60, 2**60 + 2]
    assert values_of(lambda a: a.moving(2).std(), object, values)[1:] == pytest.approx([0.0, math.sqrt(2)])
    line = values_of(lambda a: a.moving(2).corr(a.scan(0, lambda n, _: n + 1)), object, values)
    assert line[-1] == pytest.approx(1.0)
    assert values_of(lambda a: a.moving(2).sum(), object, values)[1:] == [2**61, 2**61 + 2]


def test_a_large_value_that_has_left_leaves_nothing_behind() -> None:
    for loud in (1e200, 1.7e308, 5e-324, 10**400, math.inf):
        quiet = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
        for window in (CountWindow(3, 3), TimeWindow(timedelta(seconds=3), 3)):
            events: list[Event] = [(v, v, at) for at, v in enumerate([*quiet, loud, *quiet])]
            for statistic in (SignalSum, SignalMean, Var, Std, Corr, Regression):
                got, alone = stepwise(statistic(window), events), stepwise(statistic(window), events[:6])
                for one, other in zip(got[-4:], alone[-4:], strict=True):
                    assert one == pytest.approx(other, rel=1e-14)


def test_a_level_may_be_infinite_or_beyond_the_digits_of_floats() -> None:
    large = 2**60
    assert values_of(lambda a: a.crossed(large + 1), int, [large, large + 1, large + 2]) == [
        False,
        False,
        True,
    ]
    assert values_of(lambda a: a.crossed_above(math.inf), float, [1.0, math.inf]) == [False, False]
