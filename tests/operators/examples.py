"""Per operator the flows that show it, from two streams of pairs: what every engine is held to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import headrace as hr
from headrace import col
from headrace.expr.row_classes import schema_of
from headrace.graph.node import Operator
from headrace.lattice import Max, Min
from headrace.lowering.examples import Examples, Pair
from headrace.operators import all_operators
from headrace.operators.aggregate import Aggregate
from headrace.operators.at_least import AtLeast
from headrace.operators.chain import Chain
from headrace.operators.chain_first_n import ChainFirstN
from headrace.operators.cross_singleton import CrossSingleton
from headrace.operators.defer_signal import DeferSignal
from headrace.operators.defer_tick import DeferTick
from headrace.operators.defer_tick_lazy import DeferTickLazy
from headrace.operators.difference import Difference
from headrace.operators.distinct import Distinct
from headrace.operators.distinct_on_time import DistinctOnTime
from headrace.operators.enumerate import Enumerate
from headrace.operators.every_tick import EveryTick
from headrace.operators.expiring_join import JoinOnTime
from headrace.operators.fold import Fold
from headrace.operators.fold_keyed import FoldKeyed
from headrace.operators.fold_tick import FoldTick
from headrace.operators.initialize import Initialize
from headrace.operators.join import How, Join
from headrace.operators.lattice_fold import LatticeFold
from headrace.operators.lattice_merge import LatticeGrowth
from headrace.operators.lattice_reduce import LatticeReduce
from headrace.operators.multiset_delta import MultisetDelta
from headrace.operators.null import Null
from headrace.operators.over import ComputeOver
from headrace.operators.reduce import Reduce
from headrace.operators.reduce_keyed import ReduceKeyed
from headrace.operators.scan import Scan
from headrace.operators.sort import Sort
from headrace.operators.state import State
from headrace.operators.top_k import TopK
from headrace.operators.unique import Unique
from headrace.operators.zip import Zip
from headrace.operators.zip_longest import ZipLongest

AnyStream = hr.Stream[Any, Any, Any, Any]


PAIR = schema_of(Pair)


def first(n: Pair, other: Pair) -> Pair:
    return min(n, other, key=repr)


def add(total: int, n: int | None) -> int:
    return total + (n or 0)


def carry(last: int, n: Pair) -> tuple[int, int]:
    return n.a, n.a - last


def counting_up(pairs: AnyStream) -> AnyStream:
    back = pairs.flow.feedback(int)
    top = pairs.map(lambda n: n.a, returns=int).union(back).lattice_fold(Max())
    back.close(top.filter(col.value < 5).map(lambda n: n + 1, returns=int))
    return top


def _suffix(how: How) -> dict[str, str]:
    return {"suffix": "_y"} if how.has_right_columns else {}


# Per operator the flows that show it, from two streams of pairs of which the first only grows.
EXAMPLES: dict[type[Operator], Examples] = {
    **{cls: cls.examples for cls in all_operators() if cls.examples},
    Join: {
        "right": lambda x, y: x.join(y, on="a", how="right", suffix="_y"),
        "full": lambda x, y: x.join(y, on="a", how="full", suffix="_y"),
        "full with residual": lambda x, y: x.join(
            y, on=(hr.left.a == hr.right.a) & (hr.left.b < hr.right.b), how="full", suffix="_y"
        ),
        "of all with all": lambda x, y: x.cross_join(y, suffix="_y"),
        **{how.value: lambda x, y, how=how: x.join(y, on="a", how=how.value, **_suffix(how)) for how in How},
        **{
            f"{how.value} with residual": lambda x, y, how=how: x.join(
                y, on=(hr.left.a == hr.right.a) & (hr.left.b < hr.right.b), how=how.value, **_suffix(how)
            )
            for how in How
        },
    },
    Aggregate: {
        "count": lambda x, y: y.group_by("a").agg(x=hr.count()),
        "count of values": lambda x, y: y.group_by("a").agg(x=hr.count(col.b)),
        "sum": lambda x, y: y.group_by("a").agg(x=hr.sum(col.b)),
        "min": lambda x, y: y.group_by("a").agg(x=hr.min(col.b)),
        "max": lambda x, y: y.group_by("a").agg(x=hr.max(col.b)),
        "mean": lambda x, y: y.group_by("a").agg(x=hr.mean(col.b)),
        "count_distinct": lambda x, y: y.group_by("a").agg(x=hr.count_distinct(col.b)),
        "first": lambda x, y: y.group_by("a").agg(x=hr.first(col.b, by=col.a)),
        "last": lambda x, y: y.group_by("a").agg(x=hr.last(col.b, by=col.a)),
        "collect": lambda x, y: y.group_by("a").agg(x=hr.collect(col.b)),
        "of distinct": lambda x, y: y.group_by("a").agg(x=hr.sum(col.b, distinct=True)),
        "percentile": lambda x, y: y.group_by("a").agg(x=hr.percentile(col.b, [0.2, 0.5])),
        "histogram": lambda x, y: y.group_by("a").agg(x=hr.histogram_numeric(col.b, 2)),
        "mode": lambda x, y: y.group_by("a").agg(x=hr.mode(col.b)),
        "string_agg": lambda x, y: y.group_by("a").agg(x=hr.string_agg(col.b.cast(str), order_by=col.a)),
        "bits": lambda x, y: y.group_by("a").agg(x=hr.bit_or(col.b)),
        "moments": lambda x, y: y.group_by("a").agg(x=hr.covariance(col.a, col.b)),
        "several, of everything": lambda x, y: y.group_by().agg(n=hr.count(), top=hr.max(col.b)),
    },
    Distinct: {"distinct": lambda x, y: y.distinct()},
    Difference: {"difference": lambda x, y: x.difference(y)},
    TopK: {
        "top_k": lambda x, y: y.top_k(2, by=col.b.desc(), per="a"),
        "of all": lambda x, y: y.top_k(2, by=col.a),
    },
    ComputeOver: {
        "row_number": lambda x, y: y.with_columns(x=hr.row_number().over(partition_by="a", order_by="b")),
        "rank": lambda x, y: y.with_columns(x=hr.rank().over(order_by=col.b.desc())),
        "dense_rank": lambda x, y: y.with_columns(x=hr.dense_rank().over(order_by="b")),
        "percent_rank": lambda x, y: y.with_columns(x=hr.percent_rank().over(order_by="b")),
        "cume_dist": lambda x, y: y.with_columns(x=hr.cume_dist().over(order_by="b")),
        "ntile": lambda x, y: y.with_columns(x=hr.ntile(2).over(order_by="b")),
        "lag": lambda x, y: y.with_columns(x=hr.lag(col.b).over(partition_by="a", order_by="b")),
        "lead": lambda x, y: y.with_columns(x=hr.lead(col.b, 1, 0).over(order_by="b")),
        "nth_value": lambda x, y: y.with_columns(x=hr.nth_value(col.b, 2).over(order_by="b", rows=(-1, 1))),
        "running sum": lambda x, y: y.with_columns(x=hr.sum(col.b).over(partition_by="a", order_by="b")),
        "of a range": lambda x, y: y.with_columns(x=hr.max(col.a).over(order_by="b", range=(-1, 0))),
        "of rows": lambda x, y: y.with_columns(x=hr.mean(col.b).over(order_by="a", rows=(0, 1))),
        "of everything": lambda x, y: y.with_columns(x=hr.count().over()),
    },
    DeferTick: {"defer_tick": lambda x, y: y.defer_tick()},
    Chain: {"chain": lambda x, y: x.chain(y)},
    ChainFirstN: {"chain_first_n": lambda x, y: x.chain_first_n(1, x)},
    Zip: {"zip": lambda x, y: x.zip(x, suffix="_y")},
    ZipLongest: {"zip_longest": lambda x, y: x.zip_longest(x, suffix="_y")},
    CrossSingleton: {
        "cross_singleton": lambda x, y: x.cross_singleton(
            x.group_by().agg(n=hr.count(), lifetime="tick"), lifetime="tick"
        ),
        "first of several": lambda x, y: x.cross_singleton(x, lifetime="tick", suffix="_y"),
    },
    EveryTick: {"every_tick": lambda x, y: y.every_tick()},
    MultisetDelta: {"multiset_delta": lambda x, y: x.multiset_delta()},
    DeferTickLazy: {"defer_tick_lazy": lambda x, y: y.defer_tick_lazy()},
    DeferSignal: {"defer_signal": lambda x, y: y.defer_signal(x)},
    Null: {"null": lambda x, y: y.null()},
    Initialize: {
        "initialize": lambda x, y: x.flow.initialize(),
        "mapped": lambda x, y: x.flow.initialize().map(lambda _: 1, returns=int),
    },
    Fold: {"fold": lambda x, y: x.fold(0, lambda n, pair: n + pair.a, commutative=True)},
    FoldTick: {
        "fold": lambda x, y: x.fold(0, lambda n, pair: n + pair.a, commutative=True, lifetime="tick"),
        "lattice_fold": lambda x, y: x.lattice_fold(Max(), value="a", lifetime="tick"),
    },
    Reduce: {"reduce": lambda x, y: x.reduce(first, commutative=True)},
    FoldKeyed: {
        "of values": lambda x, y: x.fold_keyed("a", 0, add, value="b", commutative=True),
        "of rows": lambda x, y: x.fold_keyed(["a", "b"], 0, lambda n, pair: n + 1, commutative=True),
    },
    ReduceKeyed: {"reduce_keyed": lambda x, y: x.reduce_keyed("b", max, commutative=True)},
    Scan: {"scan": lambda x, y: x.scan(0, carry), "per key": lambda x, y: x.scan(0, carry, per="b")},
    Enumerate: {"enumerate": lambda x, y: x.enumerate(per="a"), "of all": lambda x, y: x.enumerate()},
    State: {
        "state": lambda x, y: x.state(Max(), value="a", per="b"),
        "of all": lambda x, y: x.state(Max(), value="a"),
    },
    Sort: {"sort": lambda x, y: x.sort(lifetime="tick")},
    Unique: {"append": lambda x, y: x.unique(), "table": lambda x, y: y.unique()},
    LatticeFold: {
        "of all": lambda x, y: x.lattice_fold(Max(), value="b"),
        "per key": lambda x, y: x.lattice_fold(Min(), value="b", per="a"),
    },
    LatticeReduce: {"lattice_reduce": lambda x, y: x.lattice_reduce(Max(), value="b")},
    LatticeGrowth: {"lattice_fold in a loop": lambda x, y: counting_up(x)},
    AtLeast: {"at_least": lambda x, y: x.group_by("a").agg(n=hr.count()).at_least(2)},
    DistinctOnTime: {"of a time": lambda x, y: x.watermark(col.a, lateness=1).distinct()},
    JoinOnTime: {
        "of times": lambda x, y: x.watermark(col.a, lateness=1).join(
            x.watermark(col.a, lateness=1),
            on=(hr.left.b == hr.right.b) & hr.right.a.between(hr.left.a, hr.left.a + 1),
            suffix="_y",
        )
    },
}


def joined(how: How, lifetime: Any) -> Callable[[AnyStream, AnyStream], AnyStream]:
    def build(x: AnyStream, y: AnyStream) -> AnyStream:
        sides = {"tick": (x, x), ("tick", "static"): (x, y), ("static", "tick"): (y, x)}[lifetime]
        return sides[0].join(sides[1], on="a", how=how.value, lifetime=lifetime, **_suffix(how))

    return build


# The same operators with other lifetimes.
OF_A_TICK: dict[str, Callable[[AnyStream, AnyStream], AnyStream]] = {
    "distinct": lambda x, y: x.distinct(lifetime="tick"),
    "unique": lambda x, y: x.unique(lifetime="tick"),
    "reduce": lambda x, y: x.reduce(first, commutative=True, lifetime="tick"),
    "fold_keyed": lambda x, y: x.fold_keyed("a", 0, add, value="b", commutative=True, lifetime="tick"),
    "reduce_keyed": lambda x, y: x.reduce_keyed("b", max, commutative=True, lifetime="tick"),
    "lattice_fold per key": lambda x, y: x.lattice_fold(Min(), value="b", per="a", lifetime="tick"),
    "lattice_reduce": lambda x, y: x.lattice_reduce(Max(), value="b", lifetime="tick"),
    "enumerate": lambda x, y: x.enumerate(lifetime="tick"),
    "scan": lambda x, y: x.scan(0, carry, lifetime="tick"),
    "state": lambda x, y: x.state(Max(), value="a", lifetime="tick"),
    "aggregate": lambda x, y: x.group_by("a").agg(x=hr.sum(col.b), lifetime="tick"),
    "top_k": lambda x, y: x.top_k(2, by=col.b.desc(), per="a", lifetime="tick"),
    "difference of ticks": lambda x, y: x.difference(x.filter(col.a > 1), lifetime="tick"),
    "difference with a table": lambda x, y: x.difference(y, lifetime=("tick", "static")),
    "difference of a table": lambda x, y: y.difference(x, lifetime=("static", "tick")),
    **{f"{how.value} join of ticks": joined(how, "tick") for how in How},
    **{f"{how.value} join of a tick with a table": joined(how, ("tick", "static")) for how in How},
    **{f"{how.value} join of a table with a tick": joined(how, ("static", "tick")) for how in How},
    "semi join of a table with a tick, with residual": lambda x, y: y.join(
        x, on=(hr.left.a == hr.right.a) & (hr.left.b < hr.right.b), how="semi", lifetime=("static", "tick")
    ),
    "anti join of a tick with a table, with residual": lambda x, y: x.join(
        y, on=(hr.left.a == hr.right.a) & (hr.left.b < hr.right.b), how="anti", lifetime=("tick", "static")
    ),
    "cross_join": lambda x, y: x.cross_join(y, lifetime=("tick", "static"), suffix="_y"),
    "cross_join_set": lambda x, y: x.cross_join_set(x, lifetime="tick", suffix="_y"),
    "join_set": lambda x, y: x.join_set(x, on="a", lifetime=("static", "tick"), suffix="_y"),
    "cross_singleton": lambda x, y: x.cross_singleton(
        y.group_by().agg(n=hr.count()), lifetime=("tick", "static")
    ),
    "cross_singleton shown again": lambda x, y: y.cross_singleton(
        x.group_by().agg(n=hr.count(), lifetime="tick"), lifetime=("static", "tick")
    ),
}

X = [Pair(1, 5), Pair(3, None), Pair(1, 5), Pair(2, 0)]
Y = [Pair(1, 7), Pair(3, 1), Pair(1, 7), Pair(2, 0), Pair(1, None)]
TICKS: list[dict[str, list[Any]]] = [
    {"x": X[:2], "y": [hr.insert(pair) for pair in Y[:3]]},
    {"x": X[2:], "y": [hr.insert(pair) for pair in Y[3:]]},
    {"y": [hr.delete(pair) for pair in Y[:2]]},
    {},
]

SHOWN = {f"{o.kind}: {n}": build for o, named in EXAMPLES.items() for n, build in named.items()}
ALL = {**SHOWN, **{f"tick: {n}": build for n, build in OF_A_TICK.items()}}


def example(name: str) -> hr.Flow:
    """The flow that shows an example, from sources `x` and `y` to a sink `out`."""
    flow = hr.Flow("example", ticks="given")
    flow.sink("out", ALL[name](flow.source("x", Pair), flow.table("y", Pair)))
    return flow
