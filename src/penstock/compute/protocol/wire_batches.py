"""What subscriptions see, in its form on the network: a large batch travels in parts and is whole again
before anybody sees it.

The parts of a batch come one after the other and share its bounds, so the receiver needs to hold one
unfinished batch per subscription.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.compute.frontier import Frontier
from penstock.compute.protocol import rows, wire_problems
from penstock.compute.protocol import wire_fields as fields
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.generated import compute_pb2 as pb
from penstock.compute.protocol.responses import Batch, DroppedAt, Problem, SubscribeResponse, Update


def to_messages(response: SubscribeResponse, part: int | None = None) -> Iterator[pb.Response]:
    """The messages of a response, each of updates of at most `part` bytes, or of one update that is larger;
    None: one message."""
    event = response.event
    if isinstance(event, DroppedAt):
        dropped = pb.DroppedAt(frontier=fields.frontier_message(event.frontier))
        yield _message(response.id, dropped_at=dropped)
    elif isinstance(event.updates, Problem):
        yield _message(response.id, batch=_part(event, 1, 1, problem=event.updates))
    else:
        parts = list(_divided(event.updates, part))
        for number, data in enumerate(parts, 1):
            yield _message(response.id, batch=_part(event, number, len(parts), updates=data))


def _message(id: Id, batch: pb.Batch | None = None, dropped_at: pb.DroppedAt | None = None) -> pb.Response:
    return pb.Response(subscribe=pb.SubscribeResponse(id=id, batch=batch, dropped_at=dropped_at))


def _part(
    batch: Batch, number: int, of: int, *, updates: bytes | None = None, problem: Problem | None = None
) -> pb.Batch:
    return pb.Batch(
        lower=fields.frontier_message(batch.lower),
        upper=fields.frontier_message(batch.upper),
        part=number,
        parts=of,
        updates=updates,
        problem=None if problem is None else wire_problems.to_message(problem),
    )


def _divided(updates: Sequence[Update], most: int | None) -> Iterator[bytes]:
    data = rows.encode(updates)
    if most is None or len(data) <= most or len(updates) == 1:
        yield data
        return
    # About so many, by the mean size; a part that is still too large is divided again.
    step = max(1, min(len(updates) * most // len(data), (len(updates) + 1) // 2))
    for start in range(0, len(updates), step):
        yield from _divided(updates[start : start + step], most)


@dataclass
class _Unfinished:
    """A batch of which parts are missing."""

    lower: Frontier
    upper: Frontier
    parts: int
    size: int = 0
    updates: list[Update] = field(default_factory=list[Update])
    seen: int = 0


class Parts:
    """Puts the parts of batches together again.

    limit: bytes that the updates of one batch may have; None: any.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._unfinished: dict[Id, _Unfinished] = {}

    def add(self, message: pb.SubscribeResponse) -> SubscribeResponse | None:
        """The response that is whole with this message; None where parts are missing.

        Raises `BadMessage` for a part that does not follow the one before it, `MessageTooLarge` for a batch
        above the limit.
        """
        id = fields.name(message.id, "SubscribeResponse.id")
        if fields.kind(message, "event") == "dropped_at":
            self._check_finished(id)
            return SubscribeResponse(id, DroppedAt(fields.frontier(message.dropped_at, "frontier")))
        return self._batch(id, message.batch)

    def _batch(self, id: Id, batch: pb.Batch) -> SubscribeResponse | None:
        lower, upper = fields.frontier(batch, "lower"), fields.frontier(batch, "upper")
        if fields.kind(batch, "changes") == "problem":
            self._check_finished(id)
            return SubscribeResponse(id, Batch(lower, upper, wire_problems.from_message(batch.problem)))
        if batch.part == batch.parts == 1:
            self._check_finished(id)
            updates = rows.decode_updates(batch.updates, "Batch.updates")
            return SubscribeResponse(id, Batch(lower, upper, updates))
        unfinished = self._unfinished.setdefault(id, _Unfinished(lower, upper, batch.parts))
        unfinished.seen += 1
        if (batch.part, batch.parts) != (unfinished.seen, unfinished.parts) or batch.part > batch.parts:
            raise fields.bad("Batch.part", f"Part {batch.part} of {batch.parts} is not what follows.")
        if (lower, upper) != (unfinished.lower, unfinished.upper):
            raise fields.bad("Batch.part", "It has other bounds than the part before it.")
        unfinished.size += len(batch.updates)
        fields.check_size(unfinished.size, self._limit, "batch")
        unfinished.updates += rows.decode_updates(batch.updates, "Batch.updates")
        if batch.part < batch.parts:
            return None
        del self._unfinished[id]
        return SubscribeResponse(id, Batch(lower, upper, tuple(unfinished.updates)))

    def _check_finished(self, id: Id) -> None:
        if id in self._unfinished:
            raise fields.bad("Batch.part", f"A batch of {id} is not whole and another event begins.")
