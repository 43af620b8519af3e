"""A deterministic generator of Nexmark events.

Event number n is a pure function of (parameters, n): a run can start anywhere,
be cut into ticks anyhow, and be made again, in parts, by many.

The benchmark is that of Tucker, Tufte, Papadimos and Maier, "NEXMark: a
benchmark for queries over data streams" (2002, 2008). The proportions and keys
follow what the generators of Apache Beam and of the `nexmark` project for
Apache Flink do; they are stated in `Parameters`. The random numbers are our
own, so the values are not those of either. Rows are not padded to a size in
bytes (the column `extra` of the originals).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from struct import Struct
from typing import TypeAlias

from examples.nexmark.events import Auction, Bid, Event, Person

EPOCH = 50
"""Events come in epochs of 50: one person, three auctions, 46 bids."""

AUCTIONS_PER_EPOCH = 3
FIRST_ID = 1_000
FIRST_CATEGORY = 10
CATEGORIES = 5

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Boise", "Eugene", "Flagstaff", "Fresno", "Laramie", "Oakland", "Salem", "Spokane", "Tacoma", "Tucson",
)  # fmt: skip
FIRST_NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gil", "Hana", "Ivo", "Jo", "Kim")
LAST_NAMES = ("Abbott", "Brook", "Castle", "Dale", "Ellis", "Ford", "Grant", "Hill", "Irving")
HOT_CHANNELS = ("Apple", "Baidu", "Facebook", "Google")
THINGS = ("bicycle", "clock", "guitar", "lamp", "map", "radio", "rug", "table", "teapot", "vase")
KINDS = ("antique", "blue", "broken", "brass", "heavy", "painted", "rare", "signed", "small", "wooden")

_FOUR_NUMBERS = Struct("<4Q")
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Parameters:
    """What the events look like. The defaults are those of Apache Beam.

    seed:               another seed, other events.
    start:              event time of event 0.
    inter_event_delay:  event time between an event and the next.
    hot_auctions:       all bids but one in so many go to the hot auction, one of each hundred.
    hot_bidders:        all bids but one in so many are made by the hot bidder, one of each hundred.
    hot_sellers:        all auctions but one in so many are the hot seller's, one of each hundred.
    in_flight_auctions: other bids go to one of so many latest auctions; an auction lasts, on
                        average, for as long as it takes to open so many more.
    active_people:      other auctions and bids come from one of so many latest people.
    lead:               ids are drawn up to so many ahead of the latest: a bid may come before its
                        auction and an auction before its seller.
    """

    seed: int = 0
    start: datetime = datetime(2015, 7, 15, tzinfo=UTC)
    inter_event_delay: timedelta = timedelta(microseconds=100)
    hot_auctions: int = 2
    hot_bidders: int = 4
    hot_sellers: int = 4
    in_flight_auctions: int = 100
    active_people: int = 1_000
    lead: int = 10


Tick: TypeAlias = dict[str, list[Event]]
"""Consecutive events, by source (`events.SOURCES`)."""


class Generator:
    """Events by number.

    >>> generator = Generator(Parameters(seed=7))
    >>> [type(generator.event(n)).__name__ for n in (0, 1, 2, 3, 4, 49, 50)]
    ['Person', 'Auction', 'Auction', 'Auction', 'Bid', 'Bid', 'Person']
    >>> generator.event(1_000_000) == Generator(Parameters(seed=7)).event(1_000_000)
    True
    """

    def __init__(self, parameters: Parameters = Parameters()) -> None:
        self.parameters = parameters
        self._key = parameters.seed.to_bytes(16, "little", signed=True)
        self._delay = parameters.inter_event_delay // _MICROSECOND
        horizon = parameters.in_flight_auctions * EPOCH * self._delay // AUCTIONS_PER_EPOCH
        self._longest_auction = max(1, 2 * horizon)

    def event(self, n: int) -> Event:
        """Event number `n`, from 0."""
        epoch, at = divmod(n, EPOCH)
        if at > AUCTIONS_PER_EPOCH:
            return self._bid(n, epoch)
        if at:
            return self._auction(n, epoch, at)
        return self._person(n, epoch)

    def tick(self, start: int, stop: int) -> Tick:
        """Events `start` to `stop` (not included), by source."""
        tick: Tick = {"persons": [], "auctions": [], "bids": []}
        for n in range(start, stop):
            epoch, at = divmod(n, EPOCH)
            if at > AUCTIONS_PER_EPOCH:
                tick["bids"].append(self._bid(n, epoch))
            elif at:
                tick["auctions"].append(self._auction(n, epoch, at))
            else:
                tick["persons"].append(self._person(n, epoch))
        return tick

    def ticks(self, events: int, size: int) -> Iterator[Tick]:
        """The first `events` events, `size` to a tick."""
        for start in range(0, events, size):
            yield self.tick(start, min(start + size, events))

    # -- one event: four random numbers of 64 bits, cut up as needed --------------------

    def _numbers(self, n: int) -> tuple[int, int, int, int]:
        digest = blake2b(n.to_bytes(8, "little"), digest_size=32, key=self._key).digest()
        return _FOUR_NUMBERS.unpack(digest)

    def _time(self, n: int) -> datetime:
        return self.parameters.start + timedelta(microseconds=n * self._delay)

    def _person(self, n: int, epoch: int) -> Person:
        a, b, c, _ = self._numbers(n)
        first = FIRST_NAMES[a % len(FIRST_NAMES)]
        last = LAST_NAMES[(a >> 32) % len(LAST_NAMES)]
        digits = f"{c % 10**16:016d}"
        return Person(
            id=FIRST_ID + epoch,
            name=f"{first} {last}",
            email=f"{first}.{last}{epoch}@example.com".lower(),
            credit_card=f"{digits[:4]} {digits[4:8]} {digits[8:12]} {digits[12:]}",
            city=CITIES[b % len(CITIES)],
            state=STATES[(b >> 32) % len(STATES)],
            date_time=self._time(n),
        )

    def _auction(self, n: int, epoch: int, at: int) -> Auction:
        a, b, c, d = self._numbers(n)
        item = f"{KINDS[a % 10]} {THINGS[(a >> 16) % 10]}"
        initial_bid = _price(b)
        opened = self._time(n)
        lasts = 1_000 + (c >> 16) % self._longest_auction
        return Auction(
            id=FIRST_ID + epoch * AUCTIONS_PER_EPOCH + at - 1,
            item=item,
            description=f"{item} with a {KINDS[(a >> 32) % 10]} {THINGS[(a >> 48) % 10]}",
            initial_bid=initial_bid,
            reserve=initial_bid + _price(b >> 32),
            date_time=opened,
            expires=opened + timedelta(microseconds=lasts),
            seller=self._hot_person(epoch, 0)
            if d % self.parameters.hot_sellers
            else self._person_id(epoch, d >> 16),
            category=FIRST_CATEGORY + c % CATEGORIES,
        )

    def _bid(self, n: int, epoch: int) -> Bid:
        a, b, c, d = self._numbers(n)
        channel = HOT_CHANNELS[d % 4] if d & 0x100 else f"channel-{(d >> 16) % 10_000}"
        return Bid(
            auction=self._hot_auction(epoch)
            if a % self.parameters.hot_auctions
            else self._auction_id(epoch, a >> 16),
            bidder=self._hot_person(epoch, 1)
            if b % self.parameters.hot_bidders
            else self._person_id(epoch, b >> 16),
            price=_price(c),
            channel=channel,
            url=f"https://auctions.example.com/{(d >> 32) % 100_000}?channel={channel}",
            date_time=self._time(n),
        )

    # -- whom and what events are about ----------------------------------------------

    def _hot_person(self, epoch: int, which: int) -> int:
        return FIRST_ID + epoch // 100 * 100 + which

    def _person_id(self, epoch: int, draw: int) -> int:
        people = epoch + 1
        active = min(people, self.parameters.active_people)
        return FIRST_ID + people - active + draw % (active + self.parameters.lead)

    def _hot_auction(self, epoch: int) -> int:
        latest = epoch * AUCTIONS_PER_EPOCH + AUCTIONS_PER_EPOCH - 1
        return FIRST_ID + latest // 100 * 100

    def _auction_id(self, epoch: int, draw: int) -> int:
        latest = epoch * AUCTIONS_PER_EPOCH + AUCTIONS_PER_EPOCH - 1
        oldest = max(latest - self.parameters.in_flight_auctions, 0)
        return FIRST_ID + oldest + draw % (latest - oldest + 1 + self.parameters.lead)


def _price(draw: int) -> int:
    """Cents, from 1.00 to a million: every order of magnitude is as likely."""
    return round(10.0 ** (6.0 * (draw & 0xFFFFFFFF) / 2**32) * 100.0)
