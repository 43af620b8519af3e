from typing import NamedTuple

import headrace as hr
from headrace import col


class Edge(NamedTuple):
    start: str
    end: str


flow = hr.Flow("reachability")
edges = flow.table("edges", Edge)
long = edges.filter(col.start != col.end)
paths = flow.feedback(Edge, changes=True)
further = long.join(
    paths, on=(hr.left.start == hr.right.end) & (hr.left.end != hr.right.start), how="semi", name="further"
)
paths.close(edges.union(further))
flow.sink("paths", paths)
hr.explain(flow)
