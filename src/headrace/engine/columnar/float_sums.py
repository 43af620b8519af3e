"""Exact sums of floats in columns.

A float is a whole number of units of `2**-112`, if it has no smaller bits, and such a number lies in parts:
of 32 bits each but for the last one, which has the rest. Parts of many floats are added up apart, without
loss. NaN and the infinities are counted beside.

What those parts do not hold of a group's sum, as it has smaller bits or too many, lies in further rows, each
with the number of its window: those of window n count units that are `2**(160 * n)` times as large. So any
sum has columns. Rows alone make such windows; a large tick that meets one, or would need
one, runs in rows. So a sum has the same windows whoever made it, and rows take back what columns wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from headrace.arrangement.batch import Numbers, carried
from headrace.columns.columns import ColumnarDeclined
from headrace.expr.deferred_imports import np, pl
from headrace.operators.aggregate.float_totals import (
    FLOAT_PARTS,
    FLOAT_UNIT,
    MOST_IN_LAST,
    PART_BITS,
    in_float_parts,
    lowest_terms,
    parts_of,
    value_of,
)

Flags: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.bool_]]"
Floats: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.float64]]"

WINDOW = "window"
"""Name of the column with the number of a row's window."""

WINDOW_BITS = FLOAT_PARTS * PART_BITS
PARTS = tuple(f"p{at}" for at in range(FLOAT_PARTS))
KINDS = ("nan", "up", "down")
ODD, THERE = "odd", "there"
"""Names of what is known of each float: its parts, what it is if it is not finite, whether it has smaller
bits or is too large, and whether it is not null."""


_LOW = (1 << PART_BITS) - 1
_LAST = 2.0 ** ((FLOAT_PARTS - 1) * PART_BITS - FLOAT_UNIT)
_ROOM = 2.0**61
_PART = 2.0**PART_BITS


@cache
def split_type() -> pl.Struct:
    """Return the type of floats in parts."""
    return pl.Struct(
        {**dict.fromkeys(PARTS, pl.Int64()), **dict.fromkeys((*KINDS, ODD, THERE), pl.Boolean())}
    )


def parts_of_floats(values: pl.Series) -> tuple[list[Numbers], list[Flags], Flags, Flags]:
    """Return the parts of floats, of which kind each is, whether it is odd, and whether it is there."""
    floats: Floats = values.cast(pl.Float64).fill_null(0.0).to_numpy()
    finite = np.isfinite(floats)
    left = np.where(finite, floats, 0.0)
    odd = np.abs(left) >= _LAST * _ROOM
    left[odd] = 0.0
    parts: list[Numbers] = []
    unit = _LAST
    for _ in PARTS:
        whole = np.trunc(left / unit)
        parts.append(whole.astype(np.int64))
        left = left - whole * unit
        unit /= _PART
    kinds = [np.isnan(floats), floats == np.inf, floats == -np.inf]
    return parts[::-1], kinds, odd | (left != 0.0), values.is_not_null().to_numpy()


def split_floats(values: pl.Series) -> pl.Series:
    """Return the parts of floats, and what else is to be known of them, as a struct (`split_type`)."""
    parts, kinds, odd, there = parts_of_floats(values)
    named = zip(split_type().to_schema(), (*parts, *kinds, odd, there), strict=True)
    return pl.DataFrame([pl.Series(name, column) for name, column in named]).to_struct()


def are_in_one_window(parts: Sequence[Numbers]) -> bool:
    """Return whether rows would have these sums in window 0 alone, too (`windows_of`)."""
    last = carried(parts)[-1]
    return not len(last) or (int(last.min()) >= -MOST_IN_LAST and int(last.max()) < MOST_IN_LAST)


def nearest(parts: Sequence[Numbers], counts: Numbers | None) -> Floats:
    """Return the floats nearest to sums, or to their means. Raises `ColumnarDeclined` for large counts."""
    *low, last = carried(parts)
    negative = last < 0
    if negative.any():
        # The complement, and one more.
        flipped = [np.where(negative, ~part & _LOW, part) for part in low]
        flipped[0] = flipped[0] + negative
        *low, last = carried([*flipped, np.where(negative, ~last, last)])
    digits = [last >> PART_BITS, last & _LOW, *reversed(low)]
    rest, unit = np.zeros_like(last), -FLOAT_UNIT
    if counts is not None and not (counts == 1).all():
        if int(counts.max()) >= 1 << 31:
            raise ColumnarDeclined
        digits += [rest] * 3
        unit -= 3 * PART_BITS
        rest = _divide(digits, counts)
    rounded = _rounded(digits, rest != 0, unit)
    return np.where(negative, -rounded, rounded)


