"""HLL sketches in the format of Apache DataSketches, which `hll_sketch_agg` of Spark makes and reads.

The hash of a value makes its coupon: 26 bits of address, and above them a rank, the number of leading zeros
of other bits and one. A sketch of few values lists their coupons. One of more has 2**lg_k registers: the last
lg_k bits of an address select one, which holds the greatest rank.

Sketches made here are a function of the set of coupons: coupons are sorted, registers have eight bits, and a
sketch with registers is marked as out of order, so that whoever reads it estimates from them alone. A sketch
that was made row by row also has an estimate that depends on their order; it is taken where there is one.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import floor, log
from typing import Any, TypeAlias, cast

from headrace.errors import EvaluationError
from headrace.expr.hyperloglog import tables
from headrace.requirements import np, pl

Words: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
"""Integers of 64 bits, whose arithmetic wraps."""

MIN_LG_K, MAX_LG_K, DEFAULT_LG_K = 4, 21, 12
ADDRESS_BITS = 26
_ADDRESS = (1 << ADDRESS_BITS) - 1
_WORD = 0xFFFFFFFFFFFFFFFF
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_SEED = 9001


# --- coupons -----------------------------------------------------------------------------------------


def coupon_of(value: int | str | bytes) -> int | None:
    """Return the coupon of an integer, text or bytes; None of nothing, which no sketch counts."""
    if isinstance(value, int):
        data = (value & _WORD).to_bytes(8, "little")
    else:
        data = value.encode() if isinstance(value, str) else value
    return coupon_of_bytes(data) if data else None


def coupon_of_bytes(data: bytes) -> int:
    """Return the coupon of bytes, by their Murmur3 hash of 128 bits."""
    first = second = _SEED
    words = struct.unpack(f"<{len(data) // 16 * 2}Q", data[: len(data) // 16 * 16])
    for at in range(0, len(words), 2):
        first ^= _mixed(words[at], _C1, 31, _C2)
        first = ((_rotated(first, 27) + second) * 5 + 0x52DCE729) & _WORD
        second ^= _mixed(words[at + 1], _C2, 33, _C1)
        second = ((_rotated(second, 31) + first) * 5 + 0x38495AB5) & _WORD
    rest = data[len(data) // 16 * 16 :]
    first ^= _mixed(int.from_bytes(rest[:8], "little"), _C1, 31, _C2) ^ len(data)
    second ^= _mixed(int.from_bytes(rest[8:], "little"), _C2, 33, _C1) ^ len(data)
    first = (first + second) & _WORD
    second = (second + first) & _WORD
    first, second = _finished(first), _finished(second)
    first = (first + second) & _WORD
    second = (second + first) & _WORD
    return min(64 - second.bit_length(), 62) + 1 << ADDRESS_BITS | first & _ADDRESS


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & _WORD


def _mixed(word: int, before: int, by: int, after: int) -> int:
    return _rotated(word * before & _WORD, by) * after & _WORD


def _finished(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _WORD
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _WORD
    return word ^ word >> 33


def coupons_of_integers(values: Words) -> Words:
    """Return the coupons of integers, as `coupon_of` of each."""
    words = values.astype(np.int64).view(np.uint64)
    words = _rotated_words(words * np.uint64(_C1), 31) * np.uint64(_C2)
    second: Words = np.full(len(words), _SEED ^ 8, np.uint64)
    first = (words ^ second) + second
    second = second + first
    first, second = _finished_words(first), _finished_words(second)
    first = first + second
    second = second + first
    zeros = pl.Series(second).bitwise_leading_zeros().to_numpy().astype(np.int64)
    addresses = (first & np.uint64(_ADDRESS)).astype(np.int64)
    return (np.minimum(zeros, 62) + 1 << ADDRESS_BITS) | addresses


def _rotated_words(words: Words, by: int) -> Words:
    return (words << np.uint64(by)) | (words >> np.uint64(64 - by))


def _finished_words(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    words = (words ^ (words >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return words ^ (words >> np.uint64(33))


# --- sketches ----------------------------------------------------------------------------------------

_LISTED = 7
"""Number of coupons of the smallest sketches."""

_SET_FROM = 8
"""Least lg_k with a set of coupons between the list and the registers."""

_EMPTY, _COMPACT, _OUT_OF_ORDER = 4, 8, 16
_LIST, _SET, _REGISTERS = range(3)
_HLL_4, _HLL_6, _HLL_8 = range(3)
_FAMILY = 7


def capacity(lg_k: int) -> int:
    """Return the greatest number of coupons that a sketch lists."""
    return _LISTED if lg_k < _SET_FROM else (3 << lg_k - 3) // 4


@dataclass(frozen=True, slots=True)
class HllSketch:
    """Contents of a sketch.

    coupons: those of its values, or one for each register that is used. has_registers: which of both.
    in_order: the estimate of one that was made row by row.
    """

    lg_k: int = DEFAULT_LG_K
    coupons: Collection[int] | Words = ()
    has_registers: bool = False
    in_order: float | None = None

    def estimate(self) -> float:
        """Return the number of distinct values."""
        if not self.has_registers:
            return _of_coupons(len(self.coupons))
        if self.in_order is not None:
            return self.in_order
        return _of_registers(self.lg_k, _as_words(self.coupons) >> ADDRESS_BITS)

    def to_bytes(self) -> bytes:
        """Return the sketch in the format of Apache DataSketches, as a function of its set of coupons."""
        coupons, lg_k = self.coupons, self.lg_k
        if self.has_registers or len(coupons) > capacity(lg_k):
            return _with_registers(lg_k, coupons)
        packed = struct.pack(f"<{len(coupons)}I", *sorted(coupons))
        if len(coupons) <= _LISTED:
            flags = 0 if len(coupons) else _EMPTY
            head = bytes((2, 1, _FAMILY, lg_k, 3, flags, len(coupons), _HLL_8 << 2 | _LIST))
            return head + packed.ljust(32, b"\0")
        lg_size = max(5, (len(coupons) * 4 // 3).bit_length())
        head = bytes((3, 1, _FAMILY, lg_k, lg_size, _COMPACT, 0, _HLL_8 << 2 | _SET))
        return head + struct.pack("<I", len(coupons)) + packed


def _as_words(coupons: Collection[int] | Words) -> Words:
    return cast("Words", coupons if isinstance(coupons, np.ndarray) else np.fromiter(coupons, np.int64))


def _with_registers(lg_k: int, coupons: Collection[int] | Words) -> bytes:
    given, registers = _as_words(coupons), np.zeros(1 << lg_k, np.uint8)
    np.maximum.at(registers, given & len(registers) - 1, (given >> ADDRESS_BITS).astype(np.uint8))
    counts = np.bincount(registers, minlength=64).tolist()
    large, small = (sum(counts[rank] * 2.0**-rank for rank in part) for part in (range(32), range(32, 64)))
    head = bytes((10, 1, _FAMILY, lg_k, 0, _OUT_OF_ORDER, 0, _HLL_8 << 2 | _REGISTERS))
    return head + struct.pack("<3d2I", 0.0, large, small, counts[0], 0) + registers.tobytes()


def hll_sketch(data: bytes) -> HllSketch:
    """Read a sketch of Apache DataSketches. Raises `EvaluationError` for bytes that are none."""
    try:
        words, version, family, lg_k, lg_size, flags, count, mode = data[:8]
        valid = (version, family) == (1, _FAMILY) and MIN_LG_K <= lg_k <= MAX_LG_K
        mode, registers = mode & 3, mode >> 2
        if valid and mode == _REGISTERS and words == 10 and registers <= _HLL_8:
            in_order = None if flags & _OUT_OF_ORDER else struct.unpack_from("<d", data, 8)[0]
            ranks = _READERS[registers](data, 1 << lg_k, count)
            found = np.fromiter(ranks, np.int64, 1 << lg_k)
            used = np.flatnonzero(found)
            return HllSketch(lg_k, (found[used] << ADDRESS_BITS | used).tolist(), True, in_order)
        if valid and (mode, words) in ((_LIST, 2), (_SET, 3)):
            if mode == _SET:
                (count,) = struct.unpack_from("<I", data, 8)
            compact = flags & _COMPACT
            coupons = _coupons(data, 4 * words, count if compact or mode == _LIST else 1 << lg_size)
            if len(coupons) == count:
                return HllSketch(lg_k, coupons, False)
    except (ValueError, IndexError, struct.error):
        pass
    raise EvaluationError(
        f"{len(data)} bytes are not an HLL sketch",
        why="They do not have the format of Apache DataSketches.",
        fix="give what hll_sketch_agg, hll_union or hll_union_agg made",
    )


def _coupons(data: bytes, at: int, count: int) -> list[int]:
    """Return the coupons in a list or a table with gaps, each once."""
    return sorted({coupon for coupon in struct.unpack_from(f"<{count}I", data, at) if coupon})


_FIRST_REGISTER = 40


def _of_eight_bits(data: bytes, count: int, least: int) -> Sequence[int]:
    found = data[_FIRST_REGISTER : _FIRST_REGISTER + count]
    if len(found) < count:
        raise ValueError
    return found


def _of_six_bits(data: bytes, count: int, least: int) -> Iterator[int]:
    size = count * 3 // 4
    bits = int.from_bytes(_of_eight_bits(data, size, 0), "little")
    return (bits >> 6 * at & 63 for at in range(count))


def _of_four_bits(data: bytes, count: int, least: int) -> Iterator[int]:
    """Return ranks that are stored as the difference to the least one; those with a greater one follow."""
    found = _of_eight_bits(data, count // 2, 0)
    lg_size, compact, exceptions = data[4], data[5] & _COMPACT, struct.unpack_from("<I", data, 36)[0]
    number = exceptions if compact or not exceptions else 1 << lg_size
    further = _coupons(data, _FIRST_REGISTER + count // 2, number)
    ranks = {each & count - 1: each >> ADDRESS_BITS for each in further}
    for at in range(count):
        rank = found[at >> 1] >> (at & 1) * 4 & 15
        yield ranks[at] if rank == 15 else rank + least


_READERS: Any = {_HLL_4: _of_four_bits, _HLL_6: _of_six_bits, _HLL_8: _of_eight_bits}


# --- unions ------------------------------------------------------------------------------------------


def union(sketches: Iterable[HllSketch], *, any_lg_k: bool) -> HllSketch:
    """Return the sketch of the values of all sketches, the default one of no values if there are none.

    any_lg_k: their numbers of registers may differ, and the least one is that of the union; otherwise raises
    `EvaluationError`.
    """
    coupons: set[int] = set()
    sizes: set[int] = set()
    has_registers = False
    for sketch in sketches:
        coupons.update(sketch.coupons)
        sizes.add(sketch.lg_k)
        has_registers |= sketch.has_registers
    if len(sizes) > 1 and not any_lg_k:
        raise EvaluationError(
            f"sketches with different lgConfigK: {min(sizes)} and {max(sizes)}",
            why="A union has as many registers as its smallest sketch, so it is less exact than the others.",
            fix="allow it: hll_union(a, b, true), hll_union_agg(sketch, true)",
        )
    return HllSketch(min(sizes, default=DEFAULT_LG_K), coupons, has_registers)


def union_of_bytes(one: bytes, other: bytes, any_lg_k: bool) -> bytes:
    """Return the union of two sketches. Raises `EvaluationError`, also for bytes that are none."""
    return union((hll_sketch(one), hll_sketch(other)), any_lg_k=any_lg_k).to_bytes()


# --- estimates ---------------------------------------------------------------------------------------


def rounded_estimate(data: bytes) -> int:
    """Return the number of distinct values of a sketch. Raises `EvaluationError` for bytes that are none."""
    return floor(hll_sketch(data).estimate() + 0.5)


def _of_coupons(count: int) -> float:
    known = tables()["datasketches_hll"]
    return max(float(count), _interpolated(known["coupons"], known["of_coupons"], count))


def _of_registers(lg_k: int, ranks: Words) -> float:
    """Return the number of distinct values, of the ranks of the registers that are used."""
    size, used = 1 << lg_k, len(ranks)
    counts = enumerate(np.bincount(ranks).tolist())
    total = sum(count * 2.0**-rank for rank, count in counts) + (size - used)
    factor = {4: 0.673, 5: 0.697, 6: 0.709}.get(lg_k) or 0.7213 / (1 + 1.079 / size)
    raw = factor * size * size / total
    known = tables()["datasketches_hll"]
    estimates, step = known["estimates"][lg_k - MIN_LG_K], known["steps"][lg_k - MIN_LG_K]
    if raw < estimates[0]:
        return 0.0
    last = len(estimates) - 1
    if raw > estimates[last]:
        return raw * (step * last / estimates[last])
    corrected = _interpolated(estimates, range(0, step * len(estimates), step), raw)
    if corrected > 3 * size:
        return corrected
    linear = size * (_harmonic(size) - _harmonic(size - used)) if used < size else size * log(2 * size)
    threshold = {4: 0.718, 5: 0.672}.get(lg_k, 0.64) * size
    return corrected if (corrected + linear) / 2 > threshold else linear


def _interpolated(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Return the cubic polynomial through the four points around `x`, at `x`."""
    at = min(max(bisect_left(xs, x) - 2, 0), len(xs) - 4)
    near = range(at, at + 4)
    total = 0.0
    for one in near:
        part = ys[one]
        for other in near:
            if other != one:
                part *= (x - xs[other]) / (xs[one] - xs[other])
        total += part
    return total


@cache
def _harmonic(number: int) -> float:
    """Return the sum of 1/1, 1/2, ... to 1/number."""
    if number < 32:
        return sum(1 / n for n in range(1, number + 1))
    inverse = 1 / (number * number)
    return (
        log(number)
        + 0.57721566490153286
        + 0.5 / number
        - inverse / 12 * (1 - inverse / 10 * (1 - inverse * 10 / 21))
    )
