"""Row by row: filter, map, flat map, select, union; and the ends, where nothing happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.expr.tree import Expr
from penstock.flow.operators.defer_tick import DeferTick
from penstock.flow.operators.filter import Filter
from penstock.flow.operators.filter_map import FilterMap
from penstock.flow.operators.flat_map import FlatMap
from penstock.flow.operators.flatten import Flatten
from penstock.flow.operators.map import Map
from penstock.flow.operators.partition import Partition
from penstock.flow.operators.select import Select
from penstock.flow.operators.sink import Sink
from penstock.flow.operators.union import Union
from penstock.spark.batch_engine import run_per_batch
from penstock.spark.batch_operators import Site, lower

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.graph.node import Operator


@lower.register(Filter)
def _(operator: Filter, site: Site) -> DataFrame:
    if isinstance(operator.predicate, Expr):
        return site.inputs[0].filter(site.column(operator.predicate))
    return run_per_batch(site)


@lower.register(Map)
@lower.register(FlatMap)
@lower.register(FilterMap)
@lower.register(Flatten)
@lower.register(Partition)
def _(operator: Operator, site: Site) -> DataFrame:
    return run_per_batch(site)


@lower.register(Select)
def _(operator: Select, site: Site) -> DataFrame:
    return site.inputs[0].select(*(site.column(expr).alias(name) for name, expr in operator.columns))


@lower.register(Union)
def _(operator: Union, site: Site) -> DataFrame:
    first, *others = site.inputs
    for other in others:
        first = first.unionAll(other)
    return first


@lower.register(DeferTick)
def _(operator: DeferTick, site: Site) -> DataFrame:
    # What is deferred comes in the next tick, and a batch waits for it. (In a cycle the ticks
    # are rounds, and the engine runs them.)
    return site.inputs[0]


@lower.register(Sink)
def _(operator: Sink, site: Site) -> DataFrame:
    return site.inputs[0]
