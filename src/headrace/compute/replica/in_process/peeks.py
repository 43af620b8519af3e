"""Peeks served on the replica's own thread, in slices.

A peek by key at a settled time is answered at once. All others take turns of a few milliseconds once their
times are settled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.compute.protocol.commands import Finishing, Peek
from headrace.compute.protocol.dataflow import Id
from headrace.compute.protocol.responses import Counted, PeekResponse, Rows
from headrace.compute.protocol.row_batch import rows_size
from headrace.compute.replica.building import RuntimeContext, check_keys, check_since
from headrace.compute.replica.feeds import CollectionFeed, Feeds
from headrace.compute.replica.in_process.arrangement import TimedArrangement
from headrace.compute.replica.peeks import (
    AcceptedPeek,
    PeekRun,
    PeekStash,
    PendingPeeks,
    check_not_failed,
    check_size,
    check_work,
    collection_parts,
    filter_rows,
)
from headrace.compute.replica.work_watch import PieceLimits

AT_ONCE = 64
"""Maximum number of keys for a peek to be answered at once."""
KEYS = 64
"""Number of keys looked up at a time."""
_PLAIN = Finishing()
_NO_MORE = object()
_PIECE = PieceLimits("a part of a peek", seconds=2.0, memory=1 << 30)


@dataclass(slots=True, eq=False)
class _Pending(AcceptedPeek):
    """Pending peek. slices: the remaining work, once the peek's time is settled. worked: seconds so far."""

    target: TimedArrangement | CollectionFeed = None  # type: ignore[assignment]
    run: PeekRun | None = None
    slices: Iterator[None] | None = None
    worked: float = 0.0

    def settled(self) -> bool:
        target, time = self.target, self.peek.time
        lost = isinstance(target, CollectionFeed) and target.lost is not None
        return (
            lost
            or target.upper.has_passed(time)
            or (target.failed is not None and time >= target.failed.time)
        )

    def release(self) -> None:
        if self.run is not None:
            self.run.cancel()
        AcceptedPeek.release(self)


class InProcessPeeks(PendingPeeks[TimedArrangement, _Pending]):
    """Peeks at arrangements and at the feeds of collections."""

    def __init__(self, around: RuntimeContext[TimedArrangement], stash: PeekStash, feeds: Feeds) -> None:
        super().__init__(around, stash)
        self._feeds = feeds
        self._ready: deque[_Pending] = deque()
        self._waiting: dict[Id, list[_Pending]] = {}

    def drop_all(self) -> None:
        super().drop_all()
        self._ready.clear()
        self._waiting.clear()

    def slice(self, seconds: float) -> bool:
        """Work on one peek for about `seconds`. Returns whether there was work."""
        self._wake()
        while self._ready:
            pending = self._ready.popleft()
            if self._pending.get(pending.peek.uuid) is pending:
                self._work(pending, self._around.timer(), seconds)
                return True
        return False

    @property
    def collections(self) -> set[Id]:
        """Collections that pending peeks wait for."""
        return {p.peek.target.id for p in self._pending.values() if isinstance(p.target, CollectionFeed)}

    def _ask_index(self, peek: Peek, index: TimedArrangement) -> None:
        if index.upper.has_passed(peek.time) and peek.keys is not None and len(peek.keys) <= AT_ONCE:
            rows = self._read_now(peek, index)
            if rows is not None:
                self._around.respond(PeekResponse(peek.uuid, rows))
                return
        self._put_off(_Pending(peek, index.hold(peek.time), target=index))

    def _ask_collection(self, peek: Peek) -> None:
        feed = self._feeds.feed(peek.target.id)
        check_since(peek.target.id, peek.time, feed.since)
        check_keys(peek, len(feed.schema.fields))
        self._put_off(_Pending(peek, None, target=feed))

    def _put_off(self, pending: _Pending) -> None:
        peek = pending.peek
        self._pending[peek.uuid] = pending
        if not self._woken(pending):
            self._waiting.setdefault(peek.target.id, []).append(pending)

    def _read_now(self, peek: Peek, index: TimedArrangement) -> Rows | None:
        """Answer a peek at once, unless that may take long or the result must be stashed."""
        assert peek.keys is not None
        rows: list[Counted] = []
        of_values = index.keying.of_values
        if len(peek.keys) == 1:
            rows += index.rows_at(of_values(peek.keys[0]), peek.time)
        else:
            for key in dict.fromkeys(map(of_values, peek.keys)):
                rows += index.rows_at(key, peek.time)
        if peek.finishing != _PLAIN or peek.predicate is not None or len(rows) > 1000:
            return None
        rows = list(filter_rows(None, rows))
        settings = self._around.settings()
        if settings.max_result_size is not None or settings.peek_stash_size is not None:
            size = rows_size(rows)
            check_size(size, settings)
            if settings.peek_stash_size is not None and size > settings.peek_stash_size:
                return None
        return Rows(tuple(rows))

    # -- at work --------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Mark peeks as ready whose time is now settled."""
        for id, waiting in list(self._waiting.items()):
            still = [p for p in waiting if p.peek.uuid in self._pending and not self._woken(p)]
            if still:
                self._waiting[id] = still
            else:
                del self._waiting[id]

    def _woken(self, pending: _Pending) -> bool:
        if not pending.settled():
            return False
        pending.waiting = False
        self._ready.append(pending)
        return True

    def _work(self, pending: _Pending, began: float, seconds: float) -> None:
        try:
            run = pending.run = pending.run or self._begin(pending)
            slices = pending.slices = pending.slices or run.slices()
            while self._next(slices):
                now = self._around.timer()
                check_work(pending.worked + now - began)
                if now > began + seconds:
                    pending.worked += now - began
                    self._ready.append(pending)
                    return
        except Exception as error:
            # The peek only reads: what it took is given back, and everything else is as it was.
            self._around.watch.end()
            self._end(pending, error)
            return
        assert run.answer is not None
        self._end(pending, run.answer)

    def _next(self, slices: Iterator[None]) -> bool:
        """Do the next piece of work, watched. Returns whether there was one."""
        watch = self._around.watch
        try:
            watch.begin(_PIECE)
            return next(slices, _NO_MORE) is None
        finally:
            watch.end()

    def _begin(self, pending: _Pending) -> PeekRun:
        peek, target = pending.peek, pending.target
        check_not_failed(target.failed, peek.time)
        parts = (
            index_parts(target, peek)
            if isinstance(target, TimedArrangement)
            else collection_parts(target.store, peek)
        )
        return self._run(peek, target.schema, parts)


def index_parts(index: TimedArrangement, peek: Peek) -> Iterator[Iterable[Counted]]:
    """Yield an index's candidate rows for a peek: those of its keys, or all. Holds the index meanwhile."""
    if peek.keys is None:
        yield from index.scan(peek.time)
        return
    keys = list(dict.fromkeys(map(index.keying.of_values, peek.keys)))
    for at in range(0, len(keys), KEYS):
        for key in keys[at : at + KEYS]:
            yield index.rows_at(key, peek.time)
