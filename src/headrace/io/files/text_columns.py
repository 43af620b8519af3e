"""Blocks of JSON lines and CSV records as typed Arrow columns, with the meaning of `text_values`.

Arrow's casts are used where they agree with the grammar of `text_values`: they also accept "0x1F" as an
integer and "inf" as a float, and let decimals overflow. All other text is parsed value by value.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcv
import pyarrow.json as pj

from headrace.expr.types import (
    FLOAT64,
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float32Type,
    Float64Type,
    IntegerType,
    IntervalType,
    ListType,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.io.arrow import arrow_field, arrow_type, in_calendar, values_to_array
from headrace.io.files.csv_dialect import CsvDialect
from headrace.io.files.file_source import BOM
from headrace.io.files.json_values import json_decoder
from headrace.io.files.text_values import UnfitValue, parser_of

_compute: Any = pc
_INTEGER = b"0123456789-"
_DECIMAL = b"0123456789-+."
_DECIMAL_DIGITS = 38
_NUMBER = _DECIMAL + b"eE"
_HOUR = len("2001-12-31T23")
_ZONED_TIME = r"^.{10}[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d(:?\d\d)?)$"


def typed_column(texts: pa.Array, data_type: DataType) -> pa.Array:
    """Convert text, or null, to the Arrow type of a column type. Raises `UnfitValue` as `parse` does."""
    try:
        column = cast_text(data_type, texts)
    except pa.ArrowException:
        column = None
    return parsed_column(texts, data_type, parser_of(data_type)) if column is None else column


def parsed_column(texts: pa.Array, data_type: DataType, parse_text: Callable[[str], Any]) -> pa.Array:
    """Convert values one by one."""
    values = [None if text is None else parse_text(text) for text in texts.to_pylist()]
    return values_to_array(values, arrow_type(data_type))


@singledispatch
def cast_text(data_type: DataType, texts: pa.Array) -> pa.Array | None:
    """Convert text by a cast. Returns None or raises `ArrowException` if the result might be wrong."""
    raise TypeError(data_type)


@cast_text.register
def _(data_type: StrType, texts: pa.Array) -> pa.Array | None:
    return texts


@cast_text.register
def _(data_type: BytesType, texts: pa.Array) -> pa.Array | None:
    return texts.cast(pa.binary())


@cast_text.register
def _(data_type: BoolType, texts: pa.Array) -> pa.Array | None:
    lower = _compute.ascii_lower(texts)
    true = _compute.equal(lower, "true")
    return true if _all(_compute.or_(true, _compute.equal(lower, "false"))) else None


@cast_text.register
def _(data_type: IntegerType, texts: pa.Array) -> pa.Array | None:
    return texts.cast(arrow_type(data_type)) if _consists_of(_INTEGER, texts) else None


@cast_text.register
def _(data_type: Float64Type, texts: pa.Array) -> pa.Array | None:
    return texts.cast(pa.float64()) if _consists_of(_NUMBER, texts) else None


@cast_text.register
def _(data_type: Float32Type, texts: pa.Array) -> pa.Array | None:
    numbers = cast_text(FLOAT64, texts)
    return None if numbers is None else numbers.cast(pa.float32())


@cast_text.register
def _(data_type: DecimalType, texts: pa.Array) -> pa.Array | None:
    # Arrow's tables of powers of ten end with the digits that it keeps, and are read beyond their end.
    if not _consists_of(_DECIMAL, texts) or longest(texts) > _DECIMAL_DIGITS:
        return None
    # Too many digits before the point wrap around.
    limit = float(10 ** (data_type.precision - data_type.scale))
    fit = _compute.less(_compute.abs(texts.cast(pa.float64())), limit)
    return texts.cast(arrow_type(data_type)) if _all(fit) else None


@cast_text.register
def _(data_type: DateType, texts: pa.Array) -> pa.Array | None:
    days = texts.cast(pa.date32())
    return days if in_calendar(data_type, days) else None


@cast_text.register
def _(data_type: TimestampType, texts: pa.Array) -> pa.Array | None:
    # Casts also take hours without minutes. Only without a zone are these known by their length.
    try:
        if _compute.any(_compute.equal(_compute.binary_length(texts), _HOUR)).as_py():
            return None
        times = texts.cast(pa.timestamp("us")).cast(arrow_type(data_type))
    except pa.ArrowInvalid:
        if not _all(_compute.match_substring_regex(texts, _ZONED_TIME)):
            return None
        times = texts.cast(arrow_type(data_type))
    return times if in_calendar(data_type, times) else None


@cast_text.register
def _(data_type: TimestampNtzType, texts: pa.Array) -> pa.Array | None:
    # Hours without minutes are known by their length; with a zone, the cast fails.
    if _compute.any(_compute.equal(_compute.binary_length(texts), _HOUR)).as_py():
        return None
    try:
        times = texts.cast(arrow_type(data_type))
    except pa.ArrowInvalid:
        return None
    return times if in_calendar(data_type, times) else None


@cast_text.register
def _(data_type: IntervalType, texts: pa.Array) -> pa.Array | None:
    return None


def longest(texts: pa.Array) -> int:
    """Return the length of the longest text in bytes, 0 if there is none."""
    return _compute.max(_compute.binary_length(texts)).as_py() or 0


def _all(booleans: pa.Array) -> bool:
    return _compute.all(booleans).as_py() is not False


def _consists_of(characters: bytes, texts: pa.Array) -> bool:
    data = texts.buffers()[2]
    return data is None or not data.to_pybytes().translate(None, characters)


# --- JSON lines -----------------------------------------------------------------------------------

# Arrow reads JSON more leniently than Python: several objects on a line, objects over several lines, numbers
# and nesting of any length. Blocks for which this could make a difference are refused.


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
        """Convert a block of `ends` lines to a table; None if the result might be wrong."""
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
        except (pa.ArrowException, UnfitValue):
            return None
        return pa.Table.from_arrays(columns, schema=self._schema)


# --- JSON that Python reads alike -----------------------------------------------------------------


def _objects(block: bytes, ends: int) -> int:
    """Count the non-blank lines; return 0 if any does not begin and end like an object.

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
    """Check that a block is UTF-8, and that Python and Arrow agree on its numbers and nesting."""
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


