"""Peeks: asked of all replicas, answered once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.compute.controller.pending import StashedOnReplica
from headrace.compute.controller.status import ReplicaState
from headrace.compute.errors import (
    BadMessage,
    DataflowBroken,
    DataflowFailed,
    Missing,
    ReadTimeout,
    SinceViolation,
    TargetReplicaLost,
    TooManyPeeks,
    UnknownName,
    error_of,
)
from headrace.compute.frontier import START, Frontier
from headrace.compute.protocol.client_messages import PeekRequest
from headrace.compute.protocol.commands import CancelPeek, CollectionExport, Finishing, Peek
from headrace.compute.protocol.responses import (
    BatchResponse,
    Canceled,
    CopyToResponse,
    PeekResponse,
    Problem,
    RowsResponse,
    Stashed,
    Status,
    SubscribeResponse,
)
from headrace.errors import Origin
from tests.compute.controller.live import LiveWorld
from tests.compute.controller.world import PaperReplica, World, all_bids, high_tops, shares
from tests.golden import MESSAGES, assert_golden

GOLDEN = Path(__file__).parent / "golden"


def test_the_first_answer_wins_then_all_are_told_to_cancel(world: World) -> None:
    world.view()
    first, second = world.replica("r1"), world.replica("r2")
    uuid, answers = world.peek()
    assert first.peeked() == second.peeked() == [uuid]
    first.answers(uuid, (1, 2))
    second.answers(uuid, (1, 2))
    assert answers == [RowsResponse((((1, 2), 1),))]
    assert first.cancelled() == second.cancelled() == [uuid]


def test_an_error_that_comes_first_is_the_answer(world: World) -> None:
    world.view()
    first, second = world.replica("r1"), world.replica("r2")
    uuid, answers = world.peek()
    problem = Problem("P730", "too large")
    first.hear(), second.hear()
    first.connection.handle_response(PeekResponse(uuid, problem))
    second.answers(uuid, (1, 2))
    assert answers == [problem]


def test_a_targeted_peek_is_asked_of_its_replica_alone_and_others_cannot_answer_it(world: World) -> None:
    world.view()
    first, second = world.replica("r1"), world.replica("r2")
    uuid, answers = world.peek(replica="r1")
    assert first.peeked() == [uuid]
    assert second.peeked() == []
    second.answers(uuid, (9, 9))
    assert answers == []
    assert len(world.status().peeks) == 1
    first.answers(uuid, (1, 2))
    assert answers == [RowsResponse((((1, 2), 1),))]
    assert second.cancelled() == []


def test_cancelling_what_does_not_wait_is_noted_and_does_nothing(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    uuid, answers = world.peek()
    replica.answers(uuid, (1, 2))
    replica.hear()
    world.controller.cancel_peek(uuid)
    assert len(answers) == 1
    assert replica.hear() == []
    assert "a peek that is not pending was to be cancelled" in world.problems()[-1]


def test_a_cancelled_peek_is_answered_at_once_even_without_replicas(world: World) -> None:
    world.view()
    uuid, answers = world.peek()
    world.controller.cancel_peek(uuid)
    assert answers == [Canceled()]


def test_an_answer_after_the_cancellation_is_passed_over(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    uuid, answers = world.peek()
    world.controller.cancel_peek(uuid)
    replica.hear()
    replica.answers(uuid, (1, 2))
    replica.connection.handle_response(PeekResponse(uuid, Canceled()))
    assert answers == [Canceled()]
    assert world.problems() == []


def test_a_peek_below_the_since_is_refused_and_changes_nothing(world: World) -> None:
    world.view(keep=0)
    replica = world.replica("r1")
    time = world.write("bids", (1, 2))
    replica.reports("u1", time + 1)
    world.passes(1_000)
    assert world.view_status().since == Frontier(time)
    replica.hear()
    with pytest.raises(SinceViolation) as error:
        world.peek(at=time - 1)
    assert (error.value.id, error.value.since) == ("u1", Frontier(time))  # type: ignore[attr-defined]
    assert replica.hear() == []
    assert world.status().peeks == ()


def test_an_untargeted_peek_survives_the_loss_of_a_replica(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    uuid, answers = world.peek()
    replica.hear()
    replica.dies()
    assert answers == []
    again = world.replica("r1")
    assert again.peeked() == [uuid]
    again.answers(uuid, (1, 2))
    assert answers == [RowsResponse((((1, 2), 1),))]


def test_a_targeted_peek_ends_with_its_replica(world: World) -> None:
    world.view()
    replica, other = world.replica("r1"), world.replica("r2")
    _, answers = world.peek(replica="r1")
    replica.dies()
    assert [a.code for a in answers] == [TargetReplicaLost.code]
    assert answers[0].retryable
    with pytest.raises(TargetReplicaLost):
        world.peek(replica="r1")
    with pytest.raises(UnknownName):
        world.peek(replica="r3")
    world.controller.check()
    assert other.peeked() == []


def test_a_targeted_peek_ends_with_a_replica_that_is_dropped(world: World) -> None:
    world.view()
    world.replica("r1")
    _, answers = world.peek(replica="r1")
    world.controller.drop_replica("r1")
    assert [a.code for a in answers] == [TargetReplicaLost.code]


def test_the_hold_of_a_peek_is_released_after_the_cancellation_is_told(world: World) -> None:
    world.view(keep=0)
    replica = world.replica("r1")
    early = world.write("bids", (1, 2))
    replica.reports("u1", early + 1)
    uuid, answers = world.peek()
    late = world.write("bids", (1, 3))
    replica.reports("u1", late + 1)
    world.passes(1_000)
    assert world.view_status().since == Frontier(early)
    replica.hear()
    replica.answers(uuid)
    assert len(answers) == 1
    assert [type(c).__name__ for c in replica.hear()] == ["CancelPeek", "AllowCompaction"]
    assert world.view_status().since == Frontier(late)


def test_stashed_rows_are_told_with_the_replica_that_has_them(world: World) -> None:
    world.view()
    replica = world.replica("r1")
    uuid, answers = world.peek()
    replica.hear()
    replica.connection.handle_response(PeekResponse(uuid, Stashed(b"t" * 16, 5, 100)))
    assert answers == [StashedOnReplica(b"t" * 16, 5, 100, (), "r1")]


def test_a_peek_in_the_future_waits_and_no_keys_are_no_rows(world: World) -> None:
    world.view(key=["auction"])
    replica = world.replica("r1")
    uuid, answers = world.peek(at=world.now + 5_000)
    assert replica.peeked() == [uuid]
    assert answers == []
    _, nothing = world.peek(keys=[])
    assert nothing == [RowsResponse(())]
    assert replica.hear() == []


def test_every_served_peek_is_followed_by_a_cancel(world: World) -> None:
    world.view("top")
    world.view("copy", into="written")
    replica = world.replica("r1")
    for _ in range(2):
        uuid, _answers = world.peek()
        replica.answers(uuid)
        replica.hear()
    counts = {kind: len(replica.of(kind)) for kind in (Peek, CancelPeek)}
    assert counts == {Peek: 2, CancelPeek: 2}
    names = [type(c).__name__ for c in replica.told]
    for once in ("CreateTimely", "CreateInstance", "InitializationComplete", "UpdateConfiguration"):
        assert names.count(once) == 1
    assert not world.problems()


@pytest.mark.parametrize(
    "request_",
    [
        PeekRequest("top", keys=[(1, 2)]),
        PeekRequest("bids", keys=[(1, 2)]),
        PeekRequest("top", finishing=Finishing(project=(2,))),
        PeekRequest("top", finishing=Finishing(order_by=((-1, True),))),
        PeekRequest("top", finishing=Finishing(limit=-1)),
        PeekRequest("top", at=-1),
        PeekRequest("top", at=2**63),
        PeekRequest("top", at=5, staleness=5),
        PeekRequest("top", staleness=-5),
    ],
)
def test_a_peek_of_what_is_not_there_is_refused(world: World, request_: PeekRequest) -> None:
    world.view(key=["auction"])
    with pytest.raises(BadMessage):
        world.controller.peek(request_, print)
    with pytest.raises(UnknownName):
        world.peek("nothing")
    assert world.status().peeks == ()


def test_collections_are_peeked_too(world: World) -> None:
    world.view()
    time = world.write("bids", (1, 2))
    replica = world.replica("r1")
    uuid, answers = world.peek("bids")
    (peek,) = replica.of(Peek)
    assert (peek.target.id, peek.time) == (world.controller.describe("bids").id, time)
    replica.answers(uuid, (1, 2))
    assert answers == [RowsResponse((((1, 2), 1),))]


def test_a_peek_that_waits_for_a_collection_to_be_written_is_told_when_it_is_dropped(world: World) -> None:
    world.view(into="written")
    world.replica("r1")
    world.write("bids", (1, 2))
    _, answers = world.peek("written")
    assert answers == []
    world.controller.drop("top")
    (answer,) = answers
    assert isinstance(answer, Problem)
    assert answer.code == UnknownName.code


def test_what_a_dropped_view_was_written_into_is_there_while_peeks_of_the_view_wait(world: World) -> None:
    world.view(into="written")
    replica = world.replica("r1")
    world.write("bids", (1, 2))
    (written,) = {e.collection for e in replica.dataflow("u1").exports if isinstance(e, CollectionExport)}
    uuid, _ = world.peek()
    world.controller.drop("top")
    world.passes(10_000)
    assert written in world.collections.all()
    replica.answers(uuid, (1, 2))
    world.passes(10_000)
    assert written not in world.collections.all()


def test_a_peek_of_a_dropped_view_is_told_when_nothing_will_come_of_it(world: World) -> None:
    world.view()
    world.view("high", high_tops())
    world.replica("r1")
    time = world.write("bids", (1, 2))
    _, soon = world.peek("high")
    _, never = world.peek("high", at=time + 60_000)
    world.controller.drop("high")
    world.controller.drop("top")
    assert soon == never == []
    world.controller.drop("bids")
    assert soon == []
    assert [answer.code for answer in never] == [UnknownName.code]


def test_readers_of_what_a_failed_view_writes_are_told_instead_of_waiting_for_ever() -> None:
    world = LiveWorld()
    world.view("shares", shares(), into="rows")
    world.view("more", all_bids("rows"))
    world.joins("r1")
    before = world.write("bids", (1, 20))
    world.rest()
    _, subscribed = world.subscribe("rows")
    _, waiting = world.peek("rows", at=before + 5_000)
    world.write("bids", (1, 0))
    asked = [world.peek(name)[1] for name in ("shares", "rows", "more")]
    world.rest()
    world.now += 10_000
    world.write("bids", (1, 30))
    asked.append(world.peek("rows")[1])
    world.rest()
    for answers in (*asked, waiting):
        (answer,) = answers
        assert isinstance(answer, Problem)
        assert answer.code == DataflowFailed.code
    assert isinstance(subscribed[-1].updates, Problem)
    assert world.rows("rows", at=before) == [((1, 3), 1)]


def test_peeks_that_nobody_answers_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.compute.controller.reads.MAX_PENDING", 2)
    world.view()
    uuid, _ = world.peek()
    world.peek()
    with pytest.raises(TooManyPeeks) as error:
        world.peek()
    assert error.value.facts == {"limit": 2}
    assert_golden(MESSAGES / "too_many_peeks.txt", f"{error.value}\n")
    world.controller.cancel_peek(uuid)
    world.peek()


FULL = Problem("P741", "no room on the disk", retryable=True, origin=Origin.PROCESS)


def test_a_problem_of_one_replica_is_no_answer_while_another_may_answer(world: World) -> None:
    world.view()
    first, second = world.replica("r1"), world.replica("r2")
    uuid, answers = world.peek()
    first.hear(), second.hear()
    first.connection.handle_response(PeekResponse(uuid, FULL))
    assert answers == []
    assert world.problems() == ["it cannot answer a peek of 'top': no room on the disk"]
    second.answers(uuid, (1, 2))
    assert answers == [RowsResponse((((1, 2), 1),))]


def test_a_problem_of_a_replica_is_the_answer_of_a_peek_for_that_replica(world: World) -> None:
    world.view()
    first = world.replica("r1")
    world.replica("r2")
    uuid, answers = world.peek(replica="r1")
    first.hear()
    first.connection.handle_response(PeekResponse(uuid, FULL))
    assert answers == [FULL]


def test_a_replica_that_is_back_is_asked_again_what_it_could_not_answer(world: World) -> None:
    world.view()
    first, second = world.replica("r1"), world.replica("r2")
    uuid, answers = world.peek()
    first.hear(), second.hear()
    first.connection.handle_response(PeekResponse(uuid, FULL))
    first.dies()
    second.dies()
    assert answers == []
    again = world.replica("r1")
    assert again.peeked() == [uuid]
    again.answers(uuid, (1, 2))
    assert answers == [RowsResponse((((1, 2), 1),))]


_NAMES = ("r1", "r2", "r3")
_ANSWERS = {"rows": RowsResponse((((1, 2), 1),)), "full": FULL, "data": Problem("P730", "too large")}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(_NAMES), st.sampled_from([*_ANSWERS, "dies", "comes"])), max_size=12)
)
@example([("r1", "full"), ("r2", "dies"), ("r3", "dies")])
def test_a_peek_has_the_first_answer_that_is_one(said: list[tuple[str, str]]) -> None:
    """Catches: the health of a replica taken for the answer; a peek that waits though nobody is left."""
    world = World()
    world.view()
    replicas = {name: world.replica(name) for name in _NAMES}
    uuid, answers = world.peek()
    may_answer = dict.fromkeys(_NAMES, True)
    full = dict.fromkeys(_NAMES, False)
    expected: list[object] = []
    for name, what in said:
        there = name in may_answer
        if what == "comes" and not there:
            replicas[name] = world.replica(name)
            may_answer[name], full[name] = True, False
        elif what == "dies" and there:
            replicas[name].dies()
            del may_answer[name]
            full[name] = False
        elif what in _ANSWERS and there and may_answer[name]:
            replicas[name].hear()
            if uuid in replicas[name].peeked() and not expected:
                replicas[name].connection.handle_response(PeekResponse(uuid, _ANSWERS[what]))
                may_answer[name], full[name] = False, what == "full"
                if what != "full":
                    expected.append(_ANSWERS[what])
        if not expected and any(full.values()) and not any(may_answer.values()):
            expected.append(FULL)
        assert answers == expected
    world.controller.check()


def test_a_view_that_one_replica_could_not_build_is_served_by_the_other() -> None:
    world = LiveWorld()
    world.view("all", all_bids())
    sick = world.joins("r1")
    sick.away = True
    world.joins("r2")
    _, subscribed = world.subscribe("all")
    for _ in range(20):
        sick.pump()
    sick.away = False
    world.write("bids", (1, 20))
    assert world.rows("all") == [((1, 20), 1)]
    (updates,) = [event.updates for event in subscribed if event.updates]
    assert [(row, weight) for row, _, weight in updates] == [((1, 20), 1)]
    _, answers = world.peek("all", replica="r1")
    world.rest()
    (answer,) = answers
    assert (answer.code, answer.origin) == (DataflowBroken.code, Origin.PROCESS)
    sick.cut()
    sick.connect(world.controller)
    assert world.rows("all", replica="r1") == [((1, 20), 1)]


# --- reads that nobody answers -----------------------------------------------------------------


def hydrated(world: World, name: str, upper: int) -> PaperReplica:
    replica = world.replica(name)
    replica.reports("u1", upper)
    return replica


def nobody(world: World) -> None:
    world.controller.add_replica("r1", "host:1")


def still_building(world: World) -> None:
    world.replica("r1")


def behind(world: World) -> None:
    replica = hydrated(world, "r1", world.write("bids", (1, 2)) + 1)
    world.now += 5_000
    world.write("bids", (1, 3))
    replica.hear()


def silent(world: World) -> None:
    hydrated(world, "r1", world.write("bids", (1, 2)) + 1)


def unwell(world: World) -> None:
    hydrated(world, "r1", world.write("bids", (1, 2)) + 1)
    hydrated(world, "r2", world.status().read_time + 1)


@pytest.mark.parametrize(
    ("scene", "missing"),
    [
        (nobody, Missing.REPLICA),
        (still_building, Missing.HYDRATION),
        (behind, Missing.TIME),
        (silent, Missing.ANSWER),
        (unwell, Missing.HEALTH),
    ],
)
def test_a_read_that_is_given_up_says_what_was_missing(
    world: World, scene: Callable[[World], None], missing: Missing
) -> None:
    world.view()
    scene(world)
    uuid, answers = world.peek()
    id, events = world.subscribe()
    copied: list[Any] = []
    copy = world.controller.copy("top", "top.jsonl", copied.append)
    if scene is unwell:
        for replica in world.controller.connections():
            replica.take_commands()
            if replica.replica == "r1":
                replica.handle_response(PeekResponse(uuid, FULL))
                replica.handle_response(CopyToResponse(copy, FULL))
                replica.handle_response(SubscribeResponse(id, BatchResponse(START, Frontier(5), FULL)))
    world.now += 7_500
    world.controller.time_out_peek(uuid)
    world.controller.time_out_subscription(id)
    assert world.controller.time_out_copy(copy, 7_000)
    for problem in (*answers, *copied, *(event.updates for event in events)):
        error = error_of(problem)
        assert isinstance(error, ReadTimeout)
        assert error.facts["missing"] == missing.value
        assert error.retryable
    assert len(answers) == len(copied) == len(events) == 1
    connected = tuple(r.name for r in world.status().replicas if r.state is ReplicaState.CONNECTED)
    assert error_of(answers[0]).facts["replicas"] == connected
    assert_golden(GOLDEN / f"{scene.__name__}.txt", f"{error_of(answers[0])}\n")
    world.controller.time_out_peek(uuid)
    world.controller.time_out_subscription(id)
    assert world.controller.time_out_copy(copy, 7_000)
    assert len(answers) == len(copied) == len(events) == 1
    world.controller.check()


def test_a_read_of_the_future_says_that_nothing_was_written(world: World) -> None:
    world.view()
    time = world.write("bids", (1, 2))
    replica = hydrated(world, "r1", time + 1)
    for view in ("top", "bids"):
        uuid, answers = world.peek(view, at=time + 60_000)
        replica.hear()
        world.controller.time_out_peek(uuid)
        assert error_of(answers[0]).facts["missing"] == Missing.WRITE.value
        assert replica.cancelled()[-1:] == [uuid]


def test_a_copy_goes_on_while_a_replica_that_can_write_it_gives_signs_of_life(world: World) -> None:
    world.view()
    replica = hydrated(world, "r1", world.write("bids", (1, 2)) + 1)
    copied: list[Any] = []
    copy = world.controller.copy("top", "top.jsonl", copied.append)
    for _ in range(3):
        world.now += 5_000
        replica.connection.handle_response(Status(None, ""))
        world.now += 900
        assert not world.controller.time_out_copy(copy, 1_000)
    world.now += 200
    assert world.controller.time_out_copy(copy, 1_000)
    assert error_of(copied[0]).facts["missing"] == Missing.ANSWER.value
