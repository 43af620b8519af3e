"""Responses in their form on the network. Batches are in `wire_batches`."""

from __future__ import annotations

from collections.abc import Callable

from penstock.compute.protocol import rows, wire_problems
from penstock.compute.protocol import wire_fields as fields
from penstock.compute.protocol.generated import compute_pb2 as pb
from penstock.compute.protocol.responses import (
    Canceled,
    CopyToResponse,
    Dropped,
    Frontiers,
    PeekResponse,
    Problem,
    RowCount,
    Rows,
    Stashed,
    Status,
)

Alone = PeekResponse | Frontiers | CopyToResponse | Status
"""Responses that are always one message."""


def to_message(response: Alone) -> pb.Response:
    match response:
        case PeekResponse():
            return pb.Response(peek=_peek_message(response))
        case Frontiers(id, write, input, output):
            frontiers = pb.Frontiers(
                id=id,
                write=fields.frontier_message(write),
                input=fields.frontier_message(input),
                output=fields.frontier_message(output),
            )
            return pb.Response(frontiers=frontiers)
        case CopyToResponse():
            return pb.Response(copy_to=_copy_to_message(response))
        case Status(id, text, values):
            named = [pb.Status.Value(name=name, value=value) for name, value in values]
            return pb.Response(status=pb.Status(id=id, text=wire_problems.shown(text), values=named))


def from_message(message: pb.Response) -> Alone:
    """The response. The caller has taken those of subscriptions."""
    return _READERS[fields.kind(message, "kind")](message)


def _peek_message(response: PeekResponse) -> pb.PeekResponse:
    uuid = response.uuid
    match response.answer:
        case Rows(found):
            return pb.PeekResponse(uuid=uuid, rows=rows.encode(found))
        case Problem() as problem:
            return pb.PeekResponse(uuid=uuid, problem=wire_problems.to_message(problem))
        case Canceled():
            return pb.PeekResponse(uuid=uuid, canceled=pb.Canceled())
        case Stashed(token, count, size, inline):
            first = rows.encode(inline) if inline else None
            stashed = pb.Stashed(token=token, rows=count, size=size, inline=first)
            return pb.PeekResponse(uuid=uuid, stashed=stashed)


def _peek(message: pb.Response) -> PeekResponse:
    peek = message.peek
    uuid = fields.key(peek.uuid, "PeekResponse.uuid")
    match fields.kind(peek, "answer"):
        case "rows":
            return PeekResponse(uuid, Rows(rows.decode_counted(peek.rows, "PeekResponse.rows")))
        case "problem":
            return PeekResponse(uuid, wire_problems.from_message(peek.problem))
        case "canceled":
            return PeekResponse(uuid, Canceled())
        case _:
            return PeekResponse(uuid, _stashed(peek.stashed))


def _stashed(message: pb.Stashed) -> Stashed:
    token = fields.key(message.token, "Stashed.token")
    inline = rows.decode_counted(message.inline, "Stashed.inline") if message.HasField("inline") else ()
    return Stashed(token, message.rows, message.size, inline)


def _frontiers(message: pb.Response) -> Frontiers:
    told = message.frontiers
    write, input, output = (fields.maybe_frontier(told, kind) for kind in ("write", "input", "output"))
    if write is None and input is None and output is None:
        raise fields.bad("Frontiers", "No frontier is set.")
    return Frontiers(fields.name(told.id, "Frontiers.id"), write, input, output)


def _copy_to_message(response: CopyToResponse) -> pb.CopyToResponse:
    id = response.id
    match response.result:
        case RowCount(count):
            return pb.CopyToResponse(id=id, rows=count)
        case Problem() as problem:
            return pb.CopyToResponse(id=id, problem=wire_problems.to_message(problem))
        case Dropped():
            return pb.CopyToResponse(id=id, dropped=pb.Dropped())


def _copy_to(message: pb.Response) -> CopyToResponse:
    copy = message.copy_to
    id = fields.name(copy.id, "CopyToResponse.id")
    match fields.kind(copy, "result"):
        case "rows":
            return CopyToResponse(id, RowCount(copy.rows))
        case "problem":
            return CopyToResponse(id, wire_problems.from_message(copy.problem))
        case _:
            return CopyToResponse(id, Dropped())


def _status(message: pb.Response) -> Status:
    status = message.status
    values = tuple((value.name, value.value) for value in status.values)
    return Status(status.id if status.HasField("id") else None, status.text, values)


_READERS: dict[str, Callable[[pb.Response], Alone]] = {
    "peek": _peek,
    "frontiers": _frontiers,
    "copy_to": _copy_to,
    "status": _status,
}
