"""HyperLogLog++: number of distinct values, estimated from registers (Heule, Nunkesser and Hall, 2013).

The first bits of a value's hash select a register, and the number of zeros that follow makes its rank. A
register holds the greatest rank of its values. Register and rank of a value are one number here, its code:
so the estimate is a function of the set of codes, and codes with their copies can be taken back.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from math import ceil, floor, log
from typing import Any

MIN_PRECISION, MAX_PRECISION = 4, 24
RANK_BITS = 6
_CORRECTED = 18
"""Precision up to which the bias of estimates is known."""
_NEIGHBOURS = 6


@cache
def tables() -> Mapping[str, Any]:
    """Return the measured constants of both kinds of sketches (NOTICE has their sources)."""
    return json.loads((resources.files("headrace.expr") / "hyperloglog_tables.json").read_text("utf-8"))


def precision_of(deviation: float) -> int:
    """Return the number of bits that select a register, for a relative standard deviation."""
    return ceil(2 * log(1.106 / deviation) / log(2))


def code_of_hash(precision: int, hashed: int) -> int:
    """Return the code of a hash of 64 bits: the number of its register, then its rank in six bits."""
    rest = (hashed << precision & 0xFFFFFFFFFFFFFFFF) | 1 << precision - 1
    return (hashed & 0xFFFFFFFFFFFFFFFF) >> 64 - precision << RANK_BITS | 65 - rest.bit_length()


def estimate_of_codes(precision: int, codes: Iterable[int]) -> int:
    """Return the number of distinct values of which these are the codes."""
    ranks: dict[int, int] = {}
    for code in codes:
        register, rank = code >> RANK_BITS, code & (1 << RANK_BITS) - 1
        if ranks.get(register, 0) < rank:
            ranks[register] = rank
    return estimate(precision, sum(2.0**-rank for rank in ranks.values()), len(ranks))


def estimate(precision: int, total: float, used: int) -> int:
    """Return the number of distinct values. total: sum of 2**-rank over the `used` registers."""
    registers = 1 << precision
    empty = registers - used
    harmonic = _factor(precision) * registers * registers / (total + empty)
    corrected = harmonic
    if precision <= _CORRECTED and harmonic < 5 * registers:
        corrected -= _bias(precision, harmonic)
    if empty:
        linear = registers * log(registers / empty)
        if harmonic <= 2.5 * registers or linear <= _threshold(precision):
            return floor(linear + 0.5)
    return floor(corrected + 0.5)


def _threshold(precision: int) -> float:
    """Return the number up to which empty registers alone estimate best."""
    if precision > _CORRECTED:
        return 0.0
    return tables()["hyperloglog_plus_plus"]["thresholds"][precision - MIN_PRECISION]


def _factor(precision: int) -> float:
    known = {4: 0.673, 5: 0.697, 6: 0.709}
    return known.get(precision) or 0.7213 / (1 + 1.079 / (1 << precision))


def _bias(precision: int, harmonic: float) -> float:
    """Return the mean of the biases that were measured nearest to an estimate."""
    known: Mapping[str, Sequence[Sequence[float]]] = tables()["hyperloglog_plus_plus"]
    at = precision - MIN_PRECISION
    estimates, biases = known["estimates"][at], known["biases"][at]
    low = max(bisect_left(estimates, harmonic) - _NEIGHBOURS + 1, 0)
    high = min(low + _NEIGHBOURS, len(estimates))
    while high < len(estimates) and estimates[high] - harmonic < harmonic - estimates[low]:
        low, high = low + 1, high + 1
    return sum(biases[low:high]) / (high - low)
