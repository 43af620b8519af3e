"""Operators work on values in pieces as on whole ones."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import Change, Flow, col, left, right
from headrace.io import Rows


class Bid(NamedTuple):
    item: str
    price: int


class Item(NamedTuple):
    item: str
    owner: str


def tables() -> Flow:
    flow = Flow("tables")
    bids, items = flow.table("bids", Bid), flow.table("items", Item)
    for how in ("inner", "left", "semi", "anti"):
        flow.sink(how, bids.join(items, on="item", how=how))
    bounded = (left.item == right.item) & (right.owner != "x")
    flow.sink("residual", bids.join(items, on=bounded, how="anti"))
    groups = bids.group_by(col.item)
    ends = {"best": hr.max(col.price), "least": hr.min(col.price), "last": hr.last(col.price, by=col.price)}
    flow.sink("groups", groups.agg(**ends, all=hr.collect(col.price), n=hr.count_distinct(col.price)))
    middle = hr.percentile(col.price, [0.2, 0.5], distinct=True)
    flow.sink(
        "values", groups.agg(middle=middle, mode=hr.mode(col.price), sum=hr.sum(col.price, distinct=True))
    )
    flow.sink("top", bids.top_k(3, by=col.price.desc(), per=col.item))
    return flow


def appended() -> Flow:
    flow = Flow("appended")
    bids, items = flow.source("bids", Bid), flow.source("items", Item)
    flow.sink("inner", bids.join(items, on="item"))
    flow.sink("top", bids.top_k(6, by=col.price, per=col.item))
    flow.sink(
        "last", bids.group_by(col.item).agg(last=hr.last(col.price, by=col.price), best=hr.max(col.price))
    )
    return flow


def batches(seed: int, *, changes: bool) -> dict[str, list[list[Any]]]:
    choice = random.Random(seed)
    there: list[Any] = []
    found: dict[str, list[list[Any]]] = {"bids": [], "items": []}
    for _ in range(6):
        bids = [Bid(choice.choice("ab"), choice.randrange(60)) for _ in range(choice.choice((1, 30)))]
        items = [Item(choice.choice("abc"), choice.choice("xyz")) for _ in range(choice.randrange(3))]
        if changes:
            gone = [b for b in there if choice.random() < choice.choice((0.05, 0.9))]
            for bid in gone:
                there.remove(bid)
            there += bids
            bids = [*map(hr.insert, bids), *map(hr.delete, gone)]
            items = [*map(hr.insert, items)]
        found["bids"].append(bids)
        found["items"].append(items)
    return found


def run(flow: Flow, given: dict[str, list[list[Any]]], folder: Path | None) -> dict[str, list[Any]]:
    """Per sink the sums of the changes of each tick. With a folder: a tick, a run."""
    sums: dict[str, list[Any]] = {name: [] for name in flow.graph().sinks}
    ends = range(1, 7) if folder else (6,)
    for end in ends:
        heard: dict[str, list[tuple[int, Change[Any]]]] = {name: [] for name in sums}
        sinks = {
            name: lambda tick, changes, heard=heard[name]: heard.extend((tick, change) for change in changes)
            for name in sums
        }
        sources = {name: Rows(rows[:end]) for name, rows in given.items()}
        hr.run(flow, sources, sinks, checkpoint=folder)
        for name, changes in heard.items():
            for tick, (row, weight) in changes:
                sums[name].append((tick, row, weight))
    return {name: sorted(summed(changes).items()) for name, changes in sums.items()}


def summed(changes: list[Any]) -> Counter[Any]:
    total: Counter[Any] = Counter()
    for tick, row, weight in changes:
        total[tick, repr(row)] += weight
    return Counter({key: n for key, n in total.items() if n})


@pytest.mark.parametrize(("flow", "changes"), [(tables, True), (appended, False)])
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1 << 20))
def test_a_run_over_values_in_pieces_answers_as_one_in_memory(flow: Any, changes: bool, seed: int) -> None:
    given = batches(seed, changes=changes)
    expected = run(flow(), given, None)
    small: dict[str, Any] = {"FROM": 8, "_ENTRIES": 2, "_LEAST_RUN": 2}
    with (
        tempfile.TemporaryDirectory() as name,
        patch.multiple("headrace.state.chunked_values", **small),
        patch.multiple("headrace.operators.aggregate.extremes", _KEPT=4, isqrt=lambda count: 0),
    ):
        assert run(flow(), given, Path(name) / "c") == expected
