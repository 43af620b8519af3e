"""Read holds: a since is the least of them, rises, and takes along what it rests on."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.compute.controller.holds import ReadHold, ReadHolds
from headrace.compute.frontier import END, START, Frontier


class Told:
    """What `ReadHolds` tells."""

    def __init__(self) -> None:
        self.all: list[tuple[str, int | None]] = []
        self.holds = ReadHolds(lambda id, since: self.all.append((id, since.time)))


def test_a_since_is_the_least_of_its_holds_and_dependencies_go_first() -> None:
    told = Told()
    implied_of_s = told.holds.add_collection("s1", Frontier(5))
    implied = told.holds.add_collection("u1", Frontier(10), [told.holds.acquire("s1")])
    implied_of_s.release()
    warmup, user = told.holds.acquire("u1"), told.holds.acquire("u1")
    implied.downgrade(Frontier(15))
    warmup.downgrade(Frontier(12))
    user.downgrade(Frontier(13))
    told.all.clear()
    warmup.release()
    user.release()
    assert told.all == [("s1", 13), ("u1", 13), ("s1", 15), ("u1", 15)]


def test_a_new_hold_is_at_the_since_not_at_the_implied_hold() -> None:
    holds = Told().holds
    implied = holds.add_collection("u1", Frontier(10))
    other = holds.acquire("u1")
    implied.downgrade(Frontier(20))
    assert holds.acquire("u1").frontier == other.frontier == Frontier(10)


def test_a_hold_cannot_go_back() -> None:
    holds = Told().holds
    hold = holds.add_collection("u1", Frontier(10))
    with pytest.raises(ValueError, match="cannot go back"):
        hold.downgrade(Frontier(9))
    hold.advance(Frontier(9))
    assert holds.since("u1") == hold.frontier == Frontier(10)


def test_the_last_hold_drops_the_thing_and_what_it_held() -> None:
    told = Told()
    implied_of_s = told.holds.add_collection("s1", START)
    implied = told.holds.add_collection("u1", Frontier(1), [told.holds.acquire("s1")])
    implied_of_s.release()
    implied.release()
    implied.release()
    assert told.all == [("s1", 1), ("s1", None), ("u1", None)]
    assert "u1" not in told.holds
    assert told.holds.since("u1") == END


def test_many_peeks_at_one_time_leave_nothing_behind() -> None:
    holds = Told().holds
    implied = holds.add_collection("u1", Frontier(1))
    for _ in range(1_000):
        hold = holds.acquire("u1")
        hold.downgrade(Frontier(7))
        hold.release()
    held = holds._held["u1"]  # pyright: ignore[reportPrivateUsage]
    assert len(held._counts) == len(held._earliest) == 2  # pyright: ignore[reportPrivateUsage]
    implied.downgrade(Frontier(8))
    holds.check()
    assert len(held._counts) == 1  # pyright: ignore[reportPrivateUsage]


class RandomHolds(RuleBasedStateMachine):
    """Things over things, holds taken, moved and released in any order.

    Catches: a since that goes back or beyond a hold, one that stays behind all of its holds, an input that
    is given up before its reader, a word to compact that comes twice.
    """

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, Frontier]] = []
        self.holds = ReadHolds(self.advanced)
        self.mine: list[ReadHold] = []
        self.inputs: dict[str, list[str]] = {}
        self.last: dict[str, Frontier] = {}

    def advanced(self, id: str, since: Frontier) -> None:
        assert since > self.last[id], "told what is no news"
        self.last[id] = since
        for read in self.inputs[id]:
            others = [
                reader for reader, reads in self.inputs.items() if read in reads and self.last[reader] < since
            ]
            others += [h.id for h in self.mine if h.id == read and h.frontier < since]
            assert others or self.last[read] >= since, f"{read} stays behind {id} for nobody"

    @rule(since=st.integers(0, 5), data=st.data())
    def add(self, since: int, data: st.DataObject) -> None:
        there = [id for id in self.inputs if id in self.holds]
        reads = data.draw(st.lists(st.sampled_from(there), max_size=3, unique=True)) if there else []
        start = max([Frontier(since), *(self.holds.since(id) for id in reads)])
        id = f"u{len(self.inputs)}"
        self.inputs[id], self.last[id] = reads, start
        self.mine.append(self.holds.add_collection(id, start, [self.holds.acquire(read) for read in reads]))

    @precondition(lambda self: any(id in self.holds for id in self.inputs))
    @rule(data=st.data())
    def acquire(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from([id for id in self.inputs if id in self.holds]))
        hold = self.holds.acquire(id)
        assert hold.frontier == self.holds.since(id)
        self.mine.append(hold)

    @precondition(lambda self: self.mine)
    @rule(data=st.data(), by=st.integers(0, 4))
    def downgrade(self, data: st.DataObject, by: int) -> None:
        hold = data.draw(st.sampled_from(self.mine))
        assert hold.frontier.time is not None
        hold.downgrade(Frontier(hold.frontier.time + by))

    @precondition(lambda self: self.mine)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.mine) - 1))
        self.mine.pop(at).release()

    @invariant()
    def sinces_are_right(self) -> None:
        self.holds.check()
        for id in self.inputs:
            held = [hold.frontier for hold in self.mine if hold.id == id]
            held += [self.holds.since(reader) for reader, reads in self.inputs.items() if id in reads]
            assert self.holds.since(id) == min(held, default=END)
            assert self.last[id] == self.holds.since(id)


TestRandomHolds = RandomHolds.TestCase
TestRandomHolds.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@given(st.lists(st.integers(0, 20), min_size=1))
def test_the_since_of_any_holds_is_their_minimum(times: list[int]) -> None:
    holds = Told().holds
    first = holds.add_collection("u1", START)
    taken = [holds.acquire("u1") for _ in times]
    for hold, time in zip(taken, times, strict=True):
        hold.downgrade(Frontier(time))
    first.release()
    assert holds.since("u1") == Frontier(min(times))
