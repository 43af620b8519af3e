"""Hashes of values, equal to Spark's on every engine and machine.

`hash` is Spark's `xxhash64`, and `murmur3` its `hash`.

A hash is that of the bytes of each value, with each hash as the seed of the next, starting from seed 42;
null leaves the seed unchanged. Floats are hashed by their bits, with a single NaN and a single zero.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import singledispatch
from itertools import chain
from typing import Any

from xxhash import xxh64_intdigest

from headrace.expr.code_runtime import EPOCH, utf8
from headrace.expr.decimal_arithmetic import EXACT
from headrace.expr.function_bases import Emitter, GuardedSource, LazyFunction
from headrace.expr.types import (
    BOOL,
    INT32,
    INT64,
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Float32Type,
    Float64Type,
    IntegerType,
    IntervalType,
    ListType,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
    holds_any,
    holds_maps,
)
from headrace.expr.typing_rules import NULL, Arguments, CallTerm, Function, Mismatch, Signature

SEED = 42
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_MAX_LONG_DIGITS = 18
_INT, _LONG, _FLOAT, _DOUBLE = map(struct.Struct, ("<I", "<Q", "<f", "<d"))

Hash = Callable[[Any, int], int]
"""Hashes a value, from a seed."""


@dataclass(frozen=True, slots=True)
class HashFamily:
    """Hash function, over bytes. Integers are hashed as four or eight of them.

    bits: of the hashes.
    """

    of_bytes: Callable[[bytes, int], int]
    bits: int

    def of_int(self, value: int, seed: int) -> int:
        """Hash an integer as four bytes."""
        return self.of_bytes(_INT.pack(value & 0xFFFFFFFF), seed)

    def of_long(self, value: int, seed: int) -> int:
        """Hash an integer as eight bytes."""
        return self.of_bytes(_LONG.pack(value & 0xFFFFFFFFFFFFFFFF), seed)

    def of_float(self, value: float, seed: int) -> int:
        """Hash a float as eight bytes."""
        if value != value:
            return self.of_long(0x7FF8000000000000, seed)
        return self.of_bytes(_DOUBLE.pack(value or 0.0), seed)

    def of_short_float(self, value: float, seed: int) -> int:
        """Hash a float as four bytes."""
        return self.of_bytes(_FLOAT.pack(value or 0.0) if value == value else _INT.pack(0x7FC00000), seed)

    def of_timestamp(self, value: datetime, seed: int) -> int:
        """Hash a time as its microseconds since 1970."""
        return self.of_long((value - EPOCH) // _MICROSECOND, seed)

    def of_type(self, type: DataType) -> Hash:
        """Return the hash function for values of a type, nulls excluded."""
        return _hash_of(type, self)


def murmur3(data: bytes, seed: int) -> int:
    """Return the Murmur3 of bytes as Spark has it: each byte behind the last four is a word of its own."""
    whole = len(data) & ~3
    rest = (byte - 256 if byte > 127 else byte for byte in data[whole:])
    for (word,) in chain(_INT.iter_unpack(data[:whole]), zip(rest)):
        word = word * 0xCC9E2D51 & 0xFFFFFFFF
        word = (word << 15 | word >> 17) * 0x1B873593 & 0xFFFFFFFF
        seed ^= word
        seed = ((seed << 13 | seed >> 19) * 5 + 0xE6546B64) & 0xFFFFFFFF
    seed ^= len(data)
    seed = (seed ^ seed >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    seed = (seed ^ seed >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return seed ^ seed >> 16


XXHASH64 = HashFamily(xxh64_intdigest, 64)
MURMUR3 = HashFamily(murmur3, 32)


@singledispatch
def _hash_of(type: DataType, family: HashFamily) -> Hash:
    raise TypeError(f"no hash of {type}")


@_hash_of.register(BoolType)
def _bool(type: BoolType, family: HashFamily) -> Hash:
    return family.of_int


@_hash_of.register(IntegerType)
def _integer(type: IntegerType, family: HashFamily) -> Hash:
    return family.of_long if type.bits == 64 else family.of_int


@_hash_of.register(Float64Type)
def _float64(type: Float64Type, family: HashFamily) -> Hash:
    return family.of_float


@_hash_of.register(Float32Type)
def _float32(type: Float32Type, family: HashFamily) -> Hash:
    return family.of_short_float


@_hash_of.register(DecimalType)
def _decimal(type: DecimalType, family: HashFamily) -> Hash:
    scale = type.scale

    def unscaled(value: Decimal) -> int:
        return int(value.scaleb(scale, EXACT))

    if type.precision <= _MAX_LONG_DIGITS:
        return lambda value, seed: family.of_long(unscaled(value), seed)
    return lambda value, seed: family.of_bytes(_big_endian(unscaled(value)), seed)


def _big_endian(value: int) -> bytes:
    """Return the shortest two's complement bytes of an integer, most significant first."""
    size = ((value if value >= 0 else ~value).bit_length() + 8) // 8
    return value.to_bytes(size, "big", signed=True)


