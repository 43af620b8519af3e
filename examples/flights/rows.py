"""Rows of the data: flights, airports, routes."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class Flight(NamedTuple):
    """A flight that departed `at`, local time at its origin, and came `delay` minutes late."""

    at: datetime
    delay: int
    distance: int
    origin: str
    destination: str


class Airport(NamedTuple):
    iata: str
    name: str
    city: str
    state: str
    country: str
    latitude: float
    longitude: float


class Route(NamedTuple):
    """Somebody flies from `origin` to `destination`."""

    origin: str
    destination: str
