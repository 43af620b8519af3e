"""The events of an auction site: people, the auctions they open, the bids they make."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias


class Person(NamedTuple):
    """Somebody registers. `extra` fills the row up to a usual size."""

    id: int
    name: str
    email: str
    credit_card: str
    city: str
    state: str
    date_time: datetime
    extra: str


class Auction(NamedTuple):
    """A person, `seller`, opens an auction; bids count from `date_time` to `expires`."""

    id: int
    item: str
    description: str
    initial_bid: int
    reserve: int
    date_time: datetime
    expires: datetime
    seller: int
    category: int
    extra: str


class Bid(NamedTuple):
    """A person, `bidder`, offers `price` (in cents) in an auction."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: datetime
    extra: str


class Side(NamedTuple):
    """A row of the side input of query 13: known beforehand of auctions, by their id modulo 10,000."""

    key: int
    value: str


Event: TypeAlias = Person | Auction | Bid
Kind: TypeAlias = Literal["persons", "auctions", "bids"]

SOURCES: dict[Kind, type[Event]] = {"persons": Person, "auctions": Auction, "bids": Bid}
"""The sources of events and what their rows are."""
