"""Histograms on Spark, as columns of lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.expr.functions.spark_casts import moment_in_utc, without_zone
from headrace.expr.spark_columns import spark_type
from headrace.expr.types import DATE, INT64, TIMESTAMP, TIMESTAMP_NTZ, DecimalType
from headrace.operators.aggregate.aggregation import AggregateArguments, NativeAggregates, measure
from headrace.operators.aggregate.histograms import LAST_MICROSECOND, Histogram, greatest_decimal

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headrace.expr.types import DataType

_BINS = "array<struct<x:double,y:double>>"


@measure.register(Histogram)
def _measure(aggregation: Histogram, to: AggregateArguments) -> NativeAggregates:
    bins, (type,) = aggregation.bins, to.types

    def histogram(values: Column) -> Column:
        # A bin is pending until a greater value comes, so that equal ones are in it before bins are merged.
        ordered = F.array_sort(F.transform(values, lambda value: _number(value, type).cast("double")))
        nothing = F.struct(
            F.array().cast(_BINS).alias("bins"),
            F.lit(None).cast("double").alias("x"),
            F.lit(0.0).alias("y"),
        )
        found = F.aggregate(ordered, nothing, lambda state, value: _with_value(state, value, bins), finished)
        return F.when(F.size(values) > 0, found)

    def finished(state: Column) -> Column:
        return F.transform(
            _with_pending(state, bins), lambda each: _bin(_value_of(each["x"], type), each["y"])
        )

    return NativeAggregates((to.values(),), histogram)


def _number(value: Column, type: DataType) -> Column:
    if type == DATE:
        return F.unix_date(value)
    if type in (TIMESTAMP, TIMESTAMP_NTZ):
        return F.unix_micros(moment_in_utc(value) if type == TIMESTAMP_NTZ else value)
    return value


def _value_of(x: Column, type: DataType) -> Column:
    """Return the value of a type with a number."""
    if type == DATE:
        return F.date_from_unix_date(x.cast("int"))
    if type in (TIMESTAMP, TIMESTAMP_NTZ):
        moment = F.timestamp_micros(F.least(x.cast("long"), F.lit(LAST_MICROSECOND)))
        return without_zone(moment) if type == TIMESTAMP_NTZ else moment
    if isinstance(type, DecimalType):
        most = greatest_decimal(type)
        # Spark's minus would round to 34 digits.
        beyond = F.when(x > 0, F.lit(most)).otherwise(F.lit(most.copy_negate()))
        return F.coalesce(x.try_cast(spark_type(type)), beyond)
    # The greatest integers are not floats.
    whole = F.when(x < 2.0**63, x.cast("long")).otherwise(F.lit(2**63 - 1)) if type == INT64 else x
    return whole.cast(spark_type(type))


def _with_value(state: Column, value: Column, bins: int) -> Column:
    more = F.struct(state["bins"].alias("bins"), state["x"].alias("x"), (state["y"] + 1.0).alias("y"))
    other = F.struct(_with_pending(state, bins).alias("bins"), value.alias("x"), F.lit(1.0).alias("y"))
    return F.when(state["x"].eqNullSafe(value), more).otherwise(other)


def _with_pending(state: Column, bins: int) -> Column:
    grown = F.concat(state["bins"], F.array(_bin(state["x"], state["y"])))
    # Within a function of elements, the grown list is computed once.
    merged = F.transform(F.array(grown), lambda each: _merged(each, bins))[0]
    return F.when(state["x"].isNull(), state["bins"]).otherwise(merged)


def _merged(found: Column, bins: int) -> Column:
    """Make one bin of the two closest ones, if they are too many."""

    def merge(at: Column) -> Column:
        one, other = F.get(found, at - 1), F.get(found, at)
        total = one["y"] + other["y"]
        x = one["x"] * (one["y"] / total) + other["x"] / total * other["y"]
        behind = F.slice(found, at + 2, F.lit(bins))
        return F.concat(F.slice(found, F.lit(1), at - 1), F.array(_bin(x, total)), behind)

    gaps = F.zip_with(F.slice(found, 1, bins), F.slice(found, 2, bins), lambda a, b: b["x"] - a["x"])
    closest = F.transform(F.array(gaps), lambda each: F.array_position(each, F.array_min(each)).cast("int"))
    return F.when(F.size(found) > bins, F.transform(closest, merge)[0]).otherwise(found)


def _bin(x: Column, y: Column) -> Column:
    return F.struct(x.alias("x"), y.alias("y"))
