"""Lowering of joins, distinct, difference and top-k to native columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from headrace.expr.spark_columns import with_representatives
from headrace.lowering.forms import lower_operator
from headrace.operators.top_k import TopK
from headrace.spark.batch.operators import Site, exact_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headrace.expr.tree import Ordering


_RANK = "__rank"


@lower_operator.register(TopK)
def _(operator: TopK, site: Site) -> DataFrame:
    frame = with_representatives(site.inputs[0], site.schemas[0])
    names = site.schemas[0].names
    # Ties go by the whole row; what is tied even so are copies of one row, and any of them will do.
    order = [_sorting(ordering, site) for ordering in operator.by] + [
        exact_column(name).asc() for name in names
    ]
    if not operator.per:
        return frame.orderBy(*order).limit(operator.count)
    window = Window.partitionBy(*(site.column(expr) for expr in operator.per)).orderBy(*order)
    ranked = frame.withColumn(_RANK, f.row_number().over(window))
    return ranked.filter(exact_column(_RANK) <= operator.count).drop(_RANK)


def _sorting(ordering: Ordering, site: Site) -> Column:
    column = site.column(ordering.expr)
    return column.desc() if ordering.descending else column.asc()
