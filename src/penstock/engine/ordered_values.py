"""Aggregates over a sorted multiset: present values in order, with the copies of each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate, pairwise
from math import ceil, floor
from typing import Any

from penstock.errors import EvaluationError
from penstock.expr.code_runtime import NAN

Values = list[Any]
Copies = dict[Any, int]


def percentiles(
    values: Values, copies: Copies, at: float | tuple[float, ...], discrete: bool, descending: bool
) -> Any:
    """Return the percentile of a non-empty multiset, or a tuple of several."""
    ordered = list(values)[:: -1 if descending else 1]
    ends = list(accumulate(copies[value] for value in ordered))

    def at_place(place: int) -> Any:
        return ordered[bisect_right(ends, place)]

    def one(part: float) -> Any:
        if discrete:
            return at_place(max(0, ceil(ends[-1] * part) - 1))
        return interpolate(at_place, (ends[-1] - 1) * part)

    return tuple(map(one, at)) if isinstance(at, tuple) else one(at)


def interpolate(at_place: Callable[[int], Any], place: float) -> float:
    """Interpolate between the values before and behind a place, as Spark does."""
    before, behind = at_place(floor(place)), at_place(ceil(place))
    least = float(before)
    if before == behind:
        return least
    found = least + (place - floor(place)) * (float(behind) - least)
    return found if found == found else NAN


def frequency(given: int) -> int:
    """Return how often a value counts. Raises `EvaluationError` if that is negative."""
    if given < 0:
        raise EvaluationError(f"a frequency of a percentile is negative: {given}")
    return given


def histogram(values: Values, copies: Copies, bins: int, of_floats: bool) -> tuple[tuple[Any, float], ...]:
    """Return the bins of a non-empty multiset, centers with counts."""
    found: list[tuple[float, float]] = []
    ordered = iter(values)
    pending = next(ordered)
    center, count = float(pending), copies[pending]
    for value in ordered:
        # Several integers may be one float.
        if float(value) != center:
            _add_bin(found, center, float(count), bins)
            center, count = float(value), 0
        count += copies[value]
    _add_bin(found, center, float(count), bins)
    if of_floats:
        return tuple(found)
    return tuple((min(int(center), _MAX_INT64), count) for center, count in found)


def _add_bin(found: list[tuple[float, float]], center: float, count: float, most: int) -> None:
    """Add a bin behind all others. If they are too many, the two closest ones become one."""
    found.append((center, count))
    if len(found) <= most:
        return
    gaps = [after[0] - before[0] for before, after in pairwise(found)]
    at = min(range(most), key=lambda place: (gaps[place] != gaps[place], gaps[place]))
    (x, y), (next_x, next_y) = found[at : at + 2]
    total = y + next_y
    middle = x * (y / total) + next_x / total * next_y
    found[at : at + 2] = [(middle if middle == middle else NAN, total)]


_MAX_INT64 = 2**63 - 1


def mode(values: Values, copies: Copies, greatest: bool) -> Any:
    """Return the most frequent value of a non-empty multiset."""
    return max(list(values)[:: -1 if greatest else 1], key=copies.__getitem__)


def joined_text(values: Values, copies: Copies, separator: str) -> str:
    """Join the texts that are the last items of tuples."""
    return separator.join(value[-1] for value in values for _ in range(copies[value]))


def bits_and(values: Values, copies: Copies) -> int:
    """Return the bits that are set in all values of a non-empty multiset."""
    found: int = values[0]
    for value in values:
        found &= value
    return found


def bits_or(values: Values, copies: Copies) -> int:
    """Return the bits that are set in any value."""
    found = 0
    for value in values:
        found |= value
    return found


def bits_xor(values: Values, copies: Copies) -> int:
    """Return the bits that are set in an odd number of values."""
    found = 0
    for value in values:
        if copies[value] % 2:
            found ^= value
    return found


RUNTIME: dict[str, Any] = {
    "x_percentiles": percentiles,
    "x_frequency": frequency,
    "x_histogram": histogram,
    "x_mode": mode,
    "x_joined_text": joined_text,
    "x_bits_and": bits_and,
    "x_bits_or": bits_or,
    "x_bits_xor": bits_xor,
}
