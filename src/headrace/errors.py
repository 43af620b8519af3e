"""Errors with four parts: what happened, where, why, and what to do.

Every error a user can cause is a `HeadraceError`: it has a stable code, the source locations in the user's
files that caused it, a reason and a way out. Its facts are attributes, for programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Any, ClassVar, Self

from headrace.source_location import SourceLocation as SourceLocation
from headrace.source_location import Step as Step


class Origin(Enum):
    """Cause of an error."""

    DATA = "data"
    """The request or its rows; every process fails in the same way."""
    PROCESS = "process"
    """The process or its surroundings, such as memory, disk or network; another may succeed."""


def causes(error: BaseException, *, implicit: bool = False) -> Iterator[BaseException]:
    """Yield the error and its causes, each once; if `implicit`, also errors that were being handled."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or (found.__context__ if implicit else None)


class HeadraceError(Exception):
    """Base class of all errors that Headrace raises on purpose.

    `what` is one sentence; `where` the user's lines, in order; `why` the reason; `fix` the way out.
    Keyword `facts` become attributes.
    """

    code: ClassVar[str] = "P000"
    origin: ClassVar[Origin] = Origin.DATA

    def __init__(
        self,
        what: str,
        *,
        where: Sequence[Step | SourceLocation] = (),
        why: str = "",
        fix: str = "",
        **facts: Any,
    ) -> None:
        self.what = what
        self.where = tuple(step if isinstance(step, Step) else Step(step) for step in where)
        self.why = why
        self.fix = fix
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)
        super().__init__(self._text())

    def blaming(self, file: str, location: SourceLocation | None) -> Self:
        """Return this error, replacing or dropping its locations in files that start with `file`."""
        others = [Step(location, "")] if location is not None else []
        known = [others if each.location.file.startswith(file) else [each] for each in self.where]
        self.where = tuple(step for steps in known for step in steps)
        self.args = (self._text(),)
        return self

    def advising(self, more: str) -> Self:
        """Return this error with one more suggestion for a fix."""
        self.fix = f"{self.fix}\n{more}" if self.fix else more
        self.args = (self._text(),)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.why, self.fix, self.facts))

    def _render_traceback_(self) -> list[str]:
        """Return the traceback for IPython: the user's frames, and ours on demand."""
        from headrace.shown import rendered_traceback

        return rendered_traceback(self)

    def _text(self) -> str:
        parts = [f"{self.code} {type(self).__name__}: {self.what}"]
        if self.where:
            width = max(len(str(step.location)) for step in self.where)
            parts.append("\n".join(step.line(width) for step in self.where))
        parts += [self.why] * bool(self.why) + [f"Fix: {self.fix}"] * bool(self.fix)
        return "\n\n".join(parts)


def _rebuild(
    cls: type[HeadraceError],
    what: str,
    where: tuple[Step, ...],
    why: str,
    fix: str,
    facts: dict[str, Any],
) -> HeadraceError:
    return cls(what, where=where, why=why, fix=fix, **facts)


# --- expressions: P0xx -------------------------------------------------------------


class ExpressionTruthValue(HeadraceError):
    """An expression was used where Python wants True or False."""

    code = "P001"


class BadExpression(HeadraceError):
    """A text is not an expression, or uses Python beyond the syntax of expressions."""

    code = "P002"


class UnknownColumn(HeadraceError):
    """An expression names a column that the row type does not have."""

    code = "P010"


class WrongType(HeadraceError):
    """An expression, an operator or a function received an argument of an unsupported type."""

    code = "P011"


class UnknownRowType(HeadraceError):
    """A row type, or the result of a function, has a type that Headrace does not support."""

    code = "P012"


class EvaluationError(HeadraceError, ArithmeticError):
    """An expression failed on a row: overflow, division by zero, a bad cast."""

    code = "P020"


# --- flows: P1xx -------------------------------------------------------------------


class CycleThroughBlockingInput(HeadraceError):
    """A cycle passes through a blocking input, so an operator would wait for its own answer."""

    code = "P101"


class NeedNotMet(HeadraceError):
    """An operator requires a fact of its input that does not hold."""

    code = "P102"


class GuardMissing(HeadraceError):
    """A result depends on how the input is cut into ticks, and no `nondet=` reason accepts that."""

    code = "P103"


class BadFlow(HeadraceError):
    """A flow is incomplete or inconsistent: duplicate names, open feedbacks, streams of another flow."""

    code = "P104"


class FlowNotFound(HeadraceError):
    """A flow named on the command line does not exist or cannot be loaded."""

    code = "P105"


