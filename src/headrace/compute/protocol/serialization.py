"""Wire format of commands and responses, as in `compute.proto`, validated field by field on reading.

Unreadable content raises `BadMessage` with the field's name, and content above a limit `MessageTooLarge`.
Nothing received is executed or trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from headrace.compute.errors import mark_remote_file, problem_of
from headrace.compute.frontier import END, LAST_TIME, Frontier
from headrace.compute.protocol import rows
from headrace.compute.protocol.codec_derivation import (
    FieldCodec,
    MessageCodec,
    MessageCodecs,
    bad_message,
    check_size,
    parse,
)
from headrace.compute.protocol.commands import Command, Constraint, Id
from headrace.compute.protocol.generated import compute_pb2 as pb
from headrace.compute.protocol.responses import (
    BatchResponse,
    CopyToResponse,
    Counted,
    DroppedAt,
    EncodedUpdates,
    Frontiers,
    PeekResponse,
    Problem,
    Response,
    StashToken,
    Status,
    SubscribeResponse,
    Update,
)
from headrace.compute.protocol.row_batch import is_batch
from headrace.errors import HeadraceError, Origin
from headrace.expr.types import Row


def _shown(text: str) -> str:
    """Escape the characters of a text that UTF-8 cannot encode (lone surrogates), for display."""
    return text.encode("utf-8", "backslashreplace").decode()


def frontier_decoder(field: str) -> Callable[[pb.Frontier], Frontier]:
    def decode(message: pb.Frontier) -> Frontier:
        if not message.HasField("time"):
            return END
        if message.time > LAST_TIME:
            raise bad_message(field, f"{message.time} is no time.")
        return Frontier(message.time)

    return decode


_TEXT = FieldCodec(_shown, lambda _: str)
_CODECS = MessageCodecs(
    by_type={
        Frontier: FieldCodec(lambda frontier: {"time": frontier.time}, frontier_decoder),
        # Of an origin that this version does not know, another replica may be free.
        Origin: FieldCodec(
            lambda origin: pb.PROCESS if origin is Origin.PROCESS else pb.DATA,
            lambda _: lambda number: Origin.DATA if number == pb.DATA else Origin.PROCESS,
        ),
        tuple[Row, ...]: FieldCodec(rows.encode, lambda field: partial(rows.decode_keys, field=field)),
        tuple[Counted, ...]: FieldCodec(rows.encode, lambda field: partial(rows.decode_counted, field=field)),
        tuple[tuple[str, Any], ...]: FieldCodec(
            lambda facts: rows.encode(dict(facts)),
            lambda field: lambda data: tuple(rows.decode_values(data, field).items()),
        ),
    },
    by_field={
        "Problem.message": _TEXT,
        "Problem.why": _TEXT,
        "Problem.fix": _TEXT,
        "Place.file": FieldCodec(lambda file: _shown(mark_remote_file(file)), lambda _: mark_remote_file),
        "Place.function": _TEXT,
        "Place.note": _TEXT,
        "Status.text": _TEXT,
    },
    whole={
        Frontiers: Constraint(lambda report: report != Frontiers(report.id), "No frontier is set."),
    },
)
Alone = Frontiers | PeekResponse | CopyToResponse | Status
"""Responses sent in one piece: all except subscriptions' batches, which are divided (`batch_parts`)."""
COMMAND: MessageCodec[Command, pb.Command] = _CODECS.derive(Command, pb.Command)
RESPONSE: MessageCodec[Alone, pb.Response] = _CODECS.derive(Alone, pb.Response)
PROBLEM: MessageCodec[Problem, pb.Problem] = _CODECS.derive(Problem, pb.Problem)
STASH_TOKEN: MessageCodec[StashToken, pb.StashToken] = _CODECS.derive(StashToken, pb.StashToken)
DROPPED_AT: MessageCodec[DroppedAt, pb.DroppedAt] = _CODECS.derive(DroppedAt, pb.DroppedAt)


# The parts of a batch come one after the other and share its bounds, so the receiver needs to hold one
# unfinished batch per subscription. Their codec is handwritten, because a derived one takes a quarter more
# time for a small batch.


def split_response(response: SubscribeResponse, most: int | None = None) -> Iterator[pb.Response]:
    """Divide a response into messages with at most `most` bytes of updates, or one larger update.

    None: one message. Raises `BadMessage` if a value does not fit its field.
    """
    event = response.event
    try:
        if isinstance(event, DroppedAt):
            dropped = DROPPED_AT.to_message(event)
            yield pb.Response(subscribe=pb.SubscribeResponse(id=response.id, dropped_at=dropped))
        elif isinstance(event.updates, Problem):
            yield _part(response.id, event, 1, 1, problem=PROBLEM.to_message(event.updates))
        else:
            encoded = event.updates if isinstance(event.updates, EncodedUpdates) else None
            chunks = encoded.chunks if encoded is not None else list(_chunks(event.updates, most))  # type: ignore[arg-type]
            for number, data in enumerate(chunks, 1):
                time = None if encoded is None else encoded.time
                yield _part(response.id, event, number, len(chunks), updates=data, time=time)
    except (ValueError, TypeError) as error:
        raise bad_message("SubscribeResponse", str(error)) from error


