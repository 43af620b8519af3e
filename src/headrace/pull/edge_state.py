"""State machine of an edge: takes a request or an answer, returns effects.

Pure: `EdgeState` calls nothing. An adapter passes it the messages of an edge and performs the effects that it
returns, in order: `headrace.pull.edge` by calls, with values or batches, `headrace.pull.dataflow.edge` by
dataflow variables. Whatever a module does, the state keeps these promises:

- Answers are delivered in the order of the requests, one each. After an end, every request is answered with
  that end, without asking the module upstream again.
- The module upstream is told of at most one stop. A stop that crosses the module's own end does not reach it:
  downstream gets that end.
- Asks pending at a stop need no answer of their own: when the module confirms, they are answered first, with
  the same end. After a stop, downstream receives no more values.

The rules in `Breach` are numbered in `headrace.pull.rules`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal

from headrace.pull.protocol import AnswerTo, End, failure


class RequestProgress(Enum):
    """Progress of a request at an edge."""

    OPEN = "not answered"
    HELD = "answered before an earlier request; the answer waits"
    SETTLED = "answered by the module upstream"
    FLUSHED = "answered by the edge, at the end of the stream"


OPEN, HELD, SETTLED, FLUSHED = RequestProgress


class PendingRequest:
    """Request at an edge, pending or answered.

    abort:  None to ask, True to abort, or the exception to fail the stream with.
    answer: callback for the answer; None for an indication.
    most:   limit on the values of its answer; None for an ask answered by a bare value.
    index:  its number on the edge, from 1.
    held:   answer (end and value) that arrived before those to earlier requests.
    """

    __slots__ = ("abort", "answer", "held", "index", "most", "progress")

    def __init__(self, abort: End | None, answer: AnswerTo | None, most: int | None, index: int) -> None:
        self.abort: End | None = abort
        self.answer = answer
        self.most = most
        self.index = index
        self.progress = OPEN
        self.held: Any = None


class Direct(Enum):
    """Effect on the incoming message itself, which is first shown to the observer of the module upstream.

    Nearly every message has one of these, so they are members of an enum: nothing is allocated for a value.
    """

    PASS_ON = "pass on a request to the module upstream, or a value downstream"
    PASS_ON_AND_TELL_NEXT = "pass on a value, then perform `Next.TELL_NEXT`"
    KEEP = "do nothing now"


PASS_ON: Final = Direct.PASS_ON
PASS_ON_AND_TELL_NEXT: Final = Direct.PASS_ON_AND_TELL_NEXT
KEEP: Final = Direct.KEEP


@dataclass(frozen=True, slots=True)
class RecordRequest:
    """Show a request to the observer of the module upstream."""

    request: PendingRequest


@dataclass(frozen=True, slots=True)
class RecordAnswer:
    """Show an answer of the module upstream, or one given for it, to the observer."""

    request: PendingRequest
    end: End | None
    value: Any = None


@dataclass(frozen=True, slots=True)
class RetractAnswer:
    """Remove the answer that the edge gave for the module upstream, which is answering now, too late."""

    request: PendingRequest


@dataclass(frozen=True, slots=True)
class DeliverValue:
    """Queue a value for downstream. It is dropped if a stop overtakes it: `drop_value`."""

    request: PendingRequest
    value: Any


@dataclass(frozen=True, slots=True)
class DeliverEnd:
    """Queue an end for downstream. On its turn, it answers the requests of `due_with_end`."""

    request: PendingRequest
    end: End


@dataclass(frozen=True, slots=True)
class Breach:
    """Report that the module upstream broke a rule, which may fail the module."""

    rule: str
    request: PendingRequest


@dataclass(frozen=True, slots=True)
class Finish:
    """Call `EdgeState.finish` and perform its effects. Always the last effect; does nothing if one before it
    has ended the stream.
    """

    end: End


class Next(Enum):
    """Effect that does not refer to a message."""

    RELEASE = "call `EdgeState.release` and perform its effects; always the last effect"
    TELL_NEXT = "queue a call of `EdgeState.next_ask`, and pass on the ask that it returns"
    CLOSED = "tell the run that the stream has ended and all its requests are answered"
    END_RECEIVED = "tell the run that downstream has received the end"


Effect = RecordRequest | RecordAnswer | RetractAnswer | DeliverValue | DeliverEnd | Breach | Finish | Next
Effects = tuple[Effect, ...]
"""Effects that an adapter performs in order."""

OnRequest = Literal[Direct.PASS_ON, Direct.KEEP] | Effects


class EdgeState:
    """State of one edge.

    linear: whether the module upstream is asked again only after it has answered.
    end:    end of the stream as answered by the module upstream, or None.
    end_delivered: whether downstream has received the end, which may be later than the end itself.
    stopped_below: whether downstream has stopped the stream; set when it does, before the stop arrives.
    undelivered_failure: whether the module upstream failed without a request to answer with the failure.
    """

    __slots__ = (
        "_asked",
        "_failed",
        "_linear",
        "_overtaken",
        "_pending",
        "_stop",
        "end",
        "end_delivered",
        "stopped_below",
        "undelivered_failure",
    )

    def __init__(self, *, linear: bool = False) -> None:
        self.end: End | None = None
        self.end_delivered = False
        self.stopped_below = False
        self.undelivered_failure = False
        self._linear = linear
        self._asked: PendingRequest | None = None  # the ask that a linear module is working on
        self._pending: deque[PendingRequest] = deque()
        self._overtaken: tuple[PendingRequest, ...] = ()  # their values were overtaken by a stop
        self._stop: PendingRequest | None = None
        self._failed: Exception | None = None

    def note_stop(self) -> None:
        """Record that downstream is stopping the stream, before the stop arrives."""
        self.stopped_below = True

    @property
    def has_pending(self) -> bool:
        """Whether requests are waiting for answers."""
        return bool(self._pending)

    @property
    def stopping(self) -> bool:
        """Whether the module upstream was stopped but has not confirmed."""
        return self._stop is not None and self.end is None

    @property
    def was_stopped(self) -> bool:
        """Whether the module upstream was stopped before it ended or failed by itself."""
        return self._stop is not None and self._failed is None

    def ask(self, request: PendingRequest) -> OnRequest:
        """Process an ask that arrives at the module upstream."""
        if self.end is not None:
            return RecordRequest(request), *self._answer_after_end(request, self.end)
        self._pending.append(request)
        if self._stop is not None:
            return KEEP  # answered once the module has confirmed
        if self._linear:
            if self._asked is not None:
                return KEEP
            self._asked = request
        return PASS_ON

    def stop(self, request: PendingRequest, upper_failure: Exception | None) -> OnRequest:
        """Process an abort or error that arrives at the module upstream, which may have failed before."""
        if self.end is not None:
            if self._stop is None and not self.end_delivered and not self.undelivered_failure:
                request.progress = SETTLED
                return (DeliverEnd(request, self.end),)  # crosses the module's own end, and gets that
            return RecordRequest(request), *self._answer_after_end(request, self.end)
        self._pending.append(request)
        if self._stop is not None:
            return KEEP
        self._stop = request
        self._failed = upper_failure if self._failed is None else self._failed
        return PASS_ON

    def next_ask(self) -> PendingRequest | None:
        """Return the ask held back until a linear module's answer, if it is still to be passed on."""
        return self._asked if self._stop is None and self.end is None else None

    def _answer_after_end(self, request: PendingRequest, end: End) -> Effects:
        if not self.undelivered_failure:
            return self._flush(request, end)
        self.undelivered_failure = False
        if isinstance(request.abort, Exception):
            end = self.end = failure(request.abort, end)  # downstream failed a stream that had not started
        return *self._flush(request, end), Next.END_RECEIVED

    def answer(self, request: PendingRequest, end: End | None, value: Any) -> Direct | Effects:
        """Process an answer of the module upstream."""
        if request.progress is not OPEN:
            return self._answer_again(request, end, value)
        if self._stop is not None:
            return self._answer_stopped(request, end, value)
        pending = self._pending
        if pending[0] is not request:
            request.progress = HELD
            request.held = (end, value)
            return RecordAnswer(request, end, value), Breach("P3", request)
        request.progress = SETTLED
        if end is not None:
            return RecordAnswer(request, end), Finish(end)
        pending.popleft()
        if pending and pending[0].progress is HELD:
            return RecordAnswer(request, None, value), DeliverValue(request, value), Next.RELEASE
        if not self._linear:
            return PASS_ON
        self._asked = pending[0] if pending else None
        return PASS_ON_AND_TELL_NEXT if pending else PASS_ON

    def release(self) -> Effects:
        """Continue after an answer: with the next one if it is held, or with a linear module's next ask."""
        pending = self._pending
        if pending and pending[0].progress is HELD:
            request = pending[0]
            request.progress = SETTLED
            end, value = request.held
            if end is not None:
                return (Finish(end),)
            pending.popleft()
            return DeliverValue(request, value), Next.RELEASE
        if not self._linear:
            return ()
        self._asked = pending[0] if pending else None
        return (Next.TELL_NEXT,) if pending else ()

    def _answer_stopped(self, request: PendingRequest, end: End | None, value: Any) -> Direct | Effects:
        if request is self._stop:
            if end is not None:
                return (Finish(end),)
            request.progress = SETTLED
            return RecordAnswer(request, None, value), Breach("P5", request), Finish(True)
        request.progress = SETTLED
        if isinstance(end, Exception) and self._failed is None:
            self._failed = end
        return KEEP

    @staticmethod
    def _answer_again(request: PendingRequest, end: End | None, value: Any) -> Effects:
        """Ignore a second answer, or one to a request that the end has answered."""
        recorded = RecordAnswer(request, end, value)
        if request.progress is not FLUSHED:
            return recorded, Breach("P2", request)
        if end is not None:
            return ()
        request.progress = SETTLED
        return RetractAnswer(request), recorded, Breach("P4", request)

    def finish(self, end: End) -> Effects:
        """Process the end of the upstream module, including an unrequested failure."""
        if self.end is not None:
            return ()
        pending, self._pending = self._pending, deque()
        self.undelivered_failure = not pending
        cause: End | None = self._failed
        if self._stop is not None and (cause is None or pending[0] is self._stop):
            # If the module failed before the stop reached it, a waiting ask gets the failure first.
            cause = self._stop.abort
        if isinstance(cause, Exception):
            end = failure(cause, end)
        self.end = end
        flushed = [effect for request in pending for effect in self._flush(request, end)]
        return *flushed, Next.CLOSED

    def _flush(self, request: PendingRequest, end: End) -> Effects:
        if request.progress is not OPEN:
            return (DeliverEnd(request, end),)
        request.progress = SETTLED if request is self._stop else FLUSHED
        return RecordAnswer(request, end), DeliverEnd(request, end)

    def drop_value(self, request: PendingRequest) -> None:
        """Drop the value of an ask, because a stop has overtaken it. The ask is answered with the end."""
        self._overtaken += (request,)

    def due_with_end(self, request: PendingRequest) -> Sequence[PendingRequest]:
        """Return the requests to answer with the end, in order: overtaken ones, and this one."""
        due = (*self._overtaken, request)
        self._overtaken = ()
        if any(each.answer is not None for each in due):
            self.end_delivered = True
        return due
