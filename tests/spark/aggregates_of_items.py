"""Every aggregate function, of the items of the tests of batch mode."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import headrace as hr
from headrace import col
from headrace.operators.aggregate.counts import DistinctAggregate
from headrace.operators.aggregate.percentiles import Percentile
from headrace.operators.aggregate.sums import NullOnError

AGGREGATES = {
    "rows": hr.count(),
    "names": hr.count(col.name),
    "prices": hr.sum(col.price),
    "price": hr.mean(col.price),
    "least": hr.min(col.name),
    "most": hr.max(col.key),
    "keys": hr.count_distinct(col.key),
    "first": hr.first(col.name, by=col.count),
    "last": hr.last(col.name, by=col.key),
    "sum_of_floats": hr.sum(col.key),
    "mean_of_floats": hr.mean(col.key),
    "mean_of_ints": hr.mean(col.count),
    "sum_of_ints": hr.sum(col.count % 1000),
    "all_names": hr.collect(col.name),
    "all_keys": hr.collect(col.key),
}
_SMALL = col.count % 1000
FURTHER = {
    "keys_and_names": hr.count_distinct(col.key, col.name),
    "sum_of_keys": hr.sum(col.key, distinct=True),
    "mean_of_keys": hr.mean(col.key, distinct=True),
    "sum_of_counts": hr.sum(_SMALL, distinct=True),
    "mean_of_counts": hr.mean(col.count, distinct=True),
    "sum_of_prices": hr.sum(col.price, distinct=True),
    "mean_of_prices": hr.mean(col.price, distinct=True),
    "different_keys": hr.collect(col.key, distinct=True),
    "middle": hr.median(col.key),
    "parts": hr.percentile(col.price, [0, 0.3, 1]),
    "part": hr.percentile(col.name, 0.4, discrete=True),
    "part_from_above": Percentile(col.count, (0.2, 0.9), discrete=True, descending=True),
    "part_of_different": hr.percentile(col.count, 0.7, distinct=True),
    "part_by_frequency": hr.percentile(col.key, [0.2, 0.5], frequency=_SMALL * _SMALL % 5),
    "tried_sum": NullOnError(hr.sum(_SMALL + (2**63 - 2000))),
    "tried_sum_of_different": DistinctAggregate(NullOnError(hr.sum(_SMALL + (2**63 - 2000)))),
    "tried_sum_of_prices": NullOnError(hr.sum(col.price)),
    "tried_mean": NullOnError(hr.mean(col.count)),
    "histogram": hr.histogram_numeric(col.key, 3),
    "histogram_of_prices": hr.histogram_numeric(col.price, 3),
    "histogram_of_times": hr.histogram_numeric(hr.functions.timestamp_micros(_SMALL), 2),
    "histogram_of_days": hr.histogram_numeric(hr.functions.date_from_unix_date(_SMALL.cast(hr.Int32)), 3),
    **{
        f"histogram_of_the_last_{name}": hr.histogram_numeric(hr.when(_SMALL > 1, value).otherwise(least), 3)
        for name, value, least in (
            ("time", hr.lit(datetime.max.replace(tzinfo=UTC)), datetime.min.replace(tzinfo=UTC)),
            ("local_time", hr.lit(datetime.max), datetime.min),
            ("decimal", hr.lit(Decimal("9" * 38)), Decimal("-" + "9" * 38)),
            ("fraction", hr.lit(Decimal(f"0.{'9' * 38}")), Decimal(f"-0.{'9' * 38}")),
        )
    },
    "histogram_of_different": hr.histogram_numeric(col.count, 4, distinct=True),
    "estimated_names": hr.approx_count_distinct(col.name),
    "estimated_keys": hr.approx_count_distinct(col.key, 0.3),
    "estimated_prices": hr.approx_count_distinct(col.price, 0.02),
    "sketch_of_names": hr.hll_sketch_agg(col.name),
    "sketch_of_counts": hr.hll_sketch_agg(col.count, 4),
    "mode": hr.mode(col.key),
    "greatest_mode": hr.mode(col.name, greatest=True),
    "text": hr.string_agg(col.name, "{'\\\\"),
    "ordered_text": hr.string_agg(col.name, ",", order_by=[col.key.desc(), col.price, col.count]),
    "different_text": hr.string_agg(col.name, distinct=True, order_by=col.name.desc()),
    "all_bits": hr.bit_and(col.count),
    "any_bits": hr.bit_or(col.count),
    "odd_bits": hr.bit_xor(col.count),
    "odd_bits_of_different": hr.bit_xor(col.count, distinct=True),
    "spread": hr.stddev(col.count),
    "spread_of_different": hr.variance(col.price, population=True, distinct=True),
    "third": hr.skewness(_SMALL),
    "fourth": hr.kurtosis(col.price),
    "together": hr.corr(col.key, col.count),
    "near": hr.covariance(_SMALL, col.price),
}
