"""Requests, answers and events of clients have the bytes of `client.proto`, and come back as they were."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from headrace.compute.client.generated import client_pb2 as pb
from headrace.compute.errors import BadMessage
from headrace.compute.plans import schema_to_bytes
from headrace.compute.protocol import rows
from headrace.compute.protocol.client_messages import (
    ANSWER,
    EVENT,
    REQUEST,
    SUBSCRIPTION,
    AddReplica,
    BatchPart,
    CancelPeekRequest,
    ConditionAnswer,
    CopyRequest,
    CreateCollection,
    CreateView,
    DescribeRequest,
    Description,
    DoneAnswer,
    DropReplica,
    DropRequest,
    GetPlan,
    PeekMessage,
    PeekRequest,
    ReleaseReplica,
    RowsPart,
    StatusRequest,
    SubscriptionRequest,
    WritePart,
    WriteRequest,
)
from headrace.compute.protocol.commands import Finishing, PlanBytes
from headrace.compute.protocol.responses import Problem
from headrace.compute.protocol.serialization import problem_to_bytes
from headrace.errors import HeadraceError
from headrace.expr.types import INT64, STR, Field, Schema

SCHEMA = Schema((Field("shop", STR), Field("price", INT64)))
UUID = b"0123456789abcdef"
PROBLEM = Problem("bad_row", "no", fix="write another")
LARGEST = 2**64 - 1

REQUESTS: list[tuple[Any, pb.Request]] = [
    (DescribeRequest("v"), pb.Request(describe=pb.Describe(name="v"))),
    (GetPlan("v"), pb.Request(get_plan=pb.GetPlan(view="v"))),
    (
        CreateCollection("c", SCHEMA, True),
        pb.Request(
            create_collection=pb.CreateCollection(name="c", schema=schema_to_bytes(SCHEMA), append_only=True)
        ),
    ),
    (
        CreateView("v", b"plan", b"places", ("shop",), 5, "c", tick_rows=1, tick_seconds=LARGEST),
        pb.Request(
            create_view=pb.CreateView(
                name="v",
                plan=b"plan",
                places=b"places",
                key=["shop"],
                keep=5,
                into="c",
                tick_rows=1,
                tick_seconds=LARGEST,
            )
        ),
    ),
    (
        CreateView("v", b"plan", b"", (), 0, None, rounds=0),
        pb.Request(create_view=pb.CreateView(name="v", plan=b"plan", rounds=0)),
    ),
    (DropRequest("v"), pb.Request(drop=pb.Drop(name="v"))),
    (
        WriteRequest((WritePart("c", "s1", ((("a", 1), 2),), ()),), UUID),
        pb.Request(
            write=pb.Write(
                parts=[
                    pb.Write.Part(
                        collection="c", id="s1", come=rows.encode([(("a", 1), 2)]), go=rows.encode([])
                    )
                ],
                id=UUID,
            )
        ),
    ),
    (
        PeekMessage("u1", PeekRequest("v")),
        pb.Request(peek=pb.Peek(view="v", id="u1", all=True)),
    ),
    (
        PeekMessage(
            "u1",
            PeekRequest(
                "v",
                keys=(("a",),),
                at=0,
                predicate=b"p",
                finishing=Finishing(((1, True), (0, False)), 0, 7, ()),
                replica="r1",
                staleness=0,
            ),
            patience=0,
        ),
        pb.Request(
            peek=pb.Peek(
                view="v",
                id="u1",
                keys=rows.encode([("a",)]),
                at=0,
                predicate=b"p",
                order_by=[pb.Peek.Order(column=1, descending=True), pb.Peek.Order(column=0)],
                limit=0,
                offset=7,
                projected=True,
                replica="r1",
                staleness=0,
                patience=0,
            )
        ),
    ),
    (
        PeekMessage("u1", PeekRequest("v", keys=(), finishing=Finishing(project=(1, 0)))),
        pb.Request(peek=pb.Peek(view="v", id="u1", keys=rows.encode([]), project=[1, 0], projected=True)),
    ),
    (CancelPeekRequest(3), pb.Request(cancel_peek=pb.CancelPeek(peek=3))),
    (CopyRequest("v", "f.jsonl"), pb.Request(copy=pb.Copy(view="v", file="f.jsonl"))),
    (CopyRequest("v", "f.jsonl", 0), pb.Request(copy=pb.Copy(view="v", file="f.jsonl", patience=0))),
    (
        AddReplica("r1", "h:1", "spark", 2),
        pb.Request(add_replica=pb.AddReplica(name="r1", address="h:1", runtime="spark", workers=2)),
    ),
    (DropReplica("r1"), pb.Request(drop_replica=pb.DropReplica(name="r1"))),
    (ReleaseReplica("r1"), pb.Request(release_replica=pb.ReleaseReplica(name="r1"))),
    (StatusRequest(), pb.Request(status=pb.Status())),
]
DESCRIPTION = Description("u1", True, SCHEMA, ("shop",), True)
DESCRIBED = pb.Description(id="u1", view=True, schema=schema_to_bytes(SCHEMA), key=["shop"], append_only=True)
ANSWERS: list[tuple[Any, pb.Answer]] = [
    (DoneAnswer("u1", 5, 7), pb.Answer(done=pb.Done(id="u1", time=5, rows=7))),
    (DoneAnswer(), pb.Answer(done=pb.Done())),
    (DESCRIPTION, pb.Answer(description=DESCRIBED)),
    (RowsPart(b"rows", True), pb.Answer(rows=pb.Rows(rows=b"rows", more=True))),
    (RowsPart(more=True), pb.Answer(rows=pb.Rows(more=True))),
    (ConditionAnswer(b"body"), pb.Answer(condition=pb.Condition(body=b"body"))),
    (PROBLEM, pb.Answer(problem=problem_to_bytes(PROBLEM))),
    (PlanBytes(b"body", b"places"), pb.Answer(plan=pb.ViewPlan(body=b"body", places=b"places"))),
]
EVENTS: list[tuple[Any, pb.Event]] = [
    (DESCRIPTION, pb.Event(description=DESCRIBED)),
    (BatchPart(0, None, b"x", True), pb.Event(batch=pb.Batch(lower=0, updates=b"x", more=True))),
    (BatchPart(3, 5, b"", False, 0), pb.Event(batch=pb.Batch(lower=3, upper=5, time=0))),
    (PROBLEM, pb.Event(problem=problem_to_bytes(PROBLEM))),
]
SUBSCRIPTIONS: list[tuple[Any, pb.Subscription]] = [
    (SubscriptionRequest("v", None, True, None), pb.Subscription(view="v", snapshot=True)),
    (
        SubscriptionRequest("v", 0, False, "r1", 0),
        pb.Subscription(view="v", as_of=0, replica="r1", patience=0),
    ),
]
ALL = [
    *((REQUEST, *each) for each in REQUESTS),
    *((ANSWER, *each) for each in ANSWERS),
    *((EVENT, *each) for each in EVENTS),
    *((SUBSCRIPTION, *each) for each in SUBSCRIPTIONS),
]


@pytest.mark.parametrize(("codec", "value", "message"), ALL)
def test_a_value_has_the_bytes_of_its_message_and_comes_back(
    codec: Any, value: Any, message: Message
) -> None:
    assert codec.to_bytes(value) == message.SerializeToString()
    again = codec.from_message(message)
    assert again == value
    assert repr(again) == repr(value)


def test_every_kind_is_here() -> None:
    for codec, kinds in ((REQUESTS, pb.Request), (ANSWERS, pb.Answer), (EVENTS, pb.Event)):
        (oneof,) = kinds.DESCRIPTOR.oneofs
        assert {message.WhichOneof("kind") for _, message in codec} == {f.name for f in oneof.fields}


def test_keys_of_a_peek_for_all_rows_are_not_read() -> None:
    message = pb.Request(peek=pb.Peek(view="v", id="u1", keys=b"no rows", all=True, project=[7]))
    assert REQUEST.from_message(message) == PeekMessage("u1", PeekRequest("v"))


def test_a_write_may_leave_out_what_goes() -> None:
    part = pb.Write.Part(collection="c", id="s1", come=rows.encode([((1,), 1)]))
    (read,) = REQUEST.from_message(pb.Request(write=pb.Write(parts=[part], id=UUID))).parts  # type: ignore
    assert read == WritePart("c", "s1", (((1,), 1),), ())


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (pb.Request(), "Request.kind"),
        (pb.Request(peek=pb.Peek(view="v", keys=b"no rows")), "Peek.keys"),
        (pb.Request(peek=pb.Peek(view="v")), "Peek.keys"),
        (pb.Request(peek=pb.Peek(view="v", keys=rows.encode([({},)]))), "Peek.keys"),
        (pb.Request(write=pb.Write(parts=[pb.Write.Part(come=b"\x01")])), "Write.Part.come"),
        (
            pb.Request(write=pb.Write(parts=[pb.Write.Part(go=rows.encode([((1,), -1)]))])),
            "Write.Part.go",
        ),
    ],
    ids=["no kind", "no rows", "no keys", "unhashable", "come", "go"],
)
def test_what_is_no_request_is_named(message: pb.Request, field: str) -> None:
    with pytest.raises(BadMessage, match=field):
        REQUEST.from_message(message)


@pytest.mark.parametrize("codec", [REQUEST, ANSWER, EVENT, SUBSCRIPTION])
@given(data=st.data())
def test_damaged_bytes_are_read_or_refused(codec: Any, data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from([v for c, v, _ in ALL if c is codec]).map(codec.to_bytes))
    at = data.draw(st.integers(0, len(whole)))
    hostile = whole[:at] + data.draw(st.binary(max_size=8)) + whole[at + data.draw(st.integers(0, 4)) :]
    with contextlib.suppress(HeadraceError):
        codec.from_bytes(hostile)
