"""Subscriptions: what replicas say of changes, delivered once, in order.

Each is a dataflow of its own that passes on what it reads, on all replicas (or on the one asked for). Each of
them says all changes; what was delivered already is taken away. It goes with the last word to the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from penstock.compute.controller.instance import Instance
from penstock.compute.controller.leases import Leases
from penstock.compute.controller.replica_targeting import lost_target
from penstock.compute.controller.unable import Unable
from penstock.compute.frontier import END, START, Frontier
from penstock.compute.protocol.dataflow import Dataflow, Id
from penstock.compute.protocol.responses import Batch, DroppedAt, Problem, SubscribeResponse
from penstock.compute.subscription_merge import undelivered
from penstock.errors import Origin

Deliver: TypeAlias = Callable[[Batch | DroppedAt], None]


@dataclass(slots=True, eq=False)
class Subscription:
    """One client that sees changes.

    reads: what stands behind the name `view`. as_of: where it has begun. since: ms of the clock when.
    upper: all changes before it were delivered.
    """

    id: Id
    view: str
    reads: Id
    as_of: Frontier
    since: int
    target: str | None
    deliver: Deliver
    unable: Unable
    upper: Frontier = START

    @property
    def position(self) -> Frontier:
        """What it has to read next can be told apart as long as this can be read."""
        return max(self.as_of, self.upper.step_back())


class Subscriptions:
    """The subscriptions of a controller, by id."""

    def __init__(self, instance: Instance, leases: Leases, note: Callable[[str, str], None]) -> None:
        self._instance = instance
        self._leases = leases
        self._note = note
        self._there: dict[Id, Subscription] = {}

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._there.values())

    def start(self, dataflow: Dataflow, subscription: Subscription) -> None:
        """Ask the replicas for the changes."""
        self._there[subscription.id] = subscription
        self._instance.create(dataflow, subscription.target)
        self._leases.begin(subscription.reads, subscription.position)

    def changed(self, replica: str, response: SubscribeResponse) -> None:
        """A replica tells changes."""
        subscription = self._there.get(response.id)
        if subscription is None:
            return  # it has ended, and the replica did not know yet
        if subscription.target not in (None, replica):
            self._note(replica, f"it tells changes of {response.id}, which another replica was asked for")
            return
        if isinstance(response.event, DroppedAt):
            self._note(replica, f"it dropped {response.id}, which it was not told to")
            return
        updates = response.event.updates
        if isinstance(updates, Problem) and updates.origin is Origin.PROCESS and not subscription.target:
            # Also where the others are farther than that: this replica says nothing more of it.
            problem = subscription.unable.hear(replica, updates)
            if problem is not None:
                self._fail(subscription, problem)
            return
        batch = undelivered(subscription.upper, response.event)
        if batch is not None:
            self._deliver(subscription, batch)

    def find(self, id: Id) -> Subscription | None:
        return self._there.get(id)

    def give_up(self, id: Id, problem: Problem) -> None:
        """End it with a problem, where it is there."""
        subscription = self._there.get(id)
        if subscription is not None:
            self._fail(subscription, problem)

    def stop(self, id: Id) -> bool:
        """End it with `DroppedAt`; False where it is not there."""
        subscription = self._there.get(id)
        if subscription is None:
            return False
        self._finish(subscription, DroppedAt(subscription.upper))
        return True

    def stop_reading(self, name: str) -> None:
        """What they read is dropped."""
        for id in [s.id for s in self._there.values() if s.view == name]:
            self.stop(id)

    def lost(self, replica: str) -> None:
        """A replica is gone: what only it could tell ends, with that."""
        for one in list(self._there.values()):
            problem = lost_target(replica) if one.target == replica else one.unable.lost(replica)
            if problem is not None:
                self._fail(one, problem)

    def maintain(self) -> None:
        """What was delivered need not be told again by replicas that come later; who was told it may not
        have got it, and come back for it."""
        positions: dict[Id, Frontier] = dict.fromkeys(self._leases, END)
        for subscription in self._there.values():
            positions[subscription.reads] = min(positions[subscription.reads], subscription.position)
        for id, position in positions.items():
            self._leases.move(id, position)
        for subscription in self._there.values():
            running = self._instance.running.get(subscription.id)
            if running is not None:
                running.implied.advance(subscription.position)

    def _deliver(self, subscription: Subscription, batch: Batch) -> None:
        if batch.upper == END or isinstance(batch.updates, Problem):
            self._finish(subscription, batch)
            return
        subscription.upper = batch.upper
        self._instance.reported(subscription.id, batch.upper)
        subscription.deliver(batch)

    def _fail(self, subscription: Subscription, problem: Problem) -> None:
        self._finish(subscription, Batch(subscription.upper, subscription.upper, problem))

    def _finish(self, subscription: Subscription, last: Batch | DroppedAt) -> None:
        del self._there[subscription.id]
        self._leases.grant(subscription.reads, self._held(subscription))
        self._instance.drop([subscription.id])
        subscription.deliver(last)

    def _held(self, subscription: Subscription) -> Frontier:
        """What it holds: its position when that was looked at last."""
        running = self._instance.running.get(subscription.id)
        return END if running is None else running.implied.frontier
