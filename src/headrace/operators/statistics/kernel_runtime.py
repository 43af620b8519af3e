"""Runtime library of kernels: sorted values, products of suffixes, and functions longer than a line."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import accumulate
from math import inf, sqrt
from operator import mul
from typing import Any, TypeAlias

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import NAN
from headrace.operators.statistics import rounding
from headrace.operators.statistics.rounding import List, is_plain, zero_out_of_range

# --- sorted list split into blocks: insertion, removal and rank counts stay fast as it grows ------

# The state is three lists: `blocks`, lists of values, sorted within and among each
# other; `greatest`, the greatest value of each; and `counts`, the number of values in
# the blocks as a tree of partial sums (`counts[i]` is that of the blocks `i & (i + 1)`
# to `i`). An empty list has no blocks. Values must not be NaN.


_LARGEST = 1024
"""Size above which a block is halved. Moving this many values takes about as long as two function calls."""


def put(blocks: list[List], greatest: List, counts: List, value: Any) -> None:
    """Insert a value."""
    if not blocks:
        blocks.append([value])
        greatest.append(value)
        counts.append(1)
        return
    at = bisect_left(greatest, value)
    if at == len(greatest):
        at -= 1
        greatest[at] = value
    block = blocks[at]
    insort(block, value)
    if len(block) > _LARGEST:
        half = len(block) // 2
        blocks.insert(at + 1, block[half:])
        del block[half:]
        greatest.insert(at, block[-1])
        _count_again(blocks, counts)
    else:
        while at < len(counts):
            counts[at] += 1
            at |= at + 1


def take(blocks: list[List], greatest: List, counts: List, value: Any) -> None:
    """Remove one value equal to `value`, which must be present."""
    at = bisect_left(greatest, value)
    block = blocks[at]
    del block[bisect_left(block, value)]
    if not block:
        del blocks[at], greatest[at]
        _count_again(blocks, counts)
        return
    greatest[at] = block[-1]
    while at < len(counts):
        counts[at] -= 1
        at |= at + 1


def at(blocks: list[List], counts: List, index: int) -> Any:
    """Return the value at a position, counted from 0."""
    if len(blocks) == 1:
        return blocks[0][index]
    where, step = 0, 1 << (len(counts).bit_length() - 1)
    while step:
        if where + step <= len(counts) and counts[where + step - 1] <= index:
            index -= counts[where + step - 1]
            where += step
        step >>= 1
    return blocks[where][index]


def places(blocks: list[List], greatest: List, counts: List, value: Any) -> tuple[int, int]:
    """Count the values less than `value`, and those not greater."""
    less, most = bisect_left(greatest, value), bisect_right(greatest, value)
    below = _before(counts, less)
    if less < len(blocks):
        below += bisect_left(blocks[less], value)
    upto = _before(counts, most)
    if most < len(blocks):
        upto += bisect_right(blocks[most], value)
    return below, upto


def _before(counts: List, block: int) -> int:
    total = 0
    while block:
        total += counts[block - 1]
        block &= block - 1
    return total


def _count_again(blocks: list[List], counts: List) -> None:
    counts[:] = [len(block) for block in blocks]
    for i in range(len(counts)):
        above = i | (i + 1)
        if above < len(counts):
            counts[above] += counts[i]


# --- aggregates over every suffix of a list: no values, the newest, the two newest, ... all -------

# A window is an old piece, whose answers were computed all at once when it was
# complete, and a new piece, whose answer grows with each value. The old piece
# loses its oldest value by looking one place before: nothing is ever taken out
# of a sum, so what has left a window leaves nothing behind in it, whatever it was.
#
# In each function `values` begin with the newest; one that is missing is None, and `gaps` says
# how many are. The lists that are made are longer by one: they begin with the answer for none.
# The answers for pieces with numbers that floats cannot take are read nowhere: see `tallies.py`.


def sums(values: List, gaps: int) -> List:
    """Return the sums of the newest values."""
    try:
        return list(accumulate(_filled(values, gaps, 0), initial=0))
    except OverflowError:
        return sums(zero_out_of_range(values), gaps)


def least(values: List, gaps: int) -> List:
    """Return the minima of the newest values; infinity if there is none."""
    return list(accumulate(_filled(values, gaps, inf), min, initial=inf))


def greatest(values: List, gaps: int) -> List:
    """Return the maxima of the newest values; minus infinity if there is none."""
    return list(accumulate(_filled(values, gaps, -inf), max, initial=-inf))


def _filled(values: List, gaps: int, filling: float) -> Iterable[Any]:
    """Return the values with missing ones replaced."""
    if not gaps:
        return values
    return [filling if v is None else v for v in values]


def oldest(values: List, gaps: int) -> List:
    """Return the oldest present value among the newest; None if there is none."""
    return list(accumulate([None, *values], lambda found, v: found if v is None else v))


def newest(values: List, gaps: int) -> List:
    """Return the newest present value; None if there is none."""
    return list(accumulate([None, *values], lambda found, v: v if found is None else found))


def anchor(values: List) -> int:
    """Return the position of the reference value for deviations: the newest present one; 0 if none is.

    Deviations from a value that is itself in the window cannot be large where the
    variance is small, so no digits are lost when the square of their sum is taken from
    the sum of their squares.
    """
    return next((at for at, value in enumerate(values) if value is not None), 0)


def deviations(values: List, gaps: int) -> tuple[Any, List, List, int]:
    """Reference value; sums of the newest values' deviations from it, and of their squares; its position."""
    place = anchor(values)
    origin = _value_at(values, place)
    try:
        apart = _apart(values, gaps, origin)
        return origin, _total(apart), _total(map(mul, apart, apart)), place
    except OverflowError:
        return deviations(zero_out_of_range(values), gaps)


