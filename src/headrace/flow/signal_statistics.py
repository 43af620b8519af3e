"""Statistics of signals, as methods of `Signal` and as functions of signals (`hr.diff(a)`).

A statistic is silent until it has `min_periods` values. From then on it fires for every value, with NaN if
the window has too few values again, or the result is undefined (the variance of one value, a correlation with
a constant). NaN and None count as missing values: they occupy a slot of a window by count, but are ignored
otherwise.

Times are also a signal, `at=`. Its values are `datetime`s or numbers of seconds and must not decrease; a
value counts at the time that is current when it fires.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast, overload

from headrace.errors import SourceLocation, WrongType
from headrace.expr.tree import Expr
from headrace.flow.signal_windows import (
    SignalLike,
    Weighted,
    Windowed,
    add_statistic,
    require_signal,
    require_time_signal,
)
from headrace.operators.column_arguments import render_argument
from headrace.operators.over import row_functions
from headrace.operators.signals.statistic_signal import build_decay, check_count, check_least, parse_span
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
from headrace.operators.statistics.statistic import CountWindow, Expanding, TimeWindow

if TYPE_CHECKING:
    from datetime import timedelta

    from headrace.flow.signal import Signal
    from headrace.operators.time_spans import GivenSpan


class SignalStatistics(SignalLike):
    """Methods of `Signal` that add a statistic, one operator each."""

    __slots__ = ()

    @property
    def _itself(self) -> Signal[Any]:
        return cast("Signal[Any]", self)

    # -- windows -----------------------------------------------------------------------------------

    def moving(
        self, window: int | str | timedelta, *, at: Signal[Any] | None = None, min_periods: int | None = None
    ) -> Windowed:
        """The last values: `a.moving(10).mean()`, `a.moving("10s", at=time).mean()`.

        window:      number of values, including missing ones; or a time span, "10s" or a timedelta, for the
                     values later than the newest time minus the span (open on the left, as in pandas).
        at:          times of the values, for a window by time.
        min_periods: number of values required; by default the size of the window, or 1 for a window by time.
                     `count()` requires none by default.

        Raises `WrongType` for a window of less than 1, an invalid time span, or missing times.

        >>> import headrace as hr
        >>> flow = hr.Flow("moving mean")
        >>> flow.sink("mean", flow.signal("a", float).moving(2).mean())
        >>> list(hr.Engine(flow).replay(a=[1.0, 2.0, 4.0])["mean"])
        [(1, 1.5), (2, 3.0)]
        """
        location = SourceLocation.of_caller()
        if isinstance(window, int):
            check_count("moving", window, location)
            least = window if min_periods is None else min_periods
            check_least(least, location, most=window)
            if at is not None:
                raise WrongType(
                    "a window by count needs no times",
                    where=[location],
                    why=f"moving({window}) is about the last {window} values, whenever they came.",
                    fix='leave out at=..., or give a span of time: moving("10s", at=...)',
                )
            return Windowed(self._itself, CountWindow(window, least), None, min_periods is None)
        if isinstance(window, float):
            raise WrongType(
                f"a window is a count of values or a span of time, got {window!r}",
                where=[location],
                fix='moving(10), or moving("10s", at=...)',
            )
        span = parse_span("moving", window, location)
        least = 1 if min_periods is None else min_periods
        check_least(least, location)
        times = require_time_signal("a window by time", at, location)
        return Windowed(self._itself, TimeWindow(span, least), times, min_periods is None)

    def expanding(self, min_periods: int | None = None) -> Windowed:
        """All values so far: `a.expanding().std()`.

        min_periods: number of values required, by default 1; none for `count()`.
        """
        least = 1 if min_periods is None else min_periods
        check_least(least, SourceLocation.of_caller())
        return Windowed(self._itself, Expanding(least), None, min_periods is None)

    def ewm(
        self,
        *,
        com: float | None = None,
        span: float | None = None,
        halflife: float | str | timedelta | None = None,
        alpha: float | None = None,
        adjust: bool = True,
        ignore_na: bool = False,
        min_periods: int = 1,
        at: Signal[Any] | None = None,
    ) -> Weighted:
        """All values so far, exponentially weighted: `a.ewm(span=10).mean()`.

        com, span, halflife, alpha: exactly one sets the decay of weights, as in pandas. A time span as
                `halflife` makes weights decay by time, and requires the times of the values.
        adjust: weights are powers of 1 - alpha. Otherwise a value has weight alpha, and all before it the
            rest.
        ignore_na: missing values do not cause decay.
        at:     times of the values.

        Raises `WrongType` unless exactly one sets the decay, and for values out of range.
        """
        location = SourceLocation.of_caller()
        said = {"com": com, "span": span, "halflife": halflife, "alpha": alpha}
        decay = build_decay(said, adjust, ignore_na, location)
        check_least(min_periods, location)
        if decay.half_life is not None:
            return Weighted(
                self._itself, decay, min_periods, require_time_signal("an ewm by time", at, location)
            )
        if at is not None:
            raise WrongType(
                "an ewm by count needs no times",
                where=[location],
                why="Its weights fall with each value, whenever it came.",
                fix='leave out at=..., or give a span of time: a.ewm(halflife="10s", at=...)',
            )
        return Weighted(self._itself, decay, min_periods, None)

    # -- comparison with earlier values --------------------------------------------------------------

    def diff(self, count: int = 1, *, name: str | None = None) -> Signal[Any]:
        """Difference from the value `count` firings ago. Silent for the first `count` values."""
        location = SourceLocation.of_caller()
        check_count("diff", count, location)
        return add_statistic(Diff(count), (self._itself,), None, location, name)

    def pct_change(self, count: int = 1, *, name: str | None = None) -> Signal[float]:
        """Relative change since `count` firings ago: 0.5 from 2 to 3."""
        location = SourceLocation.of_caller()
        check_count("pct_change", count, location)
        return add_statistic(PctChange(count), (self._itself,), None, location, name)

    def rank(
        self,
        window: int | str | timedelta,
        *,
        method: Literal["average", "min", "max"] = "average",
        pct: bool = False,
        at: Signal[Any] | None = None,
        min_periods: int | None = None,
    ) -> Signal[float]:
        """Rank of the newest value in a window: `moving(window).rank()`."""
        return self.moving(window, at=at, min_periods=min_periods).rank(method=method, pct=pct)

    def crossed(self, other: Signal[Any] | float, *, name: str | None = None) -> Signal[bool]:
        """Whether the signal has just crossed `other`, a signal or a level.

        Equality is on neither side, so touching and turning back does not count.
        """
        return _crossed(self._itself, Direction.BOTH, other, name, SourceLocation.of_caller())

    def crossed_above(self, other: Signal[Any] | float, *, name: str | None = None) -> Signal[bool]:
        """Whether the signal has just risen from below `other` to above it."""
        return _crossed(self._itself, Direction.ABOVE, other, name, SourceLocation.of_caller())

    def crossed_below(self, other: Signal[Any] | float, *, name: str | None = None) -> Signal[bool]:
        """Whether the signal has just fallen from above `other` to below it."""
        return _crossed(self._itself, Direction.BELOW, other, name, SourceLocation.of_caller())

    # -- downsampling --------------------------------------------------------------------------------

    def every(self, count: int, *, name: str | None = None) -> Signal[Any]:
        """Every `count`-th value. To sample by time, use `a.sample(hr.timer("1s", at=time))`."""
        location = SourceLocation.of_caller()
        check_count("every", count, location)
        return add_statistic(EveryNth(count), (self._itself,), None, location, name)

    def throttle(self, span: GivenSpan, *, at: Signal[Any], name: str | None = None) -> Signal[Any]:
        """The first value, then each one at least `span` after the last one emitted.

        span: "10s", a timedelta, or a number of seconds.
        """
        location = SourceLocation.of_caller()
        paced = Throttle(parse_span("throttle", span, location))
        return add_statistic(
            paced, (self._itself,), require_time_signal("throttle", at, location), location, name
        )

    def debounce(self, span: GivenSpan, *, at: Signal[Any], name: str | None = None) -> Signal[Any]:
        """The newest value, once `span` has passed without another.

        It fires at the first time late enough, with or without a value.
        """
        location = SourceLocation.of_caller()
        paced = Debounce(parse_span("debounce", span, location))
        return add_statistic(
            paced, (self._itself,), require_time_signal("debounce", at, location), location, name
        )

    def ohlc(
        self, each: int | str | timedelta, *, at: Signal[Any] | None = None, name: str | None = None
    ) -> Signal[Any]:
        """Bars of open, high, low and close, per number of values or per span of time.

        By count: (open, high, low, close), emitted with the last value. By span: (start, open, high, low,
        close), emitted at the first time in a later multiple of the span; spans without values have no bar.
        """
        location = SourceLocation.of_caller()
        if isinstance(each, int | float):
            check_count("ohlc", each, location)
            if at is not None:
                raise WrongType(
                    "bars by count need no times",
                    where=[location],
                    why=f"ohlc({each}) is about each {each} values, whenever they came.",
                    fix='leave out at=..., or give a span of time: ohlc("10s", at=...)',
                )
            return add_statistic(BarsByCount(each), (self._itself,), None, location, name)
        bars = BarsByTime(parse_span("ohlc", each, location))
        return add_statistic(
            bars, (self._itself,), require_time_signal("ohlc by time", at, location), location, name
        )


def _crossed(
    signal: Signal[Any], direction: Direction, other: Any, name: str | None, location: SourceLocation
) -> Signal[bool]:
    if isinstance(other, SignalLike):
        other = require_signal("crossed", other, location)
        return add_statistic(Crossed(direction), (signal, other), None, location, name)
    if isinstance(other, bool) or not isinstance(other, int | float) or other != other:
        raise WrongType(
            f"a signal crosses a signal or a level, got {render_argument(other)}",
            where=[location],
            fix="a.crossed(100)",
        )
    # Integers without an exact float stay integers.
    level = float(other) if -(2**53) <= other <= 2**53 else other
    return add_statistic(Crossed(direction, level), (signal,), None, location, name)


# -- as functions of signals ------------------------------------------------------------------


def timer(span: GivenSpan, *, at: Signal[Any], name: str | None = None) -> Signal[Any]:
    """Signal that fires when a time reaches or passes the next multiple of `span`, with that multiple.

    at: signal of times. It fires once per time, even if several multiples have passed since the previous one.

    >>> import headrace as hr
    >>> flow = hr.Flow("every second")
    >>> flow.sink("rings", hr.timer("1s", at=flow.signal("seconds", float)))
    >>> list(hr.Engine(flow).replay(seconds=[0.5, 0.9, 1.2, 4.0])["rings"])
    [(2, 1.0), (3, 4.0)]
    """
    location = SourceLocation.of_caller()
    times = require_time_signal("timer", at, location)
    return add_statistic(Timer(parse_span("timer", span, location)), (), times, location, name)


def moving_mean(
    signal: Signal[Any],
    window: int | str | timedelta,
    *,
    at: Signal[Any] | None = None,
    min_periods: int | None = None,
    name: str | None = None,
) -> Signal[float]:
    """Mean of the last values: `signal.moving(window, ...).mean()`.

    >>> import headrace as hr
    >>> flow = hr.Flow("moving mean")
    >>> flow.sink("mean", hr.moving_mean(flow.signal("a", float), 2))
    >>> list(hr.Engine(flow).replay(a=[1.0, 2.0, 4.0])["mean"])
    [(1, 1.5), (2, 3.0)]
    """
    return signal.moving(window, at=at, min_periods=min_periods).mean(name=name)


def ewm(signal: Signal[Any], **how: Any) -> Weighted:
    """All values so far, exponentially weighted: `signal.ewm(...)`."""
    return signal.ewm(**how)


@overload
def lag(
    signal: Expr, count: int = 1, default: object = None, *, ignore_nulls: bool = False
) -> row_functions.Lag: ...
@overload
def lag(signal: Signal[Any], count: int = 1, **how: Any) -> Signal[Any]: ...
def lag(signal: Any, count: int = 1, default: object = None, **how: Any) -> Any:
    """Value `count` firings ago: `signal.lag(count)`; of an expression, `count` rows before, for `over`."""
    if isinstance(signal, Expr):
        return row_functions.lagged(signal, count, default, **how)
    return signal.lag(count, **how)


def diff(signal: Signal[Any], count: int = 1, *, name: str | None = None) -> Signal[Any]:
    """Difference from the value `count` firings ago: `signal.diff(count)`."""
    return signal.diff(count, name=name)


def crossed(signal: Signal[Any], other: Signal[Any] | float, *, name: str | None = None) -> Signal[bool]:
    """Whether a signal has just crossed another or a level: `signal.crossed(other)`."""
    return signal.crossed(other, name=name)
