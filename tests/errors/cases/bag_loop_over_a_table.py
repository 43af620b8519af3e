from typing import NamedTuple

import penstock as ps
from penstock import col


class Part(NamedTuple):
    whole: str
    part: str
    count: int


flow = ps.Flow("bill of materials")
parts = flow.table("parts", Part)
needed = flow.feedback(Part, distinct=False)
within = needed.join(parts, on=ps.left.part == ps.right.whole, suffix="_2")
needed.close(parts.union(within.select("whole", part=col.part_2, count=col.count * col.count_2, into=Part)))
flow.sink("needed", needed)
ps.explain(flow)
