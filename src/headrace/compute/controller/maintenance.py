"""Periodic work of a controller: compacting history, scheduling dataflows, retrying replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.compute.collections.store import Collections
from headrace.compute.controller.catalog import Catalog, ViewEntry
from headrace.compute.controller.ddl import DdlExecutor
from headrace.compute.controller.holds import KeepPast, ReadHold
from headrace.compute.controller.instance import Instance
from headrace.compute.controller.leases import Leases, Positions
from headrace.compute.controller.replicas import Replicas
from headrace.compute.controller.requests import ControllerSettings
from headrace.compute.controller.subscriptions import Subscriptions
from headrace.compute.controller.timestamps import TimestampOracle
from headrace.compute.errors import StoreUnavailable
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.protocol.dataflow import Id


class Maintenance:
    """Periodic work: advancing holds to the read policies, and compacting the store up to the holds.

    at_start: initial holds on all collections, for replicas that may still read them.
    """

    def __init__(
        self,
        names: DdlExecutor,
        instance: Instance,
        oracle: TimestampOracle,
        collections: Collections,
        replicas: Replicas,
        subscriptions: Subscriptions,
        leases: Leases,
        positions: Positions,
        *,
        clock: Callable[[], int],
        settings: ControllerSettings,
        note: Callable[[str | None, str], None],
    ) -> None:
        self._names = names
        self._instance = instance
        self._oracle = oracle
        self._collections = collections
        self._replicas = replicas
        self._subscriptions = subscriptions
        self._leases = leases
        self._positions = positions
        self._clock = clock
        self._settings = settings
        self._note = note
        self._started = clock()
        self._compacted = clock()
        self._at_start: list[ReadHold] = [instance.holds.acquire(id) for id in instance.uppers]

    @property
    def _catalog(self) -> Catalog:
        return self._names.catalog

    def run(self, spared: set[Id]) -> int:
        """Do all work that is due. Returns the milliseconds until the next call.

        spared: collections with a write in progress, which must not be dropped now.
        """
        try:
            self._read_uppers()
            self._move_holds()
            # At once, so that a replica finds out on its next connection that it has to rebuild.
            self._compact_store(spared, at_once=self._replicas.release_lagging())
        except StoreUnavailable as error:
            self._note(None, error.what)
        self._replicas.maintain()
        self._instance.schedule_exports()
        retry = self._replicas.next_retry()
        return min(self._settings.interval, max(retry, 1) if retry is not None else self._settings.interval)

    def _read_uppers(self) -> None:
        """Read the uppers of the collections that replicas write."""
        written = [entry for entry in self._catalog.collections.values() if entry.written_by]
        ids = [entry.id for entry in written]
        bounds = self._collections.bounds(ids) if ids else []
        for entry, bound in zip(written, bounds, strict=True):
            self._instance.advance_upper(entry.id, bound.upper)
            writer = self._catalog.views.get(entry.written_by or "")
            if writer is not None and writer.into is not None:
                self._instance.record_progress(writer.into.export, bound.upper)

    def _move_holds(self) -> None:
        now = self._clock()
        if self._at_start and now - self._started >= self._settings.patience:
            for hold in self._at_start:
                hold.release()
            self._at_start.clear()
        self._subscriptions.maintain()
        self._leases.expire()
        # Without replicas, count a view as being as far as its inputs, so that a replica that connects later
        # need not read the whole past.
        reached = {} if self._replicas.connections() else self._instance.availability_by_export()
        # In reverse order of creation, readers come before their inputs, which can then follow immediately.
        for view in reversed(self._catalog.views.values()):
            self._follow(view, reached)
        for id, hold in self._names.policies.items():
            hold.advance(KeepPast(self._settings.keep).since(self._seen(self._instance.uppers[id])))
        self._instance.advance_warm_up_holds()

    def _follow(self, view: ViewEntry, reached: Mapping[Id, Frontier]) -> None:
        """Advance a view's holds to its read policy. reached: uppers to use in place of lower `write`s."""
        index = self._instance.running.get(view.id)
        if index is None:
            return
        since = KeepPast(view.keep, view.valid_from).since(
            self._seen(max(index.write, reached.get(view.id, START)))
        )
        if view.into is not None and (sink := self._instance.running.get(view.into.export)) is not None:
            # The collection must be continued from where it ends, not from a later time.
            sink.implied.advance(sink.write.step_back())
            since = min(since, sink.implied.frontier)
        index.implied.advance(since)

    def _seen(self, upper: Frontier) -> Frontier:
        """Limit an upper to just after the read time, where reads may be in progress."""
        return upper if upper == END else min(upper, Frontier(self._oracle.read + 1))

    def _compact_store(self, spared: set[Id], *, at_once: bool) -> None:
        self._names.drop_stray_collections(spared)
        now = self._clock()
        if not at_once and now - self._compacted < self._settings.compaction:
            return
        self._compacted = now
        self._positions.advance_records(self._oracle.last)
        compactions = self._instance.compactions
        for id, since in list(compactions.items()):
            if since != END:
                self._collections.compact(id, since)
                del compactions[id]
