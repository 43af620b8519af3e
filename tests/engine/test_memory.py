"""Large state is divided, and beyond a bound kept in a file; the answers do not change."""

from __future__ import annotations

import gc
import random
import weakref
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.engine import spilling
from headrace.engine.spilling import ShardedSlot, StateInMemory, estimated_bytes, parse_memory_limit
from headrace.errors import BadInput
from headrace.lowering.slot import Slot, thaw_dict, thaw_list
from headrace.state.lazy_slots import Form
from headrace.state.shard import ScratchFolder
from tests.properties.effort import examples
from tests.random_flows.cases import Case, Tick, cases, cuts

SMALL_KEYS = st.one_of(st.integers(0, 6), st.tuples(st.integers(0, 2), st.sampled_from("ab")))
STEPS = st.lists(st.tuples(st.sampled_from(["set", "del", "get", "settle"]), SMALL_KEYS, st.integers()))


class Order(NamedTuple):
    id: int
    customer: str
    price: int


def walk(mapping: Any, steps: list[tuple[str, Any, int]], settle: Any) -> None:
    """Do the steps on `mapping` and on a dict, which must agree throughout."""
    expected: dict[Any, Any] = {}
    for step, key, value in steps:
        if step == "set":
            mapping[key] = value
            expected[key] = value
        elif step == "settle":
            settle()
        elif step == "del" and key in expected:
            del mapping[key]
            del expected[key]
        elif step == "del":
            with pytest.raises(KeyError):
                del mapping[key]
        assert mapping.get(key) == expected.get(key)
    for key in expected:
        assert mapping[key] == expected[key]


@given(STEPS, st.dictionaries(SMALL_KEYS, st.integers()))
def test_a_divided_slot_is_a_dict(steps: list[tuple[str, Any, int]], values: dict[Any, int]) -> None:
    slot = ShardedSlot(dict(values))
    initial = [("set", key, value) for key, value in values.items()]
    assert dict(slot) == values
    walk(slot, [*initial, *steps], lambda: slot.move_to_shards(2))


@given(STEPS)
def test_a_spilled_slot_is_a_dict(steps: list[tuple[str, Any, int]]) -> None:
    slot = ScratchFolder().add_slot(Form())
    slot.most = 2
    walk(slot.mapping, steps, slot.settle)


def test_a_value_changed_in_place_is_what_is_read_back() -> None:
    spilled = ScratchFolder().add_slot(Form(thaw_dict))
    slot = spilled.mapping
    slot["a"] = {("row", 1): 1}
    for at in range(10):
        slot[at] = {}
    spilled.settle()
    slot.get("a")[("row", 2)] = 2
    for at in range(10, 20):
        slot[at] = {}
    spilled.settle()
    assert len(spilled.in_memory) == 0
    assert slot["a"] == {("row", 1): 1, ("row", 2): 2}


def test_lists_come_back_as_lists() -> None:
    spilled = ScratchFolder().add_slot(Form(thaw_list))
    slot = spilled.mapping
    for key in range(10):
        slot[key] = [key]
    spilled.settle()
    slot[3].append("more")
    assert slot[3] == [3, "more"]


def test_files_of_a_slot_that_nobody_has_any_more_take_no_room() -> None:
    folder = ScratchFolder()
    spilled = folder.add_slot(Form())
    spilled.mapping.update({at: f"{at:0100}" for at in range(2000)})
    spilled.write()
    assert spilled.mapping[7] == f"{7:0100}"
    mapped = Path("/proc/self/maps")
    assert not mapped.exists() or str(folder.path) in mapped.read_text()
    path = folder.path
    del spilled, folder
    gc.collect()
    assert not path.exists()
    assert not mapped.exists() or str(path) not in mapped.read_text()


class Small(StateInMemory):
    """State of which everything is large."""

    sharded_from = 1

    def __init__(self, slots: Any, bound: int | None, rebind: Any, stored: Any = None) -> None:
        super().__init__(slots, bound, rebind, sharded_from=self.sharded_from, stored=stored)


def told(case: Case, ticks: list[Tick]) -> list[Any]:
    engine = hr.Engine(case.flow)
    said = []
    for tick in ticks:
        said.append({n: sorted(map(repr, c.raw)) for n, c in engine.tick(**tick).items()})
        engine._settle()
    return said


