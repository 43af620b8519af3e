"""Conversion of Parquet files: as whole columns of the declared types, or row by row if that fails.

A page is decompressed as a whole, and a few bytes of it may become gigabytes. pyarrow tells only the sizes
of columns, so the headers of pages are read here: structs in Thrift's compact protocol, whose third and
second fields are the sizes of the page with and without compression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import singledispatch
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from headrace.expr.functions.intervals import cut
from headrace.expr.types import (
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
    MapType,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.expr.value_keys import distinct_entries
from headrace.io.arrow import arrow_field, arrow_type, column_to_values, entries_of, is_valid
from headrace.io.files.file_reader import Block, ColumnMismatch, FileFormat, Record, near_miss, unreadable
from headrace.io.files.file_source import WHOLE, FilePart, parts_from
from headrace.io.files.json_files import checked_weight
from headrace.io.files.text_values import UnfitValue, exact_decimal, shortened
from headrace.io.source import BadRecord, Feed

_ROWS = 1 << 16
_ROWS_AT_ONCE = 1 << 13
"""Rows that are converted one by one if one of them does not fit."""


def blocks(file_format: FileFormat, path: Path, part: FilePart) -> Iterator[Block]:
    """Yield the records of row groups of a Parquet file. Implements `FileFormat.blocks`."""
    feed = file_format.feed
    try:
        # By default INT96, as Spark and Impala write it, is read as nanoseconds, in which years before 1677
        # and after 2262 silently become others.
        file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
    except pa.ArrowException as error:
        raise unreadable(feed.name, path, f"it is not Parquet: {error}") from error
    with file:
        present = check_columns(feed.name, path, file_format.fields, file.schema_arrow)
        for each in widened_columns(feed.name, path, present, file.schema_arrow):
            file_format.widened.setdefault(each.column, each)
        for field in file_format.fields:
            if field not in present:
                there = file.schema_arrow.names
                for missed in near_miss(feed.name, field, file_format.declared, there, str(path)):
                    file_format.widened.setdefault(missed.column, missed)
        groups = range(file.num_row_groups)[part.start : part.stop]
        row = sum(file.metadata.row_group(group).num_rows for group in range(part.start))
        if file_format.max_value_bytes is not None:
            names = {f.name for f in present}
            _check_pages(feed.name, file, path, groups, names, file_format.max_value_bytes)
        try:
            for batch in file.iter_batches(_ROWS, [*groups], columns=[f.name for f in present]):
                block = file_format.block_of(whole_table(batch, file_format.fields))
                yield _records(file_format, path, row, batch) if block is None else block
                row += batch.num_rows
        except pa.ArrowException as error:
            raise unreadable(feed.name, path, f"after row {row}: {error}") from error


def _check_pages(
    source: str, file: pq.ParquetFile, path: Path, groups: range, names: set[str], limit: int
) -> None:
    """Raise `UnreadableSource` for a page that is too large to be decompressed."""
    try:
        for name, size in large_pages(file, path, groups, names, limit):
            raise unreadable(
                source,
                path,
                f"a page of its column {name!r} has {size:,} bytes, more than max_value_bytes={limit:,}",
                "replace the file, move it out of the source's folder, or raise max_value_bytes",
            )
    except ValueError as error:
        raise unreadable(source, path, str(error)) from error


def parts(path: Path, size: int) -> list[FilePart]:
    """Divide a file into row groups of about `size` bytes together. Implements `FileFormat.parts`."""
    try:
        with pq.ParquetFile(path) as file:
            sizes = [file.metadata.row_group(at).total_byte_size for at in range(file.num_row_groups)]
    except pa.ArrowException:
        return [WHOLE]
    starts, filled = [0], 0
    for group, added in enumerate(sizes):
        if filled and filled + added > size:
            starts.append(group)
            filled = 0
        filled += added
    return parts_from(starts)


def count(path: Path, part: FilePart = WHOLE) -> int | None:
    """Read the number of rows from a file's footer. Implements `FileFormat.count`."""
    try:
        metadata = pq.read_metadata(path)
    except pa.ArrowException:
        return None
    groups = range(metadata.num_row_groups)[part.start : part.stop]
    return sum(metadata.row_group(group).num_rows for group in groups)


