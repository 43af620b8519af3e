"""What may be said when, on both sides of a connection."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import pytest

from headrace.compute.errors import ProtocolViolation
from headrace.compute.frontier import END, LAST_TIME, START, Frontier
from headrace.compute.protocol import stages
from headrace.compute.protocol.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    CollectionExport,
    CollectionImport,
    CollectionTarget,
    Command,
    CopyToExport,
    CreateDataflow,
    CreateInstance,
    CreateTimely,
    Dataflow,
    Export,
    IndexExport,
    IndexImport,
    IndexTarget,
    InitializationComplete,
    InstanceConfig,
    Parameters,
    Peek,
    PlanBytes,
    Schedule,
    SubscribeExport,
    UpdateConfiguration,
)
from headrace.compute.protocol.responses import (
    BatchResponse,
    Canceled,
    CopyToResponse,
    Dropped,
    DroppedAt,
    EncodedUpdates,
    Frontiers,
    PeekResponse,
    Problem,
    Response,
    RowCount,
    RowsResponse,
    Status,
    SubscribeResponse,
)
from headrace.compute.protocol.stages import ControllerStages, ProtocolStage, ReplicaStages

Message = Command | Response
COMMANDS = Command.__args__  # type: ignore[attr-defined]
BEGIN: list[Message] = [CreateTimely(), CreateInstance(InstanceConfig("memory:"))]
BEGUN: list[Message] = [*BEGIN, InitializationComplete()]
A, B = b"a" * 16, b"b" * 16
DROP_U1, DROP_T1, DROP_C1 = (AllowCompaction(id, END) for id in ("u1", "t1", "c1"))


def create(*exports: Export, imports: Sequence[str] = ()) -> CreateDataflow:
    return CreateDataflow(
        Dataflow(
            PlanBytes(b"plan"),
            (CollectionImport("s", "s1"),),
            tuple(IndexImport(f"from {id}", id) for id in imports),
            exports,
            Frontier(5),
        )
    )


U1 = create(IndexExport("u1", "out"))
T1 = create(SubscribeExport("t1", "out"))
T1_WITHOUT = create(SubscribeExport("t1", "out", snapshot=False))
C1 = create(CopyToExport("c1", "out", "rows.jsonl"))
M1 = create(CollectionExport("m1", "out", "s7"))


def peek(uuid: bytes = A, index: str = "u1") -> Peek:
    return Peek(uuid, IndexTarget(index), 9)


def rows(uuid: bytes = A) -> PeekResponse:
    return PeekResponse(uuid, RowsResponse(()))


def batch(lower: int, upper: int | None, *times: int) -> SubscribeResponse:
    updates = tuple(((time,), time, 1) for time in times)
    return SubscribeResponse("t1", BatchResponse(Frontier(lower), Frontier(upper), updates))


def problem(lower: int, upper: int) -> SubscribeResponse:
    return SubscribeResponse("t1", BatchResponse(Frontier(lower), Frontier(upper), Problem("P736", "failed")))


def told(write: int | None = None, *, id: str = "u1") -> Frontiers:
    return Frontiers(id, *[Frontier(write)] * 3)


def dropped_at(time: int) -> SubscribeResponse:
    return SubscribeResponse("t1", DroppedAt(Frontier(time)))


def say(messages: Sequence[Message]) -> None:
    """Both sides see it all; nothing crosses."""
    controller, replica = ControllerStages(), ReplicaStages()
    for message in messages:
        say_to(controller, replica, message)


def say_to(controller: ControllerStages, replica: ReplicaStages, message: Message) -> None:
    if isinstance(message, COMMANDS):
        controller.check_sent(message)
        replica.check_command(message)
    else:
        replica.check_sent(message)  # type: ignore[arg-type]
        controller.check_response(message)  # type: ignore[arg-type]


MAY_BE_SAID: dict[str, list[Message]] = {
    "a whole life": [
        *BEGIN,
        UpdateConfiguration(Parameters()),
        U1,
        Schedule("u1"),
        InitializationComplete(),
        told(5),
        peek(),
        rows(),
        CancelPeek(A),
        AllowCompaction("u1", Frontier(7)),
        told(9),
        DROP_U1,
        told(None),
    ],
    "responses in the initialization stage": [*BEGIN, U1, told(5), InitializationComplete()],
    "an index read by another dataflow": [
        *BEGUN,
        U1,
        create(IndexExport("u2", "out"), imports=["u1"]),
        Schedule("u2"),
        Schedule("u1"),
    ],
    "a peek of a collection that no dataflow has": [*BEGUN, Peek(A, CollectionTarget("s1"), 3), rows()],
    "rows for a peek that is cancelled": [*BEGUN, U1, peek(), CancelPeek(A), rows()],
    "a peek that is answered before its index was dropped, later": [*BEGUN, U1, peek(), DROP_U1, rows()],
    "frontiers of what is dropped, until END": [*BEGUN, U1, DROP_U1, told(6), told(None)],
    "END of the kinds that were not END": [
        *BEGUN,
        U1,
        Frontiers("u1", write=END, input=Frontier(9)),
        DROP_U1,
        Frontiers("u1", input=END, output=END),
    ],
    "nothing of a sealed index that is dropped": [*BEGUN, U1, told(None), DROP_U1],
    "writes are allowed twice": [*BEGUN, M1, AllowWrites("m1"), AllowWrites("m1")],
    "a compaction to where it is": [*BEGUN, U1, AllowCompaction("u1", Frontier(5))],
    "a subscription to its end": [*BEGUN, T1, batch(0, 6, 5), batch(6, 8), batch(8, None, 8, 9), DROP_T1],
    "a subscription that is dropped": [*BEGUN, T1, batch(0, 6), DROP_T1, batch(6, 7), dropped_at(7)],
    "a subscription that is dropped before its first batch": [*BEGUN, T1, DROP_T1, dropped_at(0)],
    "a subscription that ends as it is dropped": [*BEGUN, T1, DROP_T1, batch(0, None)],
    "a subscription that has failed": [*BEGUN, T1, problem(0, 6), batch(6, 7), problem(7, 8)],
    "a subscription without its snapshot": [*BEGUN, T1_WITHOUT, batch(0, 9, 6)],
    "a copy": [*BEGUN, C1, CopyToResponse("c1", RowCount(3)), DROP_C1],
    "a copy that is dropped": [*BEGUN, C1, DROP_C1, CopyToResponse("c1", Dropped())],
    "a copy that is whole as it is dropped": [*BEGUN, C1, DROP_C1, CopyToResponse("c1", RowCount(3))],
    "status of anything": [*BEGUN, Status(None, "here"), Status("u9", "gone")],
}

MAY_NOT_BE_SAID: dict[str, list[Message]] = {
    "anything before CreateTimely": [CreateInstance(InstanceConfig("memory:"))],
    "CreateTimely twice": [CreateTimely(), CreateTimely()],
    "a computation command in the creation stage": [CreateTimely(), U1],
    "a setting in the creation stage": [CreateTimely(), UpdateConfiguration(Parameters())],
    "the end of the initialization in the creation stage": [CreateTimely(), InitializationComplete()],
    "a response in the creation stage": [CreateTimely(), Status(None, "up")],
    "CreateTimely later": [*BEGUN, CreateTimely()],
    "CreateInstance later": [*BEGUN, CreateInstance(InstanceConfig("memory:"))],
    "the end of the initialization twice": [*BEGUN, InitializationComplete()],
    "a Schedule of what was not created": [*BEGUN, Schedule("u1")],
    "AllowWrites of what was not created": [*BEGUN, AllowWrites("u1")],
    "AllowCompaction of what was not created": [*BEGUN, AllowCompaction("u1", Frontier(9))],
    "a peek of what was not created": [*BEGUN, peek()],
    "a peek of a subscription": [*BEGUN, T1, peek(index="t1")],
    "a Schedule twice": [*BEGUN, U1, Schedule("u1"), Schedule("u1")],
    "a Schedule of what is dropped": [*BEGUN, U1, DROP_U1, Schedule("u1")],
    "AllowWrites of what is dropped": [*BEGUN, M1, AllowCompaction("m1", END), AllowWrites("m1")],
    "a peek of what is dropped": [*BEGUN, U1, DROP_U1, peek()],
    "a second drop": [*BEGUN, U1, DROP_U1, DROP_U1],
    "a compaction that goes back": [
        *BEGUN,
        U1,
        AllowCompaction("u1", Frontier(9)),
        AllowCompaction("u1", Frontier(8)),
    ],
    "a compaction before the as-of": [*BEGUN, U1, AllowCompaction("u1", Frontier(4))],
    "an id twice": [*BEGUN, U1, U1],
    "an id twice in one dataflow": [*BEGUN, create(IndexExport("u1", "a"), IndexExport("u1", "b"))],
    "a dataflow that exports nothing": [*BEGUN, create()],
    "a dataflow that begins at the end": [*BEGUN, CreateDataflow(U1.dataflow.at(END))],
    "a dataflow that begins at the last time": [*BEGUN, CreateDataflow(U1.dataflow.at(Frontier(LAST_TIME)))],
    "an import that was not created": [*BEGUN, create(IndexExport("u2", "out"), imports=["u1"])],
    "an import of what is dropped": [*BEGUN, U1, DROP_U1, create(IndexExport("u2", "out"), imports=["u1"])],
    "an import of a subscription": [*BEGUN, T1, create(IndexExport("u2", "out"), imports=["t1"])],
    "a uuid twice": [*BEGUN, U1, peek(), peek()],
    "a uuid twice after the answer": [*BEGUN, U1, peek(), rows(), peek()],
    "a CancelPeek without its peek": [*BEGUN, U1, CancelPeek(A)],
    "a CancelPeek of another": [*BEGUN, U1, peek(), CancelPeek(B)],
    "a CancelPeek twice": [*BEGUN, U1, peek(), CancelPeek(A), CancelPeek(A)],
    "a CancelPeek twice after the answer": [*BEGUN, U1, peek(), rows(), CancelPeek(A), CancelPeek(A)],
    "an answer that nobody asked for": [*BEGUN, rows()],
    "two answers": [*BEGUN, U1, peek(), rows(), rows()],
    "two answers around the CancelPeek": [
        *BEGUN,
        U1,
        peek(),
        rows(),
        CancelPeek(A),
        PeekResponse(A, Canceled()),
    ],
    "Canceled without CancelPeek": [*BEGUN, U1, peek(), PeekResponse(A, Canceled())],
    "frontiers of what was not created": [*BEGUN, told(9)],
    "frontiers of a subscription": [*BEGUN, T1, told(9, id="t1")],
    "frontiers of a copy": [*BEGUN, C1, told(9, id="c1")],
    "frontiers before the as-of": [*BEGUN, U1, told(4)],
    "frontiers that stand still": [*BEGUN, U1, told(6), Frontiers("u1", input=Frontier(6))],
    "frontiers that go back": [*BEGUN, U1, told(6), Frontiers("u1", write=Frontier(5))],
    "frontiers after END": [*BEGUN, U1, told(None), Frontiers("u1", write=END)],
    "frontiers after the end of what is dropped": [*BEGUN, U1, DROP_U1, told(None), told(None)],
    "no frontier at all": [*BEGUN, U1, Frontiers("u1")],
    "output beyond an earlier write": [
        *BEGUN,
        U1,
        Frontiers("u1", write=Frontier(5)),
        Frontiers("u1", output=Frontier(9)),
    ],
    "output beyond write": [*BEGUN, U1, Frontiers("u1", write=Frontier(6), output=Frontier(7))],
    "a batch of an index": [*BEGUN, U1, SubscribeResponse("u1", BatchResponse(START, END, ()))],
    "a first batch that begins later": [*BEGUN, T1, batch(5, 6)],
    "a first batch that ends at the as-of": [*BEGUN, T1, batch(0, 5)],
    "a gap": [*BEGUN, T1, batch(0, 6), batch(7, 8)],
    "an overlap": [*BEGUN, T1, batch(0, 6), batch(5, 8)],
    "a batch without times": [*BEGUN, T1, batch(0, 6), batch(6, 6)],
    "columns of a time after their batch": [
        *BEGUN,
        T1,
        SubscribeResponse("t1", BatchResponse(START, Frontier(7), EncodedUpdates(7, (b"",)))),
    ],
    "columns of a time before the as-of": [
        *BEGUN,
        T1,
        SubscribeResponse("t1", BatchResponse(START, Frontier(7), EncodedUpdates(4, (b"",)))),
    ],
    "updates before their batch": [*BEGUN, T1, batch(0, 7), batch(7, 9, 6)],
    "updates after their batch": [*BEGUN, T1, batch(0, 7, 7)],
    "updates before the as-of": [*BEGUN, T1, batch(0, 7, 4)],
    "a snapshot that was not wanted": [*BEGUN, T1_WITHOUT, batch(0, 7, 5)],
    "updates after a problem": [*BEGUN, T1, problem(0, 6), batch(6, 9, 7)],
    "a batch after the end": [*BEGUN, T1, batch(0, None), batch(0, None)],
    "DroppedAt without a drop": [*BEGUN, T1, batch(0, 6), dropped_at(6)],
    "DroppedAt elsewhere": [*BEGUN, T1, batch(0, 6), DROP_T1, dropped_at(7)],
    "DroppedAt after the end": [*BEGUN, T1, batch(0, None), DROP_T1, SubscribeResponse("t1", DroppedAt(END))],
    "DroppedAt twice": [*BEGUN, T1, batch(0, 6), DROP_T1, dropped_at(6), dropped_at(6)],
    "two answers of a copy": [*BEGUN, C1, *[CopyToResponse("c1", RowCount(1))] * 2],
    "Dropped without a drop": [*BEGUN, C1, CopyToResponse("c1", Dropped())],
    "an answer of a copy after its end": [
        *BEGUN,
        C1,
        DROP_C1,
        CopyToResponse("c1", Dropped()),
        CopyToResponse("c1", RowCount(1)),
    ],
}


@pytest.mark.parametrize("messages", MAY_BE_SAID.values(), ids=MAY_BE_SAID)
def test_it_may_be_said(messages: list[Message]) -> None:
    say(messages)


@pytest.mark.parametrize("messages", MAY_NOT_BE_SAID.values(), ids=MAY_NOT_BE_SAID)
def test_it_may_not_be_said_and_all_before_it_may(messages: list[Message]) -> None:
    say(messages[:-1])
    with pytest.raises(ProtocolViolation) as refused:
        say(messages)
    assert refused.value.facts["message"] == type(messages[-1]).__name__
    assert refused.value.facts["stage"] in {stage.value for stage in ProtocolStage}


def remembered(stages: ControllerStages | ReplicaStages) -> object:
    return deepcopy((vars(stages._exports), vars(stages._peeks)))  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("messages", MAY_NOT_BE_SAID.values(), ids=MAY_NOT_BE_SAID)
def test_what_is_refused_changes_nothing(messages: list[Message]) -> None:
    *allowed, refused = messages
    controller, replica = ControllerStages(), ReplicaStages()
    for message in allowed:
        say_to(controller, replica, message)
    before = remembered(controller), remembered(replica)
    with pytest.raises(ProtocolViolation):
        say_to(controller, replica, refused)
    assert (remembered(controller), remembered(replica)) == before


def test_no_responses_in_the_creation_stage() -> None:
    replica = ReplicaStages()
    for message in BEGIN:
        with pytest.raises(ProtocolViolation, match="creation stage"):
            replica.check_sent(Status(None, "up"))
        replica.check_command(message)  # type: ignore[arg-type]
    replica.check_sent(Status(None, "up"))


@pytest.mark.parametrize(
    "command",
    [Schedule("u1"), AllowCompaction("u1", Frontier(9)), AllowWrites("u1"), peek()],
    ids=lambda command: type(command).__name__,
)
def test_commands_respect_dependencies(command: Command) -> None:
    controller = ControllerStages()
    for message in BEGUN:
        controller.check_sent(message)  # type: ignore[arg-type]
    with pytest.raises(ProtocolViolation, match="not created"):
        controller.check_sent(command)
    controller = ControllerStages()
    for message in [*BEGUN, U1, command]:
        controller.check_sent(message)  # type: ignore[arg-type]


def test_messages_that_cross_are_no_violation() -> None:
    controller, replica = ControllerStages(), ReplicaStages()
    for command in [*BEGUN, U1, T1, peek()]:
        controller.check_sent(command)  # type: ignore[arg-type]
        replica.check_command(command)  # type: ignore[arg-type]
    # The replica answers and reports while all is cancelled and dropped.
    said: list[Response] = [rows(), told(7), batch(0, 8, 6)]
    undone: list[Command] = [CancelPeek(A), DROP_U1, DROP_T1]
    for response in said:
        replica.check_sent(response)
    for command in undone:
        controller.check_sent(command)
    for response in said:
        controller.check_response(response)
    for command in undone:
        replica.check_command(command)
    for response in (told(None), dropped_at(8)):
        replica.check_sent(response)
        controller.check_response(response)


def test_frontiers_of_what_was_never_created_are_refused_on_both_sides() -> None:
    for say_it in (ControllerStages.check_response, ReplicaStages.check_sent):
        stages = ControllerStages() if say_it is ControllerStages.check_response else ReplicaStages()
        for message in BEGUN:
            stages._command(message)  # type: ignore[arg-type]
        with pytest.raises(ProtocolViolation):
            say_it(stages, told(9, id="u7"))  # type: ignore[arg-type]


def test_what_has_ended_is_forgotten() -> None:
    replica = ReplicaStages()
    for message in BEGUN:
        replica.check_command(message)  # type: ignore[arg-type]
    for n in range(50):
        uuid = bytes([n]) * 16
        replica.check_command(create(IndexExport(f"u{n}", "out"), SubscribeExport(f"t{n}", "out")))
        replica.check_command(peek(uuid, f"u{n}"))
        replica.check_sent(rows(uuid))
        replica.check_command(CancelPeek(uuid))
        replica.check_command(AllowCompaction(f"u{n}", END))
        replica.check_command(AllowCompaction(f"t{n}", END))
        replica.check_sent(told(None, id=f"u{n}"))
        replica.check_sent(SubscribeResponse(f"t{n}", DroppedAt(START)))
    assert replica.remembered == 0


def test_peeks_whose_cancellation_never_comes_are_forgotten_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MAX_ANSWERED", 10)
    replica = ReplicaStages()
    for message in [*BEGUN, U1]:
        replica.check_command(message)  # type: ignore[arg-type]
    for n in range(50):
        replica.check_command(peek(bytes([n]) * 16))
        replica.check_sent(rows(bytes([n]) * 16))
    assert replica.remembered == 11
    replica.check_command(CancelPeek(bytes([49]) * 16))
    replica.check_command(CancelPeek(bytes([0]) * 16))  # it cannot be told any more from one never asked
