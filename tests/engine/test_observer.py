"""What an observer of a run is given: changes as published, and the time of regions now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import Flow, col
from headrace.engine.progress import Observer, Progress
from headrace.errors import BadInput


class Sale(NamedTuple):
    shop: str
    price: int


SALES = [Sale("a", 1), Sale("b", 2), Sale("a", 3)]


def totals() -> Flow:
    flow = Flow("totals")
    flow.sink("totals", flow.source("sales", Sale).group_by(col.shop).agg(total=hr.sum(col.price)))
    return flow


def several() -> Flow:
    """A flow of several regions."""
    flow = Flow("several")
    sales, other = flow.source("sales", Sale), flow.source("other", Sale)
    flow.sink("both", sales.filter(col.price > 1).semi_join(other, on="shop"))
    flow.sink("shops", other.select(shop=col.shop).distinct())
    return flow


def observed(flow: Flow, **sources: Any) -> tuple[list[Any], list[Progress]]:
    changes: list[Any] = []
    ticks: list[Progress] = []

    def on_changes(tick: int, by_sink: Mapping[str, list[tuple[Any, ...]]]) -> None:
        changes.append((tick, {name: list(rows) for name, rows in by_sink.items()}))

    observer = Observer(on_changes, region_interval=0)
    sinks = {name: [] for name in flow.graph().sinks}
    hr.run(flow, sources, sinks, tick_rows=2, on_tick=ticks.append, observer=observer)
    return changes, ticks


def test_changes_come_tick_by_tick_with_their_weights() -> None:
    changes, _ = observed(totals(), sales=SALES)
    assert [(tick, sorted(rows["totals"])) for tick, rows in changes] == [
        (1, [("a", 1, 1), ("b", 2, 1)]),
        (2, [("a", 1, -1), ("a", 4, 1)]),
    ]


def test_an_append_sink_has_weights_too() -> None:
    flow = Flow("same")
    flow.sink("same", flow.source("sales", Sale))
    assert observed(flow, sales=SALES[:1])[0] == [(1, {"same": [("a", 1, 1)]})]


def test_a_flow_of_one_region_is_timed_as_a_whole() -> None:
    _, ticks = observed(totals(), sales=SALES)
    assert [[(r.rows_in, r.rows_out) for r in tick.regions] for tick in ticks] == [[(2, 2)], [(1, 2)]]
    (region,) = ticks[0].regions
    assert set(region.nodes) >= {totals().graph().sinks["totals"]}


def test_each_region_that_runs_is_timed() -> None:
    flow = several()
    _, ticks = observed(flow, sales=SALES, other=SALES[1:2])
    first = ticks[0].regions
    shops = flow.graph().sinks["shops"]
    assert len(first) > 1
    assert [r.rows_in for r in first if shops in r.nodes] == [1]
    assert all(region.seconds >= 0 for region in first)
    # Nothing came from `other` in the second tick.
    assert not any(shops in region.nodes for region in ticks[1].regions)


def test_results_are_the_same_with_and_without() -> None:
    plain: list[Any] = []
    hr.run(several(), {"sales": SALES, "other": SALES}, {"both": plain}, tick_rows=2)
    seen: list[Any] = []
    observer = Observer(lambda *_: None, region_interval=0)
    hr.run(several(), {"sales": SALES, "other": SALES}, {"both": seen}, tick_rows=2, observer=observer)
    assert seen == plain


def test_between_samples_no_region_is_timed() -> None:
    ticks: list[Progress] = []
    observer = Observer(lambda *_: None, region_interval=3600)
    hr.run(totals(), {"sales": SALES}, {"totals": []}, tick_rows=1, on_tick=ticks.append, observer=observer)
    assert [len(tick.regions) for tick in ticks] == [1, 0, 0]


def test_without_an_observer_nothing_is_timed() -> None:
    ticks: list[Progress] = []
    hr.run(totals(), {"sales": SALES}, {"totals": []}, on_tick=ticks.append)
    assert [tick.regions for tick in ticks] == [()]


def test_arun_observes_as_well() -> None:
    seen: list[int] = []
    observer = Observer(lambda tick, _: seen.append(tick))
    asyncio.run(hr.arun(totals(), {"sales": SALES}, {"totals": []}, tick_rows=2, observer=observer))
    assert seen == [1, 2]


def test_it_learns_of_the_start_only_if_the_run_is_accepted() -> None:
    seen: list[str] = []
    observer = Observer(lambda *_: seen.append("tick"), on_start=lambda: seen.append("start"))
    with pytest.raises(BadInput):
        hr.run(totals(), {}, {}, observer=observer)
    assert seen == []
    hr.run(totals(), {"sales": SALES}, {"totals": []}, observer=observer)
    assert seen == ["start", "tick"]
