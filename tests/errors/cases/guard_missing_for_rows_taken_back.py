from typing import NamedTuple

import penstock as ps
from penstock import col


class Edge(NamedTuple):
    start: str
    end: str


flow = ps.Flow("reachability")
edges = flow.table("edges", Edge)
paths = flow.feedback(Edge, changes=True)
longer = paths.join(edges, on=ps.left.end == ps.right.start, suffix="_right")
joined = longer.select("start", end=col.end_right, into=Edge)
paths.close(edges.union(joined).defer_tick())
flow.sink("paths", paths)
ps.explain(flow)