# --- types of JSON columns ------------------------------------------------------------------------


@singledispatch
def _read_type(data_type: DataType) -> pa.DataType:
    """Choose the type to request from Arrow's reader."""
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


# --- values of JSON columns -----------------------------------------------------------------------


def _column(found: pa.Table, declared: Field) -> pa.Array:
    column = found.column(declared.name).combine_chunks()
    if column.null_count and not declared.nullable:
        raise UnfitValue(declared.name)
    return _declared(declared.type, column)


@singledispatch
def _declared(data_type: DataType, found: pa.Array) -> pa.Array:
    """Convert a column to its declared type. Raises `UnfitValue` if the result might be wrong."""
    return found


@_declared.register
def _(data_type: Float64Type, found: pa.Array) -> pa.Array:
    # An int of 400 digits is no float in Python, and -0 is an int.
    if _compute.any(_compute.is_inf(found)).as_py():
        raise UnfitValue("inf")
    if _compute.min(found.view(pa.int64())).as_py() == _NEGATIVE_ZERO:
        raise UnfitValue("-0.0")
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
        raise UnfitValue("null")
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
            raise UnfitValue(part.name)
        parts.append(_declared(part.type, found.field(at)))
    return pa.StructArray.from_arrays(
        parts,
        fields=[arrow_field(f) for f in data_type.fields],
        mask=found.is_null() if found.null_count else None,
    )


# --- CSV records ----------------------------------------------------------------------------------

# Arrow accepts text behind a closing quote and quotes that are never closed, so the quotes of a block are
# checked before.


class CsvColumns:
    """Parser of blocks of CSV records. positions: of the fields; None for fields not in the file."""

    def __init__(
        self,
        dialect: CsvDialect,
        width: int,
        fields: Sequence[Field],
        positions: Sequence[int | None],
    ) -> None:
        self._dialect = dialect
        self._names = [str(at) for at in range(width)]
        self._columns = list(zip(fields, positions, strict=True))
        self._schema = pa.schema([arrow_field(f) for f in fields])
        self._read = sorted({at for at in positions if at is not None} or {0})

    def table(self, block: bytes) -> pa.Table | None:
        """Convert a well-quoted block to a table of the fields; None if the result might be wrong."""
        if block.startswith(BOM):  # Arrow would leave it out
            return None
        limit = csv.field_size_limit()
        quoted = not self._dialect.is_plain(block)
        try:
            found = self._text(block, self._names if quoted else [self._names[at] for at in self._read])
            if max(map(longest, found.columns)) > limit or not (quoted or _lines_within(block, limit)):
                return None
            columns = [self._column(found, f, at) for f, at in self._columns]
        except (pa.ArrowException, UnfitValue):
            return None
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _text(self, block: bytes, names: list[str]) -> pa.Table:
        return pcv.read_csv(
            pa.BufferReader(block),
            read_options=pcv.ReadOptions(
                use_threads=False, block_size=len(block) + 1, column_names=self._names
            ),
            parse_options=pcv.ParseOptions(
                delimiter=self._dialect.sep,
                quote_char=self._dialect.quote or False,
                newlines_in_values=True,
            ),
            convert_options=pcv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=names,
                null_values=["", *self._dialect.null],
                strings_can_be_null=True,
            ),
        )

    def _column(self, found: pa.Table, declared: Field, at: int | None) -> pa.Array:
        if at is None:
            return pa.nulls(found.num_rows, self._schema.field(declared.name).type)
        texts = found.column(self._names[at]).combine_chunks()
        if texts.null_count and not declared.nullable:
            if self._dialect.null or not isinstance(declared.type, StrType | BytesType):
                raise UnfitValue(declared.name)
            texts = texts.fill_null("")
        return typed_column(texts, declared.type)


def _lines_within(block: bytes, most: int) -> bool:
    at = 0
    while len(block) - at > most:
        end = block.rfind(b"\n", at, at + most + 1)
        if end < 0:
            return False
        at = end + 1
    return True
