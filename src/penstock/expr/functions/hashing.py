"""`hash` function, equal to Spark's `xxhash64` on every engine and machine.

It is the XXH64 of the bytes of each value, with each hash as the seed of the next, starting from seed 42;
null leaves the seed unchanged. Floats are hashed by their bits, with a single NaN and a single zero.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import singledispatch
from typing import Any

from xxhash import xxh64_intdigest

from penstock.expr.code_runtime import EPOCH
from penstock.expr.function_bases import Emitter, GuardedSource, LazyFunction
from penstock.expr.types import (
    BOOL,
    INT64,
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Float32Type,
    Float64Type,
    IntegerType,
    ListType,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
    holds_any,
    holds_maps,
)
from penstock.expr.typing_rules import NULL, Arguments, CallTerm, Function, Mismatch, Signature

SEED = 42
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_MAX_LONG_DIGITS = 18
_INT, _LONG, _FLOAT, _DOUBLE = map(struct.Struct, ("<I", "<Q", "<f", "<d"))

Hash = Callable[[Any, int], int]


def hash_int(value: int, seed: int) -> int:
    """Hash an integer as four bytes."""
    return xxh64_intdigest(_INT.pack(value & 0xFFFFFFFF), seed)


def hash_long(value: int, seed: int) -> int:
    """Hash an integer as eight bytes."""
    return xxh64_intdigest(_LONG.pack(value & 0xFFFFFFFFFFFFFFFF), seed)


@singledispatch
def hash_of(type: DataType) -> Hash:
    """Return the hash function for values of a type, nulls excluded."""
    raise TypeError(f"no hash of {type}")


@hash_of.register(BoolType)
def _bool(type: BoolType) -> Hash:
    return hash_int


@hash_of.register(IntegerType)
def _integer(type: IntegerType) -> Hash:
    return hash_long if type.bits == 64 else hash_int


@hash_of.register(Float64Type)
def _float64(type: Float64Type) -> Hash:
    return _hash_float


def _hash_float(value: float, seed: int) -> int:
    if value != value:
        return hash_long(0x7FF8000000000000, seed)
    return xxh64_intdigest(_DOUBLE.pack(value or 0.0), seed)


@hash_of.register(Float32Type)
def _float32(type: Float32Type) -> Hash:
    return _hash_float32


def _hash_float32(value: float, seed: int) -> int:
    return xxh64_intdigest(_FLOAT.pack(value or 0.0) if value == value else _INT.pack(0x7FC00000), seed)


@hash_of.register(DecimalType)
def _decimal(type: DecimalType) -> Hash:
    scale = type.scale

    def unscaled(value: Decimal) -> int:
        return int(value.scaleb(scale))

    if type.precision <= _MAX_LONG_DIGITS:
        return lambda value, seed: hash_long(unscaled(value), seed)
    return lambda value, seed: xxh64_intdigest(_big_endian(unscaled(value)), seed)


def _big_endian(value: int) -> bytes:
    """Return the shortest two's complement bytes of an integer, most significant first."""
    size = ((value if value >= 0 else ~value).bit_length() + 8) // 8
    return value.to_bytes(size, "big", signed=True)


@hash_of.register(StrType)
def _str(type: StrType) -> Hash:
    return lambda value, seed: xxh64_intdigest(value.encode(), seed)


@hash_of.register(BytesType)
def _bytes(type: BytesType) -> Hash:
    return xxh64_intdigest


@hash_of.register(DateType)
def _date(type: DateType) -> Hash:
    return lambda value, seed: hash_int(value.toordinal() - _EPOCH_DAY, seed)


@hash_of.register(TimestampType)
def _timestamp(type: TimestampType) -> Hash:
    return _hash_timestamp


def _hash_timestamp(value: datetime, seed: int) -> int:
    return hash_long((value - EPOCH) // _MICROSECOND, seed)


@hash_of.register(TimestampNtzType)
def _timestamp_ntz(type: TimestampNtzType) -> Hash:
    return lambda value, seed: _hash_timestamp(value.replace(tzinfo=UTC), seed)


@hash_of.register(StructType)
def _struct(type: StructType) -> Hash:
    hashes = tuple(hash_of(f.type) for f in type.fields)
    return lambda values, seed: _fold(zip(hashes, values, strict=True), seed)


@hash_of.register(ListType)
def _list(type: ListType) -> Hash:
    one = hash_of(type.element)
    return lambda values, seed: _fold(((one, v) for v in values), seed)


def _fold(parts: Iterable[tuple[Hash, Any]], seed: int) -> int:
    for one, value in parts:
        if value is not None:
            seed = one(value, seed)
    return seed


def hash_values(hashes: tuple[Hash, ...], *values: Any) -> int:
    """Hash several values, possibly None, to a signed 64-bit integer."""
    h = _fold(zip(hashes, values, strict=True), SEED)
    return h - (1 << 64) if h >> 63 else h


def _rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    if not arguments:
        raise Mismatch("hash needs at least one value")
    types = tuple(BOOL if a.type == NULL else a.type for a in arguments)
    for found in types:
        if holds_maps(found):
            raise Mismatch(
                f"hash does not take {found}",
                why="Maps with their entries in another order are equal, and Spark hashes none.",
                fix="hash their sorted entries: array_sort(map_entries(col.m))",
            )
        if holds_any(found):
            raise Mismatch(
                f"a value of type {found} has no hash that is the same everywhere",
                fix="give the column a type in the row class",
            )
    return Signature(types, INT64, nullable=False)


def _hash(emitter: Emitter, call: CallTerm) -> GuardedSource:
    hashes = emitter.constant(tuple(hash_of(a.type) for a in call.arguments))
    values = ", ".join(emitter.value(a) for a in call.arguments)
    return GuardedSource(f"x_hash({hashes}, {values})")


NAMES: dict[str, Any] = {"x_hash": hash_values}

FUNCTIONS: tuple[Function, ...] = (LazyFunction("hash", _rule, _hash),)
