"""Lowering of row-by-row, ordering and tick operators to native columns of a batch.

All input arrives in one tick. So the result of a tick is the result of the run, rows repeated in every tick
appear once, and rows that wait for a tick started by something else never appear. If there are several ticks
and their number is visible, or if the order of rows is read, these lowerings are not used: such operators are
in a subplan (`headrace.spark.batch.batch_plan`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from headrace.lowering.forms import lower_operator
from headrace.operators.chain import Chain
from headrace.operators.cross_singleton import CrossSingleton
from headrace.operators.deferral import DeferSignal, DeferTick, DeferTickLazy
from headrace.operators.sort import Sort
from headrace.operators.source import Null
from headrace.operators.tick_snapshots import EveryTick, MultisetDelta
from headrace.spark.batch.operators import Site, exact_column, renamed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.graph.node import Operator


@lower_operator.register(Chain)
def _(operator: Chain, site: Site) -> DataFrame:
    first, second = site.inputs
    return first.unionAll(second)


@lower_operator.register(DeferTick)
@lower_operator.register(EveryTick)
@lower_operator.register(MultisetDelta)
@lower_operator.register(Sort)
def _(operator: Operator, site: Site) -> DataFrame:
    return site.inputs[0]


@lower_operator.register(DeferTickLazy)
def _(operator: DeferTickLazy, site: Site) -> DataFrame:
    return site.empty()


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
    return site.empty()


_BESIDE = "headrace beside"
