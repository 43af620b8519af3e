"""Responses: messages from a replica to its controller.

There are none in the creation stage. A response describes the state when it was sent; a controller must
accept any that crossed its own commands on the way.
Source: the compute protocol of Materialize, its responses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.compute.frontier import Frontier
from headrace.compute.protocol.commands import Id, Key, Name, Time
from headrace.errors import Origin, Step
from headrace.expr.types import Row

Counted: TypeAlias = tuple[Row, int]
"""Row with its multiplicity."""
Update: TypeAlias = tuple[Row, int, int]
"""Row with the time and weight of its change: positive for insertions, negative for deletions."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Error in structured form, so that programs need not parse text.

    As an answer, it counts by its origin. DATA: every replica would report it, so it is the answer. PROCESS:
    it concerns the replica's health, so it is the answer only if no other replica is left that could answer.

    code:      code of the error class (`headrace.compute.errors`).
    message:   one sentence.
    retryable: whether the same request may succeed later.
    why, fix:  as in `HeadraceError`.
    id, time:  object and time concerned, if known.
    facts:     the other facts of the error, by name, as plain values.
    where:     the user's source lines that caused it.
    origin:    whether the data or the process is the cause.
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

    write:  frontier before which the contents are settled. END: they never change again.
    input:  frontier before which inputs have been read and will not be read again. END: never again.
    output: frontier before which contents are computed: at most `write`, less if another replica wrote first.

    Not sent for subscriptions and copies, nor before the `CreateDataflow`. The first frontier of each kind is
    not below the as-of, each is above the previous one, and none follows END. After a drop, END is owed for
    each kind.
    """

    id: Id
    write: Frontier | None = None
    input: Frontier | None = None
    output: Frontier | None = None


@dataclass(frozen=True, slots=True)
class RowsResponse:
    """Rows of a peek, in the requested order, with positive multiplicities."""

    rows: tuple[Counted, ...]


@dataclass(frozen=True, slots=True)
class Stashed:
    """Peek result too large for one message, kept on the replica to be fetched in chunks.

    token: id of the rows, 16 bytes. The replica keeps them until they are fetched, for up to ten minutes.
    rows, size: number of distinct rows, and their bytes.
    inline: the first rows, as a preview; fetching returns them again.
    """

    token: Key
    rows: int
    size: int
    inline: tuple[Counted, ...] = ()


@dataclass(frozen=True, slots=True)
class StashToken:
    """A controller's request for the rows of a `Stashed`, sent in a separate call."""

    token: Key


@dataclass(frozen=True, slots=True)
class Canceled:
    """Response to a peek cancelled before it was answered. Sent only after a `CancelPeek`."""


@dataclass(frozen=True, slots=True)
class PeekResponse:
    """The only answer to a `Peek`."""

    uuid: Key
    answer: RowsResponse | Stashed | Problem | Canceled


@dataclass(frozen=True, slots=True)
class EncodedUpdates:
    """Many updates at one time, as chunks of `row_batch.encode` that only the reader decodes.

    Weights have any sign.
    """

    time: Time
    chunks: tuple[bytes, ...]

    @property
    def size(self) -> int:
        """Bytes of all chunks."""
        return sum(map(len, self.chunks))


@dataclass(frozen=True, slots=True)
class BatchResponse:
    """All changes of a subscription with times from `lower` to before `upper`.

    The batches of a subscription cover all times from 0 on without gap or overlap; `lower < upper`.
    Updates are consolidated, at times not below the as-of; the first upper is above the as-of. After a
    problem instead of updates, no later batch has updates. `upper` END ends the subscription.
    """

    lower: Frontier
    upper: Frontier
    updates: tuple[Update, ...] | EncodedUpdates | Problem


@dataclass(frozen=True, slots=True)
class DroppedAt:
    """Final response of a dropped subscription; `frontier` is the upper of its last batch."""

    frontier: Frontier


@dataclass(frozen=True, slots=True)
class SubscribeResponse:
    """Subscription event; the last one is either a batch up to END or `DroppedAt`."""

    id: Id
    event: BatchResponse | DroppedAt


@dataclass(frozen=True, slots=True)
class RowCount:
    """Number of rows in a complete copy."""

    rows: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """Result of a copy that was dropped before it completed."""


@dataclass(frozen=True, slots=True)
class CopyToResponse:
    """The only answer to a copy."""

    id: Id
    result: RowCount | Problem | Dropped


BROKEN = "broken"
"""Text of the status that lists the exports that a replica cannot continue, in place of names of values."""


@dataclass(frozen=True, slots=True)
class Status:
    """Replica status shown to users. No behaviour may depend on it.

    id:     an export, or None for the whole process.
    text:   state such as "hydrated".
    values: numbers by name: "memory" in bytes, "rows", pending "peeks", "cancel_ms", ...
    """

    id: str | None
    text: str
    values: tuple[tuple[str, float], ...] = ()


Response: TypeAlias = Frontiers | PeekResponse | SubscribeResponse | CopyToResponse | Status
