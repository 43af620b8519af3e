"""Delays per state, the worst states, and where one can fly to: kept up to date as flights come and go."""

from __future__ import annotations

from typing import NamedTuple

import headrace as hr
from examples.flights.rows import Airport, Flight, Route
from headrace import col


class StateDelay(NamedTuple):
    """Flights that departed from a state, and their average delay in minutes."""

    state: str
    flights: int
    average: float


class Reached(NamedTuple):
    airport: str


class Destination(NamedTuple):
    airport: str
    name: str
    state: str


def flow(start: str = "ADK") -> hr.Flow:
    """The whole example. `start` is the airport from which `reachable` is asked.

    Sinks:
      delays     average delay per state of departure
      worst      the five states with the greatest average
      reachable  airports to which one can get from `start`, by any number of flights of the timetable
      unserved   those of them for which no flight so far was bound
    """
    flow = hr.Flow("US flights of 2001")
    flights = flow.table("flights", Flight)
    airports = flow.source("airports", Airport, bounded=True)
    routes = flow.source("routes", Route)

    departures = flights.join(airports, on=col.origin == col.iata, name="departures")
    delays = departures.group_by("state").agg(
        flights=hr.count(), average=hr.mean(col.delay), into=StateDelay, name="average delays"
    )
    flow.sink("delays", delays)
    flow.sink("worst", delays.top_k(5, by=col.average.desc()))

    first = routes.filter(col.origin == start).select(airport=col.destination, into=Reached)
    reached = flow.fixpoint(
        lambda reached: reached.join(routes, on=col.airport == col.origin).select(
            airport=col.destination, into=Reached
        ),
        first,
    )
    reachable = reached.join(airports, on=col.airport == col.iata).select(
        "airport", "name", "state", into=Destination
    )
    flow.sink("reachable", reachable)
    flow.sink("unserved", reachable.join(flights, on=col.airport == col.destination, how="anti"))
    return flow
