from typing import NamedTuple

import penstock as ps
from penstock import col


class Edge(NamedTuple):
    start: str
    end: str


flow = ps.Flow("reachability")
edges = flow.table("edges", Edge)
long = edges.filter(col.start != col.end)
paths = flow.feedback(Edge)
longer = paths.join(long, on=ps.left.end == ps.right.start, suffix="_right")
paths.close(edges.union(longer.select("start", end=col.end_right, into=Edge)))
flow.sink("paths", paths)
ps.explain(flow)
