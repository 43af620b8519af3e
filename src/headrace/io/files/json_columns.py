"""Blocks of JSON lines as Arrow columns, with the meaning of `json_values`.

Arrow reads JSON more leniently than Python: several objects on a line, objects over several lines, numbers
and nesting of any length. Blocks for which this could make a difference are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headrace.expr.types import (
    FLOAT64,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float32Type,
    Float64Type,
    IntervalType,
    ListType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.io.arrow import arrow_field, arrow_type
from headrace.io.files.json_values import json_decoder
from headrace.io.files.text_columns import parsed_column, typed_column
from headrace.io.files.text_values import Unfit

_compute: Any = pc
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_MANY_DIGITS = 640
"""Fewer digits make an int in Python, however `sys.set_int_max_str_digits` is set."""
_SAMPLED = 32
_DEEP = 300
"""Levels of nesting that Python's parser takes for certain."""
_INF = re.compile(rb"Inf[\s,}\]]")
_NEGATIVE_ZERO = -(1 << 63)


class JsonColumns:
    """Parser of blocks of JSON lines for some fields."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = fields
        self._read = pa.schema([pa.field(f.name, _read_type(f.type)) for f in fields])
        self._schema = pa.schema([arrow_field(f) for f in fields])

    def table(self, block: bytes, ends: int) -> pa.Table | None:
        """Convert a block with so many ends of lines to a table, or return None if that is not certain."""
        lines = _objects(block, ends)
        if not lines or not _plain(block, lines):
            return None
        try:
            found = pj.read_json(
                pa.BufferReader(block),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
                parse_options=pj.ParseOptions(explicit_schema=self._read, unexpected_field_behavior="ignore"),
            )
            if found.num_rows != lines:
                return None
            columns = [_column(found, f) for f in self._fields]
        except (pa.ArrowException, Unfit):
            return None
        return pa.Table.from_arrays(columns, schema=self._schema)


# --- what Python reads alike -----------------------------------------------------------------


def _objects(block: bytes, ends: int) -> int:
    """Count the lines that are not blank, or return 0 if one does not begin and end as an object does.

    If all do, none holds the middle of an object: no brace can follow on a closing one within an object. So
    the block has as many objects as lines only if each line is one.
    """
    lines = ends + (not block.endswith(b"\n"))
    if block.startswith(b"{") and block.endswith((b"}", b"}\n")):
        # Most lines begin with the same name, and a longer text is found faster.
        for beginning in (block[: block.find(b'"', 2, 64) + 1] or b"{", b"{"):
            if block.count(b"}\n" + beginning) == lines - 1:
                return lines
    stripped = [text for line in block.split(b"\n") if (text := line.strip(b" \t\r"))]
    return len(stripped) if all(t.startswith(b"{") and t.endswith(b"}") for t in stripped) else 0


def _plain(block: bytes, lines: int) -> bool:
    """Check that a block is UTF-8, and that Python reads its numbers and its nesting as Arrow does."""
    if not block.isascii():
        try:
            block.decode()
        except UnicodeDecodeError:
            return False
    # The search for one byte is so fast that it pays off even if it seldom settles the matter.
    if (b"N" in block and b"-NaN" in block) or (b"I" in block and _INF.search(block)):
        return False
    # So many digits in a row are seen at every place that is looked at.
    sample = block[::_SAMPLED].translate(_DIGITS)
    if b"0" * (_MANY_DIGITS // _SAMPLED - 1) in sample and re.search(rb"[0-9]{%d}" % _MANY_DIGITS, block):
        return False
    if _openings(block) - lines < _DEEP:
        return True
    return all(len(line) < _DEEP or _openings(line) < _DEEP for line in block.split(b"\n"))


def _openings(text: bytes) -> int:
    return text.count(b"{") + (text.count(b"[") if b"[" in text else 0)


# --- types -----------------------------------------------------------------------------------


@singledispatch
def _read_type(data_type: DataType) -> pa.DataType:
    """Choose the type that Arrow's reader is asked for."""
    return arrow_type(data_type)


# Decimals that are numbers are refused: Arrow's reader goes beyond its tables for 1e-99.
@_read_type.register(DecimalType)
@_read_type.register(BytesType)
@_read_type.register(DateType)
@_read_type.register(TimestampType)
@_read_type.register(TimestampNtzType)
@_read_type.register(IntervalType)
def _(data_type: DataType) -> pa.DataType:
    return pa.string()


@_read_type.register
def _(data_type: Float32Type) -> pa.DataType:
    return pa.float64()


@_read_type.register
def _(data_type: ListType) -> pa.DataType:
    return pa.list_(_read_type(data_type.element))


@_read_type.register
def _(data_type: StructType) -> pa.DataType:
    return pa.struct([pa.field(f.name, _read_type(f.type)) for f in data_type.fields])


# --- values ----------------------------------------------------------------------------------


def _column(found: pa.Table, declared: Field) -> pa.Array:
    column = found.column(declared.name).combine_chunks()
    if column.null_count and not declared.nullable:
        raise Unfit(declared.name)
    return _declared(declared.type, column)


@singledispatch
def _declared(data_type: DataType, found: pa.Array) -> pa.Array:
    """Convert a column to its declared type. Raises `Unfit` if that is not certain to be right."""
    return found


@_declared.register
def _(data_type: Float64Type, found: pa.Array) -> pa.Array:
    # An int of 400 digits is no float in Python, and -0 is an int.
    if _compute.any(_compute.is_inf(found)).as_py():
        raise Unfit("inf")
    if _compute.min(found.view(pa.int64())).as_py() == _NEGATIVE_ZERO:
        raise Unfit("-0.0")
    return found


@_declared.register
def _(data_type: Float32Type, found: pa.Array) -> pa.Array:
    return _declared(FLOAT64, found).cast(pa.float32())


@_declared.register(DateType)
@_declared.register(TimestampType)
@_declared.register(TimestampNtzType)
@_declared.register(IntervalType)
@_declared.register(DecimalType)
def _(data_type: DataType, found: pa.Array) -> pa.Array:
    return typed_column(found, data_type)


@_declared.register
def _(data_type: BytesType, found: pa.Array) -> pa.Array:
    return parsed_column(found, data_type, json_decoder(data_type))


@_declared.register
def _(data_type: ListType, found: pa.Array) -> pa.Array:
    if found.values.null_count and not data_type.nullable:
        raise Unfit("null")
    elements = _declared(data_type.element, found.values)
    return pa.ListArray.from_arrays(
        found.offsets,
        elements,
        type=arrow_type(data_type),
        mask=found.is_null() if found.null_count else None,
    )


@_declared.register
def _(data_type: StructType, found: pa.Array) -> pa.Array:
    parts: list[pa.Array] = []
    for at, (part, visible) in enumerate(zip(data_type.fields, found.flatten())):
        if visible.null_count != found.null_count and not part.nullable:
            raise Unfit(part.name)
        parts.append(_declared(part.type, found.field(at)))
    return pa.StructArray.from_arrays(
        parts,
        fields=[arrow_field(f) for f in data_type.fields],
        mask=found.is_null() if found.null_count else None,
    )
