"""Conversion between rows, Arrow tables and Parquet part files: the only mapping of column types to Arrow.

Weighted rows (`weighted=True`) have their weight as last field, which is the last column of the table,
`weight: int64`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import singledispatch
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from headrace.expr.code_runtime import NAN
from headrace.expr.functions.intervals import micros_of
from headrace.expr.types import (
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float32Type,
    Float64Type,
    FloatingType,
    Int8Type,
    Int16Type,
    Int32Type,
    Int64Type,
    IntervalType,
    ListType,
    MapType,
    Schema,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.file_system import sync_file
from headrace.io.source import WEIGHT

_compute: Any = pc  # generated at import time, unseen by type checkers
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)

# --- types -------------------------------------------------------------------------


@singledispatch
def arrow_type(data_type: DataType) -> pa.DataType:
    """Map a column type to its Arrow type."""
    raise TypeError(data_type)


_PLAIN: dict[type[DataType], pa.DataType] = {
    BoolType: pa.bool_(),
    Int8Type: pa.int8(),
    Int16Type: pa.int16(),
    Int32Type: pa.int32(),
    Int64Type: pa.int64(),
    Float32Type: pa.float32(),
    Float64Type: pa.float64(),
    StrType: pa.string(),
    BytesType: pa.binary(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    TimestampNtzType: pa.timestamp("us"),
    IntervalType: pa.duration("us"),
}
for _class, _arrow in _PLAIN.items():
    arrow_type.register(_class, lambda _type, _arrow=_arrow: _arrow)


@arrow_type.register
def _(data_type: DecimalType) -> pa.DataType:
    return pa.decimal128(data_type.precision, data_type.scale)


@arrow_type.register
def _(data_type: StructType) -> pa.DataType:
    return pa.struct([arrow_field(f) for f in data_type.fields])


@arrow_type.register
def _(data_type: ListType) -> pa.DataType:
    # "element" is the name that Spark and the Parquet format give to it.
    return pa.list_(pa.field("element", arrow_type(data_type.element), nullable=data_type.nullable))


@arrow_type.register
def _(data_type: MapType) -> pa.DataType:
    value = pa.field("value", arrow_type(data_type.value), nullable=data_type.nullable)
    return pa.map_(pa.field("key", arrow_type(data_type.key), nullable=False), value)


def arrow_field(column: Field) -> pa.Field:
    return pa.field(column.name, arrow_type(column.type), nullable=column.nullable)


def arrow_schema(schema: Schema, *, weighted: bool = False) -> pa.Schema:
    """Build the Arrow schema of a stream's rows, with the weight as last column if `weighted`."""
    fields = [arrow_field(f) for f in schema.fields]
    if weighted:
        fields.append(pa.field(WEIGHT, pa.int64(), nullable=False))
    return pa.schema(fields)


# --- rows to tables ----------------------------------------------------------------


def rows_to_table(rows: Sequence[tuple[Any, ...]], schema: Schema, *, weighted: bool = False) -> pa.Table:
    """Convert valid internal rows to an Arrow table."""
    arrow = arrow_schema(schema, weighted=weighted)
    columns = list(zip(*rows)) if rows else [()] * len(arrow)
    arrays = [values_to_array(column, f.type) for column, f in zip(columns, arrow)]
    return pa.Table.from_arrays(arrays, schema=arrow)


def values_to_array(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """Convert valid internal values to a column."""
    try:
        return pa.array(values, type=arrow, from_pandas=False)
    except pa.ArrowInvalid:
        # Of intervals, Arrow refuses those within a day of the least, but takes them as microseconds.
        return pa.array(list(map(_spans_as_micros, values)), type=arrow, from_pandas=False)


def _spans_as_micros(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_spans_as_micros, cast("tuple[Any, ...]", value)))
    return micros_of(value) if isinstance(value, timedelta) else value


# --- valid values ------------------------------------------------------------------

_FIRST_DAY = 1 - _EPOCH.toordinal()
_LAST_DAY = date.max.toordinal() - _EPOCH.toordinal()
_DAY = 86_400_000_000


def is_valid(column: pa.Array, data_type: DataType) -> bool:
    """Check that a column of exactly the Arrow type of `data_type` has only values of that type.

    Arrow's text may be no UTF-8, its decimals may have too many digits, its calendar is longer than Python's.
    """
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return in_calendar(data_type, column)


@singledispatch
def in_calendar(data_type: DataType, column: pa.Array) -> bool:
    """Check that all dates and timestamps are in the years 1 to 9999."""
    return True


@in_calendar.register
def _(data_type: DateType, column: pa.Array) -> bool:
    return _within(column.view(pa.int32()), _FIRST_DAY, _LAST_DAY)


