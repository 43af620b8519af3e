"""Errors that say what, where, why, and what to do.

Every error a user can cause is a `PenstockError`: it has a stable code, the
places in the user's own files that caused it, a reason and a way out. The
facts are attributes, so that no program has to parse the text.
"""

from __future__ import annotations

import functools
import linecache
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from types import FrameType
from typing import Any, ClassVar, Self

_PACKAGE = os.path.dirname(__file__) + os.sep  # `pathlib` would be a twentieth of the time of the import
# Single dispatch puts frames of its own between ours.
_DISPATCH = functools.__file__


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of a user's file: where an operator was written."""

    file: str
    line: int
    function: str = ""

    @property
    def text(self) -> str:
        """The source line, stripped; empty where the source cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"

    @classmethod
    def of_caller(cls) -> SourceLocation:
        """The nearest frame outside the package: the user's line that called us."""
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        while frame.f_back is not None and _is_ours(frame):
            frame = frame.f_back
        return cls(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def _is_ours(frame: FrameType) -> bool:
    """Whether a frame is of the package, or of code that `dataclass` has written for it."""
    file = frame.f_code.co_filename
    if file == "<string>":
        return str(frame.f_globals.get("__name__")).startswith(f"{__package__}.")
    return file.startswith((_PACKAGE, _DISPATCH))


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a path shown in an error: a place and what it has to do with it."""

    location: SourceLocation
    note: str = ""

    def line(self, width: int = 0) -> str:
        """The place, at least `width` wide, the text of its line, and the note."""
        line = f"  {self.location!s:<{width}}   {self.location.text}".rstrip()
        return f"{line}      <- {self.note}" if self.note else line


class Origin(Enum):
    """Where an error lies.

    DATA:    in what was asked for, or in its rows: every process meets it again.
    PROCESS: in the process that met it, or in what surrounds it: its memory, its disk, what it can reach.
        Another process may succeed.
    """

    DATA = "data"
    PROCESS = "process"


def causes(error: BaseException, *, implicit: bool = False) -> Iterator[BaseException]:
    """The error and what caused it, each once: a chain of causes may lead back into itself.

    implicit: also errors that were being handled when the next one was raised.
    """
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or (found.__context__ if implicit else None)


class PenstockError(Exception):
    """Base of every error raised on purpose.

    `what` is one sentence; `where` the user's lines, in order; `why` the
    reason; `fix` the way out. Keyword `facts` become attributes.
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
        """This error, with another place for those in files whose path begins so; None: with none."""
        others = [Step(location, "")] if location is not None else []
        self.where = tuple(
            step
            for each in self.where
            for step in (others if each.location.file.startswith(file) else [each])
        )
        self.args = (self._text(),)
        return self

    def advising(self, more: str) -> Self:
        """This error, with one more way out."""
        self.fix = f"{self.fix}\n{more}" if self.fix else more
        self.args = (self._text(),)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        state = (self.what, self.where, self.why, self.fix, self.facts)
        return (_rebuild, (type(self), *state))

    def _text(self) -> str:
        parts = [f"{self.code} {type(self).__name__}: {self.what}"]
        if self.where:
            width = max(len(str(step.location)) for step in self.where)
            parts.append("\n".join(step.line(width) for step in self.where))
        if self.why:
            parts.append(self.why)
        if self.fix:
            parts.append(f"Fix: {self.fix}")
        return "\n\n".join(parts)


def _rebuild(
    cls: type[PenstockError],
    what: str,
    where: tuple[Step, ...],
    why: str,
    fix: str,
    facts: dict[str, Any],
) -> PenstockError:
    return cls(what, where=where, why=why, fix=fix, **facts)


# --- expressions: P0xx -------------------------------------------------------------


class ExpressionTruthValue(PenstockError):
    """An expression was used where Python wants True or False."""

    code = "P001"


class BadExpression(PenstockError):
    """A text is no expression: it says something else, or something that Python alone could do."""

    code = "P002"


class UnknownColumn(PenstockError):
    """An expression names a column that the row type does not have."""

    code = "P010"


class WrongType(PenstockError):
    """An expression, an operator or a function got a type it cannot work on."""

    code = "P011"


class UnknownRowType(PenstockError):
    """A row type or a function's result has no type that Penstock knows."""

    code = "P012"


class EvaluationError(PenstockError, ArithmeticError):
    """An expression failed on a row: overflow, division by zero, a bad cast."""

    code = "P020"


# --- flows: P1xx -------------------------------------------------------------------


class CycleThroughBlockingInput(PenstockError):
    """An operator would have to wait for its own answer."""

    code = "P101"


class NeedNotMet(PenstockError):
    """An operator needs a fact of its input that does not hold."""

    code = "P102"


class GuardMissing(PenstockError):
    """An answer would depend on how the input is cut into ticks, and nothing says so."""

    code = "P103"


class BadFlow(PenstockError):
    """A flow is not complete or contradicts itself: names, open feedbacks, foreign streams."""

    code = "P104"


class FlowNotFound(PenstockError):
    """The command line names a flow that is not there or cannot be loaded."""

    code = "P105"


class BrokenClaim(PenstockError):
    """A function or a lattice is not what is claimed of it: a counterexample was found."""

    code = "P106"


# --- running: P2xx -----------------------------------------------------------------


class BadRow(PenstockError):
    """A row of the input does not have the type that the flow declares."""

    code = "P201"


class BadInput(PenstockError):
    """A tick or a run was given an input that the flow does not take."""

    code = "P202"


class DuplicateKey(BadInput):
    """A tick gives two rows of one key to a table that has one row per key."""

    code = "P208"


class UserFunctionFailed(PenstockError):
    """A callable of the flow raised."""

    code = "P203"


class NoFixpoint(PenstockError):
    """A loop did not converge within its bound."""

    code = "P204"


class EngineStopped(PenstockError):
    """The engine failed in an earlier tick; its state is half of that tick."""

    code = "P205"


class QueueFull(PenstockError):
    """More was fed to a source than may wait there."""

    code = "P206"


class UnknownPort(PenstockError):
    """A row of a partition belongs to none of its ports."""

    code = "P207"


# --- sources, sinks and checkpoints: P3xx ---------------------------------------------


class UnreadableSource(PenstockError):
    """A source cannot be opened or listed."""

    code = "P301"
    origin = Origin.PROCESS


class BadUri(PenstockError):
    """A source, a sink or a place is named in a way that nothing here knows, or by an unsupported scheme."""

    code = "P302"


class UnwritableSink(PenstockError):
    """A sink cannot be opened, or refuses the changes of a tick."""

    code = "P303"
    origin = Origin.PROCESS


class FlowChanged(PenstockError):
    """A checkpoint was written by another flow, or by another version of this one."""

    code = "P310"


class CheckpointDamaged(PenstockError):
    """A file that a commit names is missing, torn or altered."""

    code = "P311"
    origin = Origin.PROCESS


class CheckpointInUse(PenstockError):
    """Another live process holds the checkpoint."""

    code = "P312"
    origin = Origin.PROCESS


class NotPlainData(PenstockError, TypeError):
    """State holds a value that cannot be stored."""

    code = "P313"


# --- Spark: P4xx ------------------------------------------------------------------------


class SparkUnavailable(PenstockError):
    """PySpark or Java is missing or does not start."""

    code = "P401"
    origin = Origin.PROCESS


class NotOnSpark(PenstockError):
    """The flow has a part that does not run on Spark in this mode."""

    code = "P402"


class SparkProcessDied(PenstockError):
    """The JVM, an executor or a Python worker of Spark died, and no repetition helped."""

    code = "P403"
    origin = Origin.PROCESS


# --- pull-streams: P5xx -----------------------------------------------------------------------


class BadTrace(PenstockError):
    """A text is no trace: it is not written in the notation of events."""

    code = "P501"


# --- pull-streams: P6xx -----------------------------------------------------------------


class NotComposable(PenstockError):
    """Pieces of a pipeline stand in an order that makes no pipeline."""

    code = "P601"


class EndNotConfirmed(PenstockError):
    """A module was told to stop and has not confirmed it."""

    code = "P602"


class NeverAnswered(PenstockError):
    """A pipeline waits for something that nothing will bring."""

    code = "P603"


class ProtocolBroken(PenstockError):
    """A module did what the rules of the pull-stream protocol forbid."""

    code = "P604"


class LoopRunsAlready(PenstockError):
    """A pipeline that needs an event loop is run where one is running."""

    code = "P605"


class NotFinished(PenstockError):
    """The result of a pipeline was asked for while it is at work."""

    code = "P606"


class NotAModule(PenstockError, TypeError):
    """A function that opens a module of a pipeline returned something that is none."""

    code = "P607"


class BadOption(PenstockError):
    """A piece of a pipeline was given an option that it cannot work with."""

    code = "P610"


class NoAnswerInTime(PenstockError):
    """A module upstream of a `timeout` did not answer in time."""

    code = "P611"


class NotHashable(PenstockError, TypeError):
    """A module remembers values by a key that cannot be hashed."""

    code = "P612"


class CallCancelled(PenstockError):
    """A call that a module waited for was cancelled by somebody else."""

    code = "P613"


class NotAwaited(PenstockError, TypeError):
    """A coroutine function was given where functions are called and not awaited."""

    code = "P614"


class AlreadyUsed(PenstockError):
    """What can be used once (an iterator, a handle) was used a second time."""

    code = "P620"


class WrongThread(PenstockError):
    """A handle of a pipeline was used from a thread that it does not expect."""

    code = "P621"


class AlreadyBound(PenstockError):
    """A dataflow variable was bound to a second value."""

    code = "P630"


class NotBound(PenstockError):
    """The value of a dataflow variable was read before it had one."""

    code = "P631"


class ForeignAwait(PenstockError):
    """A dataflow thread awaits what is no dataflow variable."""

    code = "P632"


class NotSorted(PenstockError):
    """A source that must be sorted is not."""

    code = "P640"


class NoValue(PenstockError):
    """A stream that must have a value was empty."""

    code = "P650"


class WrongValue(PenstockError, TypeError):
    """A module was given a value of a type that it cannot work with."""

    code = "P651"


class UnwritableFile(PenstockError):
    """A file cannot be created or written."""

    code = "P652"
    origin = Origin.PROCESS


class LineTooLong(PenstockError):
    """More bytes came than a line may have, and its end was not among them."""

    code = "P653"


class UndecodableText(PenstockError):
    """Bytes are no text of the encoding that was said."""

    code = "P654"


class ConnectionFailed(PenstockError):
    """A connection cannot be made, or an address not be listened on."""

    code = "P655"
    origin = Origin.PROCESS


class ConnectionLost(PenstockError):
    """A connection broke before both sides had said that they were done."""

    code = "P656"
    origin = Origin.PROCESS


class ProcessFailed(PenstockError):
    """A process could not be started, or ended with an error."""

    code = "P657"
    origin = Origin.PROCESS


class NotLending(PenstockError):
    """Values are to be lent where no stream has any to lend."""

    code = "P660"


# --- tools for tests: P9xx ----------------------------------------------------------------


class BadCase(PenstockError):
    """A file of conformance cases cannot be read, or does not fit its format."""

    code = "P901"
