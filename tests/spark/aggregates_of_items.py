"""Every aggregate function, of the items of the tests of batch mode."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import penstock as ps
from penstock import col
from penstock.flow.aggregates import NullOnError, OfDistinct
from penstock.flow.value_aggregates import Percentile

AGGREGATES = {
    "rows": ps.count(),
    "names": ps.count(col.name),
    "prices": ps.sum(col.price),
    "price": ps.mean(col.price),
    "least": ps.min(col.name),
    "most": ps.max(col.key),
    "keys": ps.count_distinct(col.key),
    "first": ps.first(col.name, by=col.count),
    "last": ps.last(col.name, by=col.key),
    "sum_of_floats": ps.sum(col.key),
    "mean_of_floats": ps.mean(col.key),
    "mean_of_ints": ps.mean(col.count),
    "sum_of_ints": ps.sum(col.count % 1000),
    "all_names": ps.collect(col.name),
    "all_keys": ps.collect(col.key),
}
_SMALL = col.count % 1000
FURTHER = {
    "keys_and_names": ps.count_distinct(col.key, col.name),
    "sum_of_keys": ps.sum(col.key, distinct=True),
    "mean_of_keys": ps.mean(col.key, distinct=True),
    "sum_of_counts": ps.sum(_SMALL, distinct=True),
    "mean_of_counts": ps.mean(col.count, distinct=True),
    "sum_of_prices": ps.sum(col.price, distinct=True),
    "mean_of_prices": ps.mean(col.price, distinct=True),
    "different_keys": ps.collect(col.key, distinct=True),
    "middle": ps.median(col.key),
    "parts": ps.percentile(col.price, [0, 0.3, 1]),
    "part": ps.percentile(col.name, 0.4, discrete=True),
    "part_from_above": Percentile(col.count, (0.2, 0.9), discrete=True, descending=True),
    "part_of_different": ps.percentile(col.count, 0.7, distinct=True),
    "part_by_frequency": ps.percentile(col.key, [0.2, 0.5], frequency=_SMALL * _SMALL % 5),
    "tried_sum": NullOnError(ps.sum(_SMALL + (2**63 - 2000))),
    "tried_sum_of_different": OfDistinct(NullOnError(ps.sum(_SMALL + (2**63 - 2000)))),
    "tried_sum_of_prices": NullOnError(ps.sum(col.price)),
    "tried_mean": NullOnError(ps.mean(col.count)),
    "histogram": ps.histogram_numeric(col.key, 3),
    "histogram_of_prices": ps.histogram_numeric(col.price, 3),
    "histogram_of_times": ps.histogram_numeric(ps.functions.timestamp_micros(_SMALL), 2),
    "histogram_of_days": ps.histogram_numeric(ps.functions.date_from_unix_date(_SMALL.cast(ps.Int32)), 3),
    **{
        f"histogram_of_the_last_{name}": ps.histogram_numeric(ps.when(_SMALL > 1, value).otherwise(least), 3)
        for name, value, least in (
            ("time", ps.lit(datetime.max.replace(tzinfo=UTC)), datetime.min.replace(tzinfo=UTC)),
            ("local_time", ps.lit(datetime.max), datetime.min),
            ("decimal", ps.lit(Decimal("9" * 38)), Decimal("-" + "9" * 38)),
            ("fraction", ps.lit(Decimal(f"0.{'9' * 38}")), Decimal(f"-0.{'9' * 38}")),
        )
    },
    "histogram_of_different": ps.histogram_numeric(col.count, 4, distinct=True),
    "mode": ps.mode(col.key),
    "greatest_mode": ps.mode(col.name, greatest=True),
    "text": ps.string_agg(col.name, "{'\\\\"),
    "ordered_text": ps.string_agg(col.name, ",", order_by=[col.key.desc(), col.price, col.count]),
    "different_text": ps.string_agg(col.name, distinct=True, order_by=col.name.desc()),
    "all_bits": ps.bit_and(col.count),
    "any_bits": ps.bit_or(col.count),
    "odd_bits": ps.bit_xor(col.count),
    "odd_bits_of_different": ps.bit_xor(col.count, distinct=True),
    "spread": ps.stddev(col.count),
    "spread_of_different": ps.variance(col.price, population=True, distinct=True),
    "third": ps.skewness(_SMALL),
    "fourth": ps.kurtosis(col.price),
    "together": ps.corr(col.key, col.count),
    "near": ps.covariance(_SMALL, col.price),
}
