"""A deterministic generator of Nexmark events, as Arrow tables or as rows.

Event number n is a pure function of (parameters, n): a run can start anywhere,
be cut into ticks anyhow, and be made again, in parts, by many.

The benchmark is that of Tucker, Tufte, Papadimos and Maier, "NEXMark: a
benchmark for queries over data streams" (2002, 2008). The proportions and keys
follow what the generators of Apache Beam and of the `nexmark` project for
Apache Flink do; they are stated in `Parameters`. The random numbers are our
own, so the values are not those of either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow.compute import call_function

from examples.nexmark.draws import Draw, Draws, Numbers, below, one_in
from examples.nexmark.events import SOURCES, Event, Kind, Side
from examples.nexmark.words import CHANNELS, EXTRAS, HOT_CHANNELS, words

EPOCH = 50
"""Events come in epochs of 50: one person, three auctions, 46 bids."""

AUCTIONS_PER_EPOCH = 3
FIRST_ID = 1_000
FIRST_CATEGORY = 10
CATEGORIES = 5
SIDE_KEYS = 10_000

_MICROSECOND = timedelta(microseconds=1)
_ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
_STEP = 953
_PLACES: dict[Kind, tuple[int, int]] = {"persons": (0, 1), "auctions": (1, 4), "bids": (4, EPOCH)}
"""Which events of an epoch are of a kind: from, to (not included)."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What the events look like. The defaults are those of Apache Beam.

    seed:               another seed, other events.
    start:              event time of event 0.
    inter_event_delay:  event time between an event and the next.
    disorder:           events come mixed within groups of so many, by a fixed rule; so an event
                        comes after others that are later by less than `disorder` delays. 1: in
                        order. No multiple of 953.
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
    disorder: int = 1
    hot_auctions: int = 2
    hot_bidders: int = 4
    hot_sellers: int = 4
    in_flight_auctions: int = 100
    active_people: int = 1_000
    lead: int = 10

    def __post_init__(self) -> None:
        if self.disorder < 1 or self.disorder % _STEP == 0:
            raise ValueError(f"disorder is at least 1 and no multiple of {_STEP}, got {self.disorder}")


Tick: TypeAlias = dict[Kind, list[Event]]
"""Events that come one after the other, by source (`events.SOURCES`)."""


