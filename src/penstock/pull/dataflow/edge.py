"""Edge: a request stream between two modules.

Downstream writes it as a port (Oz): `send` appends to the stream's unbound tail, later, in order.
Upstream reads it as a list, and answers by binding the variables in it. What both may rely on
is what an edge of the callback form gives them; here it is said of variables:

- The module upstream finds asks, and then at most one `Abort` or `Fail`, which has a variable
  to confirm with also where downstream gave an indication. Asks that wait then need no answer.
- The variables that downstream waits for are bound in the order of its requests; after the
  end all are bound to that end, and after a stop none to a value.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from penstock.pull.call import not_a_request, not_an_answer
from penstock.pull.dataflow.messages import (
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
    end_of,
    ending,
    stop_for,
)
from penstock.pull.dataflow.stream import Port, Stream
from penstock.pull.dataflow.variable import Variable
from penstock.pull.protocol import AnswerTo, End, failure

if TYPE_CHECKING:
    from penstock.pull.edge import Edge as CallbackEdge
    from penstock.pull.edge import EdgeModule

UpperRequest = Ask | Abort | Fail
_REQUESTS = (Ask, Abort, Fail, Done, FailIndication)
_ANSWERS = (Value, Done, Failed)
_ANSWER = "bind answers to Value(value), DONE or Failed(error)"

Requests = Stream[UpperRequest]
"""What the module upstream reads."""


class Watch(Protocol):
    """Sees the events of an edge from one of its two ends. Requests are numbered from 1."""

    def request(self, index: int, request: Request) -> None: ...

    def answer(self, index: int, answer: Answer) -> None: ...

    def withdraw(self, index: int) -> None:
        """The edge had answered this request for the module, which does so now itself."""

    def broken(self, rule: str, index: int) -> Exception | None:
        """The module upstream broke a rule; what it returns fails that module."""


class _Pending:
    """A request that waits for its answer. held: an answer that came before those of earlier requests."""

    __slots__ = ("answered", "held", "index", "request")

    def __init__(self, index: int, request: Request) -> None:
        self.index = index
        self.request = request
        self.answered = False
        self.held: Value | None = None


class Edge:
    """See the module's text.

    upper, lower: the modules that it joins.
    requests:     the stream that the module upstream reads.
    depth:        of how many requests every module upstream has something to work on at once.
    window:       how many of them to make at once: the depth, if the run says nothing else; at least 1.
    unheard:      whether the module upstream has failed, and no request has come that could be told so.
    """

    def __init__(self, upper: EdgeModule, *, depth: int = 0) -> None:
        self.upper = upper
        self.lower: EdgeModule | None = None
        self.depth = depth
        self.window = max(upper.run.window or depth, 1)
        self.unheard = False
        self._port: Port[UpperRequest] = Port()
        self.requests: Requests = Stream(self._port.tail)
        self.seen_above: Watch | None = None
        self.seen_below: Watch | None = None
        self._runtime = upper.run.runtime
        self._count = 0
        self._pending: deque[_Pending] = deque()
        self._dropped: list[_Pending] = []
        self._stop: _Pending | None = None
        self._end: End | None = None
        self._failed: Exception | None = None
        self._stopped_below = False
        self._told = False
        self._confirmed: Variable[Answer] | None = None
        upper.outputs.append(tracked(self))
        upper.run.opened(tracked(self))

    def deepen(self, depth: int) -> None:
        """Say the depth of a module without a width, which is known when it has opened what it reads from."""
        if self.depth == 0:
            self.depth = depth
            self.window = max(self.upper.run.window or depth, 1)

    @property
    def ended(self) -> End | None:
        """How the stream ended as the module upstream said it; None while it has not."""
        return self._end

    @property
    def told(self) -> bool:
        """Whether downstream has been answered the end; it may have ended and not be told yet."""
        return self._told

    @property
    def asked(self) -> bool:
        """Whether requests wait for their answers."""
        return bool(self._pending)

    # -- downstream -----------------------------------------------------------------------------

    def send(self, request: Request) -> None:
        """Append a request to the stream. Raises `WrongValue` for what is none."""
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
        """Ask for a value; the variable of the answer."""
        request = Ask()
        self.send(request)
        return request.answer

    def stop(self, cause: Ending | End = DONE) -> Variable[Answer]:
        """Abort the stream, or fail it; the variable of the confirmation.

        cause: DONE to abort; `Failed(error)`, or the exception itself, to fail. Else it raises `WrongValue`.

        Stopped again, for whatever reason, it is the same variable, and nothing is sent.
        """
        reason = ending(cause)
        if self._confirmed is None:
            request = stop_for(reason)
            self._confirmed = request.answer
            self.send(request)
        return self._confirmed

    def __call__(self, abort: End | None, answer: AnswerTo) -> None:
        """A request in the callback form, for modules of that form: None asks, others stop."""

        def answered(found: Answer) -> None:
            if isinstance(found, Value):
                answer(None, found.value)
            else:
                answer(end_of(found))

        request = Ask() if abort is None else stop_for(ending(abort))
        request.answer.when_bound(answered)
        self.send(request)

    # -- upstream -------------------------------------------------------------------------------

    def _arrive(self, pending: _Pending) -> None:
        request = pending.request
        if self.seen_above is not None:
            self.seen_above.request(pending.index, request)
        if self._end is not None:
            self._arrive_after_the_end(pending, self._end)
            return
        self._pending.append(pending)
        if self._stop is not None:
            return  # answered when the module has confirmed
        if isinstance(request, Ask):
            told: UpperRequest = Ask()
        else:
            self._stop = pending
            self._failed = self._failed or self.upper.failure
            told = stop_for(_cause(request))
            self.upper.run.stopping(self.upper, tracked(self))
        told.answer.when_bound(partial(self._answered, pending))
        try:
            self._port.send(told)
        except Exception as error:
            self.upper.crash(error)

    def _arrive_after_the_end(self, pending: _Pending, end: End) -> None:
        if not self.unheard:
            self._give_end(pending, end)
            return
        self.unheard = False
        if isinstance(pending.request, Fail | FailIndication):
            # Downstream has failed a stream that it knew nothing of.
            end = self._end = failure(pending.request.error, end)
        self._give_end(pending, end)
        self._runtime.post(self, self.upper.run.heard, tracked(self))

    def _answered(self, pending: _Pending, answer: Answer) -> None:
        """The module upstream has bound the variable of a request."""
        if self.upper.failure is not None:
            return  # its streams end with its failure, when what it reads from has confirmed
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
            self.finish(end_of(answer))

    def _too_late(self, pending: _Pending, answer: Answer) -> None:
        """The end has answered it, while it waited: nobody hears this."""
        if isinstance(answer, Value) and self.seen_above is not None:
            self.seen_above.withdraw(pending.index)
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
        """What answers an indication stays between the edge and the module upstream."""
        if self.seen_above is not None and not isinstance(pending.request, Done | FailIndication):
            self.seen_above.answer(pending.index, answer)

    def _broke(self, rule: str, pending: _Pending) -> None:
        if self.seen_above is not None:
            error = self.seen_above.broken(rule, pending.index)
            if error is not None:
                self.upper.crash(error)

    def finish(self, end: End) -> None:
        """The stream has ended: answer what waits. For the module upstream, when it fails."""
        if self._end is not None:
            return
        waiting, self._pending = self._pending, deque()
        self.unheard = not waiting
        cause: End | None = self._failed
        if self._stop is not None and (cause is None or waiting[0] is self._stop):
            # Where the module has failed before it heard of the stop, an ask that waited hears of it first.
            cause = end_of(_cause(self._stop.request))
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
        self._told = self._told or not isinstance(answer, Value)
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
    """An edge of this form where a run keeps account of edges.

    A run looks only at what both have: `upper`, `lower`, `ended`, `asked`, `unheard`, and `finish`.
    """
    return cast("CallbackEdge", edge)
