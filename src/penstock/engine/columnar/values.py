"""Values of a column on their way between rows and frames."""

from __future__ import annotations

from datetime import UTC
from functools import singledispatch
from typing import Any

import polars as pl

from penstock.engine.columnar.lowered import dtype_of
from penstock.expr.runtime import NAN
from penstock.expr.types import DataType, Float64Type, TimestampType


@singledispatch
def to_series(type: DataType, values: list[Any]) -> pl.Series:
    """A column of internal values. Raises what Polars raises for one it cannot hold (half a surrogate)."""
    return pl.Series(values=values, dtype=dtype_of(type), strict=True)


@to_series.register(TimestampType)
def _timestamps(type: TimestampType, values: list[Any]) -> pl.Series:
    return pl.Series(values=values, dtype=pl.Datetime("us", "UTC"), strict=True).dt.replace_time_zone(None)


@singledispatch
def from_series(type: DataType, series: pl.Series) -> list[Any]:
    """The internal values of a column."""
    return series.to_list()


@from_series.register(Float64Type)
def _floats(type: Float64Type, series: pl.Series) -> list[Any]:
    values = series.to_list()
    if series.is_nan().any():
        # Rows hold one NaN, so that tuples with it are equal.
        return [NAN if v != v else v for v in values]
    return values


@from_series.register(TimestampType)
def _moments(type: TimestampType, series: pl.Series) -> list[Any]:
    return [None if v is None else v.replace(tzinfo=UTC) for v in series.to_list()]
