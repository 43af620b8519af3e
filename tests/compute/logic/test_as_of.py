"""As-of selection: what must hold holds, wishes are kept as far as they can be."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from headrace.compute.collections.store import CollectionBounds
from headrace.compute.controller.restart import LagPolicy, ReadPolicy, ValidFrom, select_as_ofs
from headrace.compute.frontier import END, Frontier
from headrace.compute.protocol.commands import (
    CollectionExport,
    CollectionImport,
    Dataflow,
    Export,
    IndexExport,
    IndexImport,
    PlanBytes,
)

seeds = st.integers(0, 2**32).map(random.Random)


def reading(export: Export, *ids: str) -> Dataflow:
    collections = tuple(CollectionImport(f"in {id}", id) for id in ids if id.startswith("s"))
    indexes = tuple(IndexImport(f"in {id}", id) for id in ids if not id.startswith("s"))
    return Dataflow(PlanBytes(b""), collections, indexes, (export,), Frontier(0))


def bounds(since: int, upper: int | None) -> CollectionBounds:
    return CollectionBounds(Frontier(since), Frontier(upper))


def random_catalog(
    chance: random.Random,
) -> tuple[list[Dataflow], dict[str, CollectionBounds], dict[str, ReadPolicy]]:
    collections = {
        f"s{n}": bounds(since := chance.randrange(10), since + chance.randrange(12)) for n in range(4)
    }
    flows, indexes = list[Dataflow](), list[str]()
    for number in range(8):
        reads = chance.sample([*collections, *indexes], k=chance.randrange(3))
        if chance.random() < 0.6:
            flows.append(reading(IndexExport(f"u{number}", "out"), *reads))
            indexes.append(f"u{number}")
        else:
            written = f"s of u{number}"
            since = chance.randrange(15)
            upper = chance.choice((None, since, since + 1, since + 9))
            collections[written] = bounds(since, upper)
            flows.append(reading(CollectionExport(f"u{number}", "out", written), *reads))
    policies: dict[str, ReadPolicy] = {
        id: chance.choice((LagPolicy(chance.randrange(9)), ValidFrom(Frontier(chance.randrange(20)))))
        for id in indexes
    }
    return flows, collections, policies


@given(seeds)
def test_every_import_can_be_read_and_what_is_written_has_no_gap(chance: random.Random) -> None:
    flows, collections, policies = random_catalog(chance)
    found = select_as_ofs(flows, collections, policies, now=chance.randrange(30))
    for flow in flows:
        (export,) = flow.exports
        as_of = found.as_of[export.id]
        if as_of == END and isinstance(export, CollectionExport):
            continue  # complete
        assert all(collections[i.id].since <= as_of for i in flow.collections)
        assert all(found.as_of[i.id] <= as_of for i in flow.indexes)
        if isinstance(export, CollectionExport) and export.id not in found.broken:
            written = collections[export.collection]
            assert as_of <= max(written.since, written.upper.step_back())


@given(seeds)
def test_only_what_cannot_be_is_called_broken(chance: random.Random) -> None:
    flows, collections, policies = random_catalog(chance)
    least: dict[str, Frontier] = {}
    for flow in flows:
        (export,) = flow.exports
        sinces = [collections[i.id].since for i in flow.collections] + [least[i.id] for i in flow.indexes]
        least[export.id] = max(sinces, default=Frontier(0))
    found = select_as_ofs(flows, collections, policies, now=99)
    for flow in flows:
        (export,) = flow.exports
        if export.id in found.broken:
            assert isinstance(export, CollectionExport)
            written = collections[export.collection]
            assert least[export.id] > max(written.since, written.upper.step_back())
            assert found.as_of[export.id] == least[export.id]


def test_what_a_materialization_reads_starts_no_later_than_it_must_go_on() -> None:
    flows = [reading(IndexExport("u1", "out"), "s1"), reading(CollectionExport("u2", "out", "s2"), "u1")]
    found = select_as_ofs(flows, {"s1": bounds(0, 100), "s2": bounds(0, 30)}, {}, now=100)
    assert found.as_of == {"u1": Frontier(29), "u2": Frontier(29)}


def test_a_materialization_that_has_written_nothing_starts_where_its_collection_does() -> None:
    found = select_as_ofs(
        [reading(CollectionExport("u1", "out", "s2"), "s1")],
        {"s1": bounds(0, 100), "s2": bounds(7, 7)},
        {},
        100,
    )
    assert found.as_of == {"u1": Frontier(7)}


def test_a_gap_is_told_and_does_not_stop_the_others() -> None:
    flows = [reading(CollectionExport("u1", "out", "s2"), "s1"), reading(IndexExport("u2", "out"), "s1")]
    found = select_as_ofs(flows, {"s1": bounds(50, 100), "s2": bounds(0, 30)}, {}, now=100)
    assert found.broken == {"u1"}
    assert found.as_of == {"u1": Frontier(50), "u2": Frontier(99)}


def test_an_index_starts_as_far_behind_as_its_policy_keeps_it_and_its_input_allows() -> None:
    flows = [reading(IndexExport(id, "out"), "s1") for id in ("u1", "u2", "u3", "u4", "u5")]
    policies: dict[str, ReadPolicy] = {
        "u1": LagPolicy(30),
        "u2": LagPolicy(90),
        "u3": ValidFrom(Frontier(60)),
        "u4": ValidFrom(Frontier(10)),
    }
    found = select_as_ofs(flows, {"s1": bounds(40, 100)}, policies, now=1000)
    times = {"u1": 70, "u2": 40, "u3": 60, "u4": 40, "u5": 99}
    assert found.as_of == {id: Frontier(time) for id, time in times.items()}


def test_an_index_of_nothing_is_kept_behind_the_clock() -> None:
    found = select_as_ofs([reading(IndexExport("u1", "out"))], {}, {"u1": LagPolicy(5)}, now=100)
    assert found.as_of == {"u1": Frontier(95)}


def test_an_index_without_a_policy_starts_as_late_as_it_can() -> None:
    flows = [reading(IndexExport("u6", "out")), reading(IndexExport("u7", "out"), "u6")]
    found = select_as_ofs(flows, {}, {}, now=15)
    assert found.as_of == {"u6": Frontier(15), "u7": Frontier(15)}


def test_an_index_is_not_started_in_the_future() -> None:
    found = select_as_ofs([reading(IndexExport("u1", "out"), "s1")], {"s1": bounds(0, 100)}, {}, now=40)
    assert found.as_of == {"u1": Frontier(40)}