def _part(id: Id, batch: BatchResponse, part: int, parts: int, **changes: Any) -> pb.Response:
    lower, upper = pb.Frontier(time=batch.lower.time), pb.Frontier(time=batch.upper.time)
    message = pb.Batch(lower=lower, upper=upper, part=part, parts=parts, **changes)
    return pb.Response(subscribe=pb.SubscribeResponse(id=id, batch=message))


def _chunks(updates: Sequence[Update], most: int | None) -> Iterator[bytes]:
    data = rows.encode(updates)
    if most is None or len(data) <= most or len(updates) == 1:
        yield data
        return
    # About so many, by the mean size; a part that is still too large is divided again.
    step = max(1, min(len(updates) * most // len(data), (len(updates) + 1) // 2))
    for start in range(0, len(updates), step):
        yield from _chunks(updates[start : start + step], most)


@dataclass
class _Unfinished:
    """Batch whose parts have not all arrived."""

    lower: Frontier
    upper: Frontier
    parts: int
    size: int = 0
    updates: list[Update] = field(default_factory=list[Update])
    time: int | None = None
    chunks: list[bytes] = field(default_factory=list[bytes])
    seen: int = 0


class BatchAssembler:
    """Assembler of batches from their parts.

    limit: maximum bytes of updates in one batch, or None for no limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._unfinished: dict[Id, _Unfinished] = {}

    def add(self, message: pb.SubscribeResponse) -> SubscribeResponse | None:
        """Take a message. Returns the complete response, or None while parts are missing.

        Raises `BadMessage` for a part that does not follow the one before it, `MessageTooLarge` for a batch
        above the limit.
        """
        id = message.id
        if not id:
            raise bad_message("SubscribeResponse.id", "It is empty.")
        match message.WhichOneof("event"):
            case "batch":
                event = self._batch(id, message.batch)
            case "dropped_at":
                self._check_finished(id)
                event = DROPPED_AT.from_message(message.dropped_at)
            case _:
                raise bad_message("SubscribeResponse.event", "Nothing of it is set.")
        return None if event is None else SubscribeResponse(id, event)

    def _batch(self, id: Id, message: pb.Batch) -> BatchResponse | None:
        lower, upper = _bound(message, "lower"), _bound(message, "upper")
        changes = message.WhichOneof("changes")
        if changes is None:
            raise bad_message("Batch.changes", "Nothing of it is set.")
        if changes == "problem":
            self._check_finished(id)
            return BatchResponse(lower, upper, PROBLEM.from_message(message.problem))
        time = message.time if message.HasField("time") else None
        if message.part == message.parts == 1 and time is None:
            self._check_finished(id)
            return BatchResponse(lower, upper, rows.decode_updates(message.updates, "Batch.updates"))
        unfinished = self._unfinished.setdefault(id, _Unfinished(lower, upper, message.parts, time=time))
        unfinished.seen += 1
        part, parts = message.part, message.parts
        if (part, parts) != (unfinished.seen, unfinished.parts) or part > parts:
            raise bad_message("Batch.part", f"Part {part} of {parts} is not what follows.")
        if (lower, upper, time) != (unfinished.lower, unfinished.upper, unfinished.time):
            raise bad_message("Batch.part", "It has other bounds than the part before it.")
        unfinished.size += len(message.updates)
        check_size(unfinished.size, self._limit, "batch")
        if time is None:
            unfinished.updates += rows.decode_updates(message.updates, "Batch.updates")
        elif time > LAST_TIME or not is_batch(message.updates):
            raise bad_message("Batch.updates", "They are no columns of rows that change at a time.")
        else:
            unfinished.chunks.append(message.updates)
        if part < parts:
            return None
        del self._unfinished[id]
        if time is None:
            return BatchResponse(lower, upper, tuple(unfinished.updates))
        return BatchResponse(lower, upper, EncodedUpdates(time, tuple(unfinished.chunks)))

    def _check_finished(self, id: Id) -> None:
        if id in self._unfinished:
            raise bad_message("Batch.part", f"A batch of {id} is not whole and another event begins.")


def _bound(batch: pb.Batch, name: Literal["lower", "upper"]) -> Frontier:
    if not batch.HasField(name):
        raise bad_message(f"Batch.{name}", "It is not set.")
    return _BOUNDS[name](getattr(batch, name))


_BOUNDS = {name: frontier_decoder(f"Batch.{name}") for name in ("lower", "upper")}


TOGETHER = 1_000_000
"""Size in bytes above which a message takes no further command or response; also the size of batch parts."""

command_to_bytes, command_from_bytes = COMMAND.to_bytes, COMMAND.from_bytes
problem_to_bytes, problem_from_bytes = PROBLEM.to_bytes, PROBLEM.from_bytes


def response_to_bytes(response: Response) -> bytes:
    """Encode one response, with a batch in one part.

    Raises `BadMessage`, and `NotPlainData` for rows that are not plain data.
    """
    (message,) = _response_messages(response, None)
    return message


def response_from_bytes(data: bytes) -> Response:
    """Decode one response. Raises `BadMessage`, `MessageTooLarge`."""
    whole = ResponseReader().read_each([parse(pb.Response, data)])
    if not whole:
        raise bad_message("Batch.parts", "It is one of several parts.")
    return whole[0]


def commands_to_messages(commands: Iterable[Command], limit: int) -> Iterator[bytes]:
    """Encode commands as stream messages, several in one. Raises `BadMessage`, `MessageTooLarge`."""
    return assemble_group(map(command_to_bytes, commands), limit, "Command")


def commands_from_message(data: bytes, limit: int | None = None) -> list[Command]:
    """Decode the commands of one stream message. Raises `BadMessage`, `MessageTooLarge`."""
    return [COMMAND.from_message(each) for each in parse(pb.Commands, data, limit).commands]


def responses_to_messages(responses: Iterable[Response], limit: int) -> Iterator[bytes]:
    """Encode responses as stream messages, several in one, with large batches in parts.

    An answer or a batch that cannot be sent (too large, or with rows that are not plain data) is replaced by
    the problem, so that its receiver learns why. Raises `BadMessage`, `MessageTooLarge` for others.
    """
    each = (data for response in responses for data in _travelling(response, limit))
    return assemble_group(each, limit, "Response")


class ResponseReader:
    """Decoder of one stream's responses, in order; assembles batches from parts.

    limit: maximum bytes of one message. batch: maximum bytes of one batch. None: no limit.
    """

    def __init__(self, limit: int | None = None, batch: int | None = None) -> None:
        self._limit = limit
        self._parts = BatchAssembler(batch)

    def read(self, data: bytes) -> list[Response]:
        """Decode a message and return the completed responses. Raises `BadMessage`, `MessageTooLarge`."""
        return self.read_each(parse(pb.Responses, data, self._limit).responses)

    def read_each(self, messages: Iterable[pb.Response]) -> list[Response]:
        """Decode parsed messages, as `read` does."""
        found: list[Response] = []
        for message in messages:
            if message.WhichOneof("kind") != "subscribe":
                found.append(RESPONSE.from_message(message))
            elif (whole := self._parts.add(message.subscribe)) is not None:
                found.append(whole)
        return found


def _response_messages(response: Response, part: int | None) -> list[bytes]:
    if isinstance(response, SubscribeResponse):
        return [message.SerializeToString() for message in split_response(response, part)]
    return [RESPONSE.to_bytes(response)]


def _travelling(response: Response, limit: int) -> list[bytes]:
    try:
        messages = _response_messages(response, min(TOGETHER, limit // 2))
        for message in messages:
            check_size(len(message) + _FRAME, limit, type(response).__name__)
        return messages
    except HeadraceError as error:
        problem = problem_of(error)
        match response:
            case PeekResponse(uuid):
                return _response_messages(PeekResponse(uuid, problem), None)
            case SubscribeResponse(id, BatchResponse(lower, upper)):
                return _response_messages(SubscribeResponse(id, BatchResponse(lower, upper, problem)), None)
            case _:
                raise


_FRAME = 1 + 5
"""Bytes of the tag and the length of a message in another."""


def assemble_group(messages: Iterable[bytes], limit: int, kind: str) -> Iterator[bytes]:
    """Assemble `Commands` or `Responses` from serialised members: each is field 1, length-delimited."""
    group: list[bytes] = []
    size = 0
    for message in messages:
        check_size(len(message) + _FRAME, limit, kind)
        if group and size + len(message) + _FRAME > min(TOGETHER, limit):
            yield b"".join(group)
            group, size = [], 0
        group += (b"\x0a", _varint(len(message)), message)
        size += len(message) + _FRAME
    if group:
        yield b"".join(group)


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    return bytes((number & 0x7F | 0x80,)) + _varint(number >> 7)
