from typing import NamedTuple

import penstock as ps
from penstock import col


class Account(NamedTuple):
    owner: str
    total: int


flow = ps.Flow("interest")
paid = flow.source("paid", Account)
flow.sink(
    "totals",
    flow.fixpoint(
        lambda known: known.group_by("owner").agg(total=ps.max(col.total), into=Account),
        paid,
    ),
)
ps.explain(flow)
