from typing import NamedTuple

import penstock as ps
from penstock import col


class Edge(NamedTuple):
    start: str
    end: str


flow = ps.Flow("reachability")
edges = flow.table("edges", Edge)
long = edges.filter(col.start != col.end)
paths = flow.feedback(Edge, changes=True)
further = long.join(
    paths, on=(ps.left.start == ps.right.end) & (ps.left.end != ps.right.start), how="semi", name="further"
)
paths.close(edges.union(further))
flow.sink("paths", paths)
ps.explain(flow)
