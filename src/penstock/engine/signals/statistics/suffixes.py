"""Answers for every end piece of a list of values, computed from its end.

A window is an old piece, whose answers were computed all at once when it was
complete, and a new piece, whose answer grows with each value. The old piece
loses its oldest value by looking one place further: nothing is ever taken out
of a sum, so what has left a window leaves nothing behind in it, whatever it was.

In each function `values[i]` may be None, a missing value. The lists have an
answer more than there are values: that of the empty end piece.
"""

from __future__ import annotations

from itertools import accumulate
from operator import mul
from typing import Any, TypeAlias

List: TypeAlias = "list[Any]"


def sums(values: List) -> List:
    """Of each end piece, the sum."""
    return _backwards(accumulate([v or 0 for v in reversed(values)], initial=0))


def counts(values: List) -> List:
    """Of each end piece, how many values are not missing."""
    return _backwards(accumulate([v is not None for v in reversed(values)], initial=0))


def least(values: List) -> List:
    """Of each end piece, the least value; infinity where there is none."""
    inf = float("inf")
    return _backwards(accumulate([inf if v is None else v for v in reversed(values)], min, initial=inf))


def greatest(values: List) -> List:
    """Of each end piece, the greatest value; minus infinity where there is none."""
    low = float("-inf")
    return _backwards(accumulate([low if v is None else v for v in reversed(values)], max, initial=low))


def oldest(values: List) -> List:
    """Of each end piece, the first value that is not missing; None where there is none."""
    return _backwards(accumulate([None, *reversed(values)], lambda found, v: found if v is None else v))


def newest(values: List) -> List:
    """Of each end piece, the last value that is not missing; None where there is none."""
    return _backwards(accumulate([None, *reversed(values)], lambda found, v: v if found is None else found))


def anchor(values: List) -> tuple[Any, int]:
    """A value to measure the others from, and the length of the list up to it: its place.

    It is the newest finite one. Deviations from a value that is itself in the
    window cannot be large where the variance is small, so no digits are lost when
    the square of their sum is taken from the sum of their squares.
    """
    newest_at = len(values)
    for at in range(len(values) - 1, -1, -1):
        value = values[at]
        if value is None:
            continue
        if value - value == 0:
            return value, at + 1
        if newest_at == len(values):
            newest_at = at + 1
    return 0, newest_at


def deviations(values: List) -> tuple[Any, List, List, int]:
    """The anchor, of each end piece the sums of deviations from it and of their squares, and its place."""
    at, length = anchor(values)
    apart = [0 if v is None else v - at for v in reversed(values)]
    return at, _total(apart), _total(map(mul, apart, apart)), length


Pairs: TypeAlias = "tuple[Any, Any, List, List, List, List, List, int]"


def pair_deviations(xs: List, ys: List) -> Pairs:
    """The anchors of pairs, then sums over each end piece: of x, y, xx, xy and yy; and the anchors' place.

    `xs[i]` and `ys[i]` are both None, or neither is.
    """
    # Of a pair that is not finite neither part is an anchor: infinity less itself is NaN.
    _, length = anchor([x if x is None else (x - x) + (y - y) for x, y in zip(xs, ys, strict=True)])
    x0, y0 = _finite_pair(xs[length - 1], ys[length - 1]) if xs else (0, 0)
    dx = [0 if x is None else x - x0 for x in reversed(xs)]
    dy = [0 if y is None else y - y0 for y in reversed(ys)]
    squares = _total(map(mul, dx, dx)), _total(map(mul, dx, dy)), _total(map(mul, dy, dy))
    return x0, y0, _total(dx), _total(dy), *squares, length


def pair_deviations_and_oldest(xs: List, ys: List) -> tuple[Any, ...]:
    """`pair_deviations`, with the oldest y of each end piece before the place."""
    *made, length = pair_deviations(xs, ys)
    return *made, oldest(ys), length


def _finite_pair(x: Any, y: Any) -> tuple[Any, Any]:
    if x is None or x - x != 0 or y - y != 0:
        return 0, 0
    return x, y


def _total(parts: Any) -> List:
    return _backwards(accumulate(parts, initial=0))


def _backwards(made: Any) -> List:
    out = list(made)
    out.reverse()
    return out
