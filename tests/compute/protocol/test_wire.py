"""Every message comes back from the network as it was; what is no message is named."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.compute.errors import BadMessage, MessageTooLarge
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.protocol import rows, serialization
from headrace.compute.protocol.commands import Command, IndexTarget, Peek, Schedule
from headrace.compute.protocol.generated import compute_pb2 as pb
from headrace.compute.protocol.responses import (
    BatchResponse,
    DroppedAt,
    EncodedUpdates,
    Frontiers,
    PeekResponse,
    Problem,
    Response,
    RowsResponse,
    SubscribeResponse,
    Update,
)
from headrace.errors import NotPlainData
from tests.compute.protocol import messages

UUID = b"0123456789abcdef"


@given(messages.commands)
def test_a_command_comes_back_as_it_was(command: Command) -> None:
    again = serialization.command_from_bytes(serialization.command_to_bytes(command))
    assert again == command
    assert repr(again) == repr(command)  # also what is not compared: names, hints, the type of each value


@given(messages.responses)
def test_a_response_comes_back_as_it_was(response: Response) -> None:
    again = serialization.response_from_bytes(serialization.response_to_bytes(response))
    assert again == response
    assert repr(again) == repr(response)


@settings(max_examples=30)
@given(st.lists(messages.commands, max_size=6), st.lists(messages.responses, max_size=6))
def test_a_stream_keeps_the_order(commands: list[Command], responses: list[Response]) -> None:
    sent = serialization.commands_to_messages(commands, 1_000_000)
    assert [c for message in sent for c in serialization.commands_from_message(message)] == commands
    reader = serialization.ResponseReader()
    told = serialization.responses_to_messages(responses, 1_000_000)
    assert [r for message in told for r in reader.read(message)] == responses


def test_the_end_is_no_frontier_that_is_not_told() -> None:
    told = Frontiers("u1", write=END, input=Frontier(0))
    again = serialization.response_from_bytes(serialization.response_to_bytes(told))
    assert again == told
    assert isinstance(again, Frontiers)
    assert again.output is None


def _peek_by(value: object) -> pb.Command:
    keys = rows.encode([(value,)])
    return pb.Command(peek=pb.Peek(uuid=UUID, index="u1", keys=keys, finishing=pb.Finishing()))


def _update(update: Update) -> pb.Response:
    zero = pb.Frontier(time=0)
    batch = pb.Batch(lower=zero, upper=pb.Frontier(), updates=rows.encode([update]), part=1, parts=1)
    return pb.Response(subscribe=pb.SubscribeResponse(id="t1", batch=batch))


# --- what is no message ------------------------------------------------------------

BROKEN: list[tuple[str, Callable[[], object]]] = [
    ("Command.kind", lambda: pb.Command()),
    ("CreateTimely.epoch", lambda: pb.Command(create_timely=pb.CreateTimely(runtime="here"))),
    (
        "CreateTimely.runtime",
        lambda: pb.Command(create_timely=pb.CreateTimely(runtime="cobol", workers=1, epoch=pb.Epoch())),
    ),
    (
        "CreateTimely.workers",
        lambda: pb.Command(create_timely=pb.CreateTimely(runtime="here", epoch=pb.Epoch())),
    ),
    (
        "CreateTimely.workers",
        lambda: pb.Command(
            create_timely=pb.CreateTimely(runtime="here", workers=2**32 - 1, epoch=pb.Epoch())
        ),
    ),
    (
        "CreateTimely.nonce",
        lambda: pb.Command(create_timely=pb.CreateTimely(runtime="here", workers=1, epoch=pb.Epoch())),
    ),
    ("Dataflow.plan", lambda: pb.Command(create_dataflow=pb.Dataflow())),
    ("Dataflow.as_of", lambda: pb.Command(create_dataflow=pb.Dataflow(plan=pb.Plan()))),
    (
        "Export.kind",
        lambda: pb.Command(
            create_dataflow=pb.Dataflow(
                plan=pb.Plan(), exports=[pb.Export()], as_of=pb.Frontier(), until=pb.Frontier()
            )
        ),
    ),
    ("Schedule.id", lambda: pb.Command(schedule=pb.Schedule())),
    ("AllowCompaction.frontier", lambda: pb.Command(allow_compaction=pb.AllowCompaction(id="u1"))),
    (
        "AllowCompaction.frontier",
        lambda: pb.Command(allow_compaction=pb.AllowCompaction(id="u1", frontier=pb.Frontier(time=2**63))),
    ),
    ("Peek.finishing", lambda: pb.Command(peek=pb.Peek(uuid=UUID))),
    ("Peek.target", lambda: pb.Command(peek=pb.Peek(uuid=UUID, finishing=pb.Finishing()))),
    ("Peek.uuid", lambda: pb.Command(peek=pb.Peek(uuid=b"", index="u1", finishing=pb.Finishing()))),
    (
        "Peek.keys",
        lambda: pb.Command(peek=pb.Peek(uuid=UUID, index="u1", keys=b"\x91\x01", finishing=pb.Finishing())),
    ),
    (
        "Peek.keys",
        lambda: pb.Command(peek=pb.Peek(uuid=UUID, index="u1", keys=b"\x90", finishing=pb.Finishing())),
    ),
    ("Peek.keys", lambda: _peek_by({})),
    ("Peek.keys", lambda: _peek_by(({},))),
    ("Peek.keys", lambda: _peek_by(Decimal("sNaN"))),
    ("CancelPeek.uuid", lambda: pb.Command(cancel_peek=pb.CancelPeek(uuid=b"short"))),
    ("Response.kind", lambda: pb.Response()),
    ("Frontiers", lambda: pb.Response(frontiers=pb.Frontiers(id="u1"))),
    ("PeekResponse.answer", lambda: pb.Response(peek=pb.PeekResponse(uuid=UUID))),
    ("PeekResponse.rows", lambda: pb.Response(peek=pb.PeekResponse(uuid=UUID, rows=b"\xff"))),
    ("PeekResponse.rows", lambda: pb.Response(peek=pb.PeekResponse(uuid=UUID, rows=b"\x91\x92\x90\x00"))),
    ("SubscribeResponse.event", lambda: pb.Response(subscribe=pb.SubscribeResponse(id="t1"))),
    (
        "Batch.lower",
        lambda: pb.Response(subscribe=pb.SubscribeResponse(id="t1", batch=pb.Batch())),
    ),
    # Python refuses to write numbers of so many digits: an error may not try.
    ("Batch.updates", lambda: _update(((1,), 10**5000, 1))),
    ("Batch.updates", lambda: _update(((1,), -1, 10**5000))),
    ("Batch.updates", lambda: _update(((1,), 1, 0))),
    ("PeekResponse.rows", lambda: pb.Response(peek=pb.PeekResponse(uuid=UUID, rows=rows.encode([((), 0)])))),
    ("CopyToResponse.result", lambda: pb.Response(copy_to=pb.CopyToResponse(id="t1"))),
    ("Problem.code", lambda: pb.Response(copy_to=pb.CopyToResponse(id="t1", problem=pb.Problem()))),
]


@pytest.mark.parametrize(("field", "make"), BROKEN, ids=[field for field, _ in BROKEN])
def test_what_is_missing_or_wrong_in_a_message_is_named(field: str, make: Callable[[], object]) -> None:
    message = make()
    assert isinstance(message, (pb.Command, pb.Response))
    read = (
        serialization.command_from_bytes
        if isinstance(message, pb.Command)
        else serialization.response_from_bytes
    )
    with pytest.raises(BadMessage) as bad:
        read(message.SerializeToString())
    assert bad.value.facts["field"] == field


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_refused(data: bytes) -> None:
    for read in (
        serialization.command_from_bytes,
        serialization.response_from_bytes,
        serialization.commands_from_message,
        serialization.ResponseReader().read,
        serialization.problem_from_bytes,
    ):
        with contextlib.suppress(BadMessage, MessageTooLarge):
            read(data)


@settings(max_examples=50)
@given(messages.commands, st.data())
def test_a_damaged_command_is_another_command_or_refused(command: Command, data: st.DataObject) -> None:
    damaged = bytearray(serialization.command_to_bytes(command))
    for _ in range(data.draw(st.integers(1, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(BadMessage, MessageTooLarge):
        serialization.command_from_bytes(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))


@pytest.mark.parametrize(
    "command",
    [
        Schedule("\ud800"),
        Peek(UUID, IndexTarget("u1"), -1),
        Peek(UUID, IndexTarget("u1"), 2**64),
        Peek("text", IndexTarget("u1"), 1),  # pyright: ignore[reportArgumentType]
    ],
)
def test_a_value_that_no_field_holds_is_refused_when_it_is_sent(command: Command) -> None:
    with pytest.raises(BadMessage):
        serialization.command_to_bytes(command)


def test_a_message_above_the_limit_is_not_sent_and_not_read() -> None:
    large = Schedule("u" * 1000)
    with pytest.raises(MessageTooLarge) as sent:
        list(serialization.commands_to_messages([large], 500))
    assert sent.value.facts["limit"] == 500
    (message,) = serialization.commands_to_messages([large], 5000)
    with pytest.raises(MessageTooLarge):
        serialization.commands_from_message(message, 500)


def test_a_header_that_claims_rows_without_end_is_not_believed() -> None:
    message = pb.Response(peek=pb.PeekResponse(uuid=UUID, rows=b"\xdd\xff\xff\xff\xff"))
    with pytest.raises(MessageTooLarge):
        serialization.response_from_bytes(message.SerializeToString())


# --- large things ------------------------------------------------------------------


def batch(updates: tuple[Update, ...]) -> SubscribeResponse:
    return SubscribeResponse("t1", BatchResponse(START, Frontier(9), updates))


def test_a_large_batch_travels_in_parts_and_comes_back_whole() -> None:
    whole = batch(tuple((("x" * n, n), n % 9, 1) for n in range(300)))
    sent = list(serialization.responses_to_messages([whole, batch(())], 10_000))
    assert len(sent) > 5
    assert all(len(message) <= 10_000 for message in sent)
    reader = serialization.ResponseReader(10_000)
    assert [r for message in sent for r in reader.read(message)] == [whole, batch(())]


@given(st.lists(st.integers(0, 3000), max_size=20), st.integers(8_000, 20_000))
def test_no_part_is_above_the_limit_whatever_the_rows(lengths: list[int], limit: int) -> None:
    whole = batch(tuple((("x" * length,), 1, 1) for length in lengths))
    sent = list(serialization.responses_to_messages([whole], limit))
    assert all(len(message) <= limit for message in sent)
    reader = serialization.ResponseReader()
    assert [r for message in sent for r in reader.read(message)] == [whole]


def test_a_row_larger_than_a_part_travels_by_itself() -> None:
    large = "x" * (2 * serialization.TOGETHER)
    whole = batch((((1,), 1, 1), ((large,), 1, 1), ((2,), 1, 1)))
    reader = serialization.ResponseReader(3 * serialization.TOGETHER)
    sent = serialization.responses_to_messages([whole], 3 * serialization.TOGETHER)
    assert [r for message in sent for r in reader.read(message)] == [whole]


def test_a_batch_or_an_answer_that_cannot_travel_becomes_the_problem() -> None:
    large = (("x" * 20_000,), 1, 1)
    odd = ((object(),), 1)
    sent = serialization.responses_to_messages(
        [
            batch((large,)),
            PeekResponse(UUID, RowsResponse((large[:2],))),
            PeekResponse(UUID, RowsResponse((odd,))),
        ],
        10_000,
    )
    reader = serialization.ResponseReader()
    subscribed, too_large, not_plain = [r for message in sent for r in reader.read(message)]
    assert isinstance(subscribed, SubscribeResponse)
    assert isinstance(subscribed.event, BatchResponse)
    assert (subscribed.event.lower, subscribed.event.upper) == (START, Frontier(9))
    assert isinstance(subscribed.event.updates, Problem)
    assert subscribed.event.updates.code == MessageTooLarge.code
    assert isinstance(too_large, PeekResponse)
    assert isinstance(too_large.answer, Problem)
    assert too_large.answer.code == MessageTooLarge.code
    assert isinstance(not_plain, PeekResponse)
    assert isinstance(not_plain.answer, Problem)
    assert not_plain.answer.code == NotPlainData.code


def test_the_parts_of_several_subscriptions_may_be_mixed() -> None:
    one, other = (
        [
            response
            for message in serialization.responses_to_messages(
                [
                    SubscribeResponse(
                        id, BatchResponse(START, END, tuple(((id * 9, n), 1, 1) for n in range(99)))
                    )
                ],
                800,
            )
            for response in pb.Responses.FromString(message).responses
        ]
        for id in ("t1", "t2")
    )
    assert len(one) == len(other) > 2
    mixed = [message for pair in zip(one, other) for message in pair]
    found = serialization.ResponseReader().read_each(mixed)
    assert [(r.id, len(r.event.updates)) for r in found] == [("t1", 99), ("t2", 99)]  # type: ignore[union-attr]


COLUMNS = b"\xff\xff\xff\xff and more, which only the reader decodes"


def test_columns_travel_as_they_are_in_parts_of_one_time() -> None:
    sent = SubscribeResponse(
        "t1", BatchResponse(START, Frontier(9), EncodedUpdates(5, (COLUMNS, COLUMNS + b"2")))
    )
    messages = list(serialization.responses_to_messages([sent], 10_000))
    reader = serialization.ResponseReader()
    assert [response for message in messages for response in reader.read(message)] == [sent]
    with pytest.raises(MessageTooLarge):
        serialization.ResponseReader(batch=len(COLUMNS)).read(b"".join(messages))


def part(
    number: int, of: int, upper: int = 9, time: int | None = None, updates: bytes = b"\x90"
) -> pb.Response:
    lower, last = pb.Frontier(time=0), pb.Frontier(time=upper)
    piece = pb.Batch(lower=lower, upper=last, part=number, parts=of, updates=updates, time=time)
    return pb.Response(subscribe=pb.SubscribeResponse(id="t1", batch=piece))


@pytest.mark.parametrize(
    "parts",
    [
        [part(2, 3)],
        [part(1, 3), part(3, 3)],
        [part(1, 3), part(1, 3)],
        [part(1, 3), part(2, 4)],
        [part(1, 3), part(2, 3, upper=8)],
        [part(1, 3), part(1, 1)],
        [part(0, 0)],
        [part(1, 0)],
        [part(1, 2, time=5, updates=COLUMNS), part(2, 2, time=6, updates=COLUMNS)],
        [part(1, 2, time=5, updates=COLUMNS), part(2, 2)],
        [part(1, 2), part(2, 2, time=5, updates=COLUMNS)],
        [part(1, 1, time=5)],
        [part(1, 1, time=2**63, updates=COLUMNS)],
        [part(1, 1, updates=COLUMNS)],
    ],
)
def test_parts_that_do_not_follow_each_other_are_refused(parts: list[pb.Response]) -> None:
    with pytest.raises(BadMessage):
        serialization.ResponseReader().read_each(parts)


def test_an_unfinished_batch_may_not_be_dropped_or_grow_without_bound() -> None:
    dropped = serialization.response_to_bytes(SubscribeResponse("t1", DroppedAt(START)))
    with pytest.raises(BadMessage):
        serialization.ResponseReader().read_each([part(1, 2), pb.Response.FromString(dropped)])
    large = serialization.responses_to_messages(
        [batch(tuple((("x" * 100,), 1, 1) for _ in range(500)))], 10_000
    )
    reader = serialization.ResponseReader(batch=20_000)
    with pytest.raises(MessageTooLarge):
        list(map(reader.read, large))
