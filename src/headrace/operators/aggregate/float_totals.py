"""Exact totals of floats.

A float is n / 2**k, so a sum of floats is too: state holds numerator and denominator, and what is taken out
leaves nothing behind. NaN and the infinities are counted beside:

    [numerator, denominator, nan, +inf, -inf]

Between stages and in columns, a sum is a whole number of units in parts of few bits, if it is one.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from headrace.expr.code_runtime import NAN

if TYPE_CHECKING:
    from collections.abc import Sequence


def float_add(group: list[Any], at: int, value: float, weight: int) -> None:
    """Add `weight` copies of `value` to [numerator, denominator, nan, +inf, -inf] at `group[at:]`."""
    if value - value != 0:
        group[at + (2 if value != value else 3 if value > 0 else 4)] += weight
        return
    numerator, denominator = value.as_integer_ratio()
    common = group[at + 1]
    if denominator > common:
        total = group[at] * (denominator // common) + numerator * weight
        group[at + 1] = denominator
    else:
        total = group[at] + numerator * (common // denominator) * weight
    group[at] = total
    if not total:
        group[at + 1] = 1


def float_merge(
    group: list[Any], at: int, numerator: int, denominator: int, nan: int, up: int, down: int
) -> None:
    """Merge an exact float sum (as kept by `float_add`) into the one at `group[at:]`."""
    common = group[at + 1]
    if denominator > common:
        total = group[at] * (denominator // common) + numerator
        common = denominator
    else:
        total = group[at] + numerator * (common // denominator)
    group[at], group[at + 1] = total, common if total else 1
    group[at + 2] += nan
    group[at + 3] += up
    group[at + 4] += down


FLOAT_PARTS, PART_BITS, FLOAT_UNIT = 5, 32, 112
"""Number of parts of a float sum, bits of all but the last one, and the unit `2**-112` of the first."""


MOST_IN_LAST = 1 << 42
"""Bound of the last part, low enough that sums of many such parts fit in 64 bits."""


def parts_of(value: int, count: int) -> tuple[int, ...]:
    """Return an integer as parts, from the lowest on; none if it has none."""
    if not count:
        return ()
    low = (1 << PART_BITS) - 1
    return (*(value >> at * PART_BITS & low for at in range(count - 1)), value >> (count - 1) * PART_BITS)


def value_of(parts: Sequence[int]) -> int:
    """Return the integer that some parts stand for."""
    if len(parts) == 2:
        low, high = parts
        return low + (high << PART_BITS)
    return sum(part << at * PART_BITS for at, part in enumerate(parts))


def in_float_parts(total: int) -> bool:
    """Return whether so many units are few enough for parts (`MOST_IN_LAST`)."""
    return -MOST_IN_LAST <= total >> (FLOAT_PARTS - 1) * PART_BITS < MOST_IN_LAST


def parts_of_float_sum(group: list[Any], at: int) -> tuple[int, ...]:
    """Return the parts of the sum at `group[at:]`, from the lowest on, and how many bits less their unit is.

    What has more bits than the parts is the first one.
    """
    numerator, denominator = group[at], group[at + 1]
    more = denominator.bit_length() - 1 - FLOAT_UNIT
    if more <= 0 and in_float_parts(total := numerator << -more):
        return (*parts_of(total, FLOAT_PARTS), 0)
    return (numerator, *(0,) * (FLOAT_PARTS - 1), more)


def float_merge_parts(group: list[Any], at: int, *parts: int) -> None:
    """Merge an exact float sum, as `parts_of_float_sum` gives it with nan, +inf, -inf, into `group[at:]`."""
    total, bits = value_of(list(map(int, parts[:FLOAT_PARTS]))), FLOAT_UNIT + int(parts[FLOAT_PARTS])
    float_merge(group, at, *lowest_terms(total, bits), *parts[FLOAT_PARTS + 1 :])


def lowest_terms(total: int, bits: int) -> tuple[int, int]:
    """Return numerator and denominator of so many `2**-bits`."""
    if not total:
        return 0, 1
    common = min(bits, (total & -total).bit_length() - 1)
    return total >> common, 1 << bits - common


def float_sum(group: list[Any], at: int, count: int = 1) -> float:
    """Divide the sum at `group[at:]` by `count`, rounding once."""
    numerator, denominator, nan, up, down = group[at : at + 5]
    if nan > 0 or (up > 0 and down > 0):
        return NAN
    if up > 0:
        return inf
    if down > 0:
        return -inf
    try:
        # A quotient that is too small for a float would be -0.0 if it is negative.
        return numerator / (denominator * count) or 0.0
    except OverflowError:
        return inf if numerator > 0 else -inf


RUNTIME: dict[str, Any] = {
    "x_float_add": float_add,
    "x_float_merge": float_merge,
    "x_float_merge_parts": float_merge_parts,
    "x_float_parts": parts_of_float_sum,
    "x_float_sum": float_sum,
}
