"""Simulated users who write and read, and check every answer."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.compute.collections.store import Collections
from headrace.compute.controller.controller import Controller
from headrace.compute.controller.state import Write
from headrace.compute.errors import (
    NegativeMultiplicity,
    SinceViolation,
    StaleEpoch,
    StillInUse,
    TargetReplicaLost,
    UpperMismatch,
)
from headrace.compute.protocol.client_messages import PeekRequest
from headrace.compute.protocol.responses import Counted
from headrace.expr.types import Row
from headrace.testing.compute.reader_checks import (
    CopyWatch,
    PeekWatch,
    ReaderViolation,
    SubscriptionWatch,
    shown,
)
from headrace.testing.compute.workload import GroundTruth, Workload, kept


@dataclass
class Pending:
    """Group of writes in progress."""

    write: Write
    rows: dict[str, list[Counted]]
    appended: bool = False


@dataclass
class Users:
    """All users of a simulation. They survive the controller; their open requests do not.

    note: records all their requests, writes and answers.
    """

    workload: Workload
    truth: GroundTruth
    random: random.Random
    now: Callable[[], int]
    note: Callable[..., None]
    peeks: list[PeekWatch] = field(default_factory=list[PeekWatch])
    subscriptions: list[SubscriptionWatch] = field(default_factory=list[SubscriptionWatch])
    copies: list[CopyWatch] = field(default_factory=list[CopyWatch])
    views: list[str] = field(default_factory=list[str])
    kept: dict[str, str] = field(default_factory=dict[str, str])
    keeps: dict[str, int] = field(default_factory=dict[str, int])
    collections: set[str] = field(default_factory=set[str])
    writing: Pending | None = None
    superseding: bool = False
    acknowledged: int = 0
    acknowledgements: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def forget_controller(self) -> None:
        """Drop all requests of a lost controller. A write in flight may or may not have happened."""
        self.peeks = [watch for watch in self.peeks if watch.answer is not None]
        for watch in self.subscriptions:
            watch.abandoned = not watch.ended
        self.copies.clear()
        self.writing = None

    def meet_controller(self) -> None:
        """Start the time limit for readers to reconnect to a new controller."""
        for watch in self.subscriptions:
            if watch.abandoned and watch.left_at is None:
                watch.left_at = self.now()

    def begin_write(self, controller: Controller) -> None:
        rows = self._some_rows()
        if rows and self.writing is None:
            self.writing = Pending(controller.begin_write(rows), rows)
            self.note(f"  at {self.writing.write.time}", rows)

    def append(self, controller: Controller, store: Collections) -> bool:
        """Make the started write durable. Returns whether there was one."""
        if self.writing is None or self.writing.appended:
            return False
        try:
            store.append(self.writing.write.appends)
        except (UpperMismatch, NegativeMultiplicity) as error:
            durable = controller.fail_write(self.writing.write)
            self.note("  it is refused", error)
            self.writing = None
            if durable or not self.superseding:
                raise ReaderViolation(f"a write of the only controller was refused: {error}") from error
            return False
        self.writing.appended = True
        self.truth.record_write(self.writing.write.time, self.writing.rows)
        return True

    def end_write(self, controller: Controller) -> None:
        if self.writing is not None and self.writing.appended:
            controller.end_write(self.writing.write)
            self.note(f"  {self.writing.write.time} is acknowledged")
            self.acknowledged = self.writing.write.time
            self.acknowledgements.append((self.now(), self.acknowledged))
            self.writing = None

    def write_by_stale(self, controller: Controller, store: Collections) -> None:
        """Write through a superseded controller: it may happen, but is never acknowledged."""
        rows = self._some_rows()
        try:
            write = controller.begin_write(rows)
            store.append(write.appends)
        except (StaleEpoch, UpperMismatch, NegativeMultiplicity) as error:
            self.note("  it is refused", error)
            return
        self.note(f"  it is durable at {write.time}", rows)
        self.truth.record_write(write.time, rows)
        try:
            controller.end_write(write)
        except StaleEpoch:
            return
        raise ReaderViolation("a controller that has been superseded acknowledged a write")

    def _some_rows(self) -> dict[str, list[Counted]]:
        rows: dict[str, list[Counted]] = {}
        for name in sorted(self.collections):
            collection = self.workload.collections[name]
            there = self.truth.collection(name, self.truth.times[-1])
            changes: dict[Row, int] = {}
            for _ in range(self.random.randint(0, 3)):
                if there and not collection.append_only and self.random.random() < 0.4:
                    row = self.random.choice(sorted(there, key=shown))
                    if there[row] + changes.get(row, 0) > 0:
                        changes[row] = changes.get(row, 0) - 1
                else:
                    row = collection.draw(self.random)
                    changes[row] = changes.get(row, 0) + 1
            found = [(row, weight) for row, weight in changes.items() if weight]
            if found:
                rows[name] = found
        return rows

    def create_view(self, controller: Controller) -> None:
        missing = self.workload.missing(self.views)
        if missing:
            name = self.random.choice(missing)
            keep = self.random.choice([0, 100, 1000])
            into = kept(name) if self.random.random() < 0.3 else None
            id = self.workload.create_view(controller, name, keep=keep, into=into)
            self.note(f"  {name} is {id}, keeps {keep}, into {into}")
            self.views.append(name)
            self.keeps[name] = keep
            if into is not None:
                self.kept[name] = into
            sources = {source.name for source in self.workload.views[name].reads}
            self.collections |= sources & self.workload.collections.keys()

    def drop_view(self, controller: Controller) -> None:
        if not self.views:
            return
        name = self.random.choice(self.views)
        readers = [v for v in self.views if name in (s.name for s in self.workload.views[v].reads)]
        self.note(f"  {name}")
        try:
            controller.drop(name)
        except StillInUse as error:
            if not readers:
                raise ReaderViolation(f"{name} is said to be in use: {error}") from error
            return
        if readers:
            raise ReaderViolation(f"{name} was dropped under its readers {readers}")
        self.views.remove(name)
        self.subscriptions = [watch for watch in self.subscriptions if watch.view != name]
        self.kept.pop(name, None)

    def ask(
        self, controller: Controller, view: str, *, replica: str | None = None, at: int | None = None
    ) -> None:
        """Peek at a view, and watch the answers."""
        name, (positions, keys) = view, self._some_keys(view)
        if view in self.kept and replica is None and self.random.random() < 0.3:
            name, positions, keys = self.kept[view], (), None
        staleness = self.random.choice([None, None, 0, 100, 2000]) if at is None else None
        watch = PeekWatch(view, self._known(staleness), at, keys, positions, replica is not None)
        self.peeks.append(watch)
        request = PeekRequest(name, keys=keys, at=at, replica=replica, staleness=staleness)
        self.note(" ", request)
        try:
            watch.uuid = controller.peek(request, self._watched(f"a peek of {name}", watch.check_answer))
        except (SinceViolation, TargetReplicaLost) as error:
            self.note("  it is refused", error)
            self.peeks.remove(watch)
            if not (replica if isinstance(error, TargetReplicaLost) else at is not None):
                raise

    def _watched(self, what: str, see: Callable[[GroundTruth, Any], None]) -> Callable[[Any], None]:
        """Return a callback that records and checks an answer or event."""

        def tell(said: Any) -> None:
            self.note(f"  {what} is told", said)
            see(self.truth, said)

        return tell

    def _known(self, staleness: int | None) -> int:
        """Return the last acknowledged write that an answer must reflect."""
        if staleness is None:
            return self.acknowledged
        # The contents at exactly that age are sufficient.
        until = self.now() - staleness
        return max((time for at, time in self.acknowledgements if at < until), default=0)

    def _some_keys(self, view: str) -> tuple[tuple[int, ...], tuple[Row, ...] | None]:
        """Draw keys to look up with the positions of their columns; or all rows."""
        if self.random.random() < 0.5:
            return (), None
        positions = self.workload.views[view].positions
        keys = tuple(self._some_key(view) for _ in range(self.random.randint(1, 2)))
        return positions, keys

    def _some_key(self, view: str) -> Row:
        """Draw a key, possibly of an existing row."""
        made = self.workload.views[view]
        rows = self.truth.view(view, self.acknowledged)
        if rows and self.random.random() < 0.5:
            row = self.random.choice(sorted(rows, key=shown))
            return tuple(row[at] for at in made.positions)
        return made.draw_key(self.random)

    def cancel(self, controller: Controller) -> None:
        waiting = [watch for watch in self.peeks if watch.answer is None]
        if waiting:
            watch = self.random.choice(waiting)
            watch.cancelled = True
            self.note(f"  of {watch.view}", watch.uuid)
            controller.cancel_peek(watch.uuid)

    def subscribe(self, controller: Controller, replica: str | None = None) -> None:
        """Subscribe to a view, and watch the events."""
        if not self.views:
            return
        view = self.random.choice(self.views)
        as_of = self.random.choice([None, self.acknowledged, max(0, self.acknowledged - 50)])
        snapshot = as_of is None or self.random.random() < 0.5
        # The first batch extends beyond the as-of; nothing more is required of one chosen by the controller.
        watch = SubscriptionWatch(view, as_of or 0, snapshot, replica is not None)
        self.note(f"  to {view} from {as_of}, snapshot {snapshot}, of {replica}")
        deliver = self._watched(f"a subscription to {view}", watch.check_event)
        try:
            watch.id = controller.subscribe(view, deliver, as_of=as_of, snapshot=snapshot, replica=replica)
        except (SinceViolation, TargetReplicaLost) as error:
            self.note("  it is refused", error)
            if not (replica if isinstance(error, TargetReplicaLost) else as_of is not None):
                raise
            return
        self.subscriptions.append(watch)

    def resume(self, controller: Controller) -> None:
        """Resume the subscriptions that were away for less than the view's history."""
        for left in list(self.subscriptions):
            if left.left_at is None or self.now() - left.left_at >= self.keeps[left.view]:
                continue
            self.subscriptions.remove(left)
            if left.seen.time:
                self._resume(controller, left.view, max(left.seen.time - 1, left.as_of))

    def _resume(self, controller: Controller, view: str, as_of: int) -> None:
        watch = SubscriptionWatch(view, as_of, snapshot=False)
        self.note(f"  to {view} from {as_of}")
        deliver = self._watched(f"a subscription to {view}", watch.check_event)
        try:
            watch.id = controller.subscribe(view, deliver, as_of=as_of, snapshot=False)
        except SinceViolation as error:
            raise ReaderViolation(f"a subscription to {view} cannot go on: {error}") from error
        self.subscriptions.append(watch)

    def leave(self, controller: Controller) -> None:
        """Disconnect all subscriptions for a moment."""
        for watch in self.subscriptions:
            if not (watch.ended or watch.abandoned):
                self.note(f"  {watch.id} to {watch.view}")
                controller.unsubscribe(watch.id)
                watch.left_at = self.now()

    def copy(self, controller: Controller, replica: str | None) -> None:
        """Copy a view to a file, and watch the answer."""
        if self.views:
            watch = CopyWatch(self.random.choice(self.views), self.acknowledged, replica is not None)
            self.note(f"  of {watch.view}, by {replica}")
            answer = self._watched(f"a copy of {watch.view}", watch.check_answer)
            try:
                controller.copy(watch.view, f"{len(self.copies)}.jsonl", answer, replica=replica)
            except TargetReplicaLost as error:
                self.note("  it is refused", error)
                if replica is None:
                    raise
                return
            self.copies.append(watch)

    def unsubscribe(self, controller: Controller) -> None:
        live = [watch for watch in self.subscriptions if not (watch.ended or watch.abandoned)]
        if live:
            watch = self.random.choice(live)
            self.note(f"  {watch.id} to {watch.view}")
            controller.unsubscribe(watch.id)
            watch.left_at = self.now()

    def unrest(self) -> str:
        """Describe the answers still owed to users. Empty if all have been given."""
        waiting = [watch.view for watch in self.peeks if watch.answer is None]
        behind = [
            watch.view
            for watch in self.subscriptions
            if not (watch.ended or watch.abandoned) and not watch.seen.has_passed(self.acknowledged)
        ]
        copying = [watch.view for watch in self.copies if watch.answer is None]
        if not (waiting or behind or copying):
            return ""
        return f"peeks of {waiting}, subscriptions to {behind}, copies of {copying}"
