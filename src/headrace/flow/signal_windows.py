"""Windowed and exponentially weighted signals, with a method for each statistic."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from headrace.errors import SourceLocation, WrongType
from headrace.operators.column_arguments import render_argument
from headrace.operators.signals.statistic_signal import (
    StatisticSignal,
    check_ddof,
    check_numbers,
    check_times,
    missing_kind,
    parse_choice,
    schema_of_result,
    time_kind,
)
from headrace.operators.statistics.ewm import Decay, EwmMean, EwmStd, EwmVar
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
from headrace.operators.statistics.statistic import Holes, Times

if TYPE_CHECKING:
    from headrace.flow.signal import Signal
    from headrace.operators.statistics.statistic import Statistic, ValueWindow


class SignalLike:
    """Protocol that recognises signals at run time; only `Signal` implements it."""

    __slots__ = ()


def add_statistic(
    statistic: Statistic,
    values: tuple[Signal[Any], ...],
    at: Signal[Any] | None,
    location: SourceLocation,
    name: str | None,
) -> Signal[Any]:
    """Add a statistic of signals. Raises `WrongType` for values known not to be numbers."""
    if statistic.numbers:
        for signal in values:
            check_numbers(statistic.kind, signal.schema, location)
    inputs = values if at is None else (*values, at)
    holes = max((missing_kind(v.schema) for v in values), key=list(Holes).index, default=Holes.NONE)
    times = Times.EITHER if at is None else time_kind(at.schema)
    schema = schema_of_result(statistic.result, inputs[0].schema)
    operator = StatisticSignal(statistic, holes, times)
    return inputs[0].add(operator, location, inputs[1:], schema=schema, name=name)


def require_signal(what: str, given: Any, location: SourceLocation) -> Signal[Any]:
    """Return `given` if it is a signal. Raises `WrongType` otherwise."""
    if not isinstance(given, SignalLike):
        raise WrongType(
            f"{what} needs another signal, got {render_argument(given)}",
            where=[location],
            fix="flow.signal(...), or .latest() of a stream",
        )
    return given  # type: ignore[return-value]


def require_time_signal(what: str, at: Any, location: SourceLocation) -> Signal[Any]:
    """Return `at` if it is a signal of times. Raises `WrongType` otherwise."""
    if at is None:
        raise WrongType(
            f"{what} needs the times of the values",
            where=[location],
            why="A span of time is measured by a signal of times, which is input like any other.",
            fix="at=..., a signal of datetimes or of numbers of seconds",
        )
    if not isinstance(at, SignalLike):
        raise WrongType(
            f"at is a signal of times, got {render_argument(at)}",
            where=[location],
            fix='flow.signal("at", datetime), say',
        )
    signal: Signal[Any] = at  # type: ignore[assignment]
    check_times(signal.schema, location)
    return signal


class Windowed:
    """Values of a signal in a window, with a method for each statistic.

    relaxed: whether `min_periods` was omitted.
    """

    __slots__ = ("_at", "_relaxed", "_signal", "_window")

    def __init__(
        self, signal: Signal[Any], window: ValueWindow, at: Signal[Any] | None, relaxed: bool
    ) -> None:
        self._signal = signal
        self._window = window
        self._at = at
        self._relaxed = relaxed

    def __repr__(self) -> str:
        return f"{self._window} of {self._signal!r}"

    def _of(
        self, statistic: Statistic, location: SourceLocation, name: str | None, *others: Signal[Any]
    ) -> Signal[Any]:
        return add_statistic(statistic, (self._signal, *others), self._at, location, name)

    def count(self, *, name: str | None = None) -> Signal[int]:
        """Number of non-missing values."""
        window = replace(self._window, min_periods=0) if self._relaxed else self._window
        return self._of(SignalCount(window), SourceLocation.of_caller(), name)

    def sum(self, *, name: str | None = None) -> Signal[Any]:
        """Sum of the values."""
        return self._of(SignalSum(self._window), SourceLocation.of_caller(), name)

    def mean(self, *, name: str | None = None) -> Signal[float]:
        """Arithmetic mean."""
        return self._of(SignalMean(self._window), SourceLocation.of_caller(), name)

    def var(self, ddof: int = 1, *, name: str | None = None) -> Signal[float]:
        """Variance, with divisor count - `ddof`."""
        location = SourceLocation.of_caller()
        return self._of(Var(self._window, check_ddof(ddof, location)), location, name)

    def std(self, ddof: int = 1, *, name: str | None = None) -> Signal[float]:
        """Standard deviation, with divisor count - `ddof`."""
        location = SourceLocation.of_caller()
        return self._of(Std(self._window, check_ddof(ddof, location)), location, name)

    def min(self, *, name: str | None = None) -> Signal[Any]:
        """Least value."""
        return self._of(SignalMin(self._window), SourceLocation.of_caller(), name)

    def max(self, *, name: str | None = None) -> Signal[Any]:
        """Greatest value."""
        return self._of(SignalMax(self._window), SourceLocation.of_caller(), name)

    def first(self, *, name: str | None = None) -> Signal[Any]:
        """Oldest value that is not missing."""
        return self._of(SignalFirst(self._window), SourceLocation.of_caller(), name)

    def last(self, *, name: str | None = None) -> Signal[Any]:
        """Newest value that is not missing."""
        return self._of(SignalLast(self._window), SourceLocation.of_caller(), name)

    def median(self, *, name: str | None = None) -> Signal[float]:
        """Median; the mean of the middle two for an even count."""
        return self._of(Quantile(self._window), SourceLocation.of_caller(), name)

    def quantile(
        self,
        q: float,
        *,
        interpolation: Literal["linear", "lower", "higher", "midpoint", "nearest"] = "linear",
        name: str | None = None,
    ) -> Signal[float]:
        """Quantile: the value below which a fraction `q` of the values lies.

        interpolation: rule for a quantile between two values.
        """
        location = SourceLocation.of_caller()
        if not isinstance(q, int | float) or not 0 <= q <= 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongType(
                f"a quantile is a number from 0 to 1, got {render_argument(q)}",
                where=[location],
                fix="0.5 is the median",
            )
        how = parse_choice(Interpolation, interpolation, "interpolation", location)
        return self._of(Quantile(self._window, float(q), how), location, name)

    def rank(
        self,
        *,
        method: Literal["average", "min", "max"] = "average",
        pct: bool = False,
        name: str | None = None,
    ) -> Signal[float]:
        """Rank of the newest value by size, from 1.

        method: rule for the rank of equal values. pct: return the rank as a fraction of the count.
        """
        location = SourceLocation.of_caller()
        return self._of(
            SignalRank(self._window, parse_choice(Ties, method, "method", location), pct), location, name
        )

    def cov(self, other: Signal[Any], ddof: int = 1, *, name: str | None = None) -> Signal[float]:
        """Covariance with another signal, updated when either of them fires."""
        location = SourceLocation.of_caller()
        statistic = Cov(self._window, check_ddof(ddof, location))
        return self._of(statistic, location, name, require_signal("cov", other, location))

    def corr(self, other: Signal[Any], *, name: str | None = None) -> Signal[float]:
        """Pearson correlation with another signal; NaN if one of them is constant."""
        location = SourceLocation.of_caller()
        return self._of(Corr(self._window), location, name, require_signal("corr", other, location))

    def regression(
        self, by: Signal[Any] | Literal["index", "time"] = "index", *, name: str | None = None
    ) -> Signal[tuple[float, float, float]]:
        """Least-squares line: (slope, intercept, r2).

        by: independent variable: another signal; the position in the window, 0 for the oldest value; or the
            seconds since the oldest value (in a window by time).
        """
        location = SourceLocation.of_caller()
        if isinstance(by, SignalLike):
            return self._of(
                Regression(self._window, Against.SIGNAL), location, name, require_signal("by", by, location)
            )
        if by == "time" and self._at is None:
            raise WrongType(
                'regression(by="time") needs the times of the values',
                where=[location],
                why=f"The window is {self._window}.",
                fix='give it a window by time: moving("10s", at=...), or by=... a signal',
            )
        against = _AGAINST.get(by) if by.__class__ is str else None
        if against is None:
            raise WrongType(
                f"a regression is by a signal, by index or by time; got {render_argument(by)}",
                where=[location],
                fix='by=other, by="index" or by="time"',
            )
        return self._of(Regression(self._window, against), location, name)


class Weighted:
    """All values of a signal, exponentially weighted, with a method for each statistic."""

    __slots__ = ("_at", "_decay", "_least", "_signal")

    def __init__(self, signal: Signal[Any], decay: Decay, least: int, at: Signal[Any] | None) -> None:
        self._signal = signal
        self._decay = decay
        self._least = least
        self._at = at

    def __repr__(self) -> str:
        return f"ewm, {self._decay}, of {self._signal!r}"

    def mean(self, *, name: str | None = None) -> Signal[float]:
        """Weighted mean."""
        statistic = EwmMean(self._decay, self._least)
        return add_statistic(statistic, (self._signal,), self._at, SourceLocation.of_caller(), name)

    def var(self, bias: bool = False, *, name: str | None = None) -> Signal[float]:
        """Weighted variance.

        bias: omit the bias correction.
        """
        statistic = EwmVar(self._decay, self._least, bias)
        return add_statistic(statistic, (self._signal,), self._at, SourceLocation.of_caller(), name)

    def std(self, bias: bool = False, *, name: str | None = None) -> Signal[float]:
        """Square root of the weighted variance."""
        statistic = EwmStd(self._decay, self._least, bias)
        return add_statistic(statistic, (self._signal,), self._at, SourceLocation.of_caller(), name)


_AGAINST = {"index": Against.INDEX, "time": Against.TIME}
