"""Collections that dataflows write: whoever comes first, once, and what is there is brought right."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.compute.collections.memory import MemoryCollections
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.errors import StoreUnavailable, UpperMismatch
from headrace.compute.frontier import END, Frontier
from headrace.compute.protocol.commands import (
    AllowWrites,
    CollectionExport,
    CreateDataflow,
    IndexExport,
    Schedule,
)
from headrace.compute.protocol.responses import Frontiers
from tests.compute.replica.flows import BID, TOTAL, Bid, totals
from tests.compute.replica.rig import Bag, Rig, bag
from tests.properties.effort import examples

TOTALS = CollectionExport("u1", "out", "s2")


def written(store: MemoryCollections, at: int) -> Bag:
    return bag(counted for part in store.snapshot("s2", at) for counted in part)


def upper(store: MemoryCollections) -> Frontier:
    return store.bounds(["s2"])[0].upper


def started(store: MemoryCollections, *updates: Any, as_of: int = 0, allowed: bool = True) -> Rig:
    rig = Rig(store=store).connect()
    rig.collection("s1", BID, *updates, upper=10).collection("s2", TOTAL)
    rig.create(totals(), TOTALS, as_of=as_of)
    if allowed:
        rig.tell(AllowWrites("u1"))
    return rig


def test_nothing_is_written_before_it_is_allowed() -> None:
    store = MemoryCollections()
    rig = started(store, (("a", 5), 3, 1), allowed=False)
    rig.run()
    assert upper(store) == Frontier(0)
    assert rig.frontiers("u1")[-1] == Frontiers("u1", input=Frontier(10)) or rig.frontiers("u1")
    rig.tell(AllowWrites("u1")).run()
    assert upper(store) == Frontier(10)
    assert written(store, 9) == Bag({("a", 5): 1})


def test_changes_are_written_at_the_times_of_the_inputs() -> None:
    store = MemoryCollections()
    rig = started(store, (("a", 5), 3, 1), (("a", 6), 5, 1))
    rig.run()
    assert [written(store, at) for at in (2, 3, 4, 5)] == [
        Bag(),
        Bag({("a", 5): 1}),
        Bag({("a", 5): 1}),
        Bag({("a", 11): 1}),
    ]
    assert rig.frontiers("u1")[-1].write == Frontier(10)


def test_how_far_it_was_computed_is_told_apart_from_how_far_it_is_written() -> None:
    store = MemoryCollections()
    rig = started(store, allowed=False)
    rig.run()
    store.append([CollectionAppend("s2", Frontier(0), Frontier(30))])
    rig.run()
    last = dict.fromkeys(("write", "input", "output"))
    for told in rig.frontiers("u1"):
        last |= {kind: getattr(told, kind) for kind in last if getattr(told, kind) is not None}
    assert last == {"write": Frontier(30), "input": Frontier(10), "output": Frontier(10)}


def test_two_replicas_write_it_once() -> None:
    store = MemoryCollections()
    one = started(store, (("a", 5), 3, 1))
    other = Rig(store=store).connect()
    other.create(totals(), TOTALS)
    other.tell(AllowWrites("u1"))
    for at in range(10, 60, 10):
        for rig in (one, other) if at % 20 else (other, one):
            rig.run()
        one.write("s1", (("a", at), at + 3, 1), upper=at + 10)
    one.run()
    other.run()
    assert upper(store) == Frontier(60)
    assert written(store, 59) == Bag({("a", 5 + 10 + 20 + 30 + 40 + 50): 1})
    assert other.write_frontier("u1") == Frontier(60)


def test_a_replica_that_starts_goes_on_where_the_collection_is() -> None:
    store = MemoryCollections()
    rig = started(store, (("a", 5), 3, 1))
    rig.run()
    rig.write("s1", (("a", 6), 12, 1), upper=20)
    again = Rig(store=store).connect()
    again.create(totals(), TOTALS, as_of=8)
    again.tell(AllowWrites("u1")).run()
    assert [written(store, at) for at in (9, 11, 12)] == [
        Bag({("a", 5): 1}),
        Bag({("a", 5): 1}),
        Bag({("a", 11): 1}),
    ]


def test_one_that_starts_later_than_the_collection_writes_the_difference() -> None:
    store = MemoryCollections()
    rig = started(store, (("a", 5), 3, 1), (("b", 1), 4, 1))
    rig.run()
    rig.write("s1", (("a", 6), 12, 1), (("c", 2), 14, 1), upper=20)
    again = Rig(store=store).connect()
    again.create(totals(), TOTALS, as_of=15)
    again.tell(AllowWrites("u1")).run()
    assert written(store, 14) == Bag({("a", 5): 1, ("b", 1): 1})
    assert written(store, 15) == written(store, 19) == Bag({("a", 11): 1, ("b", 1): 1, ("c", 2): 1})


def test_what_is_wrong_in_the_collection_is_brought_right() -> None:
    store = MemoryCollections()
    Rig(store=store).collection("s2", TOTAL, (("x", 1), 3, 2), (("a", 5), 4, 1), upper=8)
    rig = started(store, (("a", 5), 3, 1), (("b", 1), 4, 1))
    rig.run()
    assert written(store, 7) == Bag({("x", 1): 2, ("a", 5): 1})
    assert written(store, 8) == Bag({("a", 5): 1, ("b", 1): 1})


def test_a_new_collection_may_begin_late_and_be_readable_from_then_on_alone() -> None:
    store = MemoryCollections()
    rig = Rig(store=store).connect().collection("s1", BID, (("a", 5), 3, 1), upper=20)
    rig.collection("s2", TOTAL, upper=8)
    store.compact("s2", Frontier(8))
    rig.create(totals(), TOTALS, as_of=8)
    rig.tell(AllowWrites("u1")).run()
    assert written(store, 8) == Bag({("a", 5): 1})
    assert upper(store) == Frontier(20)


def test_a_sealed_input_seals_what_is_written_and_a_dropped_dataflow_does_not() -> None:
    store = MemoryCollections()
    rig = started(store, (("a", 5), 3, 1))
    rig.run()
    rig.drop("u1").run()
    assert upper(store) == Frontier(10)
    store.append([CollectionAppend("s1", Frontier(10), END)])
    again = Rig(store=store).connect()
    again.create(totals(), TOTALS, as_of=8)
    again.tell(AllowWrites("u1")).run()
    assert upper(store) == END
    assert again.write_frontier("u1") == END


class Shaky(MemoryCollections):
    """A store in which somebody else comes first, or which is gone, as often as told."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: list[str] = []

    def append(self, appends: Any) -> None:
        trouble = self.trouble.pop(0) if self.trouble and appends[0].id == "s2" else ""
        if trouble == "gone":
            raise StoreUnavailable("gone for lunch")
        super().append(appends)
        if trouble == "said twice":
            raise UpperMismatch("somebody else was first", id="s2", expected=0, upper=0)


