"""Materializations: sinks written to durable collections.

All replicas that run the dataflow write the same changes: the first to append from an upper writes for all,
and the others see from the upper what is already written. At the start, the collection may hold output of an
earlier run, so the first append is the difference between the expected and the existing contents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from headrace.compute.collections.store import Append
from headrace.compute.errors import StoreUnavailable, UpperMismatch
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.dataflow import Id
from headrace.compute.protocol.responses import Counted, Row, Update
from headrace.compute.replica.dataflow_run import RETRY
from headrace.compute.replica.exports import ExportWriter, Failed, add_up
from headrace.compute.replica.feeds import CHUNK, Feed
from headrace.compute.replica.runtime import ReachedFrontiers
from headrace.errors import HeadraceError


class CollectionWriter(ExportWriter):
    """Export to a collection: appends the changes of settled times, once allowed.

    Invariant: `_pending` has the changes of settled times from `_written` on, an earlier upper of the
    collection. If it `_agrees`, all earlier times are done. Otherwise `_difference` has the expected contents
    just before, from which the existing contents must still be subtracted.
    """

    def __init__(
        self,
        id: Id,
        sink: str,
        feed: Feed,
        as_of: int,
        *,
        timer: Callable[[], float],
        report: Callable[[Id, str], None],
    ) -> None:
        super().__init__(id, sink)
        self.feed = feed
        self._as_of = as_of
        self._timer = timer
        self._report = report
        self._computed = Frontier(as_of)
        self._written = feed.upper
        self._time = -1
        self._open: list[Sequence[Counted]] = []
        self._pending: list[Update] = []
        self._difference: dict[Row, int] = {}
        self._agrees = False
        self._agreeing: Iterator[None] | None = None
        self._allowed = False
        self._over = False

    def add(self, changes: Sequence[Counted], time: int) -> None:
        if not self._written.has_passed(time):
            self._time = time
            self._open.append(changes)
        elif not self._agrees:
            add_up(self._difference, changes, 1)

    def advance(self, upper: Frontier) -> None:
        if not self._written.has_passed(self._time):  # else another replica has written it meanwhile
            for changes in self._open:
                self._pending += [(row, self._time, weight) for row, weight in changes]
        self._open.clear()
        self._computed = upper

    def allow_writes(self) -> None:
        """Allow writes from now on."""
        self._allowed = True

    def fail(self, failed: Failed) -> None:
        # What was settled before may still be written, and no more.
        self._open.clear()
        if failed.lasting:
            self.feed.failed = failed

    def clear(self) -> None:
        self._open.clear()
        self._difference.clear()

    def drop(self) -> None:
        self._over = True

    def reached_frontiers(self, computed: Frontier, read: Frontier) -> ReachedFrontiers:
        write = max(self.feed.upper, Frontier(self._as_of))
        return ReachedFrontiers(write, read, min(write, self._computed), Frontier(self._as_of))

    def work(self) -> bool:
        if self._over or self._timer() < self.retry_at:
            return False
        try:
            return self._append() if self._agrees else self._agree()
        except StoreUnavailable:
            self._agreeing = None
            self.retry_at = self._timer() + RETRY
        except (HeadraceError, ValueError) as error:  # ValueError: a weight that no collection can hold
            self._over = True
            what = error.what if isinstance(error, HeadraceError) else str(error)
            self._report(self.id, f"cannot write {self.feed.id}: {what}")
        return True

    # -- agreeing with what is there ------------------------------------------------------------

    def _agree(self) -> bool:
        if self._agreeing is None:
            upper = self.feed.upper
            if upper.time is None or self._computed < max(upper, Frontier(self._as_of + 1)):
                return False
            earlier = self._before(upper)
            add_up(self._difference, [(row, weight) for row, _, weight in earlier], 1)
            self._agreeing = self._take_off(upper.time)
        try:
            next(self._agreeing)
        except StopIteration:
            self._agrees, self._agreeing = True, None
        return True

    def _take_off(self, upper: int) -> Iterator[None]:
        """Turn `_difference` into the corrections to append at `upper`, or at the as-of if later."""
        there: dict[Row, int] = {}
        # One of which no time can be read is new: nothing was ever written to it.
        if upper and self.feed.since < Frontier(upper):
            for part in self.feed.store.snapshot(self.feed.id, upper - 1, CHUNK):
                add_up(there, part, 1)
                yield
        rows = list(there.items())
        for at in range(0, len(rows), CHUNK):
            add_up(self._difference, rows[at : at + CHUNK], -1)
            yield
        time = max(upper, self._as_of)
        self._pending += [(row, time, weight) for row, weight in self._difference.items()]
        self._difference = {}

    def _before(self, upper: Frontier) -> list[Update]:
        """Remove and return the pending changes before an upper, which the collection already contains."""
        earlier = [update for update in self._pending if upper.has_passed(update[1])]
        if earlier:
            self._pending = [update for update in self._pending if not upper.has_passed(update[1])]
        self._written = upper
        return earlier

    # -- writing --------------------------------------------------------------------------------

    def _append(self) -> bool:
        upper = self.feed.upper
        if upper > self._written:
            self._before(upper)
        if not self._allowed or self._computed <= upper:
            return False
        append = Append(self.feed.id, upper, self._computed, self._pending)
        try:
            self.feed.store.append([append])
        except UpperMismatch:
            self.feed.refresh()
            return True
        self._pending = []
        self.feed.refresh()
        return True