def whole_table(batch: pa.RecordBatch, fields: list[Field]) -> pa.Table | None:
    """Build a table of some fields from a batch, or return None if a value might not fit its type.

    A nullable column that is missing, as a weight may be, is null. Numbers are widened, integers of another
    width and text in another layout are converted.
    """
    columns: list[pa.Array] = []
    for f in fields:
        if f.name in batch.schema.names:
            column = _as_declared(batch.column(f.name), f.type)
        else:
            column = pa.nulls(batch.num_rows, arrow_type(f.type))
        if column is None or (column.null_count and not f.nullable) or not is_valid(column, f.type):
            return None
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=pa.schema([arrow_field(f) for f in fields]))


def _as_declared(column: Any, data_type: DataType) -> Any:
    """Return a column with the Arrow type of `data_type`; None if a value might not fit."""
    wanted = arrow_type(data_type)
    if column.type == wanted:
        return column
    is_number = isinstance(data_type, IntegerType | Float64Type) and _holds(data_type)(column.type)
    is_span = isinstance(data_type, IntervalType) and types.is_int64(column.type)
    is_text = isinstance(data_type, StrType) and _HOLDS[StrType](column.type)
    if not (is_number or is_span or is_text):
        return None
    try:
        # `is_valid` looks at the text itself.
        column.validate()
        return column.cast(wanted)
    except pa.ArrowInvalid:
        return None


def _records(file_format: FileFormat, path: Path, row: int, batch: pa.RecordBatch) -> Iterator[Record]:
    feed = file_format.feed
    weight = file_format.fields[len(feed.live_fields) :]
    for at in range(0, batch.num_rows, _ROWS_AT_ONCE):
        piece = batch.slice(at, _ROWS_AT_ONCE)
        yield from batch_records(feed, path, row + at, piece, [*feed.schema.fields, *weight])


def check_columns(source: str, path: Path, fields: list[Field], found: pa.Schema) -> list[Field]:
    """Match the file's fields to columns. Raises `UnreadableSource` for missing columns and wrong types."""
    present: list[Field] = []
    for declared in fields:
        count = found.names.count(declared.name)
        if count == 1:
            arrow = found.field(declared.name).type
            if not fits(declared.type, arrow):
                is_plain = not isinstance(declared.type, ListType | MapType | StructType)
                convert = f", and convert it in the flow (`{_cast(declared)}`)" if is_plain else ""
                raise unreadable(
                    source,
                    path,
                    f"its column {declared.name!r} is {arrow}, but {declared.type} is declared",
                    f"declare the column as the file has it{convert}; or correct the file",
                )
            present.append(declared)
        elif count or not declared.nullable:
            raise unreadable(
                source,
                path,
                f"it has {count or 'no'} column{'s' if count > 1 else ''} {declared.name!r}; "
                f"it has {', '.join(found.names)}",
                "correct the file, or declare the column `| None` if it may be missing",
            )
    return present


def _cast(field: Field) -> str:
    return f".with_columns({field.name}=col.{field.name}.cast({str(field.type)!r}))"


def widened_columns(
    source: str, path: Path, fields: list[Field], found: pa.Schema
) -> Iterator[ColumnMismatch]:
    """Yield the fields of a file that are narrower than declared."""
    for declared in fields:
        arrow = found.field(declared.name).type
        if _is_narrower(declared.type, arrow):
            yield ColumnMismatch(source, declared.name, str(arrow), str(declared.type), str(path))


