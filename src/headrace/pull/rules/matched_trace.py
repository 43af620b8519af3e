"""View of one edge of a trace: its requests and answers, matched to each other."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property

from headrace.pull.rules.trace import Answer, AnswerPort, Event, Layer, Request, RequestPort


class UnaskedReason(Enum):
    """Reason why an answer belongs to no request."""

    NO_REQUEST = auto()
    """No earlier request has the answer's number."""
    AGAIN = auto()
    """The request is already answered."""
    INDICATION = auto()
    """The message with the answer's number expects no answer."""


@dataclass(slots=True, eq=False)
class TracedRequest:
    """Request in a trace. at: its index. answer: the matching answer, if any."""

    at: int
    event: Request
    answer: TracedAnswer | None = None

    @property
    def missing(self) -> bool:
        """Whether an expected answer is missing."""
        return self.answer is None and self.event.expects_answer


@dataclass(slots=True, eq=False)
class TracedAnswer:
    """Answer in a trace. at: its index. request: the answered request.

    unasked: reason why it belongs to no request; `request` is then the one that it names, if any.
    """

    at: int
    event: Answer
    request: TracedRequest | None
    unasked: UnaskedReason | None = None


@dataclass(frozen=True, slots=True)
class MatchedAnswer:
    """Answer that belongs to a request."""

    at: int
    event: Answer
    request: TracedRequest


Placed = TracedRequest | TracedAnswer | MatchedAnswer


@dataclass(frozen=True, slots=True)
class Fault:
    """Violation of a rule. at: the event at fault; None for an empty trace.

    other: the conflicting event, if any. text: short description.
    """

    at: Placed | None
    text: str
    other: Placed | None = None


Faults = Iterator[Fault]


@dataclass(frozen=True)
class TracedEdge:
    """One edge of a trace.

    replies: answers that belong to requests, in chronological order. Unmatched answers are only in `answers`:
    a single rule reports them, so that the others can ignore them.
    """

    requests: tuple[TracedRequest, ...]
    answers: tuple[TracedAnswer, ...]
    layer: Layer = 3
    complete: bool = True
    last: TracedRequest | TracedAnswer | None = field(default=None)

    @classmethod
    def of(
        cls,
        events: tuple[Event, ...],
        below: RequestPort,
        above: AnswerPort,
        layer: Layer,
        complete: bool,
    ) -> TracedEdge:
        """Match the requests of one port with the answers of another."""
        requests: list[TracedRequest] = []
        answers: list[TracedAnswer] = []
        numbered: dict[int, _SameNumber] = {}
        last: TracedRequest | TracedAnswer | None = None
        for at, event in enumerate(events):
            if isinstance(event, Request):
                if event.port == below:
                    last = TracedRequest(at, event)
                    requests.append(last)
                    numbered.setdefault(event.index, _SameNumber()).ask(last)
            elif event.port == above:
                last = numbered.get(event.index, _SameNumber()).answer(at, event)
                answers.append(last)
        return cls(tuple(requests), tuple(answers), layer, complete, last)

    @cached_property
    def replies(self) -> tuple[MatchedAnswer, ...]:
        return tuple(
            MatchedAnswer(answer.at, answer.event, answer.request)
            for answer in self.answers
            if answer.unasked is None and answer.request is not None
        )

    @cached_property
    def first_stop(self) -> TracedRequest | None:
        """First request or indication by which downstream ends the stream."""
        return next((asked for asked in self.requests if asked.event.terminates), None)

    @cached_property
    def first_end(self) -> MatchedAnswer | None:
        """First answer that ends the stream."""
        return next((reply for reply in self.replies if reply.event.terminates), None)

    @cached_property
    def failed_below(self) -> TracedRequest | None:
        """Error by which downstream failed the stream, if nothing had ended it before."""
        stop, end = self.first_stop, self.first_end
        if stop is None or stop.event.kind not in ("error", "errorInd"):
            return None
        return None if end is not None and end.at < stop.at else stop


def out_of_order(edge: TracedEdge) -> Faults:
    """Find answers that arrive after the answer to a later request, and requests overtaken without an answer.

    For the latter, the first answer to a later request is at fault, in a complete trace too: whether the
    answer is late or missing, it was overtaken.
    """
    ahead: list[MatchedAnswer] = []
    for reply in edge.replies:
        if ahead and reply.request.at < ahead[-1].request.at:
            before = ahead[-1]
            yield Fault(reply, f"request {before.event.index} came later and was answered before it", before)
        else:
            ahead.append(reply)
    for asked in edge.requests:
        first = bisect_right(ahead, asked.at, key=lambda reply: reply.request.at)
        if asked.missing and first < len(ahead):
            yield Fault(ahead[first], f"request {asked.event.index} came earlier and has no answer", asked)


@dataclass(slots=True)
class _SameNumber:
    """Requests with the same number; exactly one in a valid trace."""

    open: deque[TracedRequest] = field(default_factory=lambda: deque[TracedRequest]())
    closed: TracedRequest | None = None
    indication: TracedRequest | None = None

    def ask(self, asked: TracedRequest) -> None:
        if asked.event.expects_answer:
            self.open.append(asked)
        else:
            self.indication = asked

    def answer(self, at: int, event: Answer) -> TracedAnswer:
        if self.open:
            self.closed = self.open.popleft()
            self.closed.answer = TracedAnswer(at, event, self.closed)
            return self.closed.answer
        if self.indication is not None:
            return TracedAnswer(at, event, self.indication, UnaskedReason.INDICATION)
        if self.closed is not None:
            return TracedAnswer(at, event, self.closed, UnaskedReason.AGAIN)
        return TracedAnswer(at, event, None, UnaskedReason.NO_REQUEST)