@examples(0.5)
@given(cases(deferred=True).flatmap(lambda case: st.tuples(st.just(case), cuts(case))))
def test_divided_and_spilled_state_gives_the_same_answers(drawn: tuple[Case, list[Tick]]) -> None:
    case, ticks = drawn
    expected = told(case, ticks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.engine.engine.StateInMemory", Small)
        assert told(case, ticks) == expected
        patch.setattr(spilling, "_LEAST_HOT", 0)
        patch.setattr("headrace.engine.engine.parse_memory_limit", lambda bound: 1)
        original = hr.Engine.__init__
        patch.setattr(hr.Engine, "__init__", lambda self, flow: original(self, flow, memory=1))
        assert told(case, ticks) == expected


def totals_flow() -> hr.Flow:
    flow = hr.Flow("totals")
    orders = flow.table("orders", Order)
    flow.sink("totals", orders.group_by("id", "customer").agg(total=hr.sum(col.price), top=hr.max(col.price)))
    return flow


def test_state_above_the_bound_goes_to_a_file_and_answers_stay_right() -> None:
    rng = random.Random(7)
    orders = [Order(n, f"customer {n % 97}", rng.randrange(1000)) for n in range(12_000)]
    engine = hr.Engine(totals_flow(), memory="1 MB")
    held: Counter[Any] = Counter()

    def tick(changes: list[hr.Change[Order]]) -> None:
        for *row, weight in engine.tick(orders=changes)["totals"].raw:
            held[tuple(row)] += weight

    for start in range(0, len(orders), 1000):
        tick([hr.insert(order) for order in orders[start : start + 1000]])
    gone = set(rng.sample(range(len(orders)), 3000))
    tick([hr.delete(orders[n]) for n in gone])
    assert engine.spilled_slots
    assert {row for row, n in held.items() if n} == {
        (o.id, o.customer, o.price, o.price) for o in orders if o.id not in gone
    }


def test_state_below_the_bound_stays_in_memory() -> None:
    engine = hr.Engine(totals_flow(), memory="100 MB")
    engine.tick(orders=[hr.insert(Order(n, "a", 1)) for n in range(3000)])
    assert engine.spilled_slots == ()


def test_the_estimate_counts_keys_values_and_what_they_hold() -> None:
    flat = estimated_bytes({n: n for n in range(1000)})
    nested = estimated_bytes({n: {(n, "x" * 100): 1} for n in range(1000)})
    assert 50_000 < flat < 300_000
    assert nested > flat + 1000 * 300


def test_the_collector_rests_during_a_tick_and_goes_on_after_it() -> None:
    flow = hr.Flow("watched")
    seen: list[bool] = []

    def watch(order: Order) -> bool:
        seen.append(gc.isenabled())
        return True

    flow.sink("out", flow.source("orders", Order).filter(watch))
    engine = hr.Engine(flow)
    engine.tick(orders=[Order(1, "a", 1)])
    assert seen == [False]
    assert gc.isenabled()
    gc.disable()
    try:
        engine.tick(orders=[Order(1, "a", 1)])
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("given", "expected"), [(1024, 1024), ("512 MB", 512 * 10**6), ("2GiB", 2**31), ("1.5 kb", 1500)]
)
def test_a_bound_is_a_number_of_bytes_or_a_size(given: int | str, expected: int) -> None:
    assert parse_memory_limit(given) == expected


@pytest.mark.parametrize("given", [0, -1, "much", "5 parsecs", True])
def test_what_is_no_size_is_refused(given: Any) -> None:
    with pytest.raises(BadInput, match="memory bound"):
        parse_memory_limit(given)


def test_a_bound_for_state_that_is_kept_elsewhere_is_refused() -> None:
    slots = {slot.name: {} for slot in hr.Engine(totals_flow()).program.slots}
    with pytest.raises(BadInput, match="kept elsewhere"):
        hr.Engine(totals_flow(), state=slots, memory="1 MB")


def test_a_slot_of_one_key_is_never_moved() -> None:
    state = StateInMemory([Slot("1.deferred", thaw_list)], 1, lambda name, mapping: pytest.fail(name))
    state.mappings["1.deferred"][()] = [("row",)] * 100_000
    state.settle()
    assert state.spilled == ()


