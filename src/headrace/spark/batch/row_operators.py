"""Lowering of row-by-row, ordering and tick operators to native columns of a batch.

All input arrives in one tick. So the result of a tick is the result of the run, rows repeated in every tick
appear once, and rows that wait for a tick started by something else never appear. If there are several ticks
and their number is visible, or if the order of rows is read, these lowerings are not used: such operators are
in a subplan (`headrace.spark.batch.batch_plan`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headrace.expr.spark_columns import spark_schema
from headrace.expr.tree import Expr
from headrace.flow.operators.assume_ordered import AssumeOrdered
from headrace.flow.operators.chain import Chain
from headrace.flow.operators.cross_singleton import CrossSingleton
from headrace.flow.operators.defer_signal import DeferSignal
from headrace.flow.operators.defer_tick import DeferTick
from headrace.flow.operators.defer_tick_lazy import DeferTickLazy
from headrace.flow.operators.every_tick import EveryTick
from headrace.flow.operators.explode import Explode
from headrace.flow.operators.filter import Filter
from headrace.flow.operators.multiset_delta import MultisetDelta
from headrace.flow.operators.null import Null
from headrace.flow.operators.select import Select
from headrace.flow.operators.sink import Sink
from headrace.flow.operators.sort import Sort
from headrace.flow.operators.union import Union
from headrace.spark.batch.operators import Site, exact_column, lower_operator, renamed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.graph.node import Operator


@lower_operator.register(Filter)
def _(operator: Filter, site: Site) -> DataFrame:
    assert isinstance(operator.predicate, Expr)
    return site.inputs[0].filter(site.column(operator.predicate))


@lower_operator.register(Select)
def _(operator: Select, site: Site) -> DataFrame:
    return site.inputs[0].select(*(site.column(expr).alias(name) for name, expr in operator.columns))


@lower_operator.register(Explode)
def _(operator: Explode, site: Site) -> DataFrame:
    names = site.schemas[0].names
    before, after = map(exact_column, names[: operator.at]), map(exact_column, names[operator.at + 1 :])
    elements = exact_column(names[operator.at])
    if operator.position is None:
        made = (f.explode_outer if operator.outer else f.explode)(elements).alias(operator.into)
    else:
        numbered = f.posexplode_outer if operator.outer else f.posexplode
        made = numbered(elements).alias(operator.position, operator.into)
    return site.inputs[0].select(*before, made, *after)


@lower_operator.register(Chain)
@lower_operator.register(Union)
def _(operator: Operator, site: Site) -> DataFrame:
    first, *others = site.inputs
    for other in others:
        first = first.unionAll(other)
    return first


@lower_operator.register(AssumeOrdered)
@lower_operator.register(DeferTick)
@lower_operator.register(EveryTick)
@lower_operator.register(MultisetDelta)
@lower_operator.register(Sink)
@lower_operator.register(Sort)
def _(operator: Operator, site: Site) -> DataFrame:
    return site.inputs[0]


@lower_operator.register(DeferTickLazy)
def _(operator: DeferTickLazy, site: Site) -> DataFrame:
    return _nothing(site)


@lower_operator.register(DeferSignal)
def _(operator: DeferSignal, site: Site) -> DataFrame:
    rows, signal = site.inputs
    return rows.join(signal.select(f.lit(1).alias(_BESIDE)).limit(1)).drop(_BESIDE)


@lower_operator.register(CrossSingleton)
def _(operator: CrossSingleton, site: Site) -> DataFrame:
    rows, single = site.inputs
    left = [f"left {at}" for at in range(len(site.schemas[0].names))]
    right = [f"right {at}" for at in range(len(site.schemas[1].names))]
    pairs = renamed(rows, left).crossJoin(renamed(single.limit(1), right))
    kept = [*left, *(right[at] for at in operator.kept_right)]
    return renamed(pairs.select(*(exact_column(name) for name in kept)), site.node.schema.names)


@lower_operator.register(Null)
def _(operator: Null, site: Site) -> DataFrame:
    return _nothing(site)


_BESIDE = "headrace beside"


def _nothing(site: Site) -> DataFrame:
    session = site.inputs[0].sparkSession if site.inputs else SparkSession.active()
    return session.createDataFrame([], spark_schema(site.node.schema))
