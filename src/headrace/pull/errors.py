"""Errors of pull-streams: P5xx of traces, P6xx of pipelines and their modules."""

from __future__ import annotations

from headrace.errors import HeadraceError, Origin


class BadTrace(HeadraceError):
    """A text is not a trace in the notation of protocol events."""

    code = "P501"


class NotComposable(HeadraceError):
    """The modules of a pipeline cannot be connected in the given order."""

    code = "P601"


class EndNotConfirmed(HeadraceError):
    """A module was aborted but did not confirm the end."""

    code = "P602"


class NeverAnswered(HeadraceError):
    """A pipeline waits for an answer that will never come."""

    code = "P603"


class ProtocolBroken(HeadraceError):
    """A module violated a rule of the pull-stream protocol."""

    code = "P604"


class LoopRunsAlready(HeadraceError):
    """A pipeline that starts its own event loop was run inside a running event loop."""

    code = "P605"


class NotFinished(HeadraceError):
    """The result of a pipeline was requested before the pipeline finished."""

    code = "P606"


class NotAModule(HeadraceError, TypeError):
    """A module factory returned something that is not a module."""

    code = "P607"


class NoAnswerInTime(HeadraceError):
    """A module upstream of a `timeout` did not answer in time."""

    code = "P611"


class NotHashable(HeadraceError, TypeError):
    """A module needs hashable keys and received one that is not."""

    code = "P612"


class CallCancelled(HeadraceError):
    """A call that a module awaited was cancelled from outside the pipeline."""

    code = "P613"


class NotAwaited(HeadraceError, TypeError):
    """A coroutine function was passed where a plain function is required."""

    code = "P614"


class AlreadyUsed(HeadraceError):
    """A single-use object, such as an iterator or a handle, was used a second time."""

    code = "P620"


class WrongThread(HeadraceError):
    """A handle of a pipeline was used from the wrong thread."""

    code = "P621"


class AlreadyBound(HeadraceError):
    """A dataflow variable was bound to a second value."""

    code = "P630"


class NotBound(HeadraceError):
    """A dataflow variable was read before it was bound."""

    code = "P631"


class ForeignAwait(HeadraceError):
    """A dataflow thread awaited something other than a dataflow variable."""

    code = "P632"


class NotSorted(HeadraceError):
    """The values of a source that must be sorted are out of order."""

    code = "P640"


class NoValue(HeadraceError):
    """A stream ended without the value that was required of it."""

    code = "P650"


class WrongValue(HeadraceError, TypeError):
    """A module received a value of an unsupported type."""

    code = "P651"


class UnwritableFile(HeadraceError):
    """A file cannot be created or written."""

    code = "P652"
    origin = Origin.PROCESS


class LineTooLong(HeadraceError):
    """A line exceeds the maximum length."""

    code = "P653"


class UndecodableText(HeadraceError):
    """Bytes cannot be decoded as text in the given encoding."""

    code = "P654"


class ConnectionFailed(HeadraceError):
    """A connection cannot be opened, or an address cannot be listened on."""

    code = "P655"
    origin = Origin.PROCESS


class ConnectionLost(HeadraceError):
    """A connection broke before both sides had finished."""

    code = "P656"
    origin = Origin.PROCESS


class ProcessFailed(HeadraceError):
    """A process failed to start, or exited with an error."""

    code = "P657"
    origin = Origin.PROCESS


class NotLending(HeadraceError):
    """A lender was asked for values without a stream to lend them from."""

    code = "P660"
