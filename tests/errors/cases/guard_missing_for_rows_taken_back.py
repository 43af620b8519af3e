from typing import NamedTuple

import headrace as hr
from headrace import col


class Edge(NamedTuple):
    start: str
    end: str


flow = hr.Flow("reachability")
edges = flow.table("edges", Edge)
paths = flow.feedback(Edge, changes=True)
longer = paths.join(edges, on=hr.left.end == hr.right.start, suffix="_right")
joined = longer.select("start", end=col.end_right, into=Edge)
paths.close(edges.union(joined).defer_tick())
flow.sink("paths", paths)
hr.explain(flow)
