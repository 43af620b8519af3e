"""Copies: rows into a file, written by replicas, answered once."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.compute.errors import BadMessage, SinceViolation, TargetReplicaLost
from headrace.compute.frontier import END, Frontier
from headrace.compute.protocol.commands import CopyToExport, CreateDataflow
from headrace.compute.protocol.responses import CopyToResponse, Dropped, Frontiers, Problem, RowCount
from headrace.errors import Origin
from tests.compute.controller.world import World


def copy(world: World, **options: Any) -> tuple[str, list[Any]]:
    answers: list[Any] = []
    return world.controller.copy("top", "top.jsonl", answers.append, **options), answers


def test_the_first_answer_wins_and_no_frontiers_are_owed(world: World) -> None:
    world.view()
    first, second = world.replica("r1"), world.replica("r2")
    time = world.write("bids", (1, 2))
    id, answers = copy(world)
    dataflow = first.dataflow(id)
    assert dataflow.exports == (CopyToExport(id, "output", "top.jsonl"),)
    assert (dataflow.as_of, dataflow.until) == (Frontier(time), Frontier(time + 1))
    second.hear()
    first.connection.handle_response(CopyToResponse(id, RowCount(7)))
    second.connection.handle_response(CopyToResponse(id, RowCount(7)))
    assert answers == [RowCount(7)]
    assert first.compactions(id) == second.compactions(id) == [END]
    assert world.problems() == []
    first.connection.handle_response(Frontiers(id, write=Frontier(9)))
    assert len(world.problems()) == 1


def test_it_is_cancelled_at_once(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    id, answers = copy(world)
    replica.hear()
    world.controller.cancel_copy(id)
    world.controller.cancel_copy(id)
    replica.hear()
    replica.connection.handle_response(CopyToResponse(id, Dropped()))
    assert answers == [Dropped()]
    assert world.problems() == []


def test_a_targeted_one_is_of_its_replica(world: World) -> None:
    world.view()
    first, second = world.replica("r1"), world.replica("r2")
    id, answers = copy(world, replica="r1")
    assert first.dataflow(id)
    assert all(c.dataflow.name == "top" for c in second.of(CreateDataflow))
    assert len(second.of(CreateDataflow)) == 1
    first.dies()
    assert [a.code for a in answers] == [TargetReplicaLost.code]


@pytest.mark.parametrize("file", ["", "../x.jsonl", "a/b.jsonl", "/x.jsonl", "x.csv", "a\\b.jsonl", ".."])
def test_a_file_is_a_plain_name(world: World, file: str) -> None:
    world.view()
    with pytest.raises(BadMessage):
        world.controller.copy("top", file, print)


def test_a_time_that_is_gone_cannot_be_copied(world: World) -> None:
    world.view(keep=0)
    replica = world.replica("r1")
    time = world.write("bids", (1, 2))
    replica.reports("u1", time + 1)
    world.passes(1_000)
    with pytest.raises(SinceViolation):
        copy(world, at=time - 1)


def test_a_replica_without_room_leaves_it_to_the_others(world: World) -> None:
    world.view()
    first, second = world.replica("r1"), world.replica("r2")
    id, answers = copy(world)
    full = Problem("P741", "no room on the disk", origin=Origin.PROCESS)
    first.hear(), second.hear()
    first.connection.handle_response(CopyToResponse(id, full))
    assert answers == []
    second.connection.handle_response(CopyToResponse(id, RowCount(7)))
    assert answers == [RowCount(7)]
    id, answers = copy(world)
    first.hear(), second.hear()
    first.connection.handle_response(CopyToResponse(id, full))
    second.connection.handle_response(CopyToResponse(id, full))
    assert answers == [full]
