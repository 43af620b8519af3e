"""What is asked of a controller, and what it answers, where the protocol has no word for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.compute.collections.store import Append
from penstock.compute.protocol.commands import Finishing
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import Canceled, Problem, Rows, Stashed
from penstock.expr.types import Schema

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
