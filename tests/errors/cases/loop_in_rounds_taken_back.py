from typing import NamedTuple

import headrace as hr
from headrace import col
from headrace.spark.placing.earliest_stages import check_loops_run_in_rounds


class Edge(NamedTuple):
    a: int
    b: int


flow = hr.Flow("reachability")
edges, start = flow.table("edges", Edge), flow.table("start", int)
reached = flow.fixpoint(
    lambda found: found.join(edges, on=hr.left.value == hr.right.a).select(value=col.b, into=int), start
)
flow.sink("reached", reached)
check_loops_run_in_rounds(flow.graph())
