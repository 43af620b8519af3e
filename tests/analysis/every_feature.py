"""A flow with all that an explanation or a picture can show."""

from __future__ import annotations

from typing import NamedTuple

import headrace as hr
from headrace import col


class Road(NamedTuple):
    start: str
    end: str


class Town(NamedTuple):
    name: str


def capital(town: Town) -> bool:
    return town.name.isupper()


flow = hr.Flow('towns & "roads" <by car>')
roads = flow.source("roads", Road)
closed = flow.table("closed", Road)
seed = flow.source("seed", Town, bounded=True)
reached = flow.fixpoint(
    lambda found: found.join(roads, on=col.name == col.start).select(name=col.end, into=Town), seed
)
flow.sink("reached", reached)
flow.sink("capitals", reached.filter(capital, name="capitals only").distinct())

open_roads = roads.difference(closed, name='not "closed"')
yesterday = open_roads.defer_tick(nondet="a road counts from the day after it was opened")
flow.sink("new roads", open_roads.join(yesterday, on=["start", "end"], how="anti"))
flow.sink("busiest", open_roads.group_by("start").agg(roads=hr.count()).top_k(3, by=col.roads.desc()))
roads.filter(lambda road: road.start != road.end, name="straße ✓")
