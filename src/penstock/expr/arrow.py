"""Row types as Arrow types: the common form of files and of Spark's Python workers."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any

from penstock.expr.types import (
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Float64Type,
    Int32Type,
    Int64Type,
    ListType,
    Schema,
    StrType,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns of a schema as an Arrow schema."""
    import pyarrow as pa

    return pa.schema([pa.field(f.name, arrow_type(f.type), f.nullable) for f in schema.fields])


def arrow_type(type: DataType) -> pa.DataType:
    """A column type as an Arrow type."""
    import pyarrow as pa

    return _arrow(type, pa)


@singledispatch
def _arrow(type: DataType, pa: Any) -> Any:
    raise TypeError(f"no Arrow type for {type}")


@_arrow.register(BoolType)
def _bool(type: BoolType, pa: Any) -> Any:
    return pa.bool_()


@_arrow.register(Int32Type)
def _int32(type: Int32Type, pa: Any) -> Any:
    return pa.int32()


@_arrow.register(Int64Type)
def _int64(type: Int64Type, pa: Any) -> Any:
    return pa.int64()


@_arrow.register(Float64Type)
def _float64(type: Float64Type, pa: Any) -> Any:
    return pa.float64()


@_arrow.register(DecimalType)
def _decimal(type: DecimalType, pa: Any) -> Any:
    return pa.decimal128(type.precision, type.scale)


@_arrow.register(StrType)
def _str(type: StrType, pa: Any) -> Any:
    return pa.string()


@_arrow.register(BytesType)
def _bytes(type: BytesType, pa: Any) -> Any:
    return pa.binary()


@_arrow.register(DateType)
def _date(type: DateType, pa: Any) -> Any:
    return pa.date32()


@_arrow.register(TimestampType)
def _timestamp(type: TimestampType, pa: Any) -> Any:
    return pa.timestamp("us", "UTC")


@_arrow.register(StructType)
def _struct(type: StructType, pa: Any) -> Any:
    return pa.struct([pa.field(f.name, _arrow(f.type, pa), f.nullable) for f in type.fields])


@_arrow.register(ListType)
def _list(type: ListType, pa: Any) -> Any:
    return pa.list_(pa.field("element", _arrow(type.element, pa), type.nullable))
