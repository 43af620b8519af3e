"""Data classes of the controller's interface: settings, and requests and answers beyond the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.compute.collections.store import Append
from headrace.compute.protocol.commands import Finishing
from headrace.compute.protocol.dataflow import Id
from headrace.compute.protocol.responses import Canceled, Problem, Rows, Stashed
from headrace.expr.types import Schema


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Settings of a controller: times in milliseconds, and counts.

    interval:         longest time between calls of `maintain`.
    keep:             length of the readable past of collections.
    compaction:       time between compactions of the store.
    first_retry:      delay before an unreachable replica is retried; doubled each time.
    longest_retry:    limit of that delay.
    first_rest:       delay before a crashed replica is retried; doubled with each crash in the window.
    longest_rest:     limit of that delay.
    window:           age up to which crashes count. A replica that becomes steady starts over at zero.
    lag:              lag behind the other replicas up to which a replica counts as level with them.
    steady:           time of being hydrated and level after which a replica is ready, and not crash-looping.
    careful_after:    crashes in the window after which a replica hydrates one dataflow at a time.
    quarantine_after: crashes in the window after which a replica is quarantined.
    quarantine:       length of a quarantine, after which the replica is retried.
    patience:         time for which the inputs of a lost replica stay readable from its position on.
    max_lag:          time for which a replica may stay behind the readable past of a hydrated view. Then its
        inputs are no longer kept, and it rebuilds the view.
    most_behind:      commands that a connection may be behind before it is cut, to start over.
    remembered_ids:   time for which the ids of writes are kept, to recognise repeated ones.
    """

    interval: int = 1_000
    keep: int = 10_000
    compaction: int = 5_000
    first_retry: int = 50
    longest_retry: int = 1_000
    first_rest: int = 100
    longest_rest: int = 30_000
    window: int = 600_000
    lag: int = 5_000
    steady: int = 60_000
    careful_after: int = 3
    quarantine_after: int = 8
    quarantine: int = 1_800_000
    patience: int = 60_000
    max_lag: int = 600_000
    most_behind: int = 10_000
    remembered_ids: int = 600_000


AS_THEY_ARE = Finishing()
"""Finishing that returns complete rows, all of them and unordered."""


@dataclass(frozen=True, slots=True)
class PeekRequest:
    """Request to read a view or collection at one time.

    keys:      keys to look up, as rows of the key columns; None: all rows.
    at:        the time; None: that of the last acknowledged write (strict), unless `staleness` is given. A
        read at a future time waits until then.
    predicate: encoded expression over the row (`headrace.compute.plans`); None: all rows.
    replica:   the only replica allowed to answer; None: any.
    staleness: milliseconds by which the answer may be behind the present, to avoid waiting: the read is at
        the latest time that some connected replica has settled, if within the bound; otherwise it is strict.
        Excludes `at`.
    """

    view: str
    keys: Sequence[tuple[Any, ...]] | None = None
    at: int | None = None
    predicate: bytes | None = None
    finishing: Finishing = AS_THEY_ARE
    replica: str | None = None
    staleness: int | None = None


@dataclass(frozen=True, slots=True)
class StashedOnReplica(Stashed):
    """`Stashed` response with the name of the replica that holds the rows."""

    replica: str = ""


PeekAnswer: TypeAlias = Rows | StashedOnReplica | Problem | Canceled


@dataclass(frozen=True, slots=True)
class Write:
    """Group of writes in progress, to be passed to `Collections.append` in one call.

    time:    of its changes.
    appends: one per collection that clients write; those without changes are advanced to the same time.
    ids:     ids of the clients' writes in the group.
    """

    time: int
    appends: tuple[Append, ...]
    ids: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """Description of a view or collection.

    view:        whether it is a view; otherwise a collection.
    append_only: whether rows are never retracted.
    key:         columns of its index; empty: the whole row.
    """

    name: str
    id: Id
    view: bool
    schema: Schema
    append_only: bool
    key: tuple[str, ...] = ()
