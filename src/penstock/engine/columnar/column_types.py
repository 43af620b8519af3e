"""Column types as Polars has them; which of ours have no counterpart."""

from __future__ import annotations

from functools import singledispatch

import polars as pl

from penstock.expr.types import (
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Float64Type,
    Int32Type,
    Int64Type,
    StrType,
    TimestampType,
)


@singledispatch
def polars_type(type: DataType) -> pl.DataType | None:
    """The Polars type of a column; None for those that stay in rows (nested values, any value)."""
    return None


@polars_type.register(BoolType)
def _bool(type: BoolType) -> pl.DataType:
    return pl.Boolean()


@polars_type.register(Int32Type)
def _int32(type: Int32Type) -> pl.DataType:
    return pl.Int32()


@polars_type.register(Int64Type)
def _int64(type: Int64Type) -> pl.DataType:
    return pl.Int64()


@polars_type.register(Float64Type)
def _float64(type: Float64Type) -> pl.DataType:
    return pl.Float64()


@polars_type.register(DecimalType)
def _decimal(type: DecimalType) -> pl.DataType:
    return pl.Decimal(type.precision, type.scale)


@polars_type.register(StrType)
def _str(type: StrType) -> pl.DataType:
    return pl.String()


@polars_type.register(BytesType)
def _bytes(type: BytesType) -> pl.DataType:
    return pl.Binary()


@polars_type.register(DateType)
def _date(type: DateType) -> pl.DataType:
    return pl.Date()


@polars_type.register(TimestampType)
def _timestamp(type: TimestampType) -> pl.DataType:
    # All timestamps are UTC; without a zone Polars has none to look up.
    return pl.Datetime("us")