@_hash_of.register(StrType)
def _str(type: StrType, family: HashFamily) -> Hash:
    return lambda value, seed: family.of_bytes(utf8(value), seed)


@_hash_of.register(BytesType)
def _bytes(type: BytesType, family: HashFamily) -> Hash:
    return family.of_bytes


@_hash_of.register(DateType)
def _date(type: DateType, family: HashFamily) -> Hash:
    return lambda value, seed: family.of_int(value.toordinal() - _EPOCH_DAY, seed)


@_hash_of.register(TimestampType)
def _timestamp(type: TimestampType, family: HashFamily) -> Hash:
    return family.of_timestamp


@_hash_of.register(TimestampNtzType)
def _timestamp_ntz(type: TimestampNtzType, family: HashFamily) -> Hash:
    return lambda value, seed: family.of_timestamp(value.replace(tzinfo=UTC), seed)


@_hash_of.register(IntervalType)
def _interval(type: IntervalType, family: HashFamily) -> Hash:
    return lambda value, seed: family.of_long(value // _MICROSECOND, seed)


@_hash_of.register(StructType)
def _struct(type: StructType, family: HashFamily) -> Hash:
    hashes = tuple(_hash_of(f.type, family) for f in type.fields)
    return lambda values, seed: _fold(zip(hashes, values, strict=True), seed)


@_hash_of.register(ListType)
def _list(type: ListType, family: HashFamily) -> Hash:
    one = _hash_of(type.element, family)
    return lambda values, seed: _fold(((one, v) for v in values), seed)


def _fold(parts: Iterable[tuple[Hash, Any]], seed: int) -> int:
    for one, value in parts:
        if value is not None:
            seed = one(value, seed)
    return seed


def hash_values(bits: int, hashes: tuple[Hash, ...], *values: Any) -> int:
    """Hash several values, possibly None, to a signed integer of that many bits."""
    h = _fold(zip(hashes, values, strict=True), SEED)
    return h - (1 << bits) if h >> (bits - 1) else h


def _rule(name: str, result: DataType) -> Callable[[Arguments, tuple[object, ...]], Signature]:
    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        if not arguments:
            raise Mismatch(f"{name} needs at least one value")
        types = tuple(BOOL if a.type == NULL else a.type for a in arguments)
        for found in types:
            if holds_maps(found):
                raise Mismatch(
                    f"{name} does not take {found}",
                    why="Maps with their entries in another order are equal, and Spark hashes none.",
                    fix="hash their sorted entries: array_sort(map_entries(col.m))",
                )
            if holds_any(found):
                raise Mismatch(
                    f"a value of type {found} has no hash that is the same everywhere",
                    fix="give the column a type in the row class",
                )
        return Signature(types, result, nullable=False)

    return rule


def _hash(family: HashFamily) -> Callable[[Emitter, CallTerm], GuardedSource]:
    def python(emitter: Emitter, call: CallTerm) -> GuardedSource:
        hashes = emitter.constant(tuple(family.of_type(a.type) for a in call.arguments))
        values = ", ".join(emitter.value(a) for a in call.arguments)
        return GuardedSource(f"x_hash({family.bits}, {hashes}, {values})")

    return python


NAMES: dict[str, Any] = {"x_hash": hash_values}

FUNCTIONS: tuple[Function, ...] = (
    LazyFunction("hash", _rule("hash", INT64), _hash(XXHASH64)),
    LazyFunction("murmur3", _rule("murmur3", INT32), _hash(MURMUR3)),
)
