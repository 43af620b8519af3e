"""Encoding of plain data to bytes and back, for state and messages."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from functools import lru_cache, partial
from types import NoneType
from typing import TYPE_CHECKING, Any, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs]

from headrace.errors import CheckpointDamaged, NotPlainData
from headrace.expr.code_runtime import NAN
from headrace.state.marked_values import Erasable, Exact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SINGLE = frozenset({NoneType, bool, int, float, str, bytes, Decimal, date, datetime, timedelta})
_MANY = (tuple, frozenset)


def check_exact(value: object) -> None:
    """Raise `NotPlainData` for a value whose type a store would not preserve.

    Values that no store accepts at all are left to the codec.
    """
    kind = type(value)
    if kind in _SINGLE:
        return
    if kind in _MANY:
        for part in cast("tuple[object, ...]", value):
            check_exact(part)
    elif kind is dict:
        for key, part in cast("dict[object, object]", value).items():
            check_exact(key)
            check_exact(part)
    elif isinstance(value, (list, dict, bytearray, *_SINGLE, *_MANY)):
        _refuse(value)


def _refuse(value: object) -> None:
    kind = type(value)
    plain = {*_SINGLE, *_MANY, dict}
    stored_as = {list: tuple, bytearray: bytes}.get(kind) or next(c for c in kind.__mro__ if c in plain)
    raise NotPlainData(
        f"a {kind.__name__} cannot be stored where any value may stand: {value!r:.100}",
        why=f"It would come back as a {stored_as.__name__} when the run goes on.",
        fix="declare its type: returns= of a fold, carries= of a scan, or the function's return annotation;\n"
        "or keep numbers, text, tuples, dicts and frozensets, which come back as they are",
        type=kind.__name__,
    )


_msgpack: Any = msgpack
_BIG_INT, _DECIMAL, _DATE, _SET, _EXACTLY, _NAIVE, _ERASABLE, _SPAN = 1, 2, 3, 5, 6, 7, 8, 9
_EXACT = Context(prec=1000)
_START, _MICROSECOND = datetime(1970, 1, 1), timedelta(microseconds=1)
_DEEPEST = 16
"""Maximum nesting of sets. Decoding one level takes 40 kB of C stack; without a bound, a few kilobytes of
hostile bytes would crash the process.
"""
# Where an Erasable may begin: the head of an extension, and its code.
_may_hold_erasable = re.compile(rb"(?:[\xd4-\xd8]|\xc7.|\xc8..|\xc9....)\x08", re.DOTALL).search
# How either NaN ends. A search for a longer text takes ten times as long as one that begins with a rare byte.
_may_hold_nan = re.compile(rb"\xf8\x00{6}").search


_ext_type = partial(tuple.__new__, _msgpack.ExtType)
"""Makes an ExtType of code and bytes without its checks, which take longer than all else."""


def _extension(value: object, depth: int = 0) -> Any:
    kind = type(value)
    if kind is Decimal:
        return _decimal(value)
    if kind is date:
        return _day(value)
    match value:
        case frozenset() | Exact() | Erasable() if depth == _DEEPEST:
            raise NotPlainData(
                f"sets nested more than {_DEEPEST} deep cannot be stored",
                fix="nest them less deeply, or keep sorted tuples",
                type=type(value).__name__,
            )
        case int():
            return _ext_type((_BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)))
        case Decimal():
            return _decimal(value)
        case datetime() if value.tzinfo is not None:
            # Of a subclass: the packer itself takes plain ones.
            return _msgpack.Timestamp.from_datetime(value)
        case datetime():
            return _ext_type((_NAIVE, ((value - _START) // _MICROSECOND).to_bytes(8, "big", signed=True)))
        case date():
            return _day(value)
        case timedelta():
            micros = value // _MICROSECOND
            # Python's longest are beyond 64 bits.
            size = 8 if -(2**63) <= micros < 2**63 else 9
            return _ext_type((_SPAN, micros.to_bytes(size, "big", signed=True)))
        case frozenset():
            below = partial(_extension, depth=depth + 1)
            return _ext_type((_SET, _members(cast("frozenset[object]", value), below)))
        case Exact():
            check_exact(value.value)
            below = partial(_extension, depth=depth + 1)
            return _ext_type((_EXACTLY, _pack(below)(value.value)))
        case Erasable():
            below = partial(_extension, depth=depth + 1)
            return _ext_type((_ERASABLE, _pack(below)(value.value)))
        case _:
            raise NotPlainData(
                f"a {type(value).__name__} cannot be stored: {value!r:.100}",
                why="What an operator keeps between ticks is stored as plain data, never as Python objects.",
                fix="keep numbers, text, bytes, dates, tuples, lists, dicts or frozensets of these,\n"
                "or run without a checkpoint and without a bound of memory",
                type=type(value).__name__,
            )


def _decimal(value: object) -> Any:
    return _ext_type((_DECIMAL, str(value).encode()))


@lru_cache(1 << 14)  # 45 years, in 2 MB
def _day(value: date) -> Any:
    return _ext_type((_DATE, value.toordinal().to_bytes(4, "big")))


def _members(value: frozenset[object], extension: Callable[[object], Any]) -> bytes:
    """Concatenate the encoded members in byte order, since sets have no order."""
    pack = _pack(extension)
    return b"".join(sorted(map(pack, value)))


def _key_extension(value: object, depth: int = 0) -> Any:
    # Decimal("1.0") and Decimal("1.00") are one dict key, so they must be one key here too.
    if isinstance(value, Decimal):
        value = _EXACT.normalize(value) if value else Decimal(0)
    if isinstance(value, frozenset) and depth < _DEEPEST:
        below = partial(_key_extension, depth=depth + 1)
        return _ext_type((_SET, _members(cast("frozenset[object]", value), below)))
    return _extension(value, depth)


def _value_of(depth: int, code: int, data: bytes) -> object:
    if code == _BIG_INT:
        return int.from_bytes(data, "big", signed=True)
    if code == _DECIMAL:
        return Decimal(data.decode("ascii"))
    if code == _DATE:
        return date.fromordinal(int.from_bytes(data, "big"))
    if code == _NAIVE:
        return _START + timedelta(0, 0, int.from_bytes(data, "big", signed=True))
    if code == _SPAN and len(data) in (8, 9):
        return timedelta(0, 0, int.from_bytes(data, "big", signed=True))
    if code == _SET:
        members = _msgpack.Unpacker(**_unpacking(depth + 1), max_buffer_size=max(1, len(data)))
        members.feed(data)
        found = frozenset(members)
        if members.tell() != len(data):
            raise ValueError("a set is cut off")
        return found
    if code == _EXACTLY:
        return Exact(_msgpack.unpackb(data, **_unpacking(depth + 1)))
    if code == _ERASABLE:
        return Erasable(_msgpack.unpackb(data, **_unpacking(depth + 1)))
    raise ValueError(f"unknown extension {code}")


def _unpacking(depth: int) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise ValueError("sets nested too deeply")
    return {
        "use_list": False,
        "strict_map_key": False,
        "ext_hook": partial(_value_of, depth),
        "unicode_errors": "surrogatepass",
        # The format's own: they become datetimes in C, at a tenth of the cost of an extension.
        "timestamp": 3,
    }


_UNPACKING = _unpacking(0)


def value_encoder() -> Callable[[object], bytes]:
    """Create an encoder of values. One encoder must not be shared between threads.

    Equal values give equal bytes but for the order of dicts and the scale of
    decimals. It raises `NotPlainData`, a `TypeError`, for anything else.
    """
    return _pack(_extension)


def key_encoder() -> Callable[[object], bytes]:
    """Create an encoder of keys: like `value_encoder`, but equal keys of one type always give equal bytes."""
    return _pack(_key_extension)


def _pack(extension: Callable[[object], Any]) -> Callable[[object], bytes]:
    packer = _msgpack.Packer(default=extension, unicode_errors="surrogatepass", datetime=True)
    return cast("Callable[[object], bytes]", packer.pack)


def decode(data: bytes) -> Any:
    """Decode one value. Raises `CheckpointDamaged` for anything else."""
    try:
        value = _msgpack.unpackb(data, **_UNPACKING)
    except (ValueError, TypeError, ArithmeticError, RecursionError, _msgpack.UnpackException) as error:
        raise CheckpointDamaged(
            "bytes are not encoded state", why=f"{type(error).__name__}: {error}", file=None
        ) from error
    # msgpack has no hook for floats.
    return _with_one_nan(value) if _may_hold_nan(data) else value


def without_erasable(data: bytes) -> bytes:
    """Return an encoded value with each `Erasable` in its tuples erased. Raises `CheckpointDamaged`."""
    return value_encoder()(_erased(decode(data))) if _may_hold_erasable(data) else data


def _erased(value: Any) -> Any:
    if isinstance(value, Erasable):
        return Erasable(None)
    if isinstance(value, tuple):
        return tuple(map(_erased, cast("tuple[Any, ...]", value)))
    return value


def decode_each(pieces: Sequence[bytes]) -> list[Any]:
    """Decode a sequence of separately encoded values, faster than one by one. Raises `CheckpointDamaged`."""
    joined = b"".join(pieces)
    if _may_hold_nan(joined):
        return [decode(piece) for piece in pieces]
    unpacker = _msgpack.Unpacker(**_UNPACKING, max_buffer_size=max(1, len(joined)))
    unpacker.feed(joined)
    found: list[Any] = []
    end = 0
    try:
        for piece in pieces:
            found.append(unpacker.unpack())
            end += len(piece)
            if unpacker.tell() != end:
                break
        else:
            return found
    except (ValueError, TypeError, ArithmeticError, _msgpack.UnpackException):
        pass
    return [decode(piece) for piece in pieces]  # which says what is wrong


def _with_one_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value else NAN
    if isinstance(value, Exact):
        return Exact(_with_one_nan(value.value))
    if isinstance(value, Erasable):
        return Erasable(_with_one_nan(value.value))
    if isinstance(value, frozenset):
        return frozenset(_with_one_nan(v) for v in cast("frozenset[Any]", value))
    if isinstance(value, tuple):
        return tuple(_with_one_nan(v) for v in cast("tuple[Any, ...]", value))
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {_with_one_nan(k): _with_one_nan(v) for k, v in items}
    return value