@in_calendar.register(TimestampType)
@in_calendar.register(TimestampNtzType)
def _(data_type: DataType, column: pa.Array) -> bool:
    return _within(column.view(pa.int64()), _FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1)


@in_calendar.register
def _(data_type: ListType, column: pa.Array) -> bool:
    return in_calendar(data_type.element, column.flatten())


@in_calendar.register
def _(data_type: MapType, column: pa.Array) -> bool:
    return in_calendar(data_type.entries, entries_of(column))


@in_calendar.register
def _(data_type: StructType, column: pa.Array) -> bool:
    return all(in_calendar(f.type, part) for f, part in zip(data_type.fields, column.flatten()))


def entries_of(maps: pa.Array) -> pa.Array:
    """Convert a column of maps to one of the lists of their entries."""
    entry = pa.struct([maps.type.key_field, maps.type.item_field])
    return maps.cast(pa.list_(pa.field("element", entry, nullable=False)))


def _within(numbers: pa.Array, low: int, high: int) -> bool:
    found = _compute.min_max(numbers).as_py()
    return found["min"] is None or (low <= found["min"] and found["max"] <= high)


# --- tables to rows ----------------------------------------------------------------

Restore = Callable[[Any], Any]


@singledispatch
def value_restorer(data_type: DataType) -> Restore | None:
    """Build a converter from non-null Arrow values to internal ones, or return None if none is needed."""
    return None


@value_restorer.register
def _(data_type: FloatingType) -> Restore | None:
    # A single NaN object makes rows with NaN compare equal.
    return lambda value: value if value == value else NAN


@value_restorer.register
def _(data_type: TimestampType) -> Restore | None:
    return lambda micros: _EPOCH + timedelta(0, 0, micros)


@value_restorer.register
def _(data_type: TimestampNtzType) -> Restore | None:
    return lambda micros: _LOCAL_EPOCH + timedelta(0, 0, micros)


@value_restorer.register
def _(data_type: IntervalType) -> Restore | None:
    return lambda micros: timedelta(0, 0, micros)


@value_restorer.register
def _(data_type: ListType) -> Restore | None:
    inner = nullable_restore(data_type.element)
    return tuple if inner is None else lambda values: tuple(map(inner, values))


@value_restorer.register
def _(data_type: StructType) -> Restore | None:
    parts = [(f.name, nullable_restore(f.type) or _same) for f in data_type.fields]
    return lambda struct: tuple(part(struct[name]) for name, part in parts)


@value_restorer.register
def _(data_type: MapType) -> Restore | None:
    key, value = (nullable_restore(each) or _same for each in (data_type.key, data_type.value))
    return lambda entries: tuple((key(k), value(v)) for k, v in entries)


def _same(value: Any) -> Any:
    return value


def nullable_restore(data_type: DataType) -> Restore | None:
    """Build a converter like `value_restorer` that also accepts None."""
    inner = value_restorer(data_type)
    return None if inner is None else lambda value: None if value is None else inner(value)


def _epoch_type(arrow: pa.DataType) -> pa.DataType:
    """Replace timestamps with integer microseconds, because Arrow's datetimes are ten times slower.

    So are its intervals, which are objects of pandas where that is installed.
    """
    if pa.types.is_timestamp(arrow) or pa.types.is_duration(arrow):
        return pa.int64()
    if pa.types.is_list(arrow):
        return pa.list_(arrow.value_field.with_type(_epoch_type(arrow.value_type)))
    if pa.types.is_map(arrow):
        fields = (f.with_type(_epoch_type(f.type)) for f in (arrow.key_field, arrow.item_field))
        return pa.map_(*fields)
    if pa.types.is_struct(arrow):
        return pa.struct([f.with_type(_epoch_type(f.type)) for f in arrow])
    return arrow


def column_to_values(column: pa.Array | pa.ChunkedArray, data_type: DataType) -> Iterable[Any]:
    """Convert a column of exactly the Arrow type of `data_type` to internal values."""
    epoch = _epoch_type(column.type)
    if epoch != column.type:
        column = column.cast(epoch)
    try:
        whole = convert_whole_column(data_type, column)
    except ImportError:  # Arrow runs without NumPy, too
        whole = None
    if whole is not None:
        return whole
    values = column.to_pylist()
    convert = nullable_restore(data_type)
    return values if convert is None else map(convert, values)


@singledispatch
def convert_whole_column(data_type: DataType, column: Any) -> Iterable[Any] | None:
    """Convert a column in one call, or return None if its type or values need conversion per value."""
    return None


@convert_whole_column.register
def _(data_type: FloatingType, column: Any) -> Iterable[Any] | None:
    return None if column.null_count or _compute.any(_compute.is_nan(column)).as_py() else column.to_pylist()


