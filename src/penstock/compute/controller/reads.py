"""What clients read: peeks, subscriptions, copies; checked, given a time and an id, and asked for."""

from __future__ import annotations

import random
from collections.abc import Callable

from penstock.compute.controller.catalog import Catalog
from penstock.compute.controller.copy_to import Copies, Copy, CopyAnswer, check_file
from penstock.compute.controller.leases import Leases
from penstock.compute.controller.passthrough import PassthroughDataflows
from penstock.compute.controller.peeks import Peeks, PendingPeek
from penstock.compute.controller.replica_targeting import target_lost
from penstock.compute.controller.replicas import Replicas
from penstock.compute.controller.requests import PeekAnswer, PeekRequest
from penstock.compute.controller.subscriptions import Deliver, Subscription, Subscriptions
from penstock.compute.controller.timestamp_selection import (
    Entry,
    Reading,
    check_request,
    has_no_rows,
    target_of,
)
from penstock.compute.controller.transient_ids import TransientIds
from penstock.compute.controller.unable import Unable
from penstock.compute.controller.unanswered import Read, Unanswered
from penstock.compute.problems import problem_of
from penstock.compute.protocol.commands import Peek
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import Problem, Rows


class Reads:
    """The reads of one controller. For what its methods raise see those of `Controller`."""

    def __init__(
        self,
        catalog: Catalog,
        reading: Reading,
        replicas: Replicas,
        peeks: Peeks,
        subscriptions: Subscriptions,
        copies: Copies,
        leases: Leases,
        ids: TransientIds,
        unanswered: Unanswered,
        *,
        clock: Callable[[], int],
        random: random.Random,
        note: Callable[[str, str], None],
    ) -> None:
        self._catalog = catalog
        self._reading = reading
        self._replicas = replicas
        self._peeks = peeks
        self._subscriptions = subscriptions
        self._copies = copies
        self._leases = leases
        self._ids = ids
        self._unanswered = unanswered
        self._passing = PassthroughDataflows()
        self._clock = clock
        self._random = random
        self._note = note

    def peek(self, request: PeekRequest, answer: Callable[[PeekAnswer], None]) -> bytes:
        """See `Controller.peek`."""
        entry = self._catalog.named(request.view)
        check_request(request, entry)
        self._check_target(request.replica)
        time = self._reading.time_of(request, entry)
        uuid = self._random.randbytes(16)
        if has_no_rows(request):
            answer(Rows(()))
            return uuid
        keys = None if request.keys is None else tuple(request.keys)
        peek = Peek(uuid, target_of(entry), time, keys, request.predicate, request.finishing)
        self._peeks.check_room()
        hold = self._reading.hold(entry.id, time)
        unable = self._unable(f"peek of {request.view!r}")
        self._peeks.ask(PendingPeek(peek, request.view, request.replica, self._clock(), hold, answer, unable))
        return uuid

    def subscribe(
        self, view: str, deliver: Deliver, as_of: int | None, snapshot: bool, replica: str | None
    ) -> Id:
        """See `Controller.subscribe`."""
        entry, time = self._entry_at(view, as_of, replica)
        id = self._ids.next()
        dataflow = self._passing.subscription(id, entry, time, snapshot)
        unable = self._unable(f"subscription to {view!r}")
        subscription = Subscription(
            id, view, entry.id, dataflow.as_of, self._clock(), replica, deliver, unable
        )
        self._subscriptions.start(dataflow, subscription)
        return id

    def copy(
        self,
        view: str,
        file: str,
        answer: Callable[[CopyAnswer], None],
        at: int | None,
        replica: str | None,
    ) -> Id:
        """See `Controller.copy`."""
        check_file(file)
        entry, time = self._entry_at(view, at, replica)
        id = self._ids.next()
        unable = self._unable(f"copy of {view!r}")
        copy = Copy(id, view, time, self._clock(), replica, answer, unable)
        self._copies.start(self._passing.copy(id, entry, time, file), copy)
        return id

    def give_up_peek(self, uuid: bytes) -> None:
        """See `Controller.give_up_peek`."""
        pending = self._peeks.find(uuid)
        if pending is not None:
            self._peeks.give_up(uuid, self._problem(self._read(pending, pending.peek.time)))

    def give_up_subscription(self, id: Id) -> None:
        """See `Controller.give_up_subscription`."""
        subscription = self._subscriptions.find(id)
        if subscription is not None:
            assert subscription.as_of.time is not None
            read = self._read(subscription, subscription.as_of.time)
            self._subscriptions.give_up(id, self._problem(read))

    def give_up_copy(self, id: Id, heard_since: int) -> bool:
        """See `Controller.give_up_copy`."""
        copy = self._copies.find(id)
        if copy is None:
            return True
        read = self._read(copy, copy.time)
        if self._unanswered.could_answer(read, heard_since):
            return False
        self._copies.give_up(id, self._problem(read))
        return True

    def _read(self, waits: PendingPeek | Subscription | Copy, time: int) -> Read:
        return Read(
            what=f"the {waits.unable.what}",
            reads=self._catalog.find(waits.view),
            time=time,
            target=waits.target,
            since=waits.since,
            unable=waits.unable.problems,
        )

    def _problem(self, read: Read) -> Problem:
        return problem_of(self._unanswered.error(read, self._clock()))

    def end_reading(self, name: str, id: Id) -> None:
        """What was called `name` is dropped: what goes on reading it ends."""
        self._subscriptions.stop_reading(name)
        self._copies.cancel_reading(name)
        self._passing.forget(id)
        self._peeks.dropped(id)
        self._leases.forget(id)

    def lost(self, replica: str) -> None:
        """A replica is gone: what only it could answer ends with that."""
        self._peeks.lost(replica)
        self._subscriptions.lost(replica)
        self._copies.lost(replica)

    def _unable(self, what: str) -> Unable:
        return Unable(what, self._replicas.connected_names, self._note)

    def _entry_at(self, name: str, time: int | None, replica: str | None) -> tuple[Entry, int]:
        entry = self._catalog.named(name)
        self._check_target(replica)
        at = self._reading.strict(entry) if time is None else time
        return entry, self._reading.given(at, entry)

    def _check_target(self, replica: str | None) -> None:
        if replica is not None:
            self._catalog.replica(replica)
            if self._replicas.connected(replica) is None:
                raise target_lost(replica)
