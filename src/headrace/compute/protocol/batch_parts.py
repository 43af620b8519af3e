"""Division of large subscription batches into parts, and their reassembly.

The parts of a batch come one after the other and share its bounds, so the receiver needs to hold one
unfinished batch per subscription. Their codec is handwritten, because a derived one takes a quarter more
time for a small batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.compute.frontier import LAST_TIME, Frontier
from headrace.compute.protocol import rows
from headrace.compute.protocol.codec_derivation import bad_message, check_size
from headrace.compute.protocol.dataflow import Id
from headrace.compute.protocol.generated import compute_pb2 as pb
from headrace.compute.protocol.message_codecs import DROPPED_AT, PROBLEM, frontier_decoder
from headrace.compute.protocol.responses import (
    Batch,
    DroppedAt,
    EncodedUpdates,
    Problem,
    SubscribeResponse,
    Update,
)
from headrace.compute.protocol.row_batch import is_batch


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


def _part(id: Id, batch: Batch, part: int, parts: int, **changes: Any) -> pb.Response:
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

    def _batch(self, id: Id, message: pb.Batch) -> Batch | None:
        lower, upper = _bound(message, "lower"), _bound(message, "upper")
        changes = message.WhichOneof("changes")
        if changes is None:
            raise bad_message("Batch.changes", "Nothing of it is set.")
        if changes == "problem":
            self._check_finished(id)
            return Batch(lower, upper, PROBLEM.from_message(message.problem))
        time = message.time if message.HasField("time") else None
        if message.part == message.parts == 1 and time is None:
            self._check_finished(id)
            return Batch(lower, upper, rows.decode_updates(message.updates, "Batch.updates"))
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
            return Batch(lower, upper, tuple(unfinished.updates))
        return Batch(lower, upper, EncodedUpdates(time, tuple(unfinished.chunks)))

    def _check_finished(self, id: Id) -> None:
        if id in self._unfinished:
            raise bad_message("Batch.part", f"A batch of {id} is not whole and another event begins.")


def _bound(batch: pb.Batch, name: Literal["lower", "upper"]) -> Frontier:
    if not batch.HasField(name):
        raise bad_message(f"Batch.{name}", "It is not set.")
    return _BOUNDS[name](getattr(batch, name))


_BOUNDS = {name: frontier_decoder(f"Batch.{name}") for name in ("lower", "upper")}
