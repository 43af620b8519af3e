"""Columns of functions of pandas and Arrow: conversion of values to what Spark gives a function, and back.

Conversions to and from pandas are PySpark's own, with Spark's defaults for the options of the session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from headrace.expr.row_classes import computed_schema, to_user
from headrace.expr.types import (
    BoolType,
    DataType,
    Field,
    IntegerType,
    ListType,
    MapType,
    Schema,
    StructType,
    parts_of,
)

Fields = tuple[Field, ...]


def numbered(types: Iterable[DataType]) -> Fields:
    """Return fields of these types, named as Spark names the arguments of functions."""
    return tuple(Field(f"_{at}", type, True) for at, type in enumerate(types))


# -- to columns --------------------------------------------------------------------------------


def to_batch(columns: Iterable[Sequence[Any]], fields: Fields) -> Any:
    """Convert columns of values, as users get them, to a batch of Arrow."""
    import pyarrow as pa

    schema = _arrow_schema(fields)
    arrays = [pa.array(column, type) for column, type in zip(columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def to_series(columns: Iterable[Sequence[Any]], fields: Fields, *, frames: bool = False) -> list[Any]:
    """Convert columns of values to series. frames: those of structs become frames of their fields."""
    from pyspark.sql.conversion import ArrowBatchTransformer

    return ArrowBatchTransformer.to_pandas(
        to_batch(columns, fields), timezone="UTC", schema=_spark_schema(fields), df_for_struct=frames
    )


def to_frame(row: Sequence[Any], fields: Fields) -> Any:
    """Convert a row to a frame, as a function of batches gets it."""
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
    """Convert a series, or for a struct also a frame, to an array of a type."""
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
    """Convert an array, cast to a type, to values as users return them."""
    from headrace.io.arrow import arrow_type, column_to_values

    return map(_user_value(type), zip(column_to_values(array.cast(arrow_type(type)), type)))


@cache
def _user_value(type: DataType) -> Callable[[tuple[Any]], Any]:
    return to_user(Schema((Field("value", type, True),), scalar=True))


# -- nulls -------------------------------------------------------------------------------------

_CHANGED_BY_NULLS = BoolType | IntegerType
"""In pandas, one null makes a series of integers one of floats, and one of booleans one of objects."""


def null_finder(type: DataType) -> Callable[[Any], object] | None:
    """Make a function that finds the nulls in a value on which its form in pandas depends; None if none can.

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
    """Return whether a value may hold arrays, of which one with a null changes the others."""
    if isinstance(type, ListType) and isinstance(type.element, _CHANGED_BY_NULLS):
        return True
    return any(map(_has_lists, parts_of(type)))


def _lists_with_nulls(type: DataType, value: Any, path: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Return the paths of lists that hold a null: all lists of one path become arrays of one type."""
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
