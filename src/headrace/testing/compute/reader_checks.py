"""Checks of readers: one correct answer per peek, every time of a subscription exactly once.

The trace of a simulation has all events as lines, identical in every process for one seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from hashlib import sha256
from typing import Any, TypeAlias, cast

from headrace.compute.errors import DataflowFailed, SinceViolation, TargetReplicaLost, UnknownName
from headrace.compute.frontier import START, Frontier
from headrace.compute.plans.generated import plan_pb2
from headrace.compute.protocol.commands import PlanBytes
from headrace.compute.protocol.responses import (
    BatchResponse,
    Canceled,
    Dropped,
    DroppedAt,
    EncodedUpdates,
    Problem,
    RowCount,
    RowsResponse,
    Stashed,
    Update,
)
from headrace.compute.protocol.row_batch import decode_batch
from headrace.errors import HeadraceError
from headrace.expr.types import Row, Schema
from headrace.testing.compute.workload import GroundTruth


class SimulationTrace(list[str]):
    """Lines of a trace."""

    def note(self, *said: object) -> None:
        """Add a line of space-separated values: texts unchanged, everything else as formatted by `shown`."""
        self.append(" ".join(each if isinstance(each, str) else shown(each) for each in said))


def shown(value: object) -> str:
    """Format a value as text, without addresses, with sorted sets and without default fields.

    >>> shown((Frontier(3), frozenset({"b", "a"}), b"\\x01"))
    "([3], {'a', 'b'}, 01)"
    """
    match value:
        case Frontier():
            return str(value)
        case PlanBytes():
            return f"plan {_identity(value)}"
        case bytes():
            return value.hex()
        case Enum():
            return value.name
        case HeadraceError():
            return f"{type(value).__name__}: {value.what}"
        case frozenset() | set():
            return f"{{{', '.join(sorted(map(shown, cast('Iterable[Any]', value))))}}}"
        case tuple() | list():
            return f"({', '.join(map(shown, cast('Iterable[Any]', value)))})"
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            return f"{{{', '.join(f'{shown(k)}: {shown(v)}' for k, v in items)}}}"
        case _ if is_dataclass(value) and not isinstance(value, type):
            given = [f for f in fields(value) if getattr(value, f.name) != _default(f)]
            said = ", ".join(f"{f.name}={shown(getattr(value, f.name))}" for f in given)
            return f"{type(value).__name__}({said})"
        case _:
            return repr(value)


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _identity(plan: PlanBytes) -> str:
    """Return the identity of a plan without its functions, whose pickles differ between processes."""
    body = plan_pb2.Body.FromString(plan.body)
    body.ClearField("functions")
    return sha256(body.SerializeToString(deterministic=True)).hexdigest()[:8]


class ReaderViolation(AssertionError):
    """Raised when the system violates a guarantee."""


PeekOutcome: TypeAlias = RowsResponse | Stashed | Problem | Canceled


@dataclass
class PeekWatch:
    """Peek of a user with its answers.

    earliest: oldest time the answer may reflect: the last write acknowledged when asked, minus the staleness.
    at:       the requested time; None: the present.
    keys:     wanted values of the key columns, at `positions`; None: all rows.
    targeted: whether it may fail with its replica.
    """

    view: str
    earliest: int
    at: int | None
    keys: tuple[Row, ...] | None
    positions: tuple[int, ...]
    targeted: bool
    uuid: bytes = b""
    cancelled: bool = False
    answer: PeekOutcome | None = None

    def check_answer(self, truth: GroundTruth, answer: PeekOutcome) -> None:
        """Check that an answer is correct, and the only one."""
        if self.answer is not None:
            raise ReaderViolation(f"a second answer to a peek of {self.view}: {answer} after {self.answer}")
        self.answer = answer
        match answer:
            case RowsResponse():
                self._check_rows(truth, answer)
            case Canceled():
                if not self.cancelled:
                    raise ReaderViolation(f"a peek of {self.view} was cancelled by nobody")
            case Stashed():
                raise ReaderViolation("so few rows are not stashed")
            case Problem():
                self._check_problem(truth, answer)

    def _check_rows(self, truth: GroundTruth, answer: RowsResponse) -> None:
        found = Counter(dict(answer.rows))
        if len(found) != len(answer.rows) or any(count <= 0 for count in found.values()):
            raise ReaderViolation(f"rows of a peek are not counted once, above zero: {answer.rows}")
        times = [self.at] if self.at is not None else [t for t in truth.times if t >= self.earliest]
        if not any(found == self._wanted(truth, time) for time in times):
            raise ReaderViolation(
                f"a peek of {self.view} at {self.at} for {self.keys}, after the write of {self.earliest},"
                f" saw {_shown(found)}; right is {_shown(self._wanted(truth, times[-1]))}"
            )

    def _wanted(self, truth: GroundTruth, time: int) -> Counter[Row] | None:
        rows = truth.view(self.view, time)
        if self.keys is None or rows is None:
            return rows
        return Counter(
            {row: n for row, n in rows.items() if tuple(row[p] for p in self.positions) in self.keys}
        )

    def _check_problem(self, truth: GroundTruth, problem: Problem) -> None:
        lost = self.targeted and problem.code == TargetReplicaLost.code
        gone = self.at is not None and problem.code == SinceViolation.code
        dropped = problem.code == UnknownName.code
        until = truth.times[-1] if self.at is None else self.at
        failed = problem.code == DataflowFailed.code and truth.fails_by(self.view, until)
        if not (lost or gone or dropped or failed):
            raise ReaderViolation(f"a peek of {self.view} failed: {problem}")


@dataclass
class SubscriptionWatch:
    """Subscription of a user with the changes seen so far.

    as_of: its first time. Without a snapshot it receives later changes only.
    targeted: whether it may end with its replica.
    left_at: time of disconnection; None while connected, or without a controller.
    """

    view: str
    as_of: int
    snapshot: bool
    targeted: bool = False
    left_at: int | None = None
    seen: Frontier = START
    sum: Counter[Row] = field(default_factory=Counter[Row])
    ended: bool = False
    abandoned: bool = False
    id: str = ""

    def check_event(self, truth: GroundTruth, event: BatchResponse | DroppedAt) -> None:
        """Check an event: batches are contiguous, and add up to the view."""
        if self.ended:
            raise ReaderViolation(f"a subscription to {self.view} was told {event} after its end")
        match event:
            case DroppedAt():
                self.ended = True
            case BatchResponse(lower, upper, updates):
                if isinstance(updates, Problem):
                    self.ended = True
                    _check_failed(f"a subscription to {self.view}", self, truth, updates)
                    return
                if lower != self.seen or upper <= lower:
                    raise ReaderViolation(
                        f"a batch from {lower} to {upper} came after {self.seen} of {self.view}"
                    )
                self.seen = upper
                self.ended = upper.ended
                if isinstance(updates, EncodedUpdates):
                    updates = _decoded(updates, truth.schema(self.view))
                self._check(truth, lower, upper, updates)

    def _check(
        self, truth: GroundTruth, lower: Frontier, upper: Frontier, updates: tuple[tuple[Row, int, int], ...]
    ) -> None:
        outside = [
            t for _, t, _ in updates if lower.has_passed(t) or not upper.has_passed(t) or t < self.as_of
        ]
        if outside:
            raise ReaderViolation(f"times {outside} are outside {lower} to {upper}, from {self.as_of} on")
        if len({(row, time) for row, time, _ in updates}) != len(updates) or not all(w for *_, w in updates):
            raise ReaderViolation(f"updates of {self.view} are not consolidated: {updates}")
        for row, _, weight in updates:
            self.sum[row] += weight
        last = upper.step_back()
        if last.time is not None and last.time >= self.as_of:
            self._check_sum(truth, last.time)

    def _check_sum(self, truth: GroundTruth, time: int) -> None:
        found = Counter({row: n for row, n in self.sum.items() if n})
        wanted = self._wanted(truth, time)
        if found != wanted:
            raise ReaderViolation(
                f"a subscription to {self.view} from {self.as_of} adds up to {_shown(found)}"
                f" at {time}; right is {_shown(wanted)}"
            )

    def _wanted(self, truth: GroundTruth, time: int) -> Counter[Row] | None:
        rows, before = truth.view(self.view, time), Counter[Row]()
        if not self.snapshot:
            before = truth.view(self.view, self.as_of)
        if rows is None or before is None:
            return None
        wanted = Counter(rows)
        wanted.subtract(before)
        return Counter({row: n for row, n in wanted.items() if n})


@dataclass
class CopyWatch:
    """Copy of a user with its answer.

    earliest: the last write acknowledged when it was requested.
    targeted: whether it may fail with its replica.
    """

    view: str
    earliest: int
    targeted: bool
    answer: RowCount | Problem | Dropped | None = None

    def check_answer(self, truth: GroundTruth, answer: RowCount | Problem | Dropped) -> None:
        """Check that an answer is correct, and the only one."""
        if self.answer is not None:
            raise ReaderViolation(f"a second answer to a copy of {self.view}: {answer} after {self.answer}")
        self.answer = answer
        match answer:
            case RowCount(count):
                found = (truth.view(self.view, t) for t in truth.times if t >= self.earliest)
                if count not in [rows.total() for rows in found if rows is not None]:
                    raise ReaderViolation(f"a copy of {self.view} has {count} rows")
            case Problem():
                _check_failed(f"a copy of {self.view}", self, truth, answer)
            case Dropped():
                pass  # dropped with its view


def _check_failed(
    what: str, watch: SubscriptionWatch | CopyWatch, truth: GroundTruth, problem: Problem
) -> None:
    """Check that a failure is due to the target replica or the view."""
    lost = watch.targeted and problem.code == TargetReplicaLost.code
    failed = problem.code == DataflowFailed.code and truth.fails_by(watch.view, truth.times[-1])
    if not (lost or failed):
        raise ReaderViolation(f"{what} failed: {problem}")


def _shown(rows: Counter[Row] | None) -> str:
    return "nothing: it fails" if rows is None else ", ".join(sorted(map(shown, rows.items())))


def _decoded(updates: EncodedUpdates, schema: Schema) -> tuple[Update, ...]:
    rows = (row for chunk in updates.chunks for row in decode_batch(chunk, schema, "updates"))
    return tuple((row, updates.time, weight) for row, weight in rows)
