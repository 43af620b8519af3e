"""The events of an auction site: people, the auctions they open, the bids they make."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, TypeAlias


class Person(NamedTuple):
    """Somebody registers."""

    id: int
    name: str
    email: str
    credit_card: str
    city: str
    state: str
    date_time: datetime


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


class Bid(NamedTuple):
    """A person, `bidder`, offers `price` (in cents) in an auction."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: datetime


Event: TypeAlias = Person | Auction | Bid

SOURCES: dict[str, type[Event]] = {"persons": Person, "auctions": Auction, "bids": Bid}
"""The sources of the queries and what their rows are."""