@convert_whole_column.register
def _(data_type: TimestampType, column: Any) -> Iterable[Any] | None:
    if column.null_count:
        return None
    return map(_EPOCH.__add__, column.to_numpy().astype("timedelta64[us]").astype(object))


@convert_whole_column.register
def _(data_type: DecimalType, column: Any) -> Iterable[Any] | None:
    # NumPy's objects are Python's decimals, a quarter as dear as Arrow's list of them.
    return _objects(column).tolist()


@convert_whole_column.register
def _(data_type: DateType, column: Any) -> Iterable[Any] | None:
    days = _compute.min_max(column.cast(pa.int32())).as_py()
    if days["min"] is not None and not (_FIRST_DAY <= days["min"] <= days["max"] <= _LAST_DAY):
        return None  # NumPy makes integers of them
    return _objects(column).astype(object).tolist()


def _objects(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        return column.to_numpy()
    return column.to_numpy(zero_copy_only=False)


def table_to_rows(
    table: pa.Table | pa.RecordBatch, schema: Schema, *, weighted: bool = False
) -> list[tuple[Any, ...]]:
    """Convert a table with exactly the columns of `arrow_schema(schema, weighted=...)` to internal rows."""
    columns = [column_to_values(table.column(f.name), f.type) for f in schema.fields]
    if weighted:
        columns.append(table.column(WEIGHT).to_pylist())
    return list(zip(*columns))


def with_weight(table: pa.Table, schema: Schema, *, known: bool = False) -> pa.Table:
    """Cast a table to the columns of `schema` and a weight: 1, or the last column if it is `known`."""
    arrow = arrow_schema(schema, weighted=True)
    one = pa.scalar(1, pa.int64())
    weights = table.column(-1) if known else pa.chunked_array([pa.repeat(one, table.num_rows)])
    columns = [table.column(f.name) for f in schema.fields]
    return pa.Table.from_arrays([*columns, weights], names=arrow.names).cast(arrow)


def with_all_columns(table: pa.Table, schema: Schema) -> pa.Table:
    """Add columns that readers skip because they are unused, as nulls."""
    for field in arrow_schema(schema):
        if field.name not in table.column_names:
            table = table.append_column(field.with_nullable(True), pa.nulls(len(table), field.type))
    return table


def without_zero_weights(table: pa.Table) -> pa.Table:
    """Leave out the rows whose weight, the last column, is 0."""
    there = _compute.not_equal(table.column(-1), 0)
    return table if _compute.all(there).as_py() else table.filter(there)


def known_weights(table: pa.Table) -> pa.Table | None:
    """Replace missing weights with 1. None if a weight is 0, which no row can have."""
    weights = table.column(WEIGHT).fill_null(1)
    if _compute.any(_compute.equal(weights, 0)).as_py():
        return None
    at = table.column_names.index(WEIGHT)
    return table.set_column(at, pa.field(WEIGHT, pa.int64(), nullable=False), weights)


def write_part(
    path: str | os.PathLike[str],
    rows: Sequence[tuple[Any, ...]] | pa.Table,
    schema: Schema,
    *,
    weighted: bool = True,
    durable: bool = False,
) -> None:
    """Write internal rows, or a table of them, to a new Parquet file in an existing folder.

    weighted: rows end with their weight, and the file has a column `weight`.
    durable:  sync the file to disk before returning.
    """
    # Not at the top, because Spark's tasks exchange tables without files.
    import pyarrow.parquet as pq

    table = rows if isinstance(rows, pa.Table) else rows_to_table(rows, schema, weighted=weighted)
    pq.write_table(table, path, compression="snappy")
    if durable:
        sync_file(Path(path))


def read_part(
    path: str | os.PathLike[str], schema: Schema, *, weighted: bool = True
) -> list[tuple[Any, ...]]:
    """Read the internal rows of a file that `write_part` wrote with the same schema."""
    import pyarrow.parquet as pq

    # ParquetFile, not read_table, which would turn a folder called tick=12 into a column.
    with pq.ParquetFile(path) as file:
        return table_to_rows(file.read(), schema, weighted=weighted)


def read_known_part(
    path: str | os.PathLike[str], schema: Schema, *, weighted: bool = True
) -> list[tuple[Any, ...]]:
    """Read a file like `read_part`. Raises `ValueError` unless it has exactly these columns."""
    import pyarrow.parquet as pq

    wanted = arrow_schema(schema, weighted=weighted)
    with pq.ParquetFile(path) as file:
        table = file.read()
    if [(f.name, f.type) for f in table.schema] != [(f.name, f.type) for f in wanted]:
        raise ValueError(f"it has {_listed(table.schema)}; the sink has {_listed(wanted)}")
    return table_to_rows(table.cast(wanted), schema, weighted=weighted)


def _listed(columns: pa.Schema) -> str:
    return ", ".join(f"{f.name}: {f.type}" for f in columns)
