"""Spark's `xxhash64` in Python: the same 64 bits on every engine.

XXH64 over the bytes of each value, each hash the seed of the next, the first
seed 42; null leaves the seed as it is. Floats are hashed by their bits with one
NaN and one zero.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import singledispatch
from typing import Any

from penstock.expr.runtime import EPOCH
from penstock.expr.types import (
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Float64Type,
    Int32Type,
    Int64Type,
    ListType,
    StrType,
    StructType,
    TimestampType,
)

_P1 = 0x9E3779B185EBCA87
_P2 = 0xC2B2AE3D27D4EB4F
_P3 = 0x165667B19E3779F9
_P4 = 0x85EBCA77C2B2AE63
_P5 = 0x27D4EB2F165667C5
_ALL = 0xFFFFFFFFFFFFFFFF
SEED = 42
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_MAX_LONG_DIGITS = 18

Hash = Callable[[Any, int], int]


def _rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _ALL


def _finish(h: int) -> int:
    h ^= h >> 33
    h = h * _P2 & _ALL
    h ^= h >> 29
    h = h * _P3 & _ALL
    return h ^ (h >> 32)


def _round(accumulator: int, lane: int) -> int:
    return _rotate((accumulator + lane * _P2) & _ALL, 31) * _P1 & _ALL


def hash_int(value: int, seed: int) -> int:
    """Hash of four bytes."""
    h = (seed + _P5 + 4) & _ALL
    h ^= (value & 0xFFFFFFFF) * _P1 & _ALL
    return _finish((_rotate(h, 23) * _P2 + _P3) & _ALL)


def hash_long(value: int, seed: int) -> int:
    """Hash of eight bytes."""
    h = (seed + _P5 + 8) & _ALL
    h ^= _round(0, value & _ALL)
    return _finish((_rotate(h, 27) * _P1 + _P4) & _ALL)


def hash_bytes(data: bytes, seed: int) -> int:
    """Hash of any number of bytes."""
    size, at = len(data), 0
    if size >= 32:
        h, at = _hash_stripes(data, seed)
    else:
        h = (seed + _P5) & _ALL
    h = (h + size) & _ALL
    while at + 8 <= size:
        (lane,) = struct.unpack_from("<Q", data, at)
        h = (_rotate(h ^ _round(0, lane), 27) * _P1 + _P4) & _ALL
        at += 8
    if at + 4 <= size:
        (word,) = struct.unpack_from("<I", data, at)
        h = (_rotate(h ^ (word * _P1 & _ALL), 23) * _P2 + _P3) & _ALL
        at += 4
    for byte in data[at:]:
        h = _rotate(h ^ (byte * _P5 & _ALL), 11) * _P1 & _ALL
    return _finish(h)


def _hash_stripes(data: bytes, seed: int) -> tuple[int, int]:
    lanes = [(seed + _P1 + _P2) & _ALL, (seed + _P2) & _ALL, seed, (seed - _P1) & _ALL]
    end = len(data) - len(data) % 32
    for at in range(0, end, 32):
        read = struct.unpack_from("<4Q", data, at)
        lanes = [_round(lane, word) for lane, word in zip(lanes, read, strict=True)]
    h = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _ALL
    for lane in lanes:
        h = ((h ^ _round(0, lane)) * _P1 + _P4) & _ALL
    return h, end


@singledispatch
def hash_of(type: DataType) -> Hash:
    """The hash of values of a type that are not null."""
    raise TypeError(f"no hash of {type}")


@hash_of.register(BoolType)
def _bool(type: BoolType) -> Hash:
    return hash_int


@hash_of.register(Int32Type)
def _int32(type: Int32Type) -> Hash:
    return hash_int


@hash_of.register(Int64Type)
def _int64(type: Int64Type) -> Hash:
    return hash_long


@hash_of.register(Float64Type)
def _float64(type: Float64Type) -> Hash:
    return _hash_float


def _hash_float(value: float, seed: int) -> int:
    if value != value:
        return hash_long(0x7FF8000000000000, seed)
    (bits,) = struct.unpack("<q", struct.pack("<d", value or 0.0))
    return hash_long(bits, seed)


@hash_of.register(DecimalType)
def _decimal(type: DecimalType) -> Hash:
    scale = type.scale

    def unscaled(value: Decimal) -> int:
        return int(value.scaleb(scale))

    if type.precision <= _MAX_LONG_DIGITS:
        return lambda value, seed: hash_long(unscaled(value), seed)
    return lambda value, seed: hash_bytes(_big_endian(unscaled(value)), seed)


def _big_endian(value: int) -> bytes:
    """The shortest two's complement of an integer."""
    size = ((value if value >= 0 else ~value).bit_length() + 8) // 8
    return value.to_bytes(size, "big", signed=True)


@hash_of.register(StrType)
def _str(type: StrType) -> Hash:
    return lambda value, seed: hash_bytes(value.encode(), seed)


@hash_of.register(BytesType)
def _bytes(type: BytesType) -> Hash:
    return hash_bytes


@hash_of.register(DateType)
def _date(type: DateType) -> Hash:
    return lambda value, seed: hash_int(value.toordinal() - _EPOCH_DAY, seed)


@hash_of.register(TimestampType)
def _timestamp(type: TimestampType) -> Hash:
    return _hash_timestamp


def _hash_timestamp(value: datetime, seed: int) -> int:
    return hash_long((value - EPOCH) // _MICROSECOND, seed)


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
    """The hash of several values as a signed 64-bit integer. Values may be None."""
    h = _fold(zip(hashes, values, strict=True), SEED)
    return h - (1 << 64) if h >> 63 else h


NAMES: dict[str, Any] = {"x_hash": hash_values}
