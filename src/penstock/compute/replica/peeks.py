"""Peeks: reading an index or a collection at a time, in slices.

A peek by key on what is settled is answered at once. Any other waits until its time is settled, keeping
what it reads readable, and then has its turn with the others, a few milliseconds each.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.compute.errors import OutOfMemory, UnknownName
from penstock.compute.frontier import Frontier
from penstock.compute.problems import problem_of_any
from penstock.compute.protocol.commands import CollectionTarget, Finishing, IndexTarget, Parameters, Peek
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import Canceled, Counted, PeekResponse, Rows
from penstock.compute.replica.arrangement import Arrangement, Hold
from penstock.compute.replica.feeds import Feed, Feeds
from penstock.compute.replica.peek_run import (
    PeekRun,
    below_since,
    check_size,
    collection_parts,
    index_parts,
    shown,
)
from penstock.compute.replica.peek_stash import PeekStash
from penstock.compute.replica.plans import Plans
from penstock.compute.replica.request_checks import check_keys
from penstock.compute.replica.sizes import rows_size
from penstock.errors import PenstockError

log = logging.getLogger("penstock.replica")

AT_ONCE = 64
"""How many keys a peek may ask for to be answered at once."""
_PLAIN = Finishing()


@dataclass(slots=True)
class _Pending:
    """A peek that is not answered. slices: of its work, when its time is settled."""

    peek: Peek
    target: Arrangement | Feed
    hold: Hold | None
    run: PeekRun | None = None
    slices: Iterator[None] | None = None

    def settled(self) -> bool:
        lost = isinstance(self.target, Feed) and self.target.lost is not None
        return lost or self.target.upper.passed(self.peek.time)

    def release(self) -> None:
        if self.run is not None:
            self.run.cancel()
        if self.hold is not None:
            self.hold.release()


@dataclass(slots=True)
class Peeks:
    """The peeks that wait or are being answered. tell: takes answers; each peek has one, at most."""

    indexes: Mapping[Id, Arrangement]
    feeds: Feeds
    plans: Plans
    settings: Callable[[], Parameters]
    stash: PeekStash
    tell: Callable[[PeekResponse], None]
    timer: Callable[[], float]
    _pending: dict[bytes, _Pending] = field(default_factory=dict[bytes, "_Pending"])
    _ready: deque[_Pending] = field(default_factory=deque["_Pending"])
    _waiting: dict[Id, list[_Pending]] = field(default_factory=dict[Id, list["_Pending"]])

    def __len__(self) -> int:
        return len(self._pending)

    def ask(self, peek: Peek) -> None:
        """Take on a peek. What can be answered in a moment is."""
        try:
            if isinstance(peek.target, IndexTarget):
                self._ask_index(peek, peek.target)
            else:
                self._ask_collection(peek, peek.target)
        except Exception as error:
            self._refuse(peek, error)

    def cancel(self, uuid: bytes) -> bool:
        """Answer `Canceled`, unless it is answered; whether it was not."""
        pending = self._pending.pop(uuid, None)
        if pending is None:
            return False
        pending.release()
        self.tell(PeekResponse(uuid, Canceled()))
        return True

    def forget(self) -> None:
        """Drop all, without a word."""
        for pending in self._pending.values():
            pending.release()
        self._pending.clear()
        self._ready.clear()
        self._waiting.clear()

    def dropped(self, id: Id) -> None:
        """An index is dropped: peeks that wait for it have no answer. Those that read it go on."""
        for pending in self._waiting.pop(id, ()):
            if pending.peek.uuid in self._pending:
                self._end(pending, _dropped(id))

    def slice(self, seconds: float) -> bool:
        """Work for about so long on one peek; whether there was something to do."""
        self._wake()
        while self._ready:
            pending = self._ready.popleft()
            if self._pending.get(pending.peek.uuid) is pending:
                self._run(pending, self.timer() + seconds)
                return True
        return False

    @property
    def collections(self) -> set[Id]:
        """Those that peeks wait for."""
        return {p.peek.target.id for p in self._pending.values() if isinstance(p.target, Feed)}

    # -- taken on -------------------------------------------------------------------------------

    def _ask_index(self, peek: Peek, target: IndexTarget) -> None:
        index = self.indexes.get(target.id)
        if index is None:
            raise UnknownName(f"the replica has no index {target.id}", name=target.id)
        time = peek.time
        if index.since > Frontier(time):
            raise below_since(target.id, time, index.since)
        if index.failed is not None and time >= index.failed.time:
            raise index.failed.error
        check_keys(peek, index.keying.width)
        if index.upper.passed(time) and peek.keys is not None and len(peek.keys) <= AT_ONCE:
            self._answer_now(peek, index)
        else:
            self._put_off(_Pending(peek, index, index.hold(time)))

    def _ask_collection(self, peek: Peek, target: CollectionTarget) -> None:
        feed = self.feeds.feed(target.id)
        if feed.since > Frontier(peek.time):
            raise below_since(target.id, peek.time, feed.since)
        check_keys(peek, len(feed.schema.fields))
        self._put_off(_Pending(peek, feed, None))

    def _put_off(self, pending: _Pending) -> None:
        peek = pending.peek
        self._pending[peek.uuid] = pending
        if pending.settled() or _failed_before(pending):
            self._ready.append(pending)
        else:
            self._waiting.setdefault(peek.target.id, []).append(pending)

    def _answer_now(self, peek: Peek, index: Arrangement) -> None:
        time = peek.time
        assert peek.keys is not None
        rows: list[Counted] = []
        of_values = index.keying.of_values
        if len(peek.keys) == 1:
            rows += index.at(of_values(peek.keys[0]), time)
        else:
            for key in dict.fromkeys(map(of_values, peek.keys)):
                rows += index.at(key, time)
        if peek.finishing != _PLAIN or peek.predicate is not None or len(rows) > 1000:
            self._put_off(_Pending(peek, index, index.hold(time)))
            return
        rows = list(shown(None, rows))
        settings = self.settings()
        if settings.max_result_size is not None or settings.peek_stash_size is not None:
            size = rows_size(rows)
            check_size(size, settings)
            if settings.peek_stash_size is not None and size > settings.peek_stash_size:
                self._put_off(_Pending(peek, index, index.hold(time)))
                return
        self.tell(PeekResponse(peek.uuid, Rows(tuple(rows))))

    # -- at work --------------------------------------------------------------------------------

    def _wake(self) -> None:
        """What has waited for its time and is settled now is ready."""
        for id, waiting in list(self._waiting.items()):
            still = [p for p in waiting if p.peek.uuid in self._pending and not self._woken(p)]
            if still:
                self._waiting[id] = still
            else:
                del self._waiting[id]

    def _woken(self, pending: _Pending) -> bool:
        if not pending.settled() and not _failed_before(pending):
            return False
        self._ready.append(pending)
        return True

    def _run(self, pending: _Pending, until: float) -> None:
        try:
            run = pending.run = pending.run or self._begin(pending)
            slices = pending.slices = pending.slices or run.slices()
            for _ in slices:
                if self.timer() > until:
                    self._ready.append(pending)
                    return
        except Exception as error:
            # The peek only reads: what it took is given back, and everything else is as it was.
            self._end(pending, error)
            return
        answer = run.answer
        assert answer is not None
        self._pending.pop(pending.peek.uuid)
        pending.release()
        self.tell(PeekResponse(pending.peek.uuid, answer))

    def _begin(self, pending: _Pending) -> PeekRun:
        peek, target = pending.peek, pending.target
        if target.failed is not None and peek.time >= target.failed.time:
            raise target.failed.error
        parts = (
            index_parts(target, peek)
            if isinstance(target, Arrangement)
            else collection_parts(target.store, peek)
        )
        predicate = None if peek.predicate is None else self.plans.predicate(peek.predicate, target.schema)
        return PeekRun(peek, parts, target.schema, predicate, self.settings, self.stash)

    def _end(self, pending: _Pending, error: Exception) -> None:
        self._pending.pop(pending.peek.uuid, None)
        pending.release()
        self._refuse(pending.peek, error)

    def _refuse(self, peek: Peek, error: Exception) -> None:
        if isinstance(error, MemoryError):
            error = _no_memory(error)
        elif not isinstance(error, PenstockError):
            log.error("a mistake in Penstock", exc_info=error)
        problem = problem_of_any(error, id=peek.target.id, time=peek.time)
        self.tell(PeekResponse(peek.uuid, problem))


def _failed_before(pending: _Pending) -> bool:
    failed = pending.target.failed
    return failed is not None and pending.peek.time >= failed.time


def _no_memory(error: MemoryError) -> OutOfMemory:
    return OutOfMemory(
        "the replica has not the memory for the answer",
        why=str(error),
        fix="ask for fewer rows or columns, or give the replica more memory",
    )


def _dropped(id: Id) -> UnknownName:
    return UnknownName(f"the index {id} was dropped before the time of the peek was settled", name=id)