Pairs: TypeAlias = "tuple[Any, Any, List, List, List, List, List, int]"


def pair_deviations(xs: List, ys: List, gaps: int) -> Pairs:
    """Reference values; sums over the newest pairs of x, y, xx, xy and yy; their position.

    `xs[i]` and `ys[i]` are both None, or neither is.
    """
    place = anchor(xs)
    x0, y0 = _value_at(xs, place), _value_at(ys, place)
    try:
        dx, dy = _apart(xs, gaps, x0), _apart(ys, gaps, y0)
        squares = _total(map(mul, dx, dx)), _total(map(mul, dx, dy)), _total(map(mul, dy, dy))
        return x0, y0, _total(dx), _total(dy), *squares, place
    except OverflowError:
        return pair_deviations(zero_out_of_range(xs), zero_out_of_range(ys), gaps)


def pair_deviations_and_oldest(xs: List, ys: List, gaps: int) -> tuple[Any, ...]:
    """Return the result of `pair_deviations` with the oldest y among the newest, before the position."""
    *made, place = pair_deviations(xs, ys, gaps)
    return *made, oldest(ys, gaps), place


def _value_at(values: List, place: int) -> Any:
    """Reference value at a position; 0 if floats cannot be subtracted from it."""
    found = values[place] if values else None
    return 0 if found is None or not is_plain(found) else found


def _apart(values: List, gaps: int, origin: Any) -> List:
    """Return the difference of each value from `origin`; 0 for a missing one."""
    if not gaps:
        return [v - origin for v in values]
    return [0 if v is None else v - origin for v in values]


def _total(parts: Any) -> List:
    return list(accumulate(parts, initial=0))


# --- functions called by kernels, for everything longer than a line -------------------------------


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
    rounding.tally,
    rounding.leave,
    rounding.leave_all,
    rounding.add_by_count,
    rounding.add_pair_by_count,
    rounding.add_by_time,
    rounding.add_pair_by_time,
    rounding.grow_sum,
    rounding.grow_deviations,
    rounding.grow_pairs,
    rounding.total,
    rounding.mean,
    rounding.variance,
    rounding.deviation,
    rounding.covariance,
    rounding.pair_correlation,
    rounding.pair_line,
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
    "sums": sums,
    "least": least,
    "greatest": greatest,
    "oldest": oldest,
    "newest": newest,
    "deviations": deviations,
    "pair_deviations": pair_deviations,
    "pair_deviations_and_oldest": pair_deviations_and_oldest,
    "put_in": put,
    "take_out": take,
    "places": places,
    "value_at": at,
}
