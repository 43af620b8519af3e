"""Writes of clients: grouped and made durable by the caller, assigned a time here, then acknowledged.

All collections that clients write are advanced together: after a write, each of them is settled up to its
time, so a read at that time never waits for a collection without changes.

A client that repeats a write because its answer was lost uses the same id. Ids are stored in a collection of
their own, in the same append as the rows, so an id is known if and only if its rows are durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any

from headrace.compute.collections.store import CollectionAppend
from headrace.compute.controller.catalog import CollectionEntry
from headrace.compute.controller.state import ControllerState, Write, WriteState
from headrace.compute.errors import ComputeError, NotWritable, StoreUnavailable
from headrace.compute.frontier import Frontier, meet
from headrace.compute.protocol.commands import Id
from headrace.compute.protocol.responses import Counted, Update
from headrace.expr.row_classes import from_user
from headrace.expr.types import Row

_FORGOTTEN_AT_ONCE = 1_000
_GREATEST_WEIGHT = 2**63 - 1


def begin_write(
    state: ControllerState, writes: Mapping[str, Sequence[Counted]], ids: Sequence[bytes] = ()
) -> Write:
    """Begin a group commit by assigning it a time. Only one may be in progress.

    The caller appends `Write.appends`, in any thread, then calls `end_write` or `fail_write`.

    Raises `UnknownName`, and `BadRow` for rows that do not fit the schema.
    """
    state.check_epoch()
    known = state.writes
    if known.under_way is not None:
        raise RuntimeError("a write is under way: end it first, and group later ones")
    _settle_doubt(state)
    rows = {(e := _writable(state, name)).id: _checked(state, e, writes[name]) for name in writes}
    time = state.oracle.assign_write_time()
    after = Frontier(time + 1)
    appends = [
        CollectionAppend(id, upper, after, tuple((row, time, w) for row, w in rows.get(id, ()) if w))
        for id, upper in _client_uppers(state).items()
    ]
    if updates := _id_updates(state, ids, time):
        appends.append(CollectionAppend(known.ids, state.instance.uppers[known.ids], after, updates))
    write = known.under_way = Write(time, tuple(appends), tuple(ids))
    try:
        state.positions.record_before_write(time)
    except StoreUnavailable as error:
        # Some readers may lose their position in a restart, which is no reason to refuse a write.
        state.note(None, error.what)
    return write


def end_write(state: ControllerState, write: Write) -> None:
    """Finish a durable write, which strict reads now see and which may be acknowledged.

    Raises `StaleEpoch` if a later controller has started meanwhile; then it must not be acknowledged.
    """
    _check_epoch_after(state, write)
    _take_back(state, write)
    _complete(state, write)


def fail_write(state: ControllerState, write: Write) -> bool:
    """Settle a write after its append raised. Returns whether it is durable nevertheless, and so finished.

    Raises `StaleEpoch`, and `StoreUnavailable` if the outcome is unknown for now: the write stays in doubt
    until the next one, and a client that repeats it should use the same id.
    """
    _check_epoch_after(state, write)
    _mark_in_doubt(state, write)
    durable = _settle_doubt(state)
    state.check_epoch()  # a later controller may have read the store before the write arrived
    return durable


def time_of_write(state: ControllerState, id: bytes) -> int | None:
    """Return the time of the write with an id; None for an unknown or long forgotten one.

    After a restart of the controller, it may be a later time at which the rows are readable. Raises
    `StaleEpoch`, and `StoreUnavailable` if the outcome is unknown for now.
    """
    _settle_doubt(state)
    time = state.writes.times.get(id)
    state.check_epoch()  # last, so that any later controller finds the write
    return time


def load_write_ids(state: ControllerState) -> None:
    """Load the ids of the writes of earlier controllers from their collection."""
    ids = state.writes.ids
    upper = state.instance.uppers[ids].time
    if upper:
        for rows in state.store.snapshot(ids, upper - 1):
            for (id,), _ in rows:
                _remember(state.writes, id, upper - 1)


def _check_epoch_after(state: ControllerState, write: Write) -> None:
    try:
        state.check_epoch()
    except ComputeError:
        _mark_in_doubt(state, write)
        raise


def _take_back(state: ControllerState, write: Write) -> None:
    if state.writes.under_way is not write:
        raise RuntimeError("this write is not under way")
    state.writes.under_way = None


def _mark_in_doubt(state: ControllerState, write: Write) -> None:
    """Mark a write as in doubt, to be settled before the next one."""
    _take_back(state, write)
    state.writes.in_doubt = write


def _complete(state: ControllerState, write: Write) -> None:
    known, instance = state.writes, state.instance
    for append in write.appends:
        if append.id in instance.uppers:
            instance.advance_upper(append.id, append.upper)
    for id in _expired(state, write.ids, write.time):
        known.oldest.popleft()
        del known.times[id]
    for id in write.ids:
        _remember(known, id, write.time)
    state.oracle.acknowledge(write.time)
    instance.schedule_exports()


def _settle_doubt(state: ControllerState) -> bool:
    """Resolve the write in doubt, if any, by the uppers in the store. Returns whether it is durable."""
    known, write = state.writes, state.writes.in_doubt
    if write is None:
        return False
    clients = list(_client_uppers(state))
    ids = [*clients, known.ids]
    found = dict(zip(ids, (b.upper for b in state.store.bounds(ids)), strict=True))
    there = [append for append in write.appends if append.id in found]
    # No time is assigned twice, so only this write produces that upper; appends are atomic.
    durable = bool(there) and all(found[append.id] == append.upper for append in there)
    if not durable:
        _load_late_ids(state, found[known.ids])
    known.in_doubt = None
    for id, upper in found.items():
        state.instance.advance_upper(id, upper)
        state.oracle.skip_to(upper)
    if durable:
        _complete(state, write)
    elif settled := meet(found[id] for id in clients).time:
        state.oracle.acknowledge(settled - 1)
    return durable


def _load_late_ids(state: ControllerState, upper: Frontier) -> None:
    """Load the ids of writes that became durable only after their outcome was read, when the store was still
    committing them."""
    known = state.writes
    lower = state.instance.uppers[known.ids]
    if upper <= lower:
        return
    removed: set[bytes] = set()
    for updates in state.store.changes(known.ids, lower, upper):
        for (id,), time, weight in updates:
            if weight > 0:
                _remember(known, id, time)
            else:
                removed.add(id)
                del known.times[id]
    known.oldest = deque(id for id in known.oldest if id not in removed)


def _client_uppers(state: ControllerState) -> dict[Id, Frontier]:
    """Map the collections that clients write to their uppers."""
    return {entry.id: state.instance.uppers[entry.id] for entry in state.catalog.written_by_clients()}


def _writable(state: ControllerState, name: str) -> CollectionEntry:
    entry = state.catalog.find_or_raise(name)
    if isinstance(entry, CollectionEntry) and entry.written_by is None:
        return entry
    raise NotWritable(
        f"{name!r} cannot be written by clients",
        why="It is a view, or the collection that a view is written into.",
        fix="write to the collections that the view reads",
        name=name,
    )


def _checked(state: ControllerState, entry: CollectionEntry, rows: Sequence[Counted]) -> list[Counted]:
    """Convert rows to the types of their collection. Raises `NotWritable`, `BadRow`."""
    if entry.append_only and any(weight < 0 for _, weight in rows):
        raise NotWritable(
            f"rows of {entry.name!r} cannot be retracted",
            why="The collection is append-only, and views over it rely on that.",
            fix="read it as flow.table(...) if rows are retracted, and create the collection anew",
            name=entry.name,
        )
    if sum(abs(weight) for _, weight in rows) > _GREATEST_WEIGHT:
        raise NotWritable(
            f"too large weights for {entry.name!r} in one write",
            why=f"The weights of one write add up to at most {_GREATEST_WEIGHT}.",
            name=entry.name,
        )
    given: list[Any] = [row for row, _ in rows]
    if entry.schema.scalar:
        given = [row[0] if len(row) == 1 else row for row in given]
    return list(zip(_converter(state, entry)(given), (weight for _, weight in rows), strict=True))


def _converter(state: ControllerState, entry: CollectionEntry) -> Callable[[Iterable[object]], list[Row]]:
    convert = state.writes.converters.get(entry.id)
    if convert is None:
        convert = from_user(entry.schema, what=f"collection {entry.name!r}")
        state.writes.converters[entry.id] = convert
    return convert


def _id_updates(state: ControllerState, ids: Sequence[bytes], time: int) -> tuple[Update, ...]:
    """Build the updates of the collection of ids: additions of new and removals of expired ones."""
    if len(set(ids)) != len(ids) or any(id in state.writes.times for id in ids):
        raise ValueError("a write is repeated: look it up with `time_of_write` first")
    expired = _expired(state, ids, time)
    return (*(((id,), time, 1) for id in ids), *(((id,), time, -1) for id in expired))


def _expired(state: ControllerState, ids: Sequence[bytes], time: int) -> list[bytes]:
    """List the oldest expired ids, limited to somewhat more than the number of new ones."""
    known, limit = state.writes, time - state.settings.remembered_ids
    oldest = islice(known.oldest, _FORGOTTEN_AT_ONCE + len(ids))
    return list(takewhile(lambda id: known.times[id] <= limit, oldest))


def _remember(known: WriteState, id: bytes, time: int) -> None:
    known.times[id] = time
    known.oldest.append(id)
