from typing import NamedTuple

import penstock as ps
from penstock import col


class Bill(NamedTuple):
    customer: str
    amount: int


flow = ps.Flow("billing")
due = flow.source("due", Bill)
settled = flow.feedback(Bill)
unpaid = due.difference(settled, name="unpaid")
small = unpaid.filter(col.amount < 10)
settled.close(small)
flow.sink("unpaid", unpaid)
ps.explain(flow)
