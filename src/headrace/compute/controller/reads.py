"""Reads of clients: peeks, subscriptions and copies, from the request to the replicas.

A read is checked, assigned a time and an id, and sent. A read that times out ends with an error that says
what each replica lacked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from headrace.compute.controller.catalog import Catalog, CollectionEntry, ViewEntry
from headrace.compute.controller.durable import TransientIds
from headrace.compute.controller.instance import Instance
from headrace.compute.controller.leases import Leases
from headrace.compute.controller.pending_reads import (
    Copies,
    CopyAnswer,
    Peeks,
    PendingCopy,
    PendingPeek,
    PendingRead,
    check_file,
    target_lost_error,
)
from headrace.compute.controller.replica_connection import ReplicaConnection
from headrace.compute.controller.replicas import Replica, Replicas
from headrace.compute.controller.requests import PeekAnswer, PeekRequest
from headrace.compute.controller.status_types import ReplicaState
from headrace.compute.controller.subscriptions import Deliver, Subscription, Subscriptions
from headrace.compute.controller.timestamps import (
    Entry,
    ReadTimestamps,
    TimestampOracle,
)
from headrace.compute.errors import BadMessage, Missing, ReadTimeout
from headrace.compute.frontier import END, Frontier
from headrace.compute.plans import INPUT, OUTPUT, encode, identity_flow
from headrace.compute.problem_conversion import problem_of
from headrace.compute.protocol.commands import CollectionTarget, IndexTarget, Peek
from headrace.compute.protocol.dataflow import (
    CollectionImport,
    CopyToExport,
    Dataflow,
    Id,
    IndexImport,
    Plan,
    SubscribeExport,
)
from headrace.compute.protocol.responses import Problem, Rows


class PassthroughDataflows:
    """Dataflows of subscriptions and copies, which pass their input on unchanged.

    Their plans depend only on the columns, and are cached.
    """

    def __init__(self) -> None:
        self._plans: dict[Id, Plan] = {}

    def build_subscription_dataflow(
        self, id: Id, entry: CollectionEntry | ViewEntry, as_of: int, snapshot: bool
    ) -> Dataflow:
        """Build the dataflow for a subscription to a view or collection."""
        return self._dataflow(entry, as_of, SubscribeExport(id, OUTPUT, snapshot))

    def build_copy_dataflow(self, id: Id, entry: CollectionEntry | ViewEntry, at: int, file: str) -> Dataflow:
        """Build the dataflow for a copy of a view or collection to a file."""
        return self._dataflow(entry, at, CopyToExport(id, OUTPUT, file))

    def forget(self, id: Id) -> None:
        self._plans.pop(id, None)

    def _dataflow(
        self, entry: CollectionEntry | ViewEntry, as_of: int, export: SubscribeExport | CopyToExport
    ) -> Dataflow:
        is_view = isinstance(entry, ViewEntry)
        return Dataflow(
            self._plan(entry),
            collections=() if is_view else (CollectionImport(INPUT, entry.id),),
            indexes=(IndexImport(INPUT, entry.id),) if is_view else (),
            exports=(export,),
            as_of=Frontier(as_of),
            until=Frontier(as_of + 1) if isinstance(export, CopyToExport) else END,
            name=entry.name,
        )

    def _plan(self, entry: CollectionEntry | ViewEntry) -> Plan:
        plan = self._plans.get(entry.id)
        if plan is None:
            plan = encode(identity_flow(entry.schema, entry.append_only))
            self._plans[entry.id] = plan
        return plan


class UnansweredDiagnosis:
    """Diagnosis of unanswered reads: the missing condition, and the state of each replica."""

    def __init__(
        self, catalog: Catalog, instance: Instance, oracle: TimestampOracle, replicas: Replicas
    ) -> None:
        self._catalog = catalog
        self._instance = instance
        self._oracle = oracle
        self._replicas = replicas

    def error(self, read: PendingRead, now: int) -> ReadTimeout:
        """Build the timeout error of a read, naming the missing condition and the state of each replica."""
        replicas = [r for r in self._replicas if read.accepts(r.name)]
        connected = [r.connection for r in replicas if r.connection is not None]
        missing = self._missing(read, connected)
        waited = (now - read.asked_at) / 1000
        return ReadTimeout(
            f"the {read.what} was not answered within {waited:.1f} s: {_SHORT[missing]}",
            why="\n".join(f"{r.name}: {self._standing(read, r, now)}" for r in replicas)
            or "There is no replica.",
            fix=_FIX[missing],
            missing=missing.value,
            replicas=tuple(c.replica for c in connected),
        )

    def could_answer(self, read: PendingRead, heard_since: int) -> bool:
        """Whether a replica with all input of the read has responded, to anything, since `heard_since`."""
        return any(
            r.connection is not None
            and r.connection.heard >= heard_since
            and r.name not in read.problems
            and self._lacks(read, r.connection) is None
            for r in self._replicas
            if read.accepts(r.name)
        )

    def _missing(self, read: PendingRead, connected: list[ReplicaConnection]) -> Missing:
        if not connected:
            return Missing.REPLICA
        lacking = [self._lacks(read, c) for c in connected if c.replica not in read.problems]
        if not lacking or None in lacking:
            return Missing.HEALTH if read.problems else Missing.ANSWER
        if read.time > self._oracle.last:
            return Missing.WRITE
        return Missing.TIME if Missing.TIME in lacking else Missing.HYDRATION

    def _lacks(self, read: PendingRead, connection: ReplicaConnection) -> Missing | None:
        """Return the condition for an answer that a replica does not meet yet, if any."""
        entry = self._catalog.find(read.view)
        if not isinstance(entry, ViewEntry):
            return (
                None
                if entry is None or self._instance.upper(entry.id).has_passed(read.time)
                else Missing.TIME
            )
        tracked = connection.tracking.exports.get(entry.id)
        if tracked is None or not tracked.hydrated:
            return Missing.HYDRATION
        return None if tracked.write.has_passed(read.time) else Missing.TIME

    def _standing(self, read: PendingRead, replica: Replica, now: int) -> str:
        connection = replica.connection
        if connection is None:
            if replica.state(now) is ReplicaState.QUARANTINED:
                return "quarantined, because it crashed too often"
            return f"not connected; {replica.problem or 'it was never reached'}"
        if (problem := read.problems.get(replica.name)) is not None:
            return f"cannot answer: {problem.message}"
        silent = f"silent for {(now - connection.heard) / 1000:.1f} s"
        match self._lacks(read, connection):
            case Missing.HYDRATION:
                return f"still hydrating the view; {silent}"
            case Missing.TIME:
                return f"has not reached time {read.time}; {silent}"
            case _:
                return f"has all input, and does not answer; {silent}"


_SHORT = {
    Missing.REPLICA: "no replica is connected",
    Missing.HYDRATION: "no replica has hydrated the view yet",
    Missing.TIME: "no replica has reached the time of the read",
    Missing.WRITE: "nothing has been written up to that time yet",
    Missing.HEALTH: "some replicas cannot answer, the others do not",
    Missing.ANSWER: "the replicas do not answer",
}
_PATIENCE = "or be more patient: Client(patience=...)"
_FIX = {
    Missing.REPLICA: "start a replica, or add one by `headrace replicas add NAME=HOST:PORT`",
    Missing.HYDRATION: f"ask again when `headrace status` shows the view as ready, {_PATIENCE}",
    Missing.TIME: f"ask again, {_PATIENCE}; with staleness= a read takes what is there",
    Missing.WRITE: f"read an earlier time, {_PATIENCE}",
    Missing.HEALTH: "see to the replicas; `headrace status` shows their problems",
    Missing.ANSWER: f"see whether the replicas still work, {_PATIENCE}",
}


class Reads:
    """Reads of one controller. Methods raise the same errors as those of `Controller`."""

    def __init__(
        self,
        catalog: Catalog,
        reading: ReadTimestamps,
        replicas: Replicas,
        peeks: Peeks,
        subscriptions: Subscriptions,
        copies: Copies,
        leases: Leases,
        ids: TransientIds,
        unanswered: UnansweredDiagnosis,
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
        self._passthrough = PassthroughDataflows()
        self._clock = clock
        self._random = random
        self._note = note

    def peek(self, request: PeekRequest, answer: Callable[[PeekAnswer], None]) -> bytes:
        """See `Controller.peek`."""
        entry = self._catalog.find_or_raise(request.view)
        _check_request(request, entry)
        self._check_target(request.replica)
        time = self._reading.select_time(request, entry)
        uuid = self._random.randbytes(16)
        if request.keys is not None and not request.keys:
            answer(Rows(()))
            return uuid
        keys = None if request.keys is None else tuple(request.keys)
        target = IndexTarget(entry.id) if isinstance(entry, ViewEntry) else CollectionTarget(entry.id)
        peek = Peek(uuid, target, time, keys, request.predicate, request.finishing)
        self._peeks.check_capacity()
        hold = self._reading.acquire_hold(entry.id, time)
        read = self._read("peek of", request.view, time, request.replica)
        self._peeks.send(PendingPeek(peek, read, hold, answer))
        return uuid

    def subscribe(
        self, view: str, deliver: Deliver, as_of: int | None, snapshot: bool, replica: str | None
    ) -> Id:
        """See `Controller.subscribe`."""
        entry, time = self._entry_at(view, as_of, replica)
        id = self._ids.next()
        dataflow = self._passthrough.build_subscription_dataflow(id, entry, time, snapshot)
        read = self._read("subscription to", view, time, replica)
        self._subscriptions.start(dataflow, Subscription(id, read, entry.id, dataflow.as_of, deliver))
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
        copy = PendingCopy(id, self._read("copy of", view, time, replica), answer)
        self._copies.start(self._passthrough.build_copy_dataflow(id, entry, time, file), copy)
        return id

    def time_out_peek(self, uuid: bytes) -> None:
        """See `Controller.time_out_peek`."""
        pending = self._peeks.find(uuid)
        if pending is not None:
            self._peeks.answer_problem(uuid, self._timeout(pending.read))

    def time_out_subscription(self, id: Id) -> None:
        """See `Controller.time_out_subscription`."""
        subscription = self._subscriptions.find(id)
        if subscription is not None:
            self._subscriptions.answer_problem(id, self._timeout(subscription.read))

    def time_out_copy(self, id: Id, heard_since: int) -> bool:
        """See `Controller.time_out_copy`."""
        copy = self._copies.find(id)
        if copy is None:
            return True
        if self._unanswered.could_answer(copy.read, heard_since):
            return False
        self._copies.answer_problem(id, self._timeout(copy.read))
        return True

    def end_reads_of(self, name: str, id: Id) -> None:
        """End the reads of a dropped view or collection."""
        self._subscriptions.cancel_view(name)
        self._copies.cancel_view(name)
        self._passthrough.forget(id)
        self._peeks.on_collection_dropped(id)
        self._leases.forget(id)

    def on_replica_lost(self, replica: str) -> None:
        """Fail the reads that only a lost replica could answer."""
        self._peeks.on_replica_lost(replica)
        self._subscriptions.on_replica_lost(replica)
        self._copies.on_replica_lost(replica)

    def _read(self, kind: str, view: str, time: int, replica: str | None) -> PendingRead:
        what, connected = f"{kind} {view!r}", self._replicas.connected_names
        return PendingRead(what, view, time, replica, self._clock(), connected, self._note)

    def _timeout(self, read: PendingRead) -> Problem:
        return problem_of(self._unanswered.error(read, self._clock()))

    def _entry_at(self, name: str, time: int | None, replica: str | None) -> tuple[Entry, int]:
        entry = self._catalog.find_or_raise(name)
        self._check_target(replica)
        at = self._reading.select_strict_time(entry) if time is None else time
        return entry, self._reading.check_readable(at, entry)

    def _check_target(self, replica: str | None) -> None:
        if replica is not None:
            self._catalog.replica(replica)
            if self._replicas.connection_of(replica) is None:
                raise target_lost_error(replica)


def _check_request(request: PeekRequest, entry: Entry) -> None:
    """Raise `BadMessage` for invalid keys, columns, limit or offset."""
    if request.keys is not None:
        _check_keys(request.keys, entry)
    finishing = request.finishing
    width = len(entry.schema.fields)
    columns = [at for at, _ in finishing.order_by] + list(finishing.project or ())
    if any(not 0 <= at < width for at in columns):
        raise BadMessage(
            f"{entry.name!r} has {width} columns, not all that were asked for", field="finishing"
        )
    if finishing.offset < 0 or (finishing.limit is not None and finishing.limit < 0):
        raise BadMessage("a limit or an offset is below 0", field="finishing")


def _check_keys(keys: Sequence[tuple[Any, ...]], entry: Entry) -> None:
    if not isinstance(entry, ViewEntry):
        raise BadMessage(
            f"{entry.name!r} is a collection, and has no keys",
            fix="filter its rows by a predicate, or make a view over it with a key",
            field="keys",
        )
    columns = entry.key or entry.schema.names
    if any(len(key) != len(columns) for key in keys):
        raise BadMessage(
            f"keys of {entry.name!r} are rows of the columns {', '.join(columns)}",
            fix="give one value for each of them; a key of one column is a row of one value",
            field="keys",
        )
