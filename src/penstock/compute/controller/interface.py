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
    """All in milliseconds, but for counts.

    interval:         longest time between two looks at what is due (`maintain`).
    keep:             of the past of collections that stays readable.
    compaction:       between two times that the store is told what may be merged.
    first_retry:      before a replica is tried again that could not be reached; doubled each time.
    longest_retry:    the most of that.
    first_rest:       before a replica is tried again that was lost; doubled with each loss in the window.
    longest_rest:     the most of that.
    window:           losses that are older do not count. All are forgotten by one that was steady.
    lag:              of a replica behind the others, with which it is still as good as they.
    steady:           a replica that has been hydrated and no farther behind for so long is ready, and in no
        crash loop.
    careful_after:    losses in the window, after which a replica builds one thing at a time.
    quarantine_after: losses in the window, after which it is left alone.
    quarantine:       for so long; then it is tried again.
    patience:         for so long the inputs of a lost replica are kept readable from where it was.
    most_behind:      commands that a connection may be behind, before it is cut and told anew.
    remembered_ids:   for so long the ids of writes are remembered, by which a repeated one is known.
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
"""All rows, with all columns, in no order."""


@dataclass(frozen=True, slots=True)
class PeekRequest:
    """Read a view, or a collection, at one time.

    keys:      rows of the key columns that are wanted; None: all. None of them: no rows.
    at:        the time; None: that of the last acknowledged write (strict), or see `staleness`. In the
        future: the answer waits until then.
    predicate: an encoded expression over the row (`penstock.compute.plans`); None: all rows.
    replica:   the only one that may answer; None: any.
    staleness: milliseconds by which the answer may be behind the present, for the sake of an answer at
        once: the latest time is taken that some connected replica has settled, if it is within the bound;
        else the read is strict. Not together with `at`.
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
    """A group of writes that is under way: to be given to `Collections.append`, at once, as it is.

    time:    at which its changes happen.
    appends: to all collections that clients write: those without changes are advanced to the same time.
    ids:     of the clients' writes in the group.
    """

    time: int
    appends: tuple[Append, ...]
    ids: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """What a name stands for.

    view:        whether it is a view; else a collection.
    append_only: whether rows are only ever added.
    key:         columns that its index is arranged by; empty: by the whole row.
    """

    name: str
    id: Id
    view: bool
    schema: Schema
    append_only: bool
    key: tuple[str, ...] = ()
