"""Distinct, difference and top k."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from penstock.flow.operators.difference import Difference
from penstock.flow.operators.distinct import Distinct
from penstock.flow.operators.distinct_on_time import DistinctOnTime
from penstock.flow.operators.top_k import TopK
from penstock.flow.operators.unique import Unique
from penstock.spark.batch.operators import Site, lower, named, renamed
from penstock.spark.lowering.signed_zero import with_one_zero

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.expr.tree import Ordering
    from penstock.graph.node import Operator

_RANK = "__rank"


@lower.register(Distinct)
@lower.register(DistinctOnTime)
@lower.register(Unique)
def _(operator: Operator, site: Site) -> DataFrame:
    return site.inputs[0].distinct()


@lower.register(Difference)
def _(operator: Difference, site: Site) -> DataFrame:
    pos, neg = site.inputs
    names = site.schemas[0].names
    # Null is equal to null here, and duplicates of `pos` stay: neither EXCEPT nor EXCEPT ALL is this.
    other = renamed(neg, [f"neg.{at}" for at in range(len(names))])
    same = (named(name).eqNullSafe(named(f"neg.{at}")) for at, name in enumerate(names))
    return pos.join(other, reduce(lambda a, b: a & b, same), "left_anti")


@lower.register(TopK)
def _(operator: TopK, site: Site) -> DataFrame:
    frame = with_one_zero(site.inputs[0], site.schemas[0])
    names = site.schemas[0].names
    # Ties go by the whole row; what is tied even so are copies of one row, and any of them will do.
    order = [_sorting(ordering, site) for ordering in operator.by] + [named(name).asc() for name in names]
    if not operator.per:
        return frame.orderBy(*order).limit(operator.count)
    window = Window.partitionBy(*(site.column(expr) for expr in operator.per)).orderBy(*order)
    ranked = frame.withColumn(_RANK, f.row_number().over(window))
    return ranked.filter(named(_RANK) <= operator.count).drop(_RANK)


def _sorting(ordering: Ordering, site: Site) -> Column:
    column = site.column(ordering.expr)
    return column.desc() if ordering.descending else column.asc()
