"""Aggregates of distinct values, of values in order, and statistics, as rows come and go."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.expr.code_runtime import NAN
from headrace.operators.aggregate.aggregation import answer_of
from headrace.operators.aggregate.counts import DistinctAggregate
from headrace.operators.aggregate.exact_totals import Moment
from headrace.operators.aggregate.moments import Moments
from headrace.operators.aggregate.sums import NullOnError
from headrace.testing import check_ticks

if TYPE_CHECKING:
    from headrace.operators.aggregate.aggregation import Aggregation
    from headrace.testing import Backend


class Bid(NamedTuple):
    item: str | None
    price: int | None


class Point(NamedTuple):
    x: float | None
    y: float | None


def of_bids(backend: Backend, table: str, *aggregations: Aggregation) -> None:
    _check(backend, "bids", Bid, table, aggregations)


def of_points(backend: Backend, table: str, *aggregations: Aggregation) -> None:
    _check(backend, "points", Point, table, aggregations)


def _check(
    backend: Backend, name: str, rows: type[Any], table: str, aggregations: tuple[Aggregation, ...]
) -> None:
    def build(flow: hr.Flow) -> Any:
        named = {f"a{at}": each for at, each in enumerate(aggregations)}
        return flow.table(name, rows).group_by().agg(**named)

    check_ticks(backend, build, table)


def test_a_distinct_value_counts_from_its_first_copy_to_its_last(backend: Backend) -> None:
    of_bids(
        backend,
        """
        tick | bids            | out
        1    | a 3; b 3; c 5   | + 8 4.0 [3,5]
        2    | - a 3           |
        3    | - b 3; d null   | - 8 4.0 [3,5]; + 5 5.0 [5]
        4    | - c 5           | - 5 5.0 [5]; + null null []
    """,
        hr.sum(col.price, distinct=True),
        hr.mean(col.price, distinct=True),
        hr.collect(col.price, distinct=True),
    )


def test_distinct_rows_of_several_columns_have_no_null(backend: Backend) -> None:
    of_bids(
        backend,
        """
        tick | bids                          | out
        1    | a 3; a 3; a 4; null 3; a null | + 2
        2    | - a 3                         |
        3    | - a 3                         | - 2; + 1
    """,
        hr.count_distinct(col.item, col.price),
    )


def test_percentiles_lie_between_values_or_are_one(backend: Backend) -> None:
    of_bids(
        backend,
        """
        tick | bids               | out
        1    | a 1; b 2; c 4; d 9 | + 3.0 [1.0,9.0] 2 b
        2    | - c 4; e null      | - 3.0 [1.0,9.0] 2 b; + 2.0 [1.0,9.0] 2 b
        3    | +2 a 1; b 1        | - 2.0 [1.0,9.0] 2 b; + 1.0 [1.0,9.0] 1 b
    """,
        hr.median(col.price),
        hr.percentile(col.price, [0, 1]),
        hr.percentile(col.price, 0.5, discrete=True),
        hr.percentile(col.item, 0.5, discrete=True),
    )


def test_percentiles_of_nan_and_infinities(backend: Backend) -> None:
    of_points(
        backend,
        """
        tick | points                | out
        1    | null 0                | + null null
        2    | 1.0 0; nan 0          | - null null; + nan 1.0
        3    | -inf 0; inf 0; -inf 0 | - nan 1.0; + 1.0 -inf
    """,
        hr.median(col.x),
        hr.percentile(col.x, 0.4, discrete=True),
    )


def test_the_closest_bins_of_a_histogram_become_one(backend: Backend) -> None:
    def build(flow: hr.Flow) -> Any:
        made = flow.table("points", Point).group_by().agg(bins=hr.histogram_numeric(col.x, 2))
        return made.select(
            x=hr.transform(col.bins, lambda each: each.field("x")),
            y=hr.transform(col.bins, lambda each: each.field("y")),
        )

    check_ticks(
        backend,
        build,
        """
        tick | points               | out
        1    | null 0               | + null null
        2    | 1.0 0; 5.0 0; 5.0 0  | - null null; + [1.0,5.0] [1.0,2.0]
        3    | 2.0 0                | - [1.0,5.0] [1.0,2.0]; + [1.5,5.0] [2.0,2.0]
        4    | - 1.0 0              | - [1.5,5.0] [2.0,2.0]; + [2.0,5.0] [1.0,2.0]
    """,
    )


class Extreme(NamedTuple):
    moment: datetime
    whole: Annotated[Decimal, hr.DecimalType(38, 0)]
    part: Annotated[Decimal, hr.DecimalType(18, 18)]


@pytest.mark.parametrize(
    "row",
    [
        Extreme(datetime.max.replace(tzinfo=UTC), Decimal("9" * 38), Decimal(f"0.{'9' * 18}")),
        Extreme(datetime.min.replace(tzinfo=UTC), Decimal("-" + "9" * 38), Decimal(f"-0.{'9' * 18}")),
    ],
)
def test_the_center_of_values_next_to_the_greatest_float_is_the_last_value(row: Extreme) -> None:
    flow = hr.Flow("extremes")
    made = {name: hr.histogram_numeric(col[name], 2) for name in Extreme._fields}
    flow.sink("out", flow.table("rows", Extreme).group_by().agg(**made))
    *_, found = hr.Engine(flow).tick(rows=[hr.insert(row)])["out"]
    assert found.row == tuple([(value, 1.0)] for value in row)


def test_of_several_modes_the_least_or_the_greatest(backend: Backend) -> None:
    of_bids(
        backend,
        """
        tick | bids          | out
        1    | b 1; c 2      | + 1 c
        2    | a 2           | - 1 c; + 2 c
        3    | a 3; - b 1    | - 2 c; + 2 a
        4    | - a 2; - c 2; - a 3; a null | - 2 a; + null a
    """,
        hr.mode(col.price),
        hr.mode(col.item, greatest=True),
    )


def test_text_is_joined_in_its_order(backend: Backend) -> None:
    of_bids(
        backend,
        """
        tick | bids                | out
        1    | null 1              | + null null null null
        2    | b 1; c 2; a 2; +2 a 1 | - null null null null; + a,a,a,b,c acaab aabac cba
        3    | - a 2; d null       | - a,a,a,b,c acaab aabac cba; + a,a,b,c,d caabd daabc dcba
    """,
        hr.string_agg(col.item, ","),
        hr.string_agg(col.item, order_by=col.price.desc()),
        hr.string_agg(col.item, order_by="price"),
        hr.string_agg(col.item, distinct=True, order_by=col.item.desc()),
    )


def test_bits_of_all_values(backend: Backend) -> None:
    of_bids(
        backend,
        """
        tick | bids            | out
        1    | a null          | + null null null null
        2    | a 6; b 3; c 3   | - null null null null; + 2 7 6 5
        3    | - b 3           | - 2 7 6 5; + 2 7 5 5
        4    | a -1            | - 2 7 5 5; + 2 -1 -6 -6
    """,
        hr.bit_and(col.price),
        hr.bit_or(col.price),
        hr.bit_xor(col.price),
        hr.bit_xor(col.price, distinct=True),
    )


def test_a_variance_of_what_was_taken_back_leaves_nothing_behind(backend: Backend) -> None:
    of_points(
        backend,
        """
        tick | points                 | out
        1    | 1.0 0; null 0          | + null 0.0 null 0.0
        2    | 3.0 0                  | - null 0.0 null 0.0; + 2.0 1.0 1.4142135623730951 1.0
        3    | 1e300 0                | - 2.0 1.0 1.4142135623730951 1.0; + inf inf 5.7735026918962584e299 \