def _divide(digits: list[Numbers], by: Numbers) -> Numbers:
    """Divide numbers, given by digits from the highest on, which become those of the quotients.

    Return the remainders.
    """
    rest = np.zeros_like(by)
    for at, digit in enumerate(digits):
        whole = (rest << PART_BITS) | digit
        digits[at] = whole // by
        rest = whole - digits[at] * by
    return rest


def _rounded(digits: Sequence[Numbers], more: Any, unit: int) -> Floats:
    """Return the floats nearest to numbers of 32-bit digits, from the highest on.

    more: whether something lies behind the last digit, which counts `2**unit`.
    """
    zeros = np.zeros_like(digits[0])
    table = np.stack([*digits, zeros, zeros]).view(np.uint64)
    behind = np.empty((len(digits) + 3, len(zeros)), np.bool_)
    behind[len(digits) :] = more
    for at in range(len(digits) - 1, -1, -1):
        behind[at] = behind[at + 1] | (digits[at] != 0)
    first, each = np.argmax(table != 0, axis=0), np.arange(len(zeros))
    high, middle, low = (table[first + step, each] for step in range(3))
    further = behind[first + 3, each]
    shift = (PART_BITS - np.frexp(high.astype(np.float64))[1]).astype(np.uint64)
    top = (((high << np.uint64(PART_BITS)) | middle) << shift) | (low >> (np.uint64(PART_BITS) - shift))
    cut = low & ((np.uint64(1) << (np.uint64(PART_BITS) - shift)) - np.uint64(1))
    # 62 bits, of which the last one says whether there are further ones, are rounded to 53 as all would be.
    sticky = ((top & np.uint64(3)) != 0) | (cut != 0) | further
    exact = ((top >> np.uint64(2)) | sticky).astype(np.int64).astype(np.float64)
    exponent = 2 - shift.astype(np.int64) + PART_BITS * (len(digits) - 2 - first) + unit
    return np.ldexp(exact, exponent.astype(np.int32))


def with_kinds(floats: Floats, kinds: Sequence[Numbers]) -> Floats:
    """Return sums or means with those that are not finite, as the numbers of NaN and infinities say."""
    nan, up, down = (kind > 0 for kind in kinds)
    if not (nan.any() or up.any() or down.any()):
        return floats
    floats = np.where(up, np.inf, np.where(down, -np.inf, floats))
    return np.where(nan | (up & down), np.nan, floats)


def fraction(parts: Sequence[int], windows: Mapping[int, Sequence[int]]) -> tuple[int, int]:
    """Return numerator and denominator of a sum. windows: its parts in further windows."""
    total, bits = value_of(parts), FLOAT_UNIT
    if windows:
        least = min(0, *windows)
        bits -= least * WINDOW_BITS
        total <<= -least * WINDOW_BITS
        for window, own in windows.items():
            total += value_of(own) << (window - least) * WINDOW_BITS
    return lowest_terms(total, bits) if bits >= 0 else (total << -bits, 1)


def windows_of(numerator: int, denominator: int) -> dict[int, tuple[int, ...]]:
    """Return the parts of a sum by window, for windows in which it has some.

    They are those of the number, whatever the fraction: rows write the parts of one that they did not reduce.
    """
    common = min(denominator, numerator & -numerator) or denominator
    numerator, denominator = numerator // common, denominator // common
    more = denominator.bit_length() - 1 - FLOAT_UNIT
    window = -max(0, -(-more // WINDOW_BITS))
    total = numerator << -window * WINDOW_BITS - more
    found: dict[int, tuple[int, ...]] = {}
    while total:
        last = in_float_parts(total)
        own = total if last else total & (1 << WINDOW_BITS) - 1
        if own:
            found[window] = parts_of(own, FLOAT_PARTS)
        total = 0 if last else total >> WINDOW_BITS
        window += 1
    return found
