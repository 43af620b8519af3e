"""Fast path from user input to columns, taken if every value is plainly valid.

Row-by-row validation has a message for each mistake. The fast path checks whole columns against their types.
If a value is invalid, or might be, the result is None, and the rows are validated one by one as usual.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import cache, singledispatch
from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]

from headrace.columns.columns import WEIGHT, WEIGHT_COLUMN, Columns
from headrace.expr.functions.integer_columns import cut_to_step
from headrace.expr.polars_columns import NotLowered, carried_dtype, dtype_of, repeated
from headrace.expr.row_classes import CLASSES
from headrace.expr.types import (
    DataType,
    DateType,
    Float32Type,
    Float64Type,
    IntegerType,
    IntervalType,
    ListType,
    Schema,
    StrType,
    TimestampNtzType,
    TimestampType,
)

_arrow: Any = pa

if TYPE_CHECKING:
    Rows = list[tuple[Any, ...]]


def columns_of_frame(
    schema: Schema, append: bool, given: Any, *, unread: AbstractSet[str] = frozenset(), valid: bool = False
) -> Columns | None:
    """Convert a frame to internal columns; None unless they can hold it and every value is valid.

    unread: columns that nobody reads: they may be absent, or null although their fields are not nullable.
    valid:  it is a table of columns of the schema, and its values have been looked at before.
    """
    try:
        for field in schema.fields:
            carried_dtype(field.type)
    except NotLowered:
        return None
    if valid:
        frame: Any = pl.from_arrow(given, rechunk=False)  # pyright: ignore[reportUnknownMemberType]
        return _columns_of_valid(schema, append, frame, unread)
    try:
        if hasattr(given, "validate") and hasattr(given, "column_names"):
            frame = _frame_of_table(given, schema, unread)
        else:
            frame = given if isinstance(given, pl.DataFrame) else pl.DataFrame(given)
        return None if frame is None else _columns_of(schema, append, frame, unread)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None


def _columns_of_valid(schema: Schema, append: bool, frame: pl.DataFrame, unread: AbstractSet[str]) -> Columns:
    taken: list[pl.Series] = []
    for at, field in enumerate(schema.fields):
        if field.name in unread:
            taken.append(repeated(None, carried_dtype(field.type), frame.height).alias(str(at)))
            continue
        series = frame[field.name]
        if isinstance(field.type, TimestampType):
            series = series.dt.replace_time_zone(None)
        taken.append(series.cast(carried_dtype(field.type)).alias(str(at)))
    if not append:
        taken.append(frame[WEIGHT_COLUMN].alias(WEIGHT))
    return Columns(schema, append, pl.DataFrame(taken), unread=unread)


def _frame_of_table(table: Any, schema: Schema, unread: AbstractSet[str]) -> pl.DataFrame | None:
    """Convert a pyarrow table, without the columns in `unread`; None if its values do not match its types.

    Of those only the types are looked at, which takes no time.
    """
    names = table.column_names
    if len(set(names)) < len(names):
        return None
    # A frame without columns has no rows.
    passed = unread & set(names) if unread < set(names) else frozenset[str]()
    of = table.schema
    if not all(_takes(f.type, of.field(f.name).type) for f in schema.fields if f.name in passed):
        return None
    read = table.select([name for name in names if name not in passed]) if passed else table
    try:
        # Polars takes text for granted.
        read.validate(full=True)
    except ValueError:
        return None
    return cast("pl.DataFrame", pl.from_arrow(read, rechunk=False))  # pyright: ignore[reportUnknownMemberType]


@cache
def _takes(type: DataType, arrow: Any) -> bool:
    """Return whether a column of a type accepts an Arrow type."""
    nothing = cast("pl.Series", pl.from_arrow(_arrow.array([], arrow)))  # pyright: ignore[reportUnknownMemberType]
    return _accepted(type, nothing) is not None


def columns_of_values(schema: Schema, values: list[Any]) -> Columns | None:
    """Convert a list of bare values to one column; None unless each is plainly of the column's type."""
    (field,) = schema.fields
    kind = CLASSES.get(field.type)
    if kind is None or {*map(type, values)} != {kind}:
        return None
    try:
        series = pl.Series("0", values, dtype=dtype_of(field.type))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, TypeError, ValueError, OverflowError):
        return None
    return Columns(schema, True, pl.DataFrame([series]), lambda: list(zip(values)))


