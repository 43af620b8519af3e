"""Statistics as functions of signals, for those who read formulas: each is the method of that name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.flow.signal_statistics import timer

if TYPE_CHECKING:
    from datetime import timedelta

    from penstock.flow.signal import Signal
    from penstock.flow.signal_windows import Weighted


def moving_mean(
    signal: Signal[Any],
    window: int | str | timedelta,
    *,
    at: Signal[Any] | None = None,
    min_periods: int | None = None,
    name: str | None = None,
) -> Signal[float]:
    """`signal.moving(window, ...).mean()`, the mean of the last values.

    >>> import penstock as ps
    >>> flow = ps.Flow("moving mean")
    >>> flow.sink("mean", ps.moving_mean(flow.signal("a", float), 2))
    >>> list(ps.Engine(flow).replay(a=[1.0, 2.0, 4.0])["mean"])
    [(1, 1.5), (2, 3.0)]
    """
    return signal.moving(window, at=at, min_periods=min_periods).mean(name=name)


def ewm(signal: Signal[Any], **how: Any) -> Weighted:
    """`signal.ewm(...)`: all values so far, the older the lighter."""
    return signal.ewm(**how)


def lag(signal: Signal[Any], count: int = 1, **how: Any) -> Signal[Any]:
    """`signal.lag(count)`: the value of `count` firings ago."""
    return signal.lag(count, **how)


def diff(signal: Signal[Any], count: int = 1, *, name: str | None = None) -> Signal[Any]:
    """`signal.diff(count)`: the value less that of `count` firings ago."""
    return signal.diff(count, name=name)


def crossed(signal: Signal[Any], other: Signal[Any] | float, *, name: str | None = None) -> Signal[bool]:
    """`signal.crossed(other)`: whether it has just gone to the other side of a signal or a level."""
    return signal.crossed(other, name=name)


__all__ = ["crossed", "diff", "ewm", "lag", "moving_mean", "timer"]
