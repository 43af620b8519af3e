"""A controller without replicas: views are copies of one collection, and everything is answered at once.

It lets tests hold answers back, and say what a replica would say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from headrace.compute.collections.store import CollectionAppend
from headrace.compute.controller.pending import PeekAnswer, StashedOnReplica
from headrace.compute.controller.state import Write
from headrace.compute.controller.status import ControllerStatus
from headrace.compute.errors import NegativeMultiplicity, ReadTimeout, SinceViolation, UnknownName, problem_of
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.protocol.client_messages import Description, PeekRequest
from headrace.compute.protocol.responses import (
    BatchResponse,
    Canceled,
    Counted,
    DroppedAt,
    Problem,
    RowsResponse,
    Update,
)
from headrace.expr.types import Schema


@dataclass
class Subscriber:
    view: str
    deliver: Callable[[Any], None]
    upper: Frontier


@dataclass
class PaperController:
    epoch: int = 1
    time: int = 0
    since: int = 0
    hold_answers: bool = False
    copying: bool = False
    stash_above: int | None = None
    names: dict[str, Description] = field(default_factory=dict)
    updates: dict[str, list[Update]] = field(default_factory=dict)
    seen_ids: dict[bytes, int] = field(default_factory=dict)
    held: dict[bytes, Callable[[PeekAnswer], None]] = field(default_factory=dict)
    cancelled: list[bytes] = field(default_factory=list)
    subscribers: dict[str, Subscriber] = field(default_factory=dict)
    subscriptions: int = 0
    ids: Any = field(default_factory=lambda: count(1))
    commits: list[list[bytes]] = field(default_factory=list)
    stashed: dict[bytes, list[Counted]] = field(default_factory=dict)
    copies: dict[str, Callable[[Any], None]] = field(default_factory=dict)
    given_up: int = 0

    def _define(self, name: str, schema: Schema, *, view: bool, key: Sequence[str] = ()) -> str:
        id = f"{'u' if view else 's'}{next(self.ids)}"
        self.names[name] = Description(id, view, schema, tuple(key))
        self.updates[name] = []
        return id

    def create_collection(self, name: str, schema: Schema, *, append_only: bool) -> str:
        return self._define(name, schema, view=False)

    def describe(self, name: str) -> Description:
        if name not in self.names:
            raise UnknownName(f"there is no view or collection {name!r}", name=name)
        return self.names[name]

    def drop(self, name: str) -> None:
        self.describe(name)
        del self.names[name]
        for id, each in list(self.subscribers.items()):
            if each.view == name:
                each.deliver(DroppedAt(each.upper))
                del self.subscribers[id]

    def begin_write(self, writes: Mapping[str, Sequence[Counted]], ids: Sequence[bytes] = ()) -> Write:
        for name, rows in writes.items():
            self.describe(name)
            there = Counter[tuple[Any, ...]]()
            for row, _, weight in self.updates[name]:
                there[row] += weight
            for row, weight in rows:
                there[row] += weight
                if there[row] < 0:
                    raise NegativeMultiplicity(f"{row} is not in {name!r}", id=name, row=row)
        self.time += 1
        appends = [
            CollectionAppend(
                name, Frontier(self.time), Frontier(self.time + 1), [(r, self.time, w) for r, w in rows]
            )
            for name, rows in writes.items()
        ]
        return Write(self.time, tuple(appends), tuple(ids))

    def time_of_write(self, id: bytes) -> int | None:
        return self.seen_ids.get(id)

    def end_write(self, write: Write) -> None:
        self.seen_ids |= dict.fromkeys(write.ids, write.time)
        self.commits.append(list(write.ids))
        for append in write.appends:
            self.updates[append.id] += append.updates
        for each in list(self.subscribers.values()):
            self._deliver(each, Frontier(write.time + 1))

    def fail_write(self, write: Write) -> bool:
        return False

    def _deliver(self, to: Subscriber, upper: Frontier) -> None:
        new = [u for u in self.updates[to.view] if not to.upper.has_passed(u[1])]
        lower, to.upper = to.upper, upper
        to.deliver(BatchResponse(lower, upper, tuple(new)))

    def peek(self, request: PeekRequest, answer: Callable[[PeekAnswer], None]) -> bytes:
        uuid = len(self.held).to_bytes(16, "big")
        key = [self.names[request.view].schema.position(name) for name in self.names[request.view].key]
        rows = Counter[tuple[Any, ...]]()
        for row, time, weight in self.updates[request.view]:
            if request.at is None or time <= request.at:
                rows[row] += weight
        found = [
            (row, count)
            for row, count in rows.items()
            if count > 0
            and (request.keys is None or tuple(row[at] for at in key if at is not None) in request.keys)
        ]
        if self.hold_answers:
            self.held[uuid] = answer
        elif self.stash_above is not None and len(found) > self.stash_above:
            self.stashed[uuid] = found
            answer(StashedOnReplica(uuid, len(found), 0, tuple(found[:2]), "r1"))
        else:
            answer(RowsResponse(tuple(found)))
        return uuid

    def cancel_peek(self, uuid: bytes) -> None:
        self.cancelled.append(uuid)
        if uuid in self.held:
            self.held.pop(uuid)(Canceled())

    def time_out_peek(self, uuid: bytes) -> None:
        self.held.pop(uuid)(self._nobody())

    def _nobody(self) -> Problem:
        self.given_up += 1
        return problem_of(ReadTimeout("no replica is connected", missing="replica", replicas=()))

    def copy(self, view: str, file: str, answer: Callable[[Any], None]) -> str:
        id = f"c{next(self.ids)}"
        self.copies[id] = answer
        return id

    def time_out_copy(self, id: str, silence: int) -> bool:
        if self.copying:
            return False
        self.copies.pop(id)(self._nobody())
        return True

    def cancel_copy(self, id: str) -> None:
        self.copies.pop(id)

    def time_out_subscription(self, id: str) -> None:
        gone = self.subscribers.pop(id)
        gone.deliver(BatchResponse(gone.upper, gone.upper, self._nobody()))

    def subscribe(
        self,
        view: str,
        deliver: Callable[[Any], None],
        *,
        as_of: int | None = None,
        snapshot: bool = True,
        replica: str | None = None,
    ) -> str:
        self.describe(view)
        as_of = self.time if as_of is None else as_of
        if as_of < self.since:
            raise SinceViolation(f"{view!r} at {as_of} is gone", id=view, time=as_of, since=self.since)
        self.subscriptions += 1
        id = f"t{self.subscriptions}"
        first = Subscriber(view, deliver, START)
        self.subscribers[id] = first
        if self.hold_answers:
            return id
        at_as_of = Counter[tuple[Any, ...]]()
        for row, time, weight in self.updates[view]:
            if time <= as_of:
                at_as_of[row] += weight
        there = tuple((row, as_of, count) for row, count in at_as_of.items() if count and snapshot)
        first.upper = Frontier(as_of + 1)
        deliver(BatchResponse(START, first.upper, there))
        if self.time > as_of:
            self._deliver(first, Frontier(self.time + 1))
        return id

    def unsubscribe(self, id: str) -> None:
        if id in self.subscribers:
            gone = self.subscribers.pop(id)
            gone.deliver(DroppedAt(gone.upper))

    def seal(self, view: str) -> None:
        """Nothing comes any more."""
        for each in self.subscribers.values():
            if each.view == view:
                each.deliver(BatchResponse(each.upper, END, ()))

    def status(self) -> ControllerStatus:
        return ControllerStatus(self.epoch, self.time, 0, (), (), (), (), (), ())
