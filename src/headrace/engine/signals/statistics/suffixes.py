"""Aggregates over every suffix of a list: no values, the newest, the two newest, ... all.

A window is an old piece, whose answers were computed all at once when it was
complete, and a new piece, whose answer grows with each value. The old piece
loses its oldest value by looking one place before: nothing is ever taken out
of a sum, so what has left a window leaves nothing behind in it, whatever it was.

In each function `values` begin with the newest; one that is missing is None, and `gaps` says
how many are. The lists that are made are longer by one: they begin with the answer for none.
The answers for pieces with numbers that floats cannot take are read nowhere: see `tallies.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from math import inf
from operator import mul
from typing import Any, TypeAlias

from headrace.engine.signals.statistics.rounding import is_plain, tamed

List: TypeAlias = "list[Any]"


def sums(values: List, gaps: int) -> List:
    """Return the sums of the newest values."""
    try:
        return list(accumulate(_filled(values, gaps, 0), initial=0))
    except OverflowError:
        return sums(tamed(values), gaps)


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
        return deviations(tamed(values), gaps)


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
        return pair_deviations(tamed(xs), tamed(ys), gaps)


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