def _columns_of(
    schema: Schema, append: bool, frame: pl.DataFrame, unread: AbstractSet[str]
) -> Columns | None:
    names = frame.columns
    weighted = not append and WEIGHT_COLUMN in names and WEIGHT_COLUMN not in schema.names
    if weighted:
        names.remove(WEIGHT_COLUMN)
    own: Sequence[str] = names if schema.scalar and len(names) == 1 else schema.names
    absent = set(own) - set(names)
    if set(names) - set(own) or absent - unread:
        return None
    taken: list[pl.Series] = []
    for at, (field, name) in enumerate(zip(schema.fields, own, strict=True)):
        if name in absent:
            taken.append(repeated(None, carried_dtype(field.type), frame.height).alias(str(at)))
            continue
        series = _accepted(field.type, frame.get_column(name))
        if series is None or (series.null_count() and not field.nullable and name not in unread):
            return None
        taken.append(series.alias(str(at)))
    if not append:
        weights = frame[WEIGHT_COLUMN] if weighted else repeated(1, pl.Int64(), frame.height)
        if not weights.dtype.is_integer() or weights.null_count():
            return None
        taken.append((weights if weights.dtype == pl.Int64 else weights.cast(pl.Int64)).alias(WEIGHT))
    made = pl.DataFrame(taken)
    if weighted and not bool(made[WEIGHT].to_numpy().all()):
        made = made.filter(pl.col(WEIGHT) != 0)
    return Columns(schema, append, made, unread=unread)


@singledispatch
def _accepted(type: DataType, series: pl.Series) -> pl.Series | None:
    """Convert a column to its internal form; None if its Polars type admits invalid values."""
    return series if series.dtype == dtype_of(type) else None


@_accepted.register(ListType)
def _lists(type: ListType, series: pl.Series) -> pl.Series | None:
    if series.dtype != carried_dtype(type):
        return None
    values = series.filter(series.list.len() > 0).explode()
    if values.null_count() and not type.nullable:
        return None
    return None if _accepted(type.element, values) is None else series


@_accepted.register(IntegerType)
def _integers(type: IntegerType, series: pl.Series) -> pl.Series | None:
    dtype = dtype_of(type)
    if series.dtype == dtype:
        return series
    # A value that does not fit raises.
    return series.cast(dtype) if series.dtype.is_integer() else None


@_accepted.register(Float64Type)
def _floats(type: Float64Type, series: pl.Series) -> pl.Series | None:
    return series.cast(pl.Float64) if series.dtype.is_numeric() and not series.dtype.is_decimal() else None


@_accepted.register(Float32Type)
def _short_floats(type: Float32Type, series: pl.Series) -> pl.Series | None:
    return series.cast(pl.Float32) if series.dtype.is_float() else None


@_accepted.register(DateType)
def _dates(type: DateType, series: pl.Series) -> pl.Series | None:
    return series if series.dtype == pl.Date and _in_years(series) else None


@_accepted.register(StrType)
def _strings(type: StrType, series: pl.Series) -> pl.Series | None:
    if isinstance(series.dtype, pl.Categorical | pl.Enum):
        return series.cast(pl.String)
    return series if series.dtype == pl.String else None


@_accepted.register(TimestampType)
def _timestamps(type: TimestampType, series: pl.Series) -> pl.Series | None:
    dtype = series.dtype
    if not isinstance(dtype, pl.Datetime) or dtype.time_zone is None or dtype.time_unit == "ns":
        return None
    moments = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return moments.cast(pl.Datetime("us")) if _in_years(moments) else None


@_accepted.register(TimestampNtzType)
def _naive_timestamps(type: TimestampNtzType, series: pl.Series) -> pl.Series | None:
    dtype = series.dtype
    if not isinstance(dtype, pl.Datetime) or dtype.time_zone is not None or dtype.time_unit == "ns":
        return None
    return series.cast(pl.Datetime("us")) if _in_years(series) else None


@_accepted.register(IntervalType)
def _intervals(type: IntervalType, series: pl.Series) -> pl.Series | None:
    if series.dtype != pl.Duration("us"):
        return None
    whole = pl.select(cut_to_step(pl.lit(series), type.step) == pl.lit(series)).to_series().all()
    return series if whole else None


def _in_years(days: pl.Series) -> bool:
    """Return whether Python can represent all of these dates or timestamps."""
    numbers = days.cast(pl.Int64)
    least, most = cast("Any", numbers.min()), cast("Any", numbers.max())
    per_day = 1 if days.dtype == pl.Date else _PER_DAY[cast("pl.Datetime", days.dtype).time_unit]
    return least is None or (_FIRST_DAY * per_day <= least and most < (_LAST_DAY + 1) * per_day)


_FIRST_DAY, _LAST_DAY = ((date - datetime(1970, 1, 1)).days for date in (datetime.min, datetime.max))
_PER_DAY = {"ms": 86_400_000, "us": 86_400_000_000}
