from typing import NamedTuple

import penstock as ps
from penstock import col
from penstock.spark.placing.loop_levels import check_loops_run_in_rounds


class Edge(NamedTuple):
    a: int
    b: int


flow = ps.Flow("reachability")
edges, start = flow.table("edges", Edge), flow.table("start", int)
reached = flow.fixpoint(
    lambda found: found.join(edges, on=ps.left.value == ps.right.a).select(value=col.b, into=int), start
)
flow.sink("reached", reached)
check_loops_run_in_rounds(flow.graph())
