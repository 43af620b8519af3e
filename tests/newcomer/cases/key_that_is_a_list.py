from typing import NamedTuple

import headrace as hr
from headrace import Engine, Flow


class Visit(NamedTuple):
    pages: object


flow = Flow("visits")
visits = flow.source("visits", Visit)
flow.sink("counts", visits.group_by("pages").agg(count=hr.count()))
Engine(flow).tick(visits=[Visit(["a", "b"])])