class Generator:
    """Events by their number in the order in which they come.

    >>> generator = Generator(Parameters(seed=7))
    >>> [type(generator.event(n)).__name__ for n in (0, 1, 2, 3, 4, 49, 50)]
    ['Person', 'Auction', 'Auction', 'Auction', 'Bid', 'Bid', 'Person']
    >>> generator.event(1_000_000) == Generator(Parameters(seed=7)).event(1_000_000)
    True
    >>> generator.table("bids", 0, 100).num_rows
    92
    """

    def __init__(self, parameters: Parameters = Parameters()) -> None:
        self.parameters = parameters
        self._words = words(parameters.seed)
        self._draw = Draw(parameters.seed)
        self._start = (parameters.start - _ORIGIN) // _MICROSECOND
        self._delay = parameters.inter_event_delay // _MICROSECOND
        horizon = parameters.in_flight_auctions * EPOCH * self._delay // AUCTIONS_PER_EPOCH
        self._longest_auction = max(1, 2 * horizon)
        self._columns: dict[Kind, Callable[[Numbers], dict[str, Any]]] = {
            "persons": self._persons,
            "auctions": self._auctions,
            "bids": self._bids,
        }

    def table(self, kind: Kind, start: int, stop: int) -> pa.Table:
        """The events of a kind among those from `start` to `stop` (not included), as columns."""
        return pa.table(self._columns[kind](self._numbers(kind, start, stop)))

    def rows(self, kind: Kind, start: int, stop: int) -> list[Event]:
        """The same, as rows."""
        row_class: Any = SOURCES[kind]
        columns = [_plain(column) for column in self.table(kind, start, stop).columns]
        return list(map(row_class._make, zip(*columns, strict=True)))

    def event(self, n: int) -> Event:
        """The event that comes as number `n`, from 0."""
        (event,) = (row for rows in self.tick(n, n + 1).values() for row in rows)
        return event

    def tick(self, start: int, stop: int) -> Tick:
        """The events from `start` to `stop` (not included), by source."""
        return {kind: self.rows(kind, start, stop) for kind in SOURCES}

    def ticks(self, events: int, size: int) -> Iterator[Tick]:
        """The first `events` events, `size` to a tick."""
        for start in range(0, events, size):
            yield self.tick(start, min(start + size, events))

    @property
    def latest_after(self) -> timedelta:
        """By how much, at most, an event is older than one that came before it."""
        return (self.parameters.disorder - 1) * self.parameters.inter_event_delay

    # -- which events ------------------------------------------------------------------------

    def _numbers(self, kind: Kind, start: int, stop: int) -> Numbers:
        """The numbers of the events of a kind that come from place `start` to `stop`, as they come."""
        places = np.arange(start, stop, dtype=np.int64)
        group = self.parameters.disorder
        numbers = places // group * group + places * _STEP % group if group > 1 else places
        first, end = _PLACES[kind]
        at = numbers % EPOCH
        return numbers[(at >= first) & (at < end)]

    def _times(self, numbers: Numbers) -> Numbers:
        return self._start + numbers * self._delay

    # -- columns of a kind -------------------------------------------------------------------

    def _persons(self, n: Numbers) -> dict[str, Any]:
        texts, epoch = self._words, n // EPOCH
        who = below(self._draw("name", n), len(texts.names))
        card = self._draw("card", n)
        digits = [
            texts.four_digits.take((card >> np.uint64(b) & np.uint64(0xFFFF)) % 10_000) for b in _QUARTERS
        ]
        return {
            "id": FIRST_ID + epoch,
            "name": texts.names.take(who),
            "email": _joined("", texts.emails.take(who), pa.array(epoch).cast(pa.string()), "@example.com"),
            "credit_card": _joined(" ", *digits),
            "city": texts.cities.take(below(self._draw("city", n), len(texts.cities))),
            "state": texts.states.take(below(self._draw("state", n), len(texts.states))),
            "date_time": _timestamps(self._times(n)),
            "extra": texts.extra_of_persons.take(below(self._draw("extra", n), EXTRAS)),
        }

    def _auctions(self, n: Numbers) -> dict[str, Any]:
        texts, epoch, opened = self._words, n // EPOCH, self._times(n)
        item = below(self._draw("item", n), len(texts.items))
        other = below(self._draw("descr", n), len(texts.items))
        initial_bid = _prices(self._draw("initial", n))
        lasts = 1_000 + below(self._draw("lasts", n), self._longest_auction)
        return {
            "id": FIRST_ID + epoch * AUCTIONS_PER_EPOCH + n % EPOCH - 1,
            "item": texts.items.take(item),
            "description": texts.descriptions.take(item * len(texts.items) + other),
            "initial_bid": initial_bid,
            "reserve": initial_bid + _prices(self._draw("reserve", n)),
            "date_time": _timestamps(opened),
            "expires": _timestamps(opened + lasts),
            "seller": self._people(self._draw("seller", n), epoch, self.parameters.hot_sellers, 0),
            "category": FIRST_CATEGORY + below(self._draw("categ", n), CATEGORIES),
            "extra": texts.extra_of_auctions.take(below(self._draw("extra", n), EXTRAS)),
        }

    def _bids(self, n: Numbers) -> dict[str, Any]:
        texts, epoch = self._words, n // EPOCH
        channels = self._draw("channel", n)
        hot, many = len(HOT_CHANNELS), below(channels, CHANNELS)
        channel = np.where(one_in(channels, 2), many % hot, hot + many)
        return {
            "auction": self._auction(self._draw("auction", n), epoch),
            "bidder": self._people(self._draw("bidder", n), epoch, self.parameters.hot_bidders, 1),
            "price": _prices(self._draw("price", n)),
            "channel": texts.channels.take(channel),
            "url": texts.urls.take(channel),
            "date_time": _timestamps(self._times(n)),
            "extra": texts.extra_of_bids.take(below(self._draw("extra", n), EXTRAS)),
        }

    # -- whom and what events are about ------------------------------------------------------

    def _people(self, draws: Draws, epoch: Numbers, hot: int, which: int) -> Numbers:
        """Ids of persons: of each hundred the hot one, but for one draw in `hot`."""
        people = epoch + 1
        active = np.minimum(people, self.parameters.active_people)
        cold = people - active + _below_each(draws, active + self.parameters.lead)
        return FIRST_ID + np.where(one_in(draws, hot), cold, epoch // 100 * 100 + which)

    def _auction(self, draws: Draws, epoch: Numbers) -> Numbers:
        latest = epoch * AUCTIONS_PER_EPOCH + AUCTIONS_PER_EPOCH - 1
        oldest = np.maximum(latest - self.parameters.in_flight_auctions, 0)
        cold = oldest + _below_each(draws, latest - oldest + 1 + self.parameters.lead)
        return FIRST_ID + np.where(one_in(draws, self.parameters.hot_auctions), cold, latest // 100 * 100)


def side_input() -> list[Side]:
    """The side input of query 13: a value for each number below 10,000."""
    return [Side(key, f"side {key * 7_919 % SIDE_KEYS}") for key in range(SIDE_KEYS)]


_QUARTERS = (0, 16, 32, 48)


def _below_each(draws: Draws, bounds: Numbers) -> Numbers:
    return ((draws >> np.uint64(32)) % bounds.astype(np.uint64)).astype(np.int64)


def _prices(draws: Draws) -> Numbers:
    """Cents, from 1.00 to a million: every order of magnitude is as likely."""
    part = (draws >> np.uint64(32)).astype(np.float64) / 2.0**32
    return np.rint(10.0 ** (6.0 * part) * 100.0).astype(np.int64)


def _timestamps(microseconds: Numbers) -> pa.Array:
    return pa.array(microseconds).cast(pa.timestamp("us", tz="UTC"))


def _joined(between: str, *parts: Any) -> pa.Array:
    return call_function("binary_join_element_wise", [*parts, between])


def _plain(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        return [_ORIGIN + timedelta(microseconds=at) for at in column.cast(pa.int64()).to_pylist()]
    return column.to_pylist()