def _is_narrower(data_type: DataType, arrow: pa.DataType) -> bool:
    arrow = plain(arrow)
    match data_type:
        case IntegerType(bits=bits):
            return types.is_integer(arrow) and arrow.bit_width < bits
        case Float64Type():
            return types.is_integer(arrow) or (types.is_floating(arrow) and arrow.bit_width < 64)
        case DecimalType():
            return types.is_integer(arrow) or (
                types.is_decimal(arrow)
                and (arrow.precision, arrow.scale) != (data_type.precision, data_type.scale)
                and arrow.scale <= data_type.scale
                and arrow.precision - arrow.scale <= data_type.precision - data_type.scale
            )
        case ListType():
            return not types.is_null(arrow) and _is_narrower(data_type.element, arrow.value_type)
        case MapType():
            return types.is_map(arrow) and _is_narrower(data_type.value, arrow.item_type)
        case StructType():
            names = [f.name for f in arrow] if types.is_struct(arrow) else []
            parts = [f for f in data_type.fields if names.count(f.name) == 1]
            return any(_is_narrower(f.type, arrow.field(f.name).type) for f in parts)
        case _:
            return False


# --- compatible Arrow types ------------------------------------------------------------


def plain(arrow: pa.DataType) -> pa.DataType:
    """Return the type without dictionary encoding."""
    return arrow.value_type if types.is_dictionary(arrow) else arrow


_HOLDS: dict[type[DataType], Callable[[pa.DataType], bool]] = {
    BoolType: types.is_boolean,
    IntegerType: types.is_integer,
    Float32Type: lambda t: types.is_float16(t) or types.is_float32(t),
    Float64Type: lambda t: types.is_floating(t) or types.is_integer(t),
    DecimalType: lambda t: types.is_decimal(t) or types.is_integer(t),
    StrType: lambda t: types.is_string(t) or types.is_large_string(t) or types.is_string_view(t),
    BytesType: lambda t: any(
        holds(t)
        for holds in (
            types.is_binary,
            types.is_large_binary,
            types.is_binary_view,
            types.is_fixed_size_binary,
        )
    ),
    DateType: types.is_date,
    TimestampType: types.is_timestamp,
    # Spark writes intervals as bare microseconds.
    IntervalType: lambda t: types.is_duration(t) or types.is_int64(t),
    TimestampNtzType: lambda t: types.is_timestamp(t) and t.tz is None,
}


def _holds(data_type: DataType) -> Callable[[pa.DataType], bool]:
    return next(holds for kind, holds in _HOLDS.items() if isinstance(data_type, kind))


@singledispatch
def fits(data_type: DataType, arrow: pa.DataType) -> bool:
    """Check whether an Arrow type can hold values of a column type."""
    return types.is_null(arrow) or _holds(data_type)(plain(arrow))


@fits.register
def _(data_type: ListType, arrow: pa.DataType) -> bool:
    is_list = types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow)
    return types.is_null(arrow) or (is_list and fits(data_type.element, arrow.value_type))


@fits.register
def _(data_type: MapType, arrow: pa.DataType) -> bool:
    if not types.is_map(arrow):
        return types.is_null(arrow)
    return fits(data_type.key, arrow.key_type) and fits(data_type.value, arrow.item_type)


@fits.register
def _(data_type: StructType, arrow: pa.DataType) -> bool:
    if not types.is_struct(arrow):
        return types.is_null(arrow)
    names = [f.name for f in arrow]
    return all(
        fits(f.type, arrow.field(f.name).type) if names.count(f.name) == 1 else f.nullable
        for f in data_type.fields
    )


# --- values ----------------------------------------------------------------------------


def batch_records(
    feed: Feed, path: Path, before: int, batch: pa.RecordBatch, fields: list[Field]
) -> Iterator[Record]:
    """Yield the records of a batch, converted in bulk if all fit, otherwise row by row."""
    rows = whole_batch(batch, fields)
    if rows is not None and feed.append and feed.decode is None:
        yield from rows
        return
    for at in range(batch.num_rows):
        row = batch.slice(at, 1)
        try:
            values = tuple(next(iter(column(row, f))) for f in fields) if rows is None else rows[at]
            if feed.decode is not None:
                yield feed.decode(values)
            else:
                yield values if feed.append else (*values[:-1], checked_weight(values[-1]))
        except UnfitValue as problem:
            yield BadRecord(str(path), before + at + 1, str(problem), shortened(row_text(row), 200))


