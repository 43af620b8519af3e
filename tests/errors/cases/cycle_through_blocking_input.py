from typing import NamedTuple

import headrace as hr
from headrace import col


class Bill(NamedTuple):
    customer: str
    amount: int


flow = hr.Flow("billing")
due = flow.source("due", Bill)
settled = flow.feedback(Bill)
unpaid = due.difference(settled, name="unpaid")
small = unpaid.filter(col.amount < 10)
settled.close(small)
flow.sink("unpaid", unpaid)
hr.explain(flow)
