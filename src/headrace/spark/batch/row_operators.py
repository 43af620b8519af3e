"""Lowering of row-by-row, ordering and tick operators to native columns of a batch.

All input arrives in one tick. So the result of a tick is the result of the run, rows repeated in every tick
appear once, and rows that wait for a tick started by something else never appear. If there are several ticks
and their number is visible, or if the order of rows is read, these lowerings are not used: such operators are
in a subplan (`headrace.spark.batch.batch_plan`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lowering.forms import lower_operator
from headrace.operators.cross_singleton import CrossSingleton
from headrace.spark.batch.operators import Site, exact_column, renamed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@lower_operator.register(CrossSingleton)
def _(operator: CrossSingleton, site: Site) -> DataFrame:
    rows, single = site.inputs
    left = [f"left {at}" for at in range(len(site.schemas[0].names))]
    right = [f"right {at}" for at in range(len(site.schemas[1].names))]
    pairs = renamed(rows, left).crossJoin(renamed(single.limit(1), right))
    kept = [*left, *(right[at] for at in operator.kept_right)]
    return renamed(pairs.select(*(exact_column(name) for name in kept)), site.node.schema.names)
