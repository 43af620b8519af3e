"""Row types as Spark types, and operations on Spark columns by the type of their values.

Spark distinguishes the zeros in grouping and join keys, but not when comparing values in `min`, `max` or a
sort: `representative` replaces equal values by one. Maps get their entries in the order of the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.expr.types import (
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Float32Type,
    Float64Type,
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
    holds_maps,
)
from headrace.expr.value_keys import has_representatives
from headrace.requirements import F
from headrace.requirements import spark_types as spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    ConvertMap: TypeAlias = Callable[[Column], Column]


def spark_schema(schema: Schema) -> spark.StructType:
    """Convert a row schema to a Spark schema."""
    return spark.StructType(
        [spark.StructField(f.name, spark_type(f.type), f.nullable) for f in schema.fields]
    )


def nullable_type(type: spark.DataType) -> spark.DataType:
    """Allow nulls in a type at any depth: Spark rejects casts to types that allow fewer nulls."""
    if isinstance(type, spark.StructType):
        return spark.StructType([spark.StructField(f.name, nullable_type(f.dataType)) for f in type.fields])
    if isinstance(type, spark.MapType):
        return spark.MapType(nullable_type(type.keyType), nullable_type(type.valueType))
    return spark.ArrayType(nullable_type(type.elementType)) if isinstance(type, spark.ArrayType) else type


_SPARK_TYPES: Mapping[type[DataType], Callable[[Any], spark.DataType]] = {
    BoolType: lambda type: spark.BooleanType(),
    BytesType: lambda type: spark.BinaryType(),
    DateType: lambda type: spark.DateType(),
    DecimalType: lambda type: spark.DecimalType(type.precision, type.scale),
    Float32Type: lambda type: spark.FloatType(),
    Float64Type: lambda type: spark.DoubleType(),
    Int8Type: lambda type: spark.ByteType(),
    Int16Type: lambda type: spark.ShortType(),
    Int32Type: lambda type: spark.IntegerType(),
    Int64Type: lambda type: spark.LongType(),
    IntervalType: lambda type: spark.DayTimeIntervalType(type.first, type.last),
    ListType: lambda type: spark.ArrayType(spark_type(type.element), type.nullable),
    MapType: lambda type: spark.MapType(spark_type(type.key), spark_type(type.value), type.nullable),
    StrType: lambda type: spark.StringType(),
    StructType: lambda type: spark_schema(type),
    TimestampNtzType: lambda type: spark.TimestampNTZType(),
    TimestampType: lambda type: spark.TimestampType(),
}


def spark_type(type: DataType) -> spark.DataType:
    """Convert a column type to a Spark type."""
    make = _SPARK_TYPES.get(type.__class__)
    if make is None:
        raise TypeError(f"no Spark type for {type}")
    return make(type)


def null_within(data_type: DataType, column: Column) -> Column | None:
    """Return the condition that a non-null value contains a forbidden null; None if it cannot."""
    match data_type:
        case StructType():
            found: list[Column] = []
            for field in data_type.fields:
                part = column.getField(field.name)
                if not field.nullable:
                    found.append(column.isNotNull() & part.isNull())
                deeper = null_within(field.type, part)
                if deeper is not None:
                    found.append(deeper)
            return reduce(lambda one, other: one | other, found) if found else None
        case ListType():
            return _null_within_list(data_type, column)
        case MapType():
            return null_within(data_type.entries, F.map_entries(column))
        case _:
            return None


def _null_within_list(data_type: ListType, column: Column) -> Column | None:
    deeper = null_within(data_type.element, F.lit(None))
    if data_type.nullable and deeper is None:
        return None

    def is_wrong(element: Column) -> Column:
        inside = null_within(data_type.element, element)
        if data_type.nullable:
            assert inside is not None
            return inside
        return element.isNull() if inside is None else element.isNull() | inside

    return F.exists(column, is_wrong)


def quoted(name: str) -> str:
    """Quote an identifier for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


# -- one value for equal ones -----------------------------------------------------------------------


def representative(type: DataType, column: Column) -> Column:
    """Replace -0.0 with 0.0 in a column, and maps with sorted ones, at any depth."""
    match type:
        case Float64Type():
            return column + F.lit(0.0)
        case Float32Type():
            return column + F.lit(0.0).cast("float")
        case StructType():
            for field in type.fields:
                if has_representatives(field.type):
                    part = representative(field.type, column.getField(field.name))
                    column = column.withField(f"`{field.name}`", part)
            return column
        case ListType() if has_representatives(type):
            return F.transform(column, lambda element: representative(type.element, element))
        case MapType():
            entries = representative(type.entries, F.map_entries(column))
            return F.map_from_entries(sorted_entry_column(type, entries))
        case _:
            return column


def sorted_entry_column(type: MapType, entries: Column) -> Column:
    """Sort the entries of a map by their keys."""
    if not holds_maps(type.value):
        return F.sort_array(entries)  # Keys differ, so values are not compared.
    return F.array_sort(entries, _by_key)


def _by_key(one: Column, other: Column) -> Column:
    a, b = one.getField("key"), other.getField("key")
    return F.when(a < b, F.lit(-1)).when(a > b, F.lit(1)).otherwise(F.lit(0))


def _as_it_is(column: Column) -> Column:
    return column


def hashable(type: DataType, column: Column) -> Column:
    """Replace a value by one that Spark can hash, equal for equal values: maps by sorted entries."""
    if not holds_maps(type):
        return column
    return rebuilt(type, representative(type, column), before=F.map_entries)


def from_hashable(type: DataType, column: Column) -> Column:
    """Return the representative of the value that `hashable` replaced."""
    return rebuilt(type, column, after=F.map_from_entries)


def rebuilt(
    type: DataType, column: Column, *, before: ConvertMap = _as_it_is, after: ConvertMap = _as_it_is
) -> Column:
    """Convert maps at any depth: `before` turns a map into entries, `after` turns converted entries back."""
    match type:
        case _ if not holds_maps(type):
            return column
        case StructType(fields):
            parts = (
                rebuilt(each.type, column.getField(each.name), before=before, after=after).alias(each.name)
                for each in fields
            )
            return F.when(column.isNotNull(), F.struct(*parts))
        case ListType(element):
            return F.transform(column, lambda each: rebuilt(element, each, before=before, after=after))
        case MapType():
            return after(rebuilt(type.entries, before(column), before=before, after=after))
        case _:
            raise TypeError(type)


def with_representatives(frame: DataFrame, schema: Schema) -> DataFrame:
    """Replace values by their representatives in the columns of `schema`; leave others unchanged."""
    floats = {field.name: field.type for field in schema.fields if has_representatives(field.type)}
    if not floats:
        return frame
    columns = {name: frame[quoted(name)] for name in frame.columns}
    return frame.select(
        *(
            representative(floats[name], column).alias(name) if name in floats else column
            for name, column in columns.items()
        )
    )
