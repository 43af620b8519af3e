"""Edge: a stream of requests from one module to the module upstream.

Downstream writes to it as a port (Oz): `send` appends to the stream's unbound tail, later, in order. Upstream
reads it as a list, and answers by binding the variables in it. The guarantees are those of an edge in
callback form, expressed with variables:

- The module upstream reads asks, and then at most one `Abort` or `Fail`, which has a variable for the
  confirmation even if downstream gave an indication. Asks still waiting then need no answer. A stop that
  crosses the module's own end does not reach it: downstream gets that end.
- The variables that downstream waits for are bound in the order of its requests; after the end, all are bound
  to that end, and after a stop, none is bound to a value.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from headrace.pull.dataflow.messages import (
    DONE,
    Abort,
    Answer,
    Ask,
    Done,
    Ending,
    Fail,
    Failed,
    FailIndication,
    Request,
    Value,
    ending,
    stop_for,
    to_callback_end,
)
from headrace.pull.dataflow.stream import Port, Stream
from headrace.pull.dataflow.variable import Variable
from headrace.pull.edge_requests import not_a_request, not_an_answer
from headrace.pull.protocol import AnswerTo, End, failure

if TYPE_CHECKING:
    from headrace.pull.edge import Edge as CallbackEdge
    from headrace.pull.edge import EdgeModule

UpperRequest = Ask | Abort | Fail
_REQUESTS = (Ask, Abort, Fail, Done, FailIndication)
_ANSWERS = (Value, Done, Failed)
_ANSWER = "bind answers to Value(value), DONE or Failed(error)"

Requests = Stream[UpperRequest]
"""Stream of messages that the module upstream reads."""


class EdgeObserver(Protocol):
    """Observer of the events at one end of an edge. Requests are numbered from 1."""

    def request(self, index: int, request: Request) -> None: ...

    def answer(self, index: int, answer: Answer) -> None: ...

    def remove_last_answer(self, index: int) -> None:
        """Called when the module answers a request that the edge already answered for it."""

    def broken(self, rule: str, index: int) -> Exception | None:
        """Called when the module upstream breaks a rule; a returned exception fails that module."""


class _Pending:
    """Unanswered request. held: an answer that arrived before those of earlier requests."""

    __slots__ = ("answered", "held", "index", "request")

    def __init__(self, index: int, request: Request) -> None:
        self.index = index
        self.request = request
        self.answered = False
        self.held: Value | None = None


class Edge:
    """Stream of requests between two modules.

    upper, lower: the modules it connects.
    requests:     the stream that the module upstream reads.
    depth:        number of requests that keep every module upstream busy.
    window:       requests to make at once: the depth unless the run sets it, at least 1.
    undelivered_failure: whether the module upstream failed without a request to answer with the failure.
    """

    def __init__(self, upper: EdgeModule, *, depth: int = 0) -> None:
        self.upper = upper
        self.lower: EdgeModule | None = None
        self.depth = depth
        self.window = max(upper.run.window or depth, 1)
        self.undelivered_failure = False
        self._port: Port[UpperRequest] = Port()
        self.requests: Requests = Stream(self._port.tail)
        self.seen_above: EdgeObserver | None = None
        self.seen_below: EdgeObserver | None = None
        self._runtime = upper.run.runtime
        self._count = 0
        self._pending: deque[_Pending] = deque()
        self._dropped: list[_Pending] = []
        self._stop: _Pending | None = None
        self._end: End | None = None
        self._failed: Exception | None = None
        self._stopped_below = False
        self._on_result = False
        self._confirmed: Variable[Answer] | None = None
        upper.outputs.append(tracked(self))
        upper.run.opened(tracked(self))

    def deepen(self, depth: int) -> None:
        """Set the depth of a module without a width, once its inputs are opened."""
        if self.depth == 0:
            self.depth = depth
            self.window = max(self.upper.run.window or depth, 1)

    @property
    def ended(self) -> End | None:
        """End of the stream as answered by the module upstream, or None."""
        return self._end

    @property
    def end_delivered(self) -> bool:
        """Whether downstream has received the end, which may be later than the end itself."""
        return self._on_result

    @property
    def asked(self) -> bool:
        """Whether requests are waiting for answers."""
        return bool(self._pending)

    # -- downstream -----------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        """Append a request to the stream. Raises `WrongValue` for anything else."""
        if not isinstance(request, _REQUESTS):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise not_a_request(self.lower, request, "send Ask(), Abort(), Fail(error), or an indication")
        self._count += 1
        pending = _Pending(self._count, request)
        if not isinstance(request, Ask):
            self._stopped_below = True
        if self.seen_below is not None:
            self.seen_below.request(pending.index, request)
        self._runtime.descend(self, self._arrive, pending)

    def ask(self) -> Variable[Answer]:
        """Ask for a value, and return the variable of the answer."""
        request = Ask()
        self.send(request)
        return request.answer

    def stop(self, cause: Ending | End = DONE) -> Variable[Answer]:
        """Abort or fail the stream, and return the variable of the confirmation.

        cause: DONE to abort; `Failed(error)`, or the exception itself, to fail. Else raises `WrongValue`.

        Further calls return the same variable and send nothing.
        """
        reason = ending(cause)
        if self._confirmed is None:
            request = stop_for(reason)
            self._confirmed = request.answer
            self.send(request)
        return self._confirmed

    def __call__(self, abort: End | None, answer: AnswerTo) -> None:
        """Accept a request in callback form, for modules of that form: None asks, any other value stops."""

        def answered(found: Answer) -> None:
            if isinstance(found, Value):
                answer(None, found.value)
            else:
                answer(to_callback_end(found))

        request = Ask() if abort is None else stop_for(ending(abort))
        request.answer.when_bound(answered)
        self.send(request)

    # -- upstream -------------------------------------------------------------------------------

    def _arrive(self, pending: _Pending) -> None:
        request = pending.request
        if not isinstance(request, Ask) and self._end_under_way and self._end is not None:
            pending.answered = True
            self._give_end(pending, self._end)
            return
        if self.seen_above is not None:
            self.seen_above.request(pending.index, request)
        if self._end is not None:
            self._arrive_after_the_end(pending, self._end)
            return
        self._pending.append(pending)
        if self._stop is not None:
            return  # answered once the module has confirmed
        if isinstance(request, Ask):
            sent: UpperRequest = Ask()
        else:
            self._stop = pending
            self._failed = self._failed or self.upper.failure
            sent = stop_for(_cause(request))
            self.upper.run.stopping(self.upper, tracked(self))
        sent.answer.when_bound(partial(self._answered, pending))
        try:
            self._port.send(sent)
        except Exception as error:
            self.upper.crash(error)

    @property
    def _end_under_way(self) -> bool:
        """Whether the module upstream has ended by itself, and downstream has not received it yet."""
        unheard = self._end is not None and not self._on_result
        return unheard and self._stop is None and not self.undelivered_failure

    def _arrive_after_the_end(self, pending: _Pending, end: End) -> None:
        if not self.undelivered_failure:
            self._give_end(pending, end)
            return
        self.undelivered_failure = False
        if isinstance(pending.request, Fail | FailIndication):
            # Downstream failed a stream that had not started.
            end = self._end = failure(pending.request.error, end)
        self._give_end(pending, end)
        self._runtime.post(self, self.upper.run.heard, tracked(self))

    def _answered(self, pending: _Pending, answer: Answer) -> None:
        """Handle the variable bound by the module upstream."""
        if self.upper.failure is not None:
            return  # its outputs end with its failure, once its inputs have confirmed
        if not isinstance(answer, _ANSWERS):  # pyright: ignore[reportUnnecessaryIsInstance]
            self.upper.crash(not_an_answer(self.upper, f"{answer!r:.60}", _ANSWER))
            return
        if pending.answered:
            self._too_late(pending, answer)
            return
        confirms = self._stop is pending
        if isinstance(answer, Value) or not confirms:
            self._show(pending, answer)
        if isinstance(answer, Value):
            pending.answered = True
            if self._stop is None:
                self._pass_on(pending, answer)
            elif confirms:
                self._broke("P5", pending)
                self.finish(True)
            return
        if not confirms:
            pending.answered = True
            if isinstance(answer, Failed):
                self._failed = self._failed or answer.error
        if confirms or self._stop is None:
            self.finish(to_callback_end(answer))

    def _too_late(self, pending: _Pending, answer: Answer) -> None:
        """Ignore an answer to a request already answered by the end."""
        if isinstance(answer, Value) and self.seen_above is not None:
            self.seen_above.remove_last_answer(pending.index)
            self._show(pending, answer)
            self._broke("P4", pending)

    def _pass_on(self, pending: _Pending, answer: Value) -> None:
        waiting = self._pending
        pending.held = answer
        if waiting[0] is not pending:
            self._broke("P3", pending)
            return
        while waiting and waiting[0].held is not None:
            first = waiting.popleft()
            assert first.held is not None
            self._runtime.post(self, self._hand, first, first.held)

    def _show(self, pending: _Pending, answer: Answer) -> None:
        """Record an answer to an indication, which is not passed downstream."""
        if self.seen_above is not None and not isinstance(pending.request, Done | FailIndication):
            self.seen_above.answer(pending.index, answer)

    def _broke(self, rule: str, pending: _Pending) -> None:
        if self.seen_above is not None:
            error = self.seen_above.broken(rule, pending.index)
            if error is not None:
                self.upper.crash(error)

    def finish(self, end: End) -> None:
        """Answer all waiting requests with the end, because the module upstream fails."""
        if self._end is not None:
            return
        waiting, self._pending = self._pending, deque()
        self.undelivered_failure = not waiting
        cause: End | None = self._failed
        if self._stop is not None and (cause is None or waiting[0] is self._stop):
            # If the module failed before the stop reached it, a waiting ask gets the failure first.
            cause = to_callback_end(_cause(self._stop.request))
        if isinstance(cause, Exception):
            end = failure(cause, end)
        self._end = end
        for pending in waiting:
            self._give_end(pending, end)
        self._runtime.post(self, self.upper.run.closed, tracked(self))

    # -- down again -----------------------------------------------------------------------------

    def _give_end(self, pending: _Pending, end: End) -> None:
        answer = Failed(end) if isinstance(end, Exception) else DONE
        if not pending.answered:
            pending.answered = True
            self._show(pending, answer)
        self._runtime.post(self, self._hand, pending, answer)

    def _hand(self, pending: _Pending, answer: Answer) -> None:
        """Bind the variable that downstream waits for."""
        if not isinstance(answer, Value):
            dropped, self._dropped = self._dropped, []
            for earlier in dropped:
                self._bind(earlier, answer)
        elif self._stopped_below:
            self._dropped.append(pending)
            return
        self._bind(pending, answer)

    def _bind(self, pending: _Pending, answer: Answer) -> None:
        request = pending.request
        if isinstance(request, Done | FailIndication):
            return
        self._on_result = self._on_result or not isinstance(answer, Value)
        if self.seen_below is not None:
            self.seen_below.answer(pending.index, answer)
        try:
            request.answer.bind(answer)
        except Exception as error:
            if self.lower is None:
                raise
            self.lower.crash(error)


def _cause(request: Request) -> Ending:
    if isinstance(request, Fail | FailIndication):
        return Failed(request.error)
    return DONE


def tracked(edge: Edge) -> CallbackEdge:
    """Cast an edge to the type that runs track.

    A run only uses their common members: `upper`, `lower`, `ended`, `asked`, `undelivered_failure`, `finish`.
    """
    return cast("CallbackEdge", edge)