def in_memory(engine: hr.Engine) -> int:
    """Bytes of the slots, as far as they are not in a file, as estimated."""
    state: Any = engine._memory
    spilled = (slot.in_memory for slot in state._spilled.values())
    return sum(map(estimated_bytes, (*state.mappings.values(), *state._sharded.values(), *spilled)))


def test_a_divided_slot_that_grows_is_held_to_the_bound_too() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.engine.engine.StateInMemory", type("Some", (Small,), {"sharded_from": 2500}))
        engine = hr.Engine(totals_flow(), memory="4 MB")
    for start in range(0, 12_000, 500):
        engine.tick(orders=[hr.insert(Order(n, "a", 1)) for n in range(start, start + 500)])
        assert in_memory(engine) < 4.5e6
    assert engine.spilled_slots


def test_values_that_grow_under_the_same_keys_are_held_to_the_bound_too() -> None:
    flow = hr.Flow("joined")
    orders, others = flow.table("orders", Order), flow.table("others", str)
    on = hr.left.customer == hr.right.value
    flow.sink("ids", orders.join(others, on=on).select(id=col.id))
    engine = hr.Engine(flow, memory="2 MB")
    for start in range(0, 90_000, 3000):
        engine.tick(
            orders=[hr.insert(Order(n, f"customer {n % 3000}", 1)) for n in range(start, start + 3000)]
        )
    assert engine.spilled_slots
    assert in_memory(engine) < 2e6


def test_large_ticks_run_on_columns_over_state_in_files() -> None:
    flow = hr.Flow("joined")
    orders, others = flow.table("orders", Order), flow.table("others", Order)
    joined = orders.join(others.select("id", other=col.price), on="id")
    flow.sink("sums", joined.group_by(col.customer).agg(n=hr.count(), sum=hr.sum(col.other)))
    bounded, free = hr.Engine(flow, memory="2 MB"), hr.Engine(flow)
    for start in (*range(0, 50_000, 5000), 0):
        weight = 1 if start or not free.ticks else -1
        rows = pl.DataFrame(
            {
                "id": range(start, start + 5000),
                "customer": [f"customer {n % 97}" for n in range(5000)],
                "price": range(5000),
                "weight": [weight] * 5000,
            }
        )
        ticks = [engine.tick(orders=rows, others=rows) for engine in (bounded, free)]
        one, other = (Counter({row[:-1]: row[-1] for row in tick["sums"].raw}) for tick in ticks)
        assert one == other
        assert bounded.state_bytes() < 2e6
    # The few groups stay in memory.
    assert {name.partition(".")[2] for name in bounded.spilled_slots} == {"left", "right"}
    assert sum(slot.mapping.spine.batches[0].codes.nbytes for slot in bounded._memory._spilled.values()) > 5e5


def test_what_grows_after_another_slot_went_to_a_file_is_held_to_the_bound_too() -> None:
    bound = 10**6
    state = StateInMemory([Slot("1.left"), Slot("2.right")], bound, lambda name, mapping: None)
    state.mappings["1.left"].update((n, "x" * 100) for n in range(20_000))
    state.settle()
    assert state.spilled == ("1.left",)
    state.mappings["2.right"].update((n, "x" * 100) for n in range(15_000))
    state.settle()
    assert state.spilled == ("1.left", "2.right")


class Node:
    """Of a program that an engine runs in: part of a cycle, which only the collector frees."""

    def __init__(self) -> None:
        self.me = self


def test_the_collector_frees_what_the_program_drops_while_and_after_state_grows() -> None:
    state = StateInMemory([Slot("1.left")], None, lambda name, mapping: None)
    kept, known = Node(), []
    for start in range(0, 200_000, 10_000):
        known.append(weakref.ref(Node()))
        state.mappings["1.left"].update((n, (n,)) for n in range(start, start + 10_000))
        state.settle()
    gc.collect()
    assert gc.get_freeze_count()
    assert [dropped() for dropped in known] == [None] * len(known)
    known = [weakref.ref(kept)]
    del kept
    del state
    gc.collect()
    assert not gc.get_freeze_count()
    assert known[0]() is None


def test_few_keys_with_large_values_are_held_to_the_bound_too() -> None:
    state = StateInMemory([Slot("1.left", thaw_list)], 10**6, lambda name, mapping: None)
    state.mappings["1.left"].update((n, list(range(n, n + 1000))) for n in range(100))
    state.settle()
    assert state.spilled == ("1.left",)
