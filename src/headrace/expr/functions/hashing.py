"""Hashes of values, equal to Spark's on every engine and machine.

`hash` is Spark's `xxhash64`, and `murmur3` its `hash`.

A hash is that of the bytes of each value, with each hash as the seed of the next, starting from seed 42;
null leaves the seed unchanged. Floats are hashed by their bits, with a single NaN and a single zero.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import singledispatch
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from xxhash import xxh64_intdigest

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import EPOCH, EXACT, utf8
from headrace.expr.function_records import function
from headrace.expr.functions.integer_columns import count_of, unscaled
from headrace.expr.hll_sketch import rounded_estimate, union_of_bytes
from headrace.expr.polars_columns import LoweredExpression, Lowering, NotLowered, dtype_of, either_condition
from headrace.expr.types import (
    BOOL,
    BYTES,
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
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Emitter,
    Function,
    GuardedSource,
    Mismatch,
    Signature,
)
from headrace.requirements import F, np, pl

if TYPE_CHECKING:
    from pyspark.sql import Column

SEED = 42
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_MAX_LONG_DIGITS = 18
_INT, _LONG, _FLOAT, _DOUBLE = map(struct.Struct, ("<I", "<Q", "<f", "<d"))

Hash = Callable[[Any, int], int]
"""Hashes a value, from a seed."""


@dataclass(frozen=True, slots=True)
class HashFamily:
    """Hash function over bytes. Integers are hashed as four or eight bytes.

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
        """Hash a timestamp as its microseconds since 1970."""
        return self.of_long((value - EPOCH) // _MICROSECOND, seed)

    def of_type(self, type: DataType) -> Hash:
        """Return the hash function for values of a type, nulls excluded."""
        return _hash_of(type, self)


def murmur3(data: bytes, seed: int) -> int:
    """Return Spark's Murmur3 hash of bytes: each byte after the last full word is a word of its own."""
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
    """Hash several values, possibly None, to a signed integer of the given width."""
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


# -- on columns -------------------------------------------------------------------------------


_P1, _P2, _P3, _P4, _P5 = (
    *(0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9),
    *(0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5),
)
_C1, _C2 = 0xCC9E2D51, 0x1B873593


Words: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
"""Unsigned integers, whose arithmetic wraps."""


@dataclass(frozen=True)
class _Family:
    """Hash function of integers, as four or eight bytes, and of bytes, and the type of its hashes."""

    of_int: Callable[[Words, Words], Words]
    of_long: Callable[[Words, Words], Words]
    of_bytes: Callable[[bytes, int], int]
    dtype: str
    signed: IntegerType


def _rotated(value: Words, by: int) -> Words:
    bits = value.itemsize * 8
    return (value << value.dtype.type(by)) | (value >> value.dtype.type(bits - by))


def _finished(value: Words, steps: Sequence[tuple[int, int]], last: int) -> Words:
    kind = value.dtype.type
    for by, factor in steps:
        value = (value ^ (value >> kind(by))) * kind(factor)
    return value ^ (value >> kind(last))


def _xx_finished(value: Words) -> Words:
    return _finished(value, ((33, _P2), (29, _P3)), 32)


def _xx_int(value: Words, seed: Words) -> Words:
    mixed = (seed + np.uint64(_P5 + 4)) ^ (value.astype(np.uint64) * np.uint64(_P1))
    return _xx_finished(_rotated(mixed, 23) * np.uint64(_P2) + np.uint64(_P3))


def _xx_long(value: Words, seed: Words) -> Words:
    turned = _rotated(value * np.uint64(_P2), 31) * np.uint64(_P1)
    mixed = _rotated((seed + np.uint64(_P5 + 8)) ^ turned, 27)
    return _xx_finished(mixed * np.uint64(_P1) + np.uint64(_P4))


def _murmur_mixed(word: Words, seed: Words) -> Words:
    word = _rotated(word * np.uint32(_C1), 15) * np.uint32(_C2)
    return _rotated(seed ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _murmur_finished(value: Words, length: int) -> Words:
    return _finished(value ^ np.uint32(length), ((16, 0x85EBCA6B), (13, 0xC2B2AE35)), 16)


def _murmur_int(value: Words, seed: Words) -> Words:
    return _murmur_finished(_murmur_mixed(value, seed), 4)


def _murmur_long(value: Words, seed: Words) -> Words:
    low, high = value.astype(np.uint32), (value >> np.uint64(32)).astype(np.uint32)
    return _murmur_finished(_murmur_mixed(high, _murmur_mixed(low, seed)), 8)


_XXHASH64 = _Family(_xx_int, _xx_long, XXHASH64.of_bytes, "uint64", INT64)
_MURMUR3 = _Family(_murmur_int, _murmur_long, MURMUR3.of_bytes, "uint32", INT32)


class _Width(Enum):
    """Form in which the values of a column are hashed."""

    INT = 4
    LONG = 8
    BYTES = 0


def _bits_of(a: LoweredExpression, type_: DataType) -> tuple[pl.Expr, _Width]:
    """Return the bits to hash, unsigned, or the bytes."""
    value = a.value
    match type_:
        case BoolType():
            return value.cast(pl.UInt32), _Width.INT
        case IntegerType() if type_.bits < 64:
            return value.cast(pl.Int32).reinterpret(dtype=pl.UInt32()), _Width.INT
        case DateType():
            return value.to_physical().reinterpret(dtype=pl.UInt32()), _Width.INT
        case IntegerType() | TimestampType() | TimestampNtzType() | IntervalType():
            return count_of(value).reinterpret(dtype=pl.UInt64()), _Width.LONG
        case DecimalType() if type_.precision <= _MAX_LONG_DIGITS:
            return unscaled(a).value.cast(pl.Int64).reinterpret(dtype=pl.UInt64()), _Width.LONG
        case Float64Type():
            return _one_zero_and_nan(value, pl.Float64(), 0x7FF8000000000000, pl.UInt64()), _Width.LONG
        case Float32Type():
            return _one_zero_and_nan(value, pl.Float32(), 0x7FC00000, pl.UInt32()), _Width.INT
        case StrType() | BytesType():
            return value.cast(pl.Binary), _Width.BYTES
        case _:
            raise NotLowered(f"a hash of a {type_} has no columnar form")


def _one_zero_and_nan(value: pl.Expr, dtype: pl.DataType, nan: int, unsigned: pl.DataType) -> pl.Expr:
    bits = value.cast(dtype).reinterpret(dtype=unsigned)
    return (
        pl.when(value.is_nan())
        .then(pl.lit(nan, dtype=unsigned))
        .when(value == 0.0)
        .then(pl.lit(0, dtype=unsigned))
        .otherwise(bits)
    )


def _hashed_columns(family: _Family) -> Lowering:
    """Lower to NumPy: in an expression, each step of a hash would repeat its input."""

    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        pairs = zip(arguments, call.arguments, strict=True)
        bits = [_bits_of(argument, term.type) for argument, term in pairs]
        dtype = dtype_of(family.signed)

        def of_columns(columns: Sequence[pl.Series]) -> pl.Series:
            seed: Words = np.full(max(map(len, columns)), SEED, family.dtype)
            for column, (_, width) in zip(columns, bits, strict=True):
                seed = np.where(column.is_null().to_numpy(), seed, _hashed(family, width, column, seed))
            return pl.Series(seed).reinterpret(dtype=dtype)

        value = pl.map_batches([of for of, _ in bits], of_columns, return_dtype=dtype, is_elementwise=True)
        fails = either_condition(*(a.fails for a in arguments))
        return LoweredExpression(value, family.signed.range, fails)

    return lowering


def _hashed(family: _Family, width: _Width, column: pl.Series, seed: Words) -> Words:
    if width is not _Width.BYTES:
        of_number = family.of_int if width is _Width.INT else family.of_long
        return of_number(column.fill_null(0).to_numpy(), seed)
    if len(column) < len(seed):  # a constant
        column = column.new_from_index(0, len(seed))
    values = zip(column.fill_null(b"").to_list(), seed.tolist(), strict=True)
    return np.array([family.of_bytes(*value) for value in values], family.dtype)


def _union_on_spark(call: CallTerm, arguments: Sequence[Column]) -> Column:
    # A union of Spark's depends on the order of both. Raising is left to it, since it does so only where its
    # value is wanted: a Python function runs for all rows, and has no annotations, which Spark would read.
    made = F.udf(lambda *values: _union_or_none(*values), "binary")(*arguments)
    return F.coalesce(made, F.call_function("hll_union", *arguments))


def _union_or_none(one: bytearray | None, other: bytearray | None, any_lg_k: bool | None) -> bytes | None:
    if one is None or other is None or any_lg_k is None:
        return None
    try:
        return union_of_bytes(bytes(one), bytes(other), any_lg_k)
    except EvaluationError:
        return None


NAMES: dict[str, Any] = {
    "x_hash": hash_values,
}

FUNCTIONS: tuple[Function, ...] = (
    function(
        "hash",
        types=_rule("hash", INT64),
        lazy=_hash(XXHASH64),
        arity=(1, None),
        catalyst="XxHash64",
        columns=_hashed_columns(_XXHASH64),
        spark="xxhash64",
        keeps_size=True,
    ),
    function(
        "murmur3",
        types=_rule("murmur3", INT32),
        lazy=_hash(MURMUR3),
        arity=(1, None),
        catalyst="Murmur3Hash",
        columns=_hashed_columns(_MURMUR3),
        spark="hash",
        keeps_size=True,
    ),
    function(
        "hll_sketch_estimate",
        "Number of distinct values of an HLL sketch, estimated.",
        (BYTES,),
        INT64,
        rounded_estimate,
        fallible=True,
        example="unhex('0201070c03000108cbd7c204')",
        catalyst="HllSketchEstimate",
        keeps_size=True,
    ),
    function(
        "hll_union",
        "Union of two HLL sketches, whose numbers of registers differ only if that is allowed.",
        (BYTES, BYTES, BOOL),
        BYTES,
        union_of_bytes,
        fallible=True,
        defaults=(False,),
        example="unhex('0201070c03000108cbd7c204'), unhex('0201070c03000108cbd7c204'), False",
        catalyst="HllUnion",
        spark=_union_on_spark,
    ),
)