def row_text(row: pa.RecordBatch) -> str:
    try:
        return str(row.to_pylist()[0])
    except (pa.ArrowException, ValueError, OverflowError):  # invalid text, or a date unknown to Python
        return ""


def whole_batch(batch: pa.RecordBatch, fields: list[Field]) -> list[tuple[Any, ...]] | None:
    """Convert all rows of a batch in bulk, or return None if some value does not fit."""
    try:
        return list(zip(*[column(batch, f) for f in fields]))
    except UnfitValue:
        return None


def column(batch: pa.RecordBatch, declared: Field) -> list[Any]:
    """Convert a column to internal values. Raises `UnfitValue` naming the column."""
    if declared.name not in batch.schema.names:
        return [None] * batch.num_rows
    try:
        return values(batch.column(declared.name), declared.type, nullable=declared.nullable)
    except (pa.ArrowException, UnicodeDecodeError, OverflowError, UnfitValue) as error:
        raise UnfitValue(f"{declared.name}: {error}") from None


def values(array: pa.Array, data_type: DataType, *, nullable: bool) -> list[Any]:
    """Convert an array of a type that `fits` to internal values. Raises `ArrowInvalid` or `UnfitValue`."""
    if array.null_count and not nullable:
        raise UnfitValue(f"it is null, but {data_type} is declared without null")
    if types.is_null(array.type):
        return [None] * len(array)
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return values_of(data_type, array)


@singledispatch
def values_of(data_type: DataType, array: pa.Array) -> list[Any]:
    return list(column_to_values(array.cast(arrow_type(data_type)), data_type))


@values_of.register
def _(data_type: DecimalType, array: pa.Array) -> list[Any]:
    found = array.to_pylist()
    if types.is_integer(array.type):
        return [None if value is None else exact_decimal(Decimal(value), data_type) for value in found]
    if array.type.scale == data_type.scale and array.type.precision <= data_type.precision:
        return found
    # One by one, because Arrow's cast to another scale wraps around if digits do not fit.
    return [None if value is None else exact_decimal(value, data_type) for value in found]


@values_of.register
def _(data_type: TimestampType, array: pa.Array) -> list[Any]:
    # No zone means UTC. Seconds beyond the calendar are refused.
    if array.type.unit == "ns":
        array = _whole_microseconds(array)
    array = array.cast(pa.timestamp(array.type.unit, tz="UTC"))
    return list(column_to_values(array.cast(arrow_type(data_type)), data_type))


@values_of.register
def _(data_type: TimestampNtzType, array: pa.Array) -> list[Any]:
    if array.type.unit == "ns":
        array = _whole_microseconds(array)
    return list(column_to_values(array.cast(arrow_type(data_type)), data_type))


@values_of.register
def _(data_type: IntervalType, array: pa.Array) -> list[Any]:
    if types.is_duration(array.type) and array.type.unit == "ns":
        array = pc.call_function("divide", [array.view(pa.int64()), 1000])  # which cuts toward zero
    spans = array.cast(arrow_type(data_type))
    return [
        None if span is None else cut(span, data_type.last) for span in column_to_values(spans, data_type)
    ]


def _whole_microseconds(array: pa.Array) -> pa.Array:
    """Drop fractions of a microsecond, before 1970 too, where Arrow's own cast would round up."""
    nanoseconds = array.view(pa.int64())
    microseconds = pc.call_function("divide", [nanoseconds, 1000])
    too_late = pc.call_function("greater", [pc.call_function("multiply", [microseconds, 1000]), nanoseconds])
    floor = pc.call_function("subtract", [microseconds, too_late.cast(pa.int64())])
    return floor.view(pa.timestamp("us"))


@values_of.register
def _(data_type: ListType, array: pa.Array) -> list[Any]:
    # flatten() leaves out what lies behind null lists, and their lengths are null.
    elements = iter(values(array.flatten(), data_type.element, nullable=data_type.nullable))
    lengths = pc.call_function("list_value_length", [array]).to_pylist()
    return [None if length is None else tuple(islice(elements, length)) for length in lengths]


