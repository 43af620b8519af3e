from typing import NamedTuple

import headrace as hr
from headrace import col


class Account(NamedTuple):
    owner: str
    total: int


flow = hr.Flow("interest")
paid = flow.source("paid", Account)
flow.sink(
    "totals",
    flow.fixpoint(
        lambda known: known.group_by("owner").agg(total=hr.max(col.total), into=Account),
        paid,
    ),
)
hr.explain(flow)
