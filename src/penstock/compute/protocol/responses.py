"""Responses: messages from a replica to its controller.

None in the creation stage. They say what was true when they were sent; a controller must be able to take
any that crossed its own commands on the way.
Source: the compute protocol of Materialize, its responses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.compute.frontier import Frontier
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.field_types import Key, Name, Time
from penstock.errors import Origin, Step

Row: TypeAlias = tuple[Any, ...]
Counted: TypeAlias = tuple[Row, int]
"""Row with its multiplicity."""
Update: TypeAlias = tuple[Row, int, int]
"""Row with the time and weight of its change: positive for insertions, negative for deletions."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Error in structured form, so that programs need not parse text.

    As an answer it counts by its origin. DATA: every replica would say the same, so it is the answer.
    PROCESS: it is about the health of the replica; others may answer, and the problem is the answer only
    where no other replica is left that could.

    code:      of the error class (`penstock.compute.errors`).
    message:   one sentence.
    retryable: whether the same request may succeed later.
    why, fix:  as in `PenstockError`.
    id, time:  what it is about, where that is known.
    facts:     the other facts of the error, by name, as plain values.
    where:     the lines of the user's that caused it.
    origin:    where it lies.
    """

    code: Name
    message: str
    retryable: bool = False
    why: str = ""
    fix: str = ""
    id: str | None = None
    time: Time | None = None
    facts: tuple[tuple[str, Any], ...] = ()
    where: tuple[Step, ...] = ()
    origin: Origin = Origin.DATA


@dataclass(frozen=True, slots=True)
class Frontiers:
    """Frontiers of an index or collection export. None means unchanged; at least one is set.

    write:  its contents are settled before it. END: they never change again.
    input:  its inputs have been read before it and will not be read there again. END: never again.
    output: it has been computed before it. At most `write`, behind it where another replica wrote first.

    Never for subscriptions and copies, never before the `CreateDataflow`. Of each kind the first is not
    below the as-of, each is above the one before, and after END there is none. After a drop END is owed
    for each kind.
    """

    id: Id
    write: Frontier | None = None
    input: Frontier | None = None
    output: Frontier | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a peek, in the requested order, with positive multiplicities."""

    rows: tuple[Counted, ...]


@dataclass(frozen=True, slots=True)
class Stashed:
    """Peek result too large for one message, kept on the replica to be fetched in chunks.

    token: names them; 16 bytes. The replica keeps them until they were fetched or ten minutes have passed.
    rows, size: how many distinct rows, and their bytes.
    inline: the first of them, which are fetched with the others all the same.
    """

    token: Key
    rows: int
    size: int
    inline: tuple[Counted, ...] = ()


@dataclass(frozen=True, slots=True)
class StashToken:
    """Request of a controller for the rows of a `Stashed`, sent in a separate call."""

    token: Key


@dataclass(frozen=True, slots=True)
class Canceled:
    """Response to a peek cancelled before it was answered. Sent only after a `CancelPeek`."""


@dataclass(frozen=True, slots=True)
class PeekResponse:
    """The only answer to a `Peek`."""

    uuid: Key
    answer: Rows | Stashed | Problem | Canceled


@dataclass(frozen=True, slots=True)
class Batch:
    """All changes of a subscription with times from `lower` to before `upper`.

    The batches of a subscription cover all times from 0 on without gap or overlap; `lower < upper`.
    Updates are consolidated, at times not below the as-of; the first upper is above the as-of. A problem
    instead of updates ends the use of the
    subscription: no later batch has updates. `upper` END ends it.
    """

    lower: Frontier
    upper: Frontier
    updates: tuple[Update, ...] | Problem


@dataclass(frozen=True, slots=True)
class DroppedAt:
    """Final response of a dropped subscription; `frontier` is the upper of its last batch."""

    frontier: Frontier


@dataclass(frozen=True, slots=True)
class SubscribeResponse:
    """Subscription event; the last one is either a batch up to END or `DroppedAt`."""

    id: Id
    event: Batch | DroppedAt


@dataclass(frozen=True, slots=True)
class RowCount:
    """Number of rows in a complete copy."""

    rows: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """Response of a copy dropped before it was complete."""


@dataclass(frozen=True, slots=True)
class CopyToResponse:
    """The only answer to a copy."""

    id: Id
    result: RowCount | Problem | Dropped


@dataclass(frozen=True, slots=True)
class Status:
    """Replica status shown to users. No behaviour may depend on it.

    id:     an export, None: the whole process.
    text:   a state, such as "hydrated".
    values: numbers by name: "memory" in bytes, "rows", "peeks" that wait, "cancel_ms", ...
    """

    id: str | None
    text: str
    values: tuple[tuple[str, float], ...] = ()


Response: TypeAlias = Frontiers | PeekResponse | SubscribeResponse | CopyToResponse | Status