class UnsupportedQuery(HeadraceError):
    """A query uses an operator, a function or a type that has no incremental form."""

    code = "P107"


class BrokenClaim(HeadraceError):
    """A counterexample disproves a claim about a function or a lattice."""

    code = "P106"


# --- running: P2xx -----------------------------------------------------------------


class BadRow(HeadraceError):
    """An input row does not match the row type that the flow declares."""

    code = "P201"


class RecordMisfit(BadRow):
    """A record contradicts the row stored for its key."""

    code = "P209"


class BadInput(HeadraceError):
    """A tick or a run received input that the flow does not accept."""

    code = "P202"


class DuplicateKey(BadInput):
    """A tick contains two rows with the same key for a table that holds one row per key."""

    code = "P208"


class UserFunctionFailed(HeadraceError):
    """A user's function in the flow raised an exception."""

    code = "P203"


class NoFixpoint(HeadraceError):
    """A loop did not reach its fixpoint within `max_iterations` rounds."""

    code = "P204"


class LimitExceeded(HeadraceError):
    """A served flow or peek exceeded a limit: of a value's size, of a tick's rows or of a loop's rounds.

    It does so on every replica. Carries `limit`, and `reached` where that is known.
    """

    code = "P751"


class WorkLimitExceeded(LimitExceeded):
    """A served flow or peek exceeded its limit on a replica's time or memory.

    Another replica, which is faster or has processed its rows in other ticks, may stay within it. Carries the
    same facts as `LimitExceeded`.
    """

    code = "P753"
    origin = Origin.PROCESS


class EngineStopped(HeadraceError):
    """The engine failed in an earlier tick, which left its state incomplete."""

    code = "P205"


class QueueFull(HeadraceError):
    """A source was fed more rows than its queue may hold."""

    code = "P206"


class UnknownPort(HeadraceError):
    """A row does not belong to any port of its partition."""

    code = "P207"


# --- sources, sinks and checkpoints: P3xx ---------------------------------------------


class UnreadableSource(HeadraceError):
    """A source cannot be opened or listed."""

    code = "P301"
    origin = Origin.PROCESS


class BadUri(HeadraceError):
    """The URI of a source, sink or folder is malformed or has an unsupported scheme."""

    code = "P302"


class UnwritableSink(HeadraceError):
    """A sink cannot be opened, or rejects the changes of a tick."""

    code = "P303"
    origin = Origin.PROCESS


class InputChanged(HeadraceError):
    """A file of a source changed or grew after it was read."""

    code = "P304"
    origin = Origin.PROCESS


class DiskFull(HeadraceError):
    """A disk that a run writes to has no space left."""

    code = "P305"
    origin = Origin.PROCESS


class FlowChanged(HeadraceError):
    """A checkpoint was written by another flow, or by an incompatible version of this flow."""

    code = "P310"


class CheckpointDamaged(HeadraceError):
    """A file of a checkpoint is missing, truncated or altered."""

    code = "P311"
    origin = Origin.PROCESS


class CheckpointInUse(HeadraceError):
    """Another running process holds the lease of the checkpoint."""

    code = "P312"
    origin = Origin.PROCESS


class NotPlainData(HeadraceError, TypeError):
    """State contains a value that cannot be serialized."""

    code = "P313"


# --- Spark: P4xx ------------------------------------------------------------------------


class SparkUnavailable(HeadraceError):
    """PySpark or Java is missing or fails to start."""

    code = "P401"
    origin = Origin.PROCESS


class NotOnSpark(HeadraceError):
    """A part of the flow cannot run on Spark in this mode."""

    code = "P402"


class SparkProcessDied(HeadraceError):
    """The JVM, an executor or a Python worker of Spark died, and retries did not help."""

    code = "P403"
    origin = Origin.PROCESS


# --- options ---------------------------------------------------------------------------


class BadOption(HeadraceError):
    """A pipeline, a command or a server received an invalid option."""

    code = "P610"


def did_you_mean(name: object, known: Iterable[str], shown: Callable[[str], str] = repr) -> str:
    """Return "did you mean 'x'?" for the known name nearest to `name`, or "" if none is near.

    shown: text of the guess, as in `".filter(...)"`. What is no text is near to nothing.
    """
    near = nearest(name, known)
    return "" if near is None else f"did you mean {shown(near)}?"


def nearest(name: object, known: Iterable[str]) -> str | None:
    """Return the known name nearest to `name`, or None if none is near."""
    near = get_close_matches(name, list(known), 1) if isinstance(name, str) else []
    return near[0] if near else None
