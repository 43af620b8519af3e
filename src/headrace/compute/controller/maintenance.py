"""Periodic work of a controller: compacting history, scheduling dataflows, retrying replicas."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.compute.controller import replicas
from headrace.compute.controller.catalog import ViewEntry
from headrace.compute.controller.ddl import drop_stray_collections
from headrace.compute.controller.holds import KeepPast
from headrace.compute.controller.state import ControllerState
from headrace.compute.controller.subscriptions import advance_positions
from headrace.compute.errors import StoreUnavailable
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.protocol.dataflow import Id


def maintain(state: ControllerState) -> int:
    """Do all work that is due: compact history, schedule dataflows, retry replicas.

    Returns the milliseconds until the next call; an earlier call is harmless. Raises `StaleEpoch`.
    """
    state.check_epoch()
    try:
        _read_uppers(state)
        _advance_holds(state)
        # At once, so that a replica finds out on its next connection that it has to rebuild.
        _compact_store(state, at_once=replicas.release_lagging_replicas(state))
    except StoreUnavailable as error:
        state.note(None, error.what)
    replicas.maintain_replicas(state)
    state.instance.schedule_exports()
    retry, interval = replicas.next_retry_delay(state), state.settings.interval
    return min(interval, max(retry, 1) if retry is not None else interval)


def _read_uppers(state: ControllerState) -> None:
    """Read the uppers of the collections that replicas write."""
    written = [entry for entry in state.catalog.collections.values() if entry.written_by]
    ids = [entry.id for entry in written]
    bounds = state.store.bounds(ids) if ids else []
    for entry, bound in zip(written, bounds, strict=True):
        state.instance.advance_upper(entry.id, bound.upper)
        writer = state.catalog.views.get(entry.written_by or "")
        if writer is not None and writer.into is not None:
            state.instance.record_progress(writer.into.export, bound.upper)


def _advance_holds(state: ControllerState) -> None:
    """Advance all holds to the read policies and to the positions of readers."""
    instance = state.instance
    if state.initial_holds and state.clock() - state.started >= state.settings.patience:
        for hold in state.initial_holds:
            hold.release()
        state.initial_holds.clear()
    advance_positions(state)
    state.leases.expire()
    # Without replicas, count a view as being as far as its inputs, so that a replica that connects later
    # need not read the whole past.
    connected = any(True for _ in state.connections())
    reached = {} if connected else instance.availability_by_export()
    # In reverse order of creation, readers come before their inputs, which can then follow immediately.
    for view in reversed(state.catalog.views.values()):
        _apply_policy(state, view, reached)
    for id, hold in state.policies.items():
        hold.advance(KeepPast(state.settings.keep).since(_up_to_read_time(state, instance.uppers[id])))
    instance.advance_warm_up_holds()


def _apply_policy(state: ControllerState, view: ViewEntry, reached: Mapping[Id, Frontier]) -> None:
    """Advance a view's holds to its read policy. reached: uppers to use in place of lower `write`s."""
    running = state.instance.running
    index = running.get(view.id)
    if index is None:
        return
    upper = max(index.write, reached.get(view.id, START))
    since = KeepPast(view.keep, view.valid_from).since(_up_to_read_time(state, upper))
    if view.into is not None and (sink := running.get(view.into.export)) is not None:
        # The collection must be continued from where it ends, not from a later time.
        sink.implied.advance(sink.write.step_back())
        since = min(since, sink.implied.frontier)
    index.implied.advance(since)


def _up_to_read_time(state: ControllerState, upper: Frontier) -> Frontier:
    """Limit an upper to just after the read time, where reads may be in progress."""
    return upper if upper == END else min(upper, Frontier(state.oracle.read + 1))


def _compact_store(state: ControllerState, *, at_once: bool) -> None:
    drop_stray_collections(state)
    now = state.clock()
    if not at_once and now - state.compacted < state.settings.compaction:
        return
    state.compacted = now
    state.positions.advance_records(state.oracle.last)
    compactions = state.instance.compactions
    for id, since in list(compactions.items()):
        if since != END:
            state.store.compact(id, since)
            del compactions[id]
