"""Conversion of row types to Spark types."""

from __future__ import annotations

from functools import reduce, singledispatch
from typing import TYPE_CHECKING

from pyspark.sql import types as spark

from headrace.expr.types import (
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
    MapType,
    Schema,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.io.arrow import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import Column


__all__ = ["arrow_schema", "nullable_type", "spark_schema", "spark_type"]


def spark_schema(schema: Schema) -> spark.StructType:
    """Convert a row schema to a Spark schema."""
    return spark.StructType(
        [spark.StructField(f.name, spark_type(f.type), f.nullable) for f in schema.fields]
    )


def nullable_type(type: spark.DataType) -> spark.DataType:
    """Allow nulls in a type at any depth: Spark rejects casts to types that forbid more of them."""
    if isinstance(type, spark.StructType):
        return spark.StructType([spark.StructField(f.name, nullable_type(f.dataType)) for f in type.fields])
    if isinstance(type, spark.MapType):
        return spark.MapType(nullable_type(type.keyType), nullable_type(type.valueType))
    return spark.ArrayType(nullable_type(type.elementType)) if isinstance(type, spark.ArrayType) else type


@singledispatch
def spark_type(type: DataType) -> spark.DataType:
    """Convert a column type to a Spark type."""
    raise TypeError(f"no Spark type for {type}")


@spark_type.register(BoolType)
def _bool(type: BoolType) -> spark.DataType:
    return spark.BooleanType()


@spark_type.register(IntegerType)
def _integer(type: IntegerType) -> spark.DataType:
    return _OF_BITS[type.bits]()


_OF_BITS: dict[int, type[spark.DataType]] = {
    8: spark.ByteType,
    16: spark.ShortType,
    32: spark.IntegerType,
    64: spark.LongType,
}


@spark_type.register(Float64Type)
def _float64(type: Float64Type) -> spark.DataType:
    return spark.DoubleType()


@spark_type.register(Float32Type)
def _float32(type: Float32Type) -> spark.DataType:
    return spark.FloatType()


@spark_type.register(DecimalType)
def _decimal(type: DecimalType) -> spark.DataType:
    return spark.DecimalType(type.precision, type.scale)


@spark_type.register(StrType)
def _str(type: StrType) -> spark.DataType:
    return spark.StringType()


@spark_type.register(BytesType)
def _bytes(type: BytesType) -> spark.DataType:
    return spark.BinaryType()


@spark_type.register(DateType)
def _date(type: DateType) -> spark.DataType:
    return spark.DateType()


@spark_type.register(TimestampType)
def _timestamp(type: TimestampType) -> spark.DataType:
    return spark.TimestampType()


@spark_type.register(TimestampNtzType)
def _timestamp_ntz(type: TimestampNtzType) -> spark.DataType:
    return spark.TimestampNTZType()


@spark_type.register(IntervalType)
def _interval(type: IntervalType) -> spark.DataType:
    return spark.DayTimeIntervalType(type.first, type.last)


@spark_type.register(StructType)
def _struct(type: StructType) -> spark.DataType:
    return spark.StructType([spark.StructField(f.name, spark_type(f.type), f.nullable) for f in type.fields])


@spark_type.register(ListType)
def _list(type: ListType) -> spark.DataType:
    return spark.ArrayType(spark_type(type.element), type.nullable)


@spark_type.register(MapType)
def _map(type: MapType) -> spark.DataType:
    return spark.MapType(spark_type(type.key), spark_type(type.value), type.nullable)


@singledispatch
def null_within(data_type: DataType, column: Column) -> Column | None:
    """Return the condition that a non-null value contains a forbidden null; None if it cannot."""
    return None


@null_within.register(StructType)
def _(data_type: StructType, column: Column) -> Column | None:
    found: list[Column] = []
    for field in data_type.fields:
        part = column.getField(field.name)
        if not field.nullable:
            found.append(column.isNotNull() & part.isNull())
        deeper = null_within(field.type, part)
        if deeper is not None:
            found.append(deeper)
    return reduce(lambda one, other: one | other, found) if found else None


@null_within.register(ListType)
def _(data_type: ListType, column: Column) -> Column | None:
    from pyspark.sql import functions as f

    deeper = null_within(data_type.element, f.lit(None))
    if data_type.nullable and deeper is None:
        return None

    def is_wrong(element: Column) -> Column:
        inside = null_within(data_type.element, element)
        if data_type.nullable:
            assert inside is not None
            return inside
        return element.isNull() if inside is None else element.isNull() | inside

    return f.exists(column, is_wrong)


@null_within.register(MapType)
def _(data_type: MapType, column: Column) -> Column | None:
    from pyspark.sql import functions as f

    return null_within(data_type.entries, f.map_entries(column))


def quoted(name: str) -> str:
    """Return the name of a column or table in SQL, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"
