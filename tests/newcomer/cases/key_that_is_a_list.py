from typing import NamedTuple

import penstock as ps
from penstock import Engine, Flow


class Visit(NamedTuple):
    pages: object


flow = Flow("visits")
visits = flow.source("visits", Visit)
flow.sink("counts", visits.group_by("pages").agg(count=ps.count()))
Engine(flow).tick(visits=[Visit(["a", "b"])])