4.7140452079103168e299
        4    | - 1e300 0; inf 0       | - inf inf 5.7735026918962584e299 4.7140452079103168e299; \
+ nan nan nan nan
        5    | - inf 0                | - nan nan nan nan; + 2.0 1.0 1.4142135623730951 1.0
        6    | - 1.0 0; - 3.0 0       | - 2.0 1.0 1.4142135623730951 1.0; + null null null null
    """,
        hr.variance(col.x),
        hr.variance(col.x, population=True),
        hr.stddev(col.x),
        hr.stddev(col.x, population=True),
    )


def test_statistics_of_two_columns(backend: Backend) -> None:
    of_points(
        backend,
        """
        tick | points            | out
        1    | 1.0 2.0; 5.0 null | + null 0.0 null
        2    | 2.0 2.0           | - null 0.0 null; + 0.0 0.0 null
        3    | 3.0 5.0           | - 0.0 0.0 null; + 1.5 1.0 0.8660254037844386
        4    | - 2.0 2.0         | - 1.5 1.0 0.8660254037844386; + 3.0 1.5 1.0
        5    | 1.0 nan           | - 3.0 1.5 1.0; + nan nan nan
    """,
        hr.covariance(col.x, col.y),
        hr.covariance(col.x, col.y, population=True),
        hr.corr(col.x, col.y),
    )


def test_the_shape_of_values(backend: Backend) -> None:
    of_points(
        backend,
        """
        tick | points              | out
        1    | 2.0 0; 2.0 0        | + null null
        2    | 3.0 0               | - null null; + 0.7071067811865476 -1.5
        3    | 1.0 0               | - 0.7071067811865476 -1.5; + 0.0 -1.0
        4    | -nan 0              | - 0.0 -1.0; + nan nan
    """,
        hr.skewness(col.x),
        hr.kurtosis(col.x),
    )


@pytest.mark.parametrize("partition", [(), ("item",)])
def test_a_frame_without_rows_has_no_values(partition: tuple[str, ...]) -> None:
    flow = hr.Flow("frames")
    over: Any = {"order_by": "price", "rows": (1, 2), "partition_by": partition}
    made = flow.table("bids", Bid).with_columns(
        all=hr.collect(col.price, distinct=True).over(**over),
        middle=hr.median(col.price).over(**over),
        spread=hr.variance(col.price).over(**over),
    )
    flow.sink("out", made)
    changes = hr.Engine(flow).tick(bids=[Bid("a", 1), Bid("a", 3), Bid("a", 6)])["out"]
    assert sorted(tuple(change.row) for change in changes) == [
        ("a", 1, [3, 6], 4.5, 4.5),
        ("a", 3, [6], 6.0, None),
        ("a", 6, [], None, None),
    ]


# -- from scratch ------------------------------------------------------------------------------------


class Reading(NamedTuple):
    x: float | None
    y: float | None
    n: int
    d: Decimal | None
    s: str | None
    m: int | None


_OF_TWO = list(Moment)[list(Moment).index(Moment.COVAR_SAMP) :]
AGGREGATIONS: dict[str, Aggregation] = {
    **{m.value: Moments(m, col.y, *([col.x] if m in _OF_TWO else [])) for m in Moment},
    **{f"{m.value} of integers": Moments(m, col.n, *([col.d] if m in _OF_TWO else [])) for m in Moment},
    "distinct statistic": hr.variance(col.x, distinct=True),
    "distinct sum": hr.sum(col.x, distinct=True),
    "distinct mean": hr.mean(col.d, distinct=True),
    "distinct list": hr.collect(col.s, distinct=True),
    "percentile": hr.percentile(col.x, 0.7),
    "percentiles": hr.percentile(col.d, [0.1, 0.9]),
    "discrete percentile": hr.percentile(col.s, 0.4, discrete=True),
    "percentile of distinct": hr.percentile(col.n, 0.3, distinct=True),
    "percentile by frequency": hr.percentile(col.x, 0.7, frequency=col.m),
    "percentile of distinct by frequency": hr.percentile(col.d, [0.2], frequency=col.m, distinct=True),
    "sum that overflows": NullOnError(hr.sum(col.n)),
    "mean that may": NullOnError(hr.mean(col.d)),
    "distinct sum that overflows": DistinctAggregate(NullOnError(hr.sum(col.n))),
    "histogram": hr.histogram_numeric(col.x, 3),
    "histogram of integers": hr.histogram_numeric(col.n, 2),
    "histogram of distinct": hr.histogram_numeric(col.m, 2, distinct=True),
    "mode": hr.mode(col.x),
    "text": hr.string_agg(col.s, "-", order_by=[col.x.desc(), col.n]),
    "distinct text": hr.string_agg(col.s, distinct=True),
    "bits": hr.bit_xor(col.n),
}
floats = (
    st.none() | st.sampled_from([0.0, -0.0, 0.1, 2.0, NAN, float("inf"), -5e-324]) | st.floats(-1e200, 1e200)
)
readings = st.builds(
    Reading,
    floats,
    floats,
    st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.decimals(-9, 9, places=2),
    st.none() | st.sampled_from(["", "a", "b"]),
    st.none() | st.integers(0, 4),
)


@pytest.mark.parametrize("append", [False, True])
@given(ticks=st.lists(st.tuples(st.lists(readings, max_size=4), st.floats(0, 1)), max_size=5))
def test_maintained_aggregates_equal_those_from_scratch(
    append: bool, ticks: list[tuple[list[Reading], float]]
) -> None:
    flow = hr.Flow("scratch")
    stream: Any = (flow.source if append else flow.table)("readings", Reading)
    named = {f"a{at}": each for at, each in enumerate(AGGREGATIONS.values())}
    flow.sink("out", stream.group_by().agg(**named))
    engine, there, answer = hr.Engine(flow), list[Reading](), None
    for new, part in ticks:
        there += new
        gone = [] if append else there[: int(part * len(there))]
        del there[: len(gone)]
        given_ = new if append else [*map(hr.insert, new), *map(hr.delete, gone)]
        for change in engine.tick(readings=given_)["out"]:
            if change.weight > 0:
                answer = change.row
        if not there:
            continue
        assert answer is not None
        for (name, aggregation), found in zip(AGGREGATIONS.items(), answer, strict=True):
            rows = [tuple(getattr(row, str(e)) for e in aggregation.arguments()) for row in there]
            expected = answer_of(aggregation, aggregation.field("", stream.schema).type, rows)
            assert repr(_plain(found)) == repr(_plain(expected)), name


def _plain(value: Any) -> Any:
    """Return a value without the sign of zero, and with tuples for lists."""
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return value + 0.0 if isinstance(value, float) else value
