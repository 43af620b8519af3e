"""Plain data of the controller's interface: settings, and the requests and answers beyond the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.compute.collections.store import Append
from penstock.compute.protocol.commands import Finishing
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import Canceled, Problem, Rows, Stashed
from penstock.expr.types import Schema


@dataclass(frozen=True, slots=True)
class Settings:
    """Patience of a controller with its replicas, in milliseconds but for counts.

    interval:         longest time between two calls of `maintain`.
    keep:             the past of collections that stays readable.
    compaction:       between two compactions of the store.
    first_retry:      delay before an unreachable replica is retried; doubled each time.
    longest_retry:    the limit of that.
    first_rest:       delay before a lost replica is retried; doubled with each loss in the window.
    longest_rest:     the limit of that.
    window:           older losses do not count. A replica that was steady starts at none.
    lag:              of a replica behind the others that still counts as level with them.
    steady:           a replica that has been hydrated and level for so long is ready, and in no crash loop.
    careful_after:    losses in the window after which a replica hydrates one dataflow at a time.
    quarantine_after: losses in the window after which a replica is quarantined.
    quarantine:       length of a quarantine, after which the replica is retried.
    patience:         how long the inputs of a lost replica stay readable from its position on.
    most_behind:      commands that a connection may be behind before it is cut and starts anew.
    remembered_ids:   how long the ids of writes are kept, to recognise repeated ones.
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
    most_behind: int = 10_000
    remembered_ids: int = 600_000


AS_THEY_ARE = Finishing()
"""The finishing that returns all rows with all columns, unordered."""


@dataclass(frozen=True, slots=True)
class PeekRequest:
    """A read of a view or collection at one time.

    keys:      wanted rows of the key columns; None: all.
    at:        the time; None: that of the last acknowledged write (strict), or see `staleness`. The answer
        to a future time waits until then.
    predicate: an encoded expression over the row (`penstock.compute.plans`); None: all rows.
    replica:   the only one allowed to answer; None: any.
    staleness: milliseconds by which the answer may be behind the present, to get it at once: the read is at
        the latest time that some connected replica has settled, if that is within the bound; else it is
        strict. Not together with `at`.
    """

    view: str
    keys: Sequence[tuple[Any, ...]] | None = None
    at: int | None = None
    predicate: bytes | None = None
    finishing: Finishing = AS_THEY_ARE
    replica: str | None = None
    staleness: int | None = None


@dataclass(frozen=True, slots=True)
class StashedAt(Stashed):
    """`Stashed`, with the name of the replica that holds the rows."""

    replica: str = ""


PeekAnswer: TypeAlias = Rows | StashedAt | Problem | Canceled


@dataclass(frozen=True, slots=True)
class Write:
    """A group of writes under way, to be passed to `Collections.append` in one call.

    time:    of its changes.
    appends: to all collections that clients write: those without changes are advanced to the same time.
    ids:     of the clients' writes in the group.
    """

    time: int
    appends: tuple[Append, ...]
    ids: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """Description of a view or collection.

    view:        whether it is a view; else a collection.
    append_only: whether rows are never retracted.
    key:         columns of its index; empty: the whole row.
    """

    name: str
    id: Id
    view: bool
    schema: Schema
    append_only: bool
    key: tuple[str, ...] = ()
