"""Edge: the connection between two modules of a running pipeline, isolating each from the other's mistakes.

The module downstream calls an edge as a `Read`. An edge guarantees both neighbours more than the protocol
does, so that a module takes only a few lines:

- Requests are passed up immediately if the stack is shallow and nothing is queued; answers come down through
  the runtime's queue. No function of a module is called while another one of them runs.
- Answers arrive in the order of the requests, one each. After an end, the edge answers every request with
  that end, without calling the module upstream again.
- A module is stopped at most once, always with an answer function, even if downstream gave an indication.
  A stop that crosses the module's own end does not reach it: downstream gets that end.
  Asks pending at that time need no answer of their own: when the module confirms, the edge answers them
  first, with the same end. A module that has aborted receives no more values.
- An exception fails only the module that raised it: its inputs are failed with the exception, and once they
  have confirmed, its outputs end with it.

Violations of the rules are corrected silently, or reported if the edge is probed
(`headrace.pull.edge_recorder`). An answer with neither value nor end fails its module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from headrace.pull.edge_requests import (
    FLUSHED,
    HELD,
    OPEN,
    SETTLED,
    EdgeObserver,
    NamedModule,
    PendingRequest,
    not_a_request,
    not_an_answer,
)
from headrace.pull.protocol import AnswerTo, BatchRead, End, Layer, Read, attach_close_error, failure

if TYPE_CHECKING:
    from headrace.pull.pipeline_runtime import Runtime


class EdgeRun(Protocol):
    """Interface of the run for its edges. window: requests to keep in flight; None lets each edge choose."""

    runtime: Runtime
    window: int | None

    def opened(self, edge: Edge) -> None: ...

    def stopping(self, module: EdgeModule, edge: Edge) -> None:
        """Called when the module upstream of an edge was told to stop."""
        ...

    def closed(self, edge: Edge) -> None:
        """Called when a stream has ended and all its requests are answered."""
        ...

    def heard(self, edge: Edge) -> None:
        """Called when the end of an edge was delivered downstream."""
        ...


class EdgeModule(NamedModule, Protocol):
    """Interface of a module for its edges and run, implemented by `headrace.pull.module_context.Module`."""

    inputs: dict[Edge, None]
    outputs: list[Edge]
    advice: tuple[str, str] | None

    @property
    def run(self) -> EdgeRun: ...

    @property
    def failure(self) -> Exception | None: ...

    def drop(self, returned: object) -> None: ...

    def crash(self, error: Exception) -> None: ...

    def done(self, result: Any = None) -> None: ...

    def cancel(self) -> None: ...


class Edge:
    """Connection from a module to its downstream neighbour. Called as `read(abort, answer)`; `batch` asks for
    several values at once.

    upper, lower: the modules it connects.
    depth:  number of requests that keep every module upstream busy.
    window: requests to make at once: the depth unless the run sets it, at least 1.
    undelivered_failure: whether the module upstream failed without a request to answer with the failure.
    """

    def __init__(
        self,
        upper: EdgeModule,
        read: Read | BatchRead,
        *,
        batches: bool = False,
        linear: bool = False,
        layer: Layer = 3,
        depth: int = 0,
    ) -> None:
        self.upper = upper
        self.lower: EdgeModule | None = None
        self.depth = depth
        self.window = max(upper.run.window or depth, 1)
        self.undelivered_failure = False
        self.seen_above: EdgeObserver | None = None
        self.seen_below: EdgeObserver | None = None
        self._runtime = upper.run.runtime
        self._read: Any = read
        self._batches = batches
        self._linear = linear
        self._layer = layer
        self._asked: PendingRequest | None = None  # the request that a linear module is working on
        self._count = 0
        self._pending: deque[PendingRequest] = deque()
        self._dropped: list[PendingRequest] = []
        self._stop: PendingRequest | None = None
        self._end: End | None = None
        self._failed: Exception | None = None
        self._stopped_below = False
        self._end_delivered = False
        upper.outputs.append(self)
        upper.run.opened(self)

    # -- downstream -----------------------------------------------------------------------------

    def __call__(self, abort: End | None, answer: AnswerTo | None = None, most: int | None = None) -> None:
        """Ask (None), abort (True) or fail (an exception). Without an answer function, it is an indication.

        most: ask for 1 to `most` values, answered as one list.
        """
        self._count += 1
        call = PendingRequest(abort, answer, most, self._count)
        if abort is not None:
            self._note_stop(call)
        if self.seen_below is not None:
            self.seen_below.request(call)
        self._runtime.descend(self, self._arrive, call)

    def _note_stop(self, call: PendingRequest) -> None:
        if call.abort is False:  # pyright: ignore[reportUnnecessaryComparison]  # as the original writes it
            call.abort = None
        elif call.abort is not True and not isinstance(call.abort, Exception):
            raise not_a_request(
                self.lower, call.abort, "read(None, answer), read(True, answer) or read(error, answer)"
            )
        else:
            self._stopped_below = True

    def batch(self, most: int, answer: AnswerTo) -> None:
        """Request 1 to `most` values, answered as one list."""
        self(None, answer, most)

    @property
    def ended(self) -> End | None:
        """End of the stream as answered by the module upstream, or None."""
        return self._end

    @property
    def in_batches(self) -> bool:
        """Whether the module upstream answers with lists."""
        return self._batches

    @property
    def end_delivered(self) -> bool:
        """Whether downstream has received the end, which may be later than the end itself."""
        return self._end_delivered

    @property
    def stopped(self) -> bool:
        """Whether downstream stopped the stream, so that an end does not imply completeness."""
        return self._stopped_below

    @property
    def asked(self) -> bool:
        """Whether requests are waiting for answers."""
        return bool(self._pending)

    @property
    def stopping(self) -> bool:
        """Whether the module upstream was stopped but has not confirmed."""
        return self._stop is not None and self._end is None

    @property
    def was_stopped(self) -> bool:
        """Whether the module upstream was stopped before it ended or failed by itself."""
        return self._stop is not None and self._failed is None

    # -- upstream -------------------------------------------------------------------------------

    def _arrive(self, call: PendingRequest) -> None:
        if call.abort is not None and self._end_under_way:
            call.state = SETTLED
            self._runtime.post(self, self._hand, call, self._end, None)
            return
        if self.seen_above is not None:
            self.seen_above.request(call)
        if self._end is not None:
            self._arrive_after_the_end(call, self._end)
            return
        self._pending.append(call)
        if self._stop is not None:
            return  # answered once the module has confirmed
        if call.abort is not None:
            self._stop = call
            self._failed = self.upper.failure if self._failed is None else self._failed
            self.upper.run.stopping(self.upper, self)
            if self._layer == 1:
                stop_all([*self.upper.inputs], call.abort, partial(self._answered, call))
                return
        elif self._linear:
            if self._asked is not None:
                return
            self._asked = call
        self._tell(call)

    @property
    def _end_under_way(self) -> bool:
        """Whether the module upstream has ended by itself, and downstream has not received it yet."""
        unheard = self._end is not None and not self._end_delivered
        return unheard and self._stop is None and not self.undelivered_failure

    def _arrive_after_the_end(self, call: PendingRequest, end: End) -> None:
        if not self.undelivered_failure:
            self._flush(call, end)
            return
        self.undelivered_failure = False
        if isinstance(call.abort, Exception):
            end = self._end = failure(call.abort, end)  # downstream failed a stream that had not started
        self._flush(call, end)
        self._runtime.post(self, self.upper.run.heard, self)

    def _tell(self, call: PendingRequest) -> None:
        """Pass a request to the module upstream."""
        if self.upper.failure is not None:
            return  # answered with its failure, once its inputs have confirmed
        abort = True if call.abort is not None and self._layer == 2 else call.abort
        try:
            if self._batches:
                returned = self._read(abort, partial(self._answered, call), call.most or 1)
            else:
                returned = self._read(abort, partial(self._answered, call))
            if returned is not None:
                self.upper.drop(returned)
        except Exception as error:
            self.upper.crash(error)

    def _answered(self, call: PendingRequest, end: Any, value: Any = None, /) -> None:
        """Handle the module upstream's answer to a request."""
        if self.upper.failure is not None:
            return  # its outputs end with its failure, once its inputs have confirmed
        if end is False:
            end = None
        wrong = self._wrong(call, end, value)
        if wrong:
            self.upper.crash(not_an_answer(self.upper, wrong))
            return
        if self.seen_above is not None and not (end is not None and self._stop is call and self._end is None):
            self._show_answer(call, end, value)
        if call.state != OPEN or self._end is not None:
            self._too_late(call, end)
        elif self._stop is None:
            self._pass_on(call, end, value)
        else:
            self._answered_stopping(call, end)

    def _wrong(self, call: PendingRequest, end: Any, value: Any) -> str:
        """Describe the defect of an invalid answer; empty for a valid one."""
        if end is not None:
            fits = end is True or isinstance(end, Exception)
            return "" if fits else f"{end!r} for an end, which is None, True or an exception"
        if not self._batches or self._end is not None or self._stop is not None:
            return ""
        most = call.most or 1
        if isinstance(value, list) and 1 <= len(value) <= most:  # pyright: ignore[reportUnknownArgumentType]
            return ""
        return f"{value!r:.60} for a batch, which is a list of 1 to {most} values (rule B1)"

    def _answered_stopping(self, call: PendingRequest, end: End | None) -> None:
        if call is self._stop:
            if end is None:
                call.state = SETTLED
                self._broke("P5", call)
            self.finish(True if end is None else end)
            return
        call.state = SETTLED
        if isinstance(end, Exception) and self._failed is None:
            self._failed = end

    def _show_answer(self, call: PendingRequest, end: End | None, value: Any) -> None:
        """Show the module's answer to the observer, even if the edge has already answered for it."""
        assert self.seen_above is not None
        if call.state == FLUSHED:
            if end is not None:
                return
            self.seen_above.remove_last_answer(call)
        self.seen_above.answer(call, end, value)

    def _pass_on(self, call: PendingRequest, end: End | None, value: Any) -> None:
        pending = self._pending
        if pending[0] is not call:
            call.state = HELD
            call.held = (end, value)
            self._broke("P3", call)
            return
        while end is None:
            pending.popleft()
            call.state = SETTLED
            self._reply(call, value)
            if not pending or pending[0].state != HELD:
                break
            call = pending[0]
            end, value = call.held
        if end is not None:
            call.state = SETTLED
            self.finish(end)
        elif self._linear:
            self._asked = pending[0] if pending else None
            if pending:
                self._runtime.post(self, self._tell_next)

    def _tell_next(self) -> None:
        """Pass on the ask that was held back until a linear module's previous answer."""
        if self._asked is not None and self._stop is None and self._end is None:
            self._tell(self._asked)

    def _too_late(self, call: PendingRequest, end: End | None) -> None:
        """Ignore a second answer, or one to a request already answered by an end."""
        if call.state in (SETTLED, HELD):
            self._broke("P2", call)
        elif end is None:
            call.state = SETTLED
            self._broke("P4", call)

    def _broke(self, rule: str, call: PendingRequest) -> None:
        if rule and self.seen_above is not None:
            error = self.seen_above.broken(rule, call)
            if error is not None:
                self.upper.crash(error)

    def finish(self, end: End) -> None:
        """Answer all open requests with the end. Called by the module upstream, also when it fails."""
        if self._end is not None:
            return
        pending, self._pending = self._pending, deque()
        self.undelivered_failure = not pending
        cause = self._failed
        if self._stop is not None and (cause is None or pending[0] is self._stop):
            # If the module failed before the stop reached it, a waiting ask gets the failure first.
            cause = self._stop.abort
        if isinstance(cause, Exception):
            end = failure(cause, end)
        self._end = end
        for call in pending:
            self._flush(call, end)
        self._runtime.post(self, self.upper.run.closed, self)

    # -- down again -----------------------------------------------------------------------------

    def _flush(self, call: PendingRequest, end: End) -> None:
        if call.state == OPEN:
            call.state = SETTLED if call is self._stop else FLUSHED
            if self.seen_above is not None:
                self.seen_above.answer(call, end, None)
        self._runtime.post(self, self._hand, call, end, None)

    def _reply(self, call: PendingRequest, value: Any) -> None:
        if self._batches:
            value = value if call.most is not None else value[0]
        elif call.most is not None:
            value = [value]
        self._runtime.post(self, self._hand, call, None, value)

    def _hand(self, call: PendingRequest, end: End | None, value: Any) -> None:
        if end is not None:
            if self._dropped:
                dropped, self._dropped = self._dropped, []
                for earlier in dropped:
                    self._hand(earlier, end, None)
        elif self._stopped_below:
            self._dropped.append(call)
            return
        if call.answer is None:
            return
        if end is not None:
            self._end_delivered = True
        if self.seen_below is not None:
            self.seen_below.answer(call, end, value)
        try:
            returned = call.answer(end, value)
            if returned is not None and self.lower is not None:
                self.lower.drop(returned)
        except Exception as error:
            if self.lower is None:
                raise
            self.lower.crash(error)


def stop_all(edges: list[Edge], cause: End, then: Callable[[End], object]) -> None:
    """Stop all edges that have not ended, and call `then(end)` once each has confirmed.

    end: `cause`, or for an abort (True) the first error while closing, with later ones attached.
    """
    left = len(edges)
    first: End = cause

    def confirmed(end: End | None, _value: Any = None, /) -> None:
        nonlocal left, first
        left -= 1
        if isinstance(end, Exception):
            first = attach_close_error(first, end) if isinstance(first, Exception) else end
        if left == 0:
            then(first)

    if not edges:
        then(cause)
    for edge in edges:
        edge(cause, confirmed)
