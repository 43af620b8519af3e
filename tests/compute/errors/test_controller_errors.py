"""What users are told by a controller, word for word: the files beside are what must come out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as hr
from headrace.compute.controller.durable_catalog import DurableCatalog
from headrace.compute.errors import ConnectionBroken
from headrace.compute.plans import encode
from headrace.compute.protocol.client_messages import PeekRequest
from headrace.errors import HeadraceError
from tests.compute.controller.world import BIDS, Bid, Top, World, all_bids
from tests.golden import assert_golden

GOLDEN = Path(__file__).parent / "controller"


def unknown_view(world: World) -> None:
    world.peek("tops")


def unknown_replica(world: World) -> None:
    world.peek(replica="r9")


def name_taken_by_another_view(world: World) -> None:
    world.view(plan=all_bids())


def name_taken_by_a_replica(world: World) -> None:
    world.controller.add_replica("r1", "host:1")
    world.controller.add_replica("r1", "host:2")


def source_of_other_columns(world: World) -> None:
    flow = hr.Flow("other columns")
    flow.sink("out", flow.table("bids", Top))
    world.view("more", encode(flow))


def source_of_added_rows_over_a_table(world: World) -> None:
    flow = hr.Flow("added")
    flow.sink("out", flow.source("bids", Bid))
    world.view("more", encode(flow))


def view_into_itself(world: World) -> None:
    world.view("more", into="more")


def two_sinks(world: World) -> None:
    flow = hr.Flow("twins")
    bids = flow.table("bids", Bid)
    flow.sink("one", bids)
    flow.sink("other", bids)
    world.view("more", encode(flow))


def key_without_its_column(world: World) -> None:
    world.view("more", key=["price"])


def no_name(world: World) -> None:
    world.view(" ")


def name_of_ours(world: World) -> None:
    world.view("headrace.views")


def still_read(world: World) -> None:
    world.controller.drop("bids")


def since_passed(world: World) -> None:
    world.view("now", keep=0)
    replica = world.replica("r1")
    time = world.write("bids", (1, 2))
    replica.reports("u2", time + 1)
    world.passes(1_000)
    world.peek("now", at=time - 1)


def write_to_a_view(world: World) -> None:
    world.write("top", (1, 2))


def take_back_what_is_only_added(world: World) -> None:
    world.controller.create_collection("log", BIDS, append_only=True)
    world.change("log", ((1, 2), -1))


def row_of_a_wrong_type(world: World) -> None:
    world.write("bids", (1, "two"))


def keys_of_a_collection(world: World) -> None:
    world.peek("bids", keys=[(1,)])


def keys_of_a_wrong_length(world: World) -> None:
    world.peek(keys=[(1, 2)])


def time_and_staleness(world: World) -> None:
    world.peek(at=5, staleness=5)


def copy_into_a_folder(world: World) -> None:
    world.controller.copy("top", "folder/top.jsonl", print)


def copy_of_an_unknown_form(world: World) -> None:
    world.controller.copy("top", "top.xml", print)


def replica_not_connected(world: World) -> None:
    world.replica("r1").dies(ConnectionBroken("gone"))
    world.controller.peek(PeekRequest("top", replica="r1"), print)


def superseded(world: World) -> None:
    old = world.controller
    world.start()
    old.maintain()


CASES: tuple[Callable[[World], None], ...] = (
    unknown_view,
    unknown_replica,
    name_taken_by_another_view,
    name_taken_by_a_replica,
    source_of_other_columns,
    source_of_added_rows_over_a_table,
    view_into_itself,
    two_sinks,
    key_without_its_column,
    no_name,
    name_of_ours,
    still_read,
    since_passed,
    write_to_a_view,
    take_back_what_is_only_added,
    row_of_a_wrong_type,
    keys_of_a_collection,
    keys_of_a_wrong_length,
    time_and_staleness,
    copy_into_a_folder,
    copy_of_an_unknown_form,
    replica_not_connected,
    superseded,
)


@pytest.mark.parametrize("mistake", CASES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_told_in_these_words(mistake: Callable[[World], None]) -> None:
    world = World()
    world.view(key=["auction"])
    with pytest.raises(HeadraceError) as error:
        mistake(world)
    assert_golden(GOLDEN / f"{mistake.__name__}.txt", f"{error.value}\n")


def test_a_file_of_another_program_is_told_in_these_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("These are notes, and no database. " * 100)
    with pytest.raises(HeadraceError) as error:
        DurableCatalog.open("notes.txt")
    assert_golden(GOLDEN / "file_of_another_program.txt", f"{error.value}\n")