@examples(0.5)
@given(
    st.lists(st.sampled_from(["gone", "said twice", ""]), max_size=6),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 5)), max_size=8),
    st.integers(0, 30),
)
def test_whatever_happens_the_collection_is_what_the_flow_says(
    trouble: list[str], bids: list[tuple[str, int, int]], as_of: int
) -> None:
    store = Shaky()
    rig = started(store, as_of=as_of)
    store.trouble = trouble
    time, there = 10, list[tuple[int, str, int]]()
    for item, price, later in bids:
        time += later
        rig.write("s1", ((item, price), time, 1), upper=time + 1)
        there.append((time, item, price))
        time += 1
        rig.run()
    rig.write("s1", upper=100)
    for _ in range(300):
        rig.step()
    assert upper(store) == Frontier(100)
    for at in range(as_of, 100, 3):
        sums: dict[str, int] = {}
        for when, item, price in there:
            if when <= at:
                sums[item] = sums.get(item, 0) + price
        assert written(store, at) == Bag(dict.fromkeys(sums.items(), 1))


def test_what_may_be_written_may_be_written_for_the_next_controller_too() -> None:
    store = MemoryCollections()
    rig = started(store, (("a", 5), 3, 1))
    rig.run()
    rig.write("s1", (("a", 1), 15, 1), upper=20)
    rig.connect([CreateDataflow(rig.created[0]), Schedule("u1")]).run()
    assert upper(store) == Frontier(20)


@pytest.mark.parametrize("allowed", [False, True])
def test_an_index_beside_it_is_served_either_way(allowed: bool) -> None:
    store = MemoryCollections()
    rig = Rig(store=store).connect().collection("s1", BID, (("a", 5), 3, 1), upper=10).collection("s2", TOTAL)
    rig.create(totals(), TOTALS, IndexExport("u2", "out"), as_of=5)
    if allowed:
        rig.tell(AllowWrites("u1"))
    assert rig.rows("u2", 9) == Bag({("a", 5): 1})
    assert upper(store) == (Frontier(10) if allowed else Frontier(0))


def test_a_time_that_another_replica_writes_while_this_one_computes_it_is_written_once() -> None:
    store = MemoryCollections()
    one, other = started(store), Rig(store=store).connect()
    other.create(totals(), TOTALS)
    other.tell(AllowWrites("u1"))
    for rig in (one, other):
        rig.run()
    one.write("s1", *(((f"i{n}", n), 12, 1) for n in range(5000)), upper=20)
    _, outlet = one.runtimes[0]._exports["u1"]  # pyright: ignore[reportPrivateUsage]
    for _ in range(100):
        if outlet._open:  # type: ignore[attr-defined]
            break
        one.step()
    other.run()
    assert upper(store) == Frontier(20)
    one.run()
    one.write("s1", (("i1", 7), 25, 1), upper=30).run()
    assert upper(store) == Frontier(30)
    assert written(store, 29) == Bag({(f"i{n}", n + 7 * (n == 1)): 1 for n in range(5000)})


def test_rows_that_no_collection_can_hold_end_the_writing_and_nothing_else() -> None:
    store = MemoryCollections()
    rig = Rig(store=store).connect().collection("s2", BID)
    for id in ("s1", "s3"):
        rig.collection(id, BID, (("a", 5), 3, 2**62), upper=10)
    flow = hr.Flow("pairs")
    pairs = flow.table("s1", Bid).join(flow.table("s3", Bid), on="item", suffix="_2")
    flow.sink("out", pairs.select("item", "price"))
    rig.create(flow, TOTALS, IndexExport("u2", "out"), as_of=5)
    rig.tell(AllowWrites("u1"))
    assert rig.rows("u2", 9) == Bag({("a", 5): 2**124})
    assert upper(store) == Frontier(0)
    assert ["63 bits" in status.text for status in rig.statuses("u1")] == [True]
