"""Wire format of commands and responses, as in `compute.proto`, validated field by field on reading.

Unreadable content raises `BadMessage` with the field's name, and content above a limit `MessageTooLarge`.
Nothing received is executed or trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.compute.problem_conversion import problem_of
from headrace.compute.protocol.batch_parts import BatchAssembler, split_response
from headrace.compute.protocol.codec_derivation import bad_message, check_size, parse
from headrace.compute.protocol.commands import Command
from headrace.compute.protocol.generated import compute_pb2 as pb
from headrace.compute.protocol.message_codecs import COMMAND, PROBLEM, RESPONSE
from headrace.compute.protocol.responses import (
    Batch,
    PeekResponse,
    Response,
    SubscribeResponse,
)
from headrace.errors import HeadraceError

TOGETHER = 1_000_000
"""Size in bytes above which a message takes no further command or response; also the size of batch parts."""

# --- one at a time -----------------------------------------------------------------


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


# --- the messages of a stream ------------------------------------------------------


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
            case SubscribeResponse(id, Batch(lower, upper)):
                return _response_messages(SubscribeResponse(id, Batch(lower, upper, problem)), None)
            case _:
                raise


_FRAME = 1 + 5
"""Bytes of the tag and the length of a message in another."""


def assemble_group(messages: Iterable[bytes], limit: int, kind: str) -> Iterator[bytes]:
    """Assemble `Commands` or `Responses` from serialised members: each is field 1, with its length."""
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
