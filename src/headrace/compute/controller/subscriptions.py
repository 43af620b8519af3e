"""Subscriptions of one controller: changes sent by replicas, delivered once, in order.

Each subscription is a dataflow that passes its input on, on all replicas or on its target, and each replica
sends all changes. Replicas are deterministic, so the first to send a time is right; changes already delivered
are removed from later batches. The dataflow is dropped with the last message to the client.
Source: the compute protocol of Materialize, subscriptions under active replication (reference).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from headrace.compute.controller.instance import Instance
from headrace.compute.controller.leases import Leases
from headrace.compute.controller.pending_reads import PendingRead, PendingReads
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.protocol.dataflow import Dataflow, Id
from headrace.compute.protocol.responses import (
    Batch,
    DroppedAt,
    EncodedUpdates,
    Problem,
    SubscribeResponse,
)
from headrace.errors import Origin


def undelivered(tracked: Frontier, batch: Batch) -> Batch | None:
    """Return the part of a batch that is not yet delivered, from `tracked` on; None if there is none.

    The upper of the returned batch is the next `tracked`.

    >>> batch = Batch(Frontier(0), Frontier(7), ((("a",), 3, 1), (("b",), 6, 1)))
    >>> undelivered(Frontier(5), batch)
    Batch(lower=Frontier(time=5), upper=Frontier(time=7), updates=((('b',), 6, 1),))
    """
    if batch.upper <= tracked:
        return None
    updates = batch.updates
    if isinstance(updates, EncodedUpdates):
        updates = () if tracked.has_passed(updates.time) else updates
    elif not isinstance(updates, Problem):
        updates = tuple(update for update in updates if not tracked.has_passed(update[1]))
    return Batch(tracked, batch.upper, updates)


Deliver: TypeAlias = Callable[[Batch | DroppedAt], None]


@dataclass(slots=True, eq=False)
class Subscription:
    """Subscription of one client.

    reads: id of the view or collection. as_of: its first time.
    upper: frontier up to which all changes were delivered.
    """

    id: Id
    read: PendingRead
    reads: Id
    as_of: Frontier
    deliver: Deliver
    upper: Frontier = START

    @property
    def position(self) -> Frontier:
        """Earliest time that must stay readable for the undelivered changes."""
        return max(self.as_of, self.upper.step_back())


class Subscriptions(PendingReads[Id, Subscription]):
    """Subscriptions of a controller, by id."""

    def __init__(self, instance: Instance, leases: Leases, note: Callable[[str, str], None]) -> None:
        super().__init__(instance)
        self._leases = leases
        self._note = note

    def start(self, dataflow: Dataflow, subscription: Subscription) -> None:
        """Send the subscription's dataflow to the replicas."""
        self._pending[subscription.id] = subscription
        self._instance.create(dataflow, subscription.read.target)
        self._leases.add_reader(subscription.reads, subscription.position)

    def on_response(self, replica: str, response: SubscribeResponse) -> None:
        """Deliver a replica's changes, except for those delivered before."""
        subscription = self._pending.get(response.id)
        if subscription is None:
            return  # ended meanwhile
        if not subscription.read.accepts(replica):
            self._note(replica, f"unexpected changes of {response.id}, a subscription to another replica")
            return
        if isinstance(response.event, DroppedAt):
            self._note(replica, f"{response.id} dropped without a command")
            return
        updates = response.event.updates
        read = subscription.read
        if isinstance(updates, Problem) and updates.origin is Origin.PROCESS and not read.target:
            # Counts even if other replicas are ahead of that time, because this one sends no more changes.
            problem = read.on_problem(replica, updates)
            if problem is not None:
                self._fail(subscription, problem)
            return
        batch = undelivered(subscription.upper, response.event)
        if batch is not None:
            self._deliver(subscription, batch)

    def maintain(self) -> None:
        """Advance holds and leases to the delivered positions.

        Replicas that connect later need not repeat delivered changes; leases keep them readable for clients
        that lose their connection.
        """
        positions: dict[Id, Frontier] = dict.fromkeys(self._leases, END)
        for subscription in self._pending.values():
            positions[subscription.reads] = min(positions[subscription.reads], subscription.position)
        for id, position in positions.items():
            self._leases.move_reader(id, position)
        for subscription in self._pending.values():
            running = self._instance.running.get(subscription.id)
            if running is not None:
                running.implied.advance(subscription.position)

    def _deliver(self, subscription: Subscription, batch: Batch) -> None:
        if batch.upper == END or isinstance(batch.updates, Problem):
            self._finish(subscription, batch)
            return
        subscription.upper = batch.upper
        self._instance.record_progress(subscription.id, batch.upper)
        subscription.deliver(batch)

    def _fail(self, pending: Subscription, problem: Problem) -> None:
        self._finish(pending, Batch(pending.upper, pending.upper, problem))

    def _cancel(self, pending: Subscription) -> None:
        self._finish(pending, DroppedAt(pending.upper))

    def _finish(self, subscription: Subscription, last: Batch | DroppedAt) -> None:
        del self._pending[subscription.id]
        self._leases.grant(subscription.reads, self._held(subscription))
        self._instance.drop([subscription.id])
        subscription.deliver(last)

    def _held(self, subscription: Subscription) -> Frontier:
        """Return the position held by a subscription, as of the last `maintain`."""
        running = self._instance.running.get(subscription.id)
        return END if running is None else running.implied.frontier
