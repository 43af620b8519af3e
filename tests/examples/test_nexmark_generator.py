from collections import Counter
from itertools import pairwise

import pytest

from examples.nexmark.events import Auction, Bid, Person
from examples.nexmark.generator import Generator, Parameters

EVENTS = 20_000


@pytest.fixture(scope="module")
def events() -> list[Person | Auction | Bid]:
    generator = Generator()
    return [generator.event(n) for n in range(EVENTS)]


def test_an_event_depends_on_its_number_and_the_seed_alone(events: list[Person | Auction | Bid]) -> None:
    backwards = Generator()
    assert [backwards.event(n) for n in reversed(range(1_000))] == events[999::-1]
    assert Generator(Parameters(seed=1)).event(4) != events[4]


def test_ticks_hold_the_same_events_however_they_are_cut(events: list[Person | Auction | Bid]) -> None:
    for size in (1, 7, 50, 333):
        ticks = list(Generator().ticks(999, size))
        for source, kind in (("persons", Person), ("auctions", Auction), ("bids", Bid)):
            rows = [row for tick in ticks for row in tick[source]]
            assert rows == [event for event in events[:999] if type(event) is kind]


def test_persons_auctions_and_bids_come_as_1_to_3_to_46(events: list[Person | Auction | Bid]) -> None:
    kinds = Counter(type(event) for event in events)
    assert kinds == {Person: EVENTS // 50, Auction: EVENTS // 50 * 3, Bid: EVENTS // 50 * 46}


def test_ids_are_consecutive_and_time_goes_on(events: list[Person | Auction | Bid]) -> None:
    for kind in (Person, Auction):
        ids = [event.id for event in events if isinstance(event, kind)]
        assert ids == list(range(1_000, 1_000 + len(ids)))
    times = [event.date_time for event in events]
    assert {b - a for a, b in pairwise(times)} == {Parameters().inter_event_delay}


def test_hot_keys_get_the_share_that_the_parameters_say(events: list[Person | Auction | Bid]) -> None:
    bids = [event for event in events if isinstance(event, Bid)]
    auctions = [event for event in events if isinstance(event, Auction)]
    # The hot ones are among those of the cold draws too, hence a little above the stated share.
    assert 0.74 < sum(bid.bidder % 100 == 1 for bid in bids) / len(bids) < 0.78
    assert 0.74 < sum(auction.seller % 100 == 0 for auction in auctions) / len(auctions) < 0.79
    assert 0.49 < sum(bid.auction % 100 == 0 for bid in bids) / len(bids) < 0.53


def test_some_bids_are_too_late_and_some_before_their_auction(events: list[Person | Auction | Bid]) -> None:
    auctions = {event.id: event for event in events if isinstance(event, Auction)}
    bids = [event for event in events if isinstance(event, Bid) and event.auction in auctions]
    early = sum(bid.date_time < auctions[bid.auction].date_time for bid in bids)
    late = sum(bid.date_time > auctions[bid.auction].expires for bid in bids)
    assert 0.01 < early / len(bids) < 0.1
    assert 0.1 < late / len(bids) < 0.5


def test_another_delay_between_events_changes_times_and_nothing_else(
    events: list[Person | Auction | Bid],
) -> None:
    slow = Generator(Parameters(inter_event_delay=Parameters().inter_event_delay * 10))
    for n, event in enumerate(events[:200]):
        times = {"date_time", "expires"}
        other = slow.event(n)._asdict()
        assert all(other[name] == value for name, value in event._asdict().items() if name not in times)
