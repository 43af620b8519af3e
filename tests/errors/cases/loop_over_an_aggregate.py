from typing import NamedTuple

import penstock as ps
from penstock import col


class Person(NamedTuple):
    name: str
    boss: str


flow = ps.Flow("staff")
changes = flow.source("changes", Person)
staff = changes.group_by("name").agg(boss=ps.last(col.boss, by=col.name), into=Person)
flow.sink(
    "above",
    flow.fixpoint(
        lambda above: above.join(staff, on=ps.left.boss == ps.right.name, suffix="_2").select(
            "name", boss=col.boss_2, into=Person
        ),
        staff,
    ),
)
ps.explain(flow)
