"""Functions called by kernels, for everything longer than a line."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from datetime import datetime, timedelta
from math import inf, sqrt
from typing import Any

from headrace.engine.signals.statistics import exact_sums, rounding, sorted_blocks, suffixes
from headrace.errors import EvaluationError
from headrace.expr.code_runtime import NAN


def time_went_back(now: Any, last: Any) -> None:
    """Raise for a time signal that runs backwards; NaN is never a valid time."""
    if now != now or last != last:
        raise EvaluationError(
            "NaN is no time",
            why="It is neither before nor after another time.",
            fix="filter() the time signal: lambda time: time == time",
        )
    raise EvaluationError(
        f"time went back from {last} to {now}",
        why="What has left a window by time does not come back.",
        fix="give the signal its values in the order of their times",
    )


def multiple_before(now: Any, span: Any) -> Any:
    """Return the last multiple of `span` not after `now`; datetimes count from 1970 in their own zone."""
    if isinstance(span, timedelta):
        begin = datetime(1970, 1, 1, tzinfo=now.tzinfo)
        return begin + (now - begin) // span * span
    return now // span * span


def seconds_since(first: Any, now: Any) -> Any:
    """Return the seconds between two times: `datetime`s, or numbers of seconds."""
    apart = now - first
    return apart if isinstance(apart, (int, float)) else apart.total_seconds()


def correlation(vx: Any, vy: Any, vxy: Any) -> float:
    """Return Pearson's correlation from sums of squares; NaN if either variable is constant."""
    if not (vx > 0 and vy > 0):
        return NAN
    found = vxy / (sqrt(vx) * sqrt(vy))
    # Rounding may lead a little further.
    return 1.0 if found > 1.0 else -1.0 if found < -1.0 else found


def line(
    n: int, x0: Any, sx: Any, y0: Any, sy: Any, vx: Any, vy: Any, vxy: Any, origin: Any
) -> tuple[float, float, float]:
    """Return the slope, intercept at `y == origin`, and r2 of x explained by y; NaN if y is constant."""
    if not vy > 0 or vx != vx:
        return NAN, NAN, NAN
    slope = vxy / vy
    intercept = x0 + (sx / n - slope * ((y0 - origin) + sy / n))
    r2 = slope * (vxy / vx) if vx > 0 else NAN
    return slope, intercept, 1.0 if r2 > 1.0 else r2


_EXACT: tuple[Callable[..., Any], ...] = (
    exact_sums.tally,
    exact_sums.leave,
    exact_sums.leave_all,
    exact_sums.add_by_count,
    exact_sums.add_pair_by_count,
    exact_sums.add_by_time,
    exact_sums.add_pair_by_time,
    exact_sums.grow_sum,
    exact_sums.grow_deviations,
    exact_sums.grow_pairs,
    exact_sums.total,
    exact_sums.mean,
    exact_sums.variance,
    exact_sums.deviation,
    exact_sums.covariance,
    exact_sums.pair_correlation,
    exact_sums.pair_line,
    rounding.quotient,
    rounding.halves,
    rounding.leap,
    rounding.update_mean_and_squares,
    rounding.rescaled,
    rounding.interpolate,
    rounding.change,
    rounding.root,
    rounding.correlation_of_whole,
    rounding.line_of_whole,
)

FUNCTIONS: dict[str, Any] = {
    "NAN": NAN,
    "INFINITY": inf,
    "bisect_left": bisect_left,
    "bisect_right": bisect_right,
    "insort": insort,
    "time_went_back": time_went_back,
    "multiple_before": multiple_before,
    "sqrt": sqrt,
    "seconds_since": seconds_since,
    "correlation": correlation,
    "line": line,
    **{f.__name__: f for f in _EXACT},
    "sums": suffixes.sums,
    "least": suffixes.least,
    "greatest": suffixes.greatest,
    "oldest": suffixes.oldest,
    "newest": suffixes.newest,
    "deviations": suffixes.deviations,
    "pair_deviations": suffixes.pair_deviations,
    "pair_deviations_and_oldest": suffixes.pair_deviations_and_oldest,
    "put_in": sorted_blocks.put,
    "take_out": sorted_blocks.take,
    "places": sorted_blocks.places,
    "value_at": sorted_blocks.at,
}
