"""Views and collections: made, told to replicas, dropped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.compute.collections.store import CollectionAppend
from headrace.compute.controller.catalog import ViewEntry
from headrace.compute.errors import (
    AlreadyThere,
    BadMessage,
    BadPlan,
    NotServable,
    StillInUse,
    UnknownName,
)
from headrace.compute.frontier import END, Frontier
from headrace.compute.plans import encode
from headrace.compute.protocol.commands import (
    AllowWrites,
    CollectionExport,
    CollectionImport,
    CreateDataflow,
    DataflowLimits,
    IndexExport,
    IndexImport,
    PlanBytes,
)
from headrace.errors import UnknownColumn
from headrace.expr.row_classes import schema_of
from headrace.state import codec
from tests.compute.controller.world import (
    BIDS,
    Bid,
    World,
    all_bids,
    appended_bids,
    high_tops,
    joined,
    top_bids,
)


def test_every_command_goes_to_the_history_and_to_all_replicas(world: World) -> None:
    first, second = world.replica("r1"), world.replica("r2")
    first.hear(), second.hear()
    world.view()
    created, scheduled = (type(c).__name__ for c in first.hear())
    assert (created, scheduled) == ("CreateDataflow", "Schedule")
    assert [type(c).__name__ for c in second.hear()] == [created, scheduled]
    late = world.replica("r3")
    assert late.dataflow("u1") == first.dataflow("u1")


def test_a_view_makes_the_collections_that_are_missing_and_imports_what_is_there(world: World) -> None:
    world.controller.create_collection("bids", BIDS, append_only=False)
    world.view("both", joined())
    world.view("top")
    world.view("high", high_tops())
    replica = world.replica("r1")
    bids, others = (world.controller.describe(name).id for name in ("bids", "others"))
    both = replica.dataflow("u1")
    assert {(i.source, i.id) for i in both.collections} == {("bids", bids), ("others", others)}
    assert replica.dataflow("u3").indexes == (IndexImport("top", "u2"),)
    assert replica.dataflow("u3").collections == ()


def test_a_new_view_starts_at_the_last_acknowledged_write(world: World) -> None:
    world.controller.create_collection("bids", BIDS, append_only=False)
    first = world.write("bids", (1, 2))
    write = world.controller.begin_write({"bids": [((1, 3), 1)]})
    world.view()
    replica = world.replica("r1")
    assert replica.dataflow("u1").as_of == Frontier(first)
    assert replica.scheduled() == ["u1"]
    world.collections.append(write.appends)
    world.controller.end_write(write)


def test_a_view_over_one_that_is_behind_starts_when_that_has_come_so_far(world: World) -> None:
    world.view("written", into="rows")
    replica = world.replica("r1")
    replica.hear()
    time = world.write("bids", (1, 20))
    rows = world.controller.describe("rows").id
    world.view("high", high_tops("rows"))
    assert replica.dataflow("u3").collections == (CollectionImport("rows", rows),)
    as_of = replica.dataflow("u3").as_of
    assert as_of == Frontier(0)
    assert replica.scheduled() == ["u1", "u2"]
    world.collections.append([CollectionAppend(rows, Frontier(0), Frontier(time + 1), (((1, 20), time, 1),))])
    world.passes(1_000)
    assert replica.scheduled() == ["u1", "u2", "u3"]
    world.passes(1_000)
    assert replica.scheduled() == ["u1", "u2", "u3"]


def test_a_view_waits_for_the_index_that_it_reads(world: World) -> None:
    world.view("top")
    world.view("high", high_tops())
    replica = world.replica("r1")
    assert replica.scheduled() == ["u1"]
    replica.reports("u1", 1)
    assert replica.scheduled() == ["u1", "u2"]


def test_a_view_does_not_wait_for_an_index_that_has_failed(world: World) -> None:
    """It would for ever, and its readers with it: so it begins, and meets why."""
    world.view("top")
    world.view("high", high_tops())
    replica = world.replica("r1")
    replica.reports("u1", None, "input")
    assert replica.scheduled() == ["u1", "u2"]


def test_many_layers_of_views_cost_as_much_as_there_are_views(world: World) -> None:
    """Looked at by every path there is from a view to its collections, these would take hours."""
    below = ("bids", "others")
    for layer in range(30):
        for name in (f"a{layer}", f"b{layer}"):
            world.view(name, joined(*below))
        below = (f"a{layer}", f"b{layer}")
    world.passes(1_000)
    world.replica("r1").hear()
    world.passes(1_000)


def test_what_is_dropped_is_not_scheduled(world: World) -> None:
    world.view("top")
    world.view("high", high_tops())
    replica = world.replica("r1")
    world.controller.drop("high")
    replica.reports("u1", 1)
    world.passes(1_000)
    assert replica.scheduled() == ["u1"]


def test_subscriptions_are_scheduled_at_once(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    world.subscribe(as_of=world.now + 60_000)
    assert replica.scheduled()[-1] == "t1"


def test_a_view_may_be_written_into_a_collection(world: World) -> None:
    world.controller.create_collection("bids", BIDS, append_only=False)
    time = world.write("bids", (1, 2))
    world.view(into="rows", key=["auction"])
    replica = world.replica("r1")
    rows = world.controller.describe("rows").id
    assert replica.dataflow("u1").exports == (
        IndexExport("u1", "out", ("auction",)),
        CollectionExport("u2", "out", rows),
    )
    assert [c.id for c in replica.of(AllowWrites)] == ["u2"]
    (bounds,) = world.collections.bounds([rows])
    assert (bounds.since, bounds.upper) == (Frontier(time), Frontier(time))
    assert world.view_status().into == "rows"
    with pytest.raises(StillInUse):
        world.controller.drop("rows")
    world.view("high", high_tops("rows"))
    with pytest.raises(StillInUse) as error:
        world.controller.drop("top")
    assert error.value.readers == ("high",)  # type: ignore[attr-defined]
    world.controller.drop("high")
    world.controller.drop("top")
    assert [c.name for c in world.status().collections] == ["bids"]


def test_making_the_same_again_does_nothing(world: World) -> None:
    one = world.view(into="rows", key=["auction"], keep=5)
    assert world.view(into="rows", key=["auction"], keep=5) == one
    bids = world.controller.describe("bids").id
    assert world.controller.create_collection("bids", BIDS, append_only=False) == bids
    replica = world.replica("r1")
    assert len(replica.of(CreateDataflow)) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"plan": all_bids()},
        {"key": ["top"]},
        {"keep": 5},
        {"into": "other"},
        {},
    ],
)
def test_a_name_stands_for_one_thing(world: World, options: dict[str, Any]) -> None:
    world.view(key=["auction"])
    with pytest.raises(AlreadyThere):
        world.view(**options)
    with pytest.raises(AlreadyThere):
        world.controller.create_collection("top", BIDS, append_only=False)
    with pytest.raises(AlreadyThere):
        world.controller.create_collection("bids", BIDS, append_only=True)
    with pytest.raises(AlreadyThere):
        world.view("bids", plan=high_tops())
    assert [v.name for v in world.status().views] == ["top"]


@pytest.mark.parametrize("into", ["bids", "top", "others"])
def test_a_view_its_sources_and_its_collection_are_different_things(world: World, into: str) -> None:
    with pytest.raises(AlreadyThere):
        world.view("top", joined(), into=into)
    with pytest.raises(AlreadyThere):
        world.view("bids", joined())
    assert world.status().collections == ()
    assert world.collections.all().keys() == {"s1"}


def test_a_source_of_added_rows_reads_nothing_whose_rows_may_go(world: World) -> None:
    world.view("top")
    with pytest.raises(AlreadyThere) as error:
        world.view("appended", appended_bids())
    assert "flow.table" in error.value.fix
    with pytest.raises(AlreadyThere):
        world.view("appended", appended_bids("top"))
    world.controller.create_collection("log", BIDS, append_only=True)
    world.view("appended", appended_bids("log"))
    world.view("over it", appended_bids("appended"))
    world.view("changes of it", top_bids("log"))


def test_a_source_has_the_columns_of_what_it_reads(world: World) -> None:
    world.controller.create_collection("bids", schema_of(int), append_only=False)
    with pytest.raises(AlreadyThere) as error:
        world.view()
    assert "auction: int64" in error.value.why


@pytest.mark.parametrize("name", ["", " bids", "a\nb", "headrace.written", "x" * 201])
def test_a_name_can_be_typed(world: World, name: str) -> None:
    with pytest.raises(BadMessage):
        world.view(name)
    with pytest.raises(BadMessage):
        world.controller.create_collection(name, BIDS, append_only=False)


def test_a_key_is_of_columns_of_the_view(world: World) -> None:
    with pytest.raises(UnknownColumn):
        world.view(key=["price"])
    with pytest.raises(BadMessage):
        world.view(key=["top", "top"])
    with pytest.raises(BadMessage):
        world.view(keep=-1)
    assert world.status().views == ()


def test_plans_that_cannot_be_views_are_refused(world: World) -> None:
    class Word(NamedTuple):
        text: str

    two = hr.Flow("two")
    words = two.source("words", Word)
    two.sink("one", words)
    two.sink("other", words.filter(col.text != ""))
    with pytest.raises(NotServable, match="2 sinks"):
        world.view("two", encode(two))
    ordered = hr.Flow("ordered")
    ordered.sink("out", ordered.source("words", Word).enumerate())
    with pytest.raises(NotServable):
        world.view("ordered", encode(ordered))
    with pytest.raises(BadPlan):
        world.view("noise", PlanBytes(b"noise"))
    assert world.status().views == world.status().collections == ()


def test_what_is_read_cannot_be_dropped(world: World) -> None:
    world.view("top")
    world.view("high", high_tops())
    for name in ("bids", "top"):
        with pytest.raises(StillInUse):
            world.controller.drop(name)
    with pytest.raises(UnknownName):
        world.controller.drop("nothing")
    world.controller.drop("high")
    world.controller.drop("top")
    world.controller.drop("bids")
    assert world.status().views == world.status().collections == ()
    world.passes(1_000)
    assert world.collections.all().keys() == {"s1"}


def test_ids_are_never_used_again(world: World) -> None:
    assert world.view("top") == "u1"
    world.controller.drop("top")
    assert world.view("top") == "u2"
    first = world.controller.describe("bids").id
    world.controller.drop("top")
    world.controller.drop("bids")
    world.start()
    assert world.view("top") == "u3"
    assert world.controller.describe("bids").id != first


def test_a_dropped_view_still_answers_the_peeks_that_it_accepted(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    uuid, answers = world.peek()
    world.controller.drop("top")
    assert replica.compactions("u1") == []
    replica.answers(uuid)
    assert len(answers) == 1
    assert replica.compactions("u1") == [END]


def test_what_it_is_can_be_told(world: World) -> None:
    world.view(key=["auction"])
    top, bids = world.controller.describe("top"), world.controller.describe("bids")
    assert (top.view, top.key, top.schema.names) == (True, ("auction",), ("auction", "top"))
    assert (bids.view, bids.key, bids.schema, bids.append_only) == (False, (), BIDS, False)
    assert [f.name for f in schema_of(Bid).fields] == list(bids.schema.names)
    with pytest.raises(UnknownName):
        world.controller.describe("nothing")


def test_a_view_has_its_own_limits_also_after_a_restart(world: World) -> None:
    few = DataflowLimits(tick_rows=10, rounds=3, state_bytes=1_000, tick_seconds=2)
    world.view(limits=few)
    assert world.replica("r1").dataflow("u1").limits == few
    assert world.view(limits=few) == "u1"
    with pytest.raises(AlreadyThere, match="another limits"):
        world.view()
    world.start()
    assert world.replica("r2").dataflow("u1").limits == few


def test_a_view_of_an_earlier_version_has_the_default_limits(world: World) -> None:
    world.view(limits=DataflowLimits(rounds=3))
    (entry,) = world.controller.catalog.views.values()
    *fields, _limits = codec.decode(entry.to_bytes())
    assert ViewEntry.from_bytes(codec.value_encoder()(tuple(fields))) == replace(
        entry, limits=DataflowLimits()
    )
