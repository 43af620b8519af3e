"""Conversion of values to and from those that Spark exchanges with Python functions.

Functions of rows get values in which times have no zone and are in UTC, and nested rows are Spark's `Row`, at
any depth. Functions of pandas and Arrow get columns; conversions to and from pandas are PySpark's own, with
Spark's defaults for the options of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache, singledispatch
from typing import Any, TypeAlias

from headrace.expr.code_runtime import float32
from headrace.expr.row_classes import computed_schema, to_user
from headrace.expr.types import (
    BoolType,
    DataType,
    Field,
    Float32Type,
    IntegerType,
    ListType,
    MapType,
    Schema,
    StructType,
    TimestampType,
    parts_of,
)

Convert: TypeAlias = "Callable[[Any], Any]"


@cache
def to_argument(type: DataType) -> Convert:
    """Return a function that converts a value, which may be null, to an argument."""
    return _nullable(_argument(type))


@cache
def from_result(type: DataType) -> Convert:
    """Return a function that converts a result, which may be null, to a value."""
    return _nullable(_value(type))


def _nullable(convert: Convert | None) -> Convert:
    if convert is None:
        return _same
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


@singledispatch
def _argument(type: DataType) -> Convert | None:
    return None


@_argument.register(TimestampType)
def _naive(type: TimestampType) -> Convert | None:
    return lambda value: value.replace(tzinfo=None)


@_argument.register(ListType)
def _elements(type: ListType) -> Convert | None:
    if _argument(type.element) is None:
        return None
    element = to_argument(type.element)
    return lambda values: list(map(element, values))


@_argument.register(MapType)
def _entries(type: MapType) -> Convert | None:
    if _argument(type.key) is None and _argument(type.value) is None:
        return None
    key, value = to_argument(type.key), to_argument(type.value)
    return lambda entries: {key(k): value(v) for k, v in entries.items()}


@_argument.register(StructType)
def _row(type: StructType) -> Convert | None:
    from pyspark.sql import Row

    make: Any = Row(*(field.name for field in type.fields))
    parts = [to_argument(field.type) for field in type.fields]
    return lambda values: make(*(part(value) for part, value in zip(parts, values, strict=True)))


@singledispatch
def _value(type: DataType) -> Convert | None:
    return None


@_value.register(TimestampType)
def _aware(type: TimestampType) -> Convert | None:
    def aware(value: Any) -> Any:
        is_naive = isinstance(value, datetime) and value.tzinfo is None
        return value.replace(tzinfo=UTC) if is_naive else value

    return aware


@_value.register(Float32Type)
def _short(type: Float32Type) -> Convert | None:
    return lambda value: float32(value) if isinstance(value, float) else value


@_value.register(ListType)
def _values(type: ListType) -> Convert | None:
    if _value(type.element) is None:
        return None
    element = from_result(type.element)
    return lambda values: list(map(element, values)) if isinstance(values, list | tuple) else values


@_value.register(MapType)
def _values_of_entries(type: MapType) -> Convert | None:
    if _value(type.key) is None and _value(type.value) is None:
        return None
    key, value = from_result(type.key), from_result(type.value)

    def entries(given: Any) -> Any:
        return {key(k): value(v) for k, v in given.items()} if isinstance(given, dict) else given

    return entries


@_value.register(StructType)
def _values_of_row(type: StructType) -> Convert | None:
    if all(_value(field.type) is None for field in type.fields):
        return None
    parts = {field.name: from_result(field.type) for field in type.fields}

    def row(given: Any) -> Any:
        if isinstance(given, dict):
            return {name: parts.get(name, _same)(value) for name, value in given.items()}
        if isinstance(given, tuple | list) and len(given) == len(parts):
            return tuple(part(value) for part, value in zip(parts.values(), given, strict=True))
        return given

    return row


Fields = tuple[Field, ...]


def numbered(types: Iterable[DataType]) -> Fields:
    """Return fields of these types, with the names that Spark gives to function arguments."""
    return tuple(Field(f"_{at}", type, True) for at, type in enumerate(types))


# -- to columns --------------------------------------------------------------------------------


def to_batch(columns: Iterable[Sequence[Any]], fields: Fields) -> Any:
    """Convert columns of values in user form to a batch of Arrow."""
    import pyarrow as pa

    schema = _arrow_schema(fields)
    arrays = [pa.array(column, type) for column, type in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def to_series(columns: Iterable[Sequence[Any]], fields: Fields, *, frames: bool = False) -> list[Any]:
    """Convert columns of values to series. frames: columns of structs become frames of their fields."""
    from pyspark.sql.conversion import ArrowBatchTransformer

    return ArrowBatchTransformer.to_pandas(
        to_batch(columns, fields), timezone="UTC", schema=_spark_schema(fields), df_for_struct=frames
    )


def to_frame(row: Sequence[Any], fields: Fields) -> Any:
    """Convert a row to a frame, as passed to a function of batches."""
    (frame,) = to_series([[tuple(row)]], numbered([StructType(fields)]), frames=True)
    return frame


@cache
def _arrow_schema(fields: Fields) -> Any:
    from headrace.io.arrow import arrow_schema

    return arrow_schema(computed_schema(fields))


@cache
def _spark_schema(fields: Fields) -> Any:
    from headrace.expr.spark_columns import spark_schema

    return spark_schema(computed_schema(fields))


# -- from columns ------------------------------------------------------------------------------


def from_pandas(made: Any, type: DataType) -> Any:
    """Convert a series, or a frame for a struct type, to an array of the type."""
    from pyspark.sql.conversion import PandasToArrowConversion

    batch = PandasToArrowConversion.convert(
        [made],
        _spark_schema(numbered([type])),
        timezone="UTC",
        safecheck=False,
        arrow_cast=True,
        assign_cols_by_name=True,
    )
    return batch.column(0)


def to_values(array: Any, type: DataType) -> Iterator[Any]:
    """Cast an array to a type, and convert it to values in user form."""
    from headrace.io.arrow import arrow_type, column_to_values

    return map(_user_value(type), zip(column_to_values(array.cast(arrow_type(type)), type)))


@cache
def _user_value(type: DataType) -> Callable[[tuple[Any]], Any]:
    return to_user(Schema((Field("value", type, True),), scalar=True))


# -- nulls -------------------------------------------------------------------------------------

_CHANGED_BY_NULLS = BoolType | IntegerType
"""In pandas, one null makes a series of integers one of floats, and one of booleans one of objects."""


def null_finder(type: DataType) -> Callable[[Any], object] | None:
    """Create a function that finds the nulls on which a value's pandas form depends; None if none matter.

    Values for which it returns the same may be in one series: each looks there as it does alone.
    """
    if isinstance(type, _CHANGED_BY_NULLS):
        return lambda value: value is None
    if isinstance(type, StructType):
        finders = [(at, find) for at, f in enumerate(type.fields) if (find := _of_field(f.type))]
        if not finders:
            return None
        return lambda row: tuple(find(None if row is None else row[at]) for at, find in finders)
    return _of_lists(type)


def _of_field(type: DataType) -> Callable[[Any], object] | None:
    # The columns of a frame are series as others are, but structs in them are dicts.
    return _of_lists(type) if isinstance(type, StructType) else null_finder(type)


def _of_lists(type: DataType) -> Callable[[Any], object] | None:
    return (lambda value: frozenset(_lists_with_nulls(type, value, ()))) if _has_lists(type) else None


def _has_lists(type: DataType) -> bool:
    """Return whether a value may contain arrays that change if one of them has a null."""
    if isinstance(type, ListType) and isinstance(type.element, _CHANGED_BY_NULLS):
        return True
    return any(map(_has_lists, parts_of(type)))


def _lists_with_nulls(type: DataType, value: Any, path: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Return the paths of lists with a null. All lists on one path become arrays of one type."""
    if value is None:
        return
    if isinstance(type, StructType):
        for at, (field, part) in enumerate(zip(type.fields, value, strict=True)):
            yield from _lists_with_nulls(field.type, part, (*path, at))
    elif isinstance(type, MapType):
        for part in value.values():
            yield from _lists_with_nulls(type.value, part, (*path, 0))
    elif isinstance(type, ListType):
        if isinstance(type.element, _CHANGED_BY_NULLS):
            if None in value:
                yield path
        else:
            for part in value:
                yield from _lists_with_nulls(type.element, part, (*path, 0))