@values_of.register
def _(data_type: MapType, array: pa.Array) -> list[Any]:
    maps = values_of(data_type.entries, entries_of(array))
    made = [None if entries is None else distinct_entries(entries) for entries in maps]
    if made.count(None) > maps.count(None):
        raise UnfitValue("a map has a key twice")
    return made


@values_of.register
def _(data_type: StructType, array: pa.Array) -> list[Any]:
    valid = array.is_valid()
    names = [f.name for f in array.type]
    parts: list[list[Any]] = []
    for part in data_type.fields:
        if part.name not in names:
            parts.append([None] * len(array))
            continue
        there = array.flatten()[names.index(part.name)]
        # Fields of a null struct are null whether nullable or not.
        if not part.nullable and there.filter(valid).null_count:
            raise UnfitValue(f"{part.name}: it is null, but {part.type} is declared without null")
        parts.append(values(there, part.type, nullable=True))
    return [row if there else None for row, there in zip(zip(*parts), valid.to_pylist())]


_HEADER = 1 << 16
"""Bytes that hold any header: writers cut the values of its statistics."""
_BINARY, _LIST, _SET, _STRUCT = 8, 9, 10, 12
_WIDTHS = {1: 0, 2: 0, 3: 1, 7: 8}
"""Bytes of values by type: booleans, which the type itself tells, a byte, a double."""


def large_pages(
    file: pq.ParquetFile, path: Path, groups: range, names: set[str], limit: int
) -> Iterator[tuple[str, int]]:
    """Yield the pages of some columns that have more than `limit` bytes, as column and size.

    Raises `ValueError` for a header that is none.
    """
    with path.open("rb") as content:
        for group in groups:
            chunks = file.metadata.row_group(group)
            for at in range(chunks.num_columns):
                chunk = chunks.column(at)
                name = chunk.path_in_schema.partition(".")[0]
                if name in names:
                    first = [chunk.data_page_offset, chunk.dictionary_page_offset]
                    start = min(offset for offset in first if offset is not None)
                    sizes = _page_sizes(content, start, start + chunk.total_compressed_size)
                    yield from ((name, size) for size in sizes if size > limit)


def _page_sizes(content: BinaryIO, start: int, stop: int) -> Iterator[int]:
    while start < stop:
        content.seek(start)
        header = _Compact(content.read(_HEADER))
        try:
            numbers = header.struct()
            size, compressed = numbers[2], numbers[3]
        except (IndexError, KeyError) as error:
            raise ValueError("a page has no header that can be read") from error
        if size < 0 or compressed < 0:
            raise ValueError("a page has a negative size")
        yield size
        start += header.at + compressed


class _Compact:
    """Reader of a struct in Thrift's compact protocol. at: position of the next byte."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, depth: int = 0) -> dict[int, int]:
        """Skip a struct; return its integer fields by field id."""
        if depth > 8:
            raise ValueError("a page has no header that can be read")
        numbers: dict[int, int] = {}
        field = 0
        while (byte := self._byte()) != 0:
            field = field + (byte >> 4) if byte >> 4 else _signed(self._number())
            kind = byte & 15
            if kind in (4, 5, 6):
                numbers[field] = _signed(self._number())
            else:
                self._skip(kind, depth)
        return numbers

    def _skip(self, kind: int, depth: int) -> None:
        if kind in _WIDTHS:
            self.at += _WIDTHS[kind]
        elif kind in (4, 5, 6):
            self._number()
        elif kind == _BINARY:
            length = self._number()
            self.at += length
        elif kind == _STRUCT:
            self.struct(depth + 1)
        elif kind in (_LIST, _SET):
            byte = self._byte()
            count = byte >> 4 if byte >> 4 < 15 else self._number()
            for _ in range(count):
                # Booleans have a byte each in lists.
                self.at += 1 if byte & 15 in (1, 2) else 0
                self._skip(byte & 15, depth + 1)
        else:
            raise ValueError("a page has no header that can be read")

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _number(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)
