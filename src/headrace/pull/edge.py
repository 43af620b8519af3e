"""Edge: the connection between two modules of a running pipeline, isolating each from the other's mistakes.

The module downstream calls an edge as a `Read`. An edge guarantees both neighbours more than the protocol
does, so that a module takes only a few lines. `EdgeState` has the guarantees about requests and answers; the
edge performs their effects, and adds:

- Requests are passed up immediately if the stack is shallow and nothing is queued; answers come down through
  the runtime's queue. No function of a module is called while another one of them runs.
- A module is always stopped with an answer function, even if downstream gave an indication.
- An exception fails only the module that raised it: its inputs are failed with the exception, and once they
  have confirmed, its outputs end with it. A module that has failed receives no more requests.

Violations of the rules are corrected silently, or reported if the edge is probed
(`headrace.pull.edge_recorder`). An answer with neither value nor end fails its module.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import SourceLocation
from headrace.pull.edge_state import (
    KEEP,
    PASS_ON,
    PASS_ON_AND_TELL_NEXT,
    Breach,
    DeliverEnd,
    DeliverValue,
    EdgeState,
    Effects,
    Finish,
    Next,
    PendingRequest,
    RecordAnswer,
    RecordRequest,
    RetractAnswer,
)
from headrace.pull.errors import ProtocolBroken, WrongValue
from headrace.pull.protocol import AnswerTo, BatchRead, End, Layer, Read, attach_close_error

if TYPE_CHECKING:
    from headrace.pull.pipeline_runtime import Runtime


class EdgeRun(Protocol):
    """Interface of the run for its edges. window: requests to keep in flight; None lets each edge choose."""

    runtime: Runtime
    window: int | None

    def opened(self, edge: PullEdge) -> None: ...

    def stopping(self, module: EdgeModule, edge: PullEdge) -> None:
        """Called when the module upstream of an edge has been stopped."""
        ...

    def closed(self, edge: PullEdge) -> None:
        """Called when a stream has ended and all its requests are answered."""
        ...

    def heard(self, edge: PullEdge) -> None:
        """Called when the end of an edge has been delivered downstream."""
        ...


class NamedModule(Protocol):
    """Identity of a module in errors: its name, and the user's source line that created it."""

    name: str
    location: SourceLocation


class EdgeModule(NamedModule, Protocol):
    """Interface of a module for its edges and run, implemented by `headrace.pull.module_context.Module`."""

    inputs: dict[PullEdge, None]
    outputs: list[PullEdge]
    advice: tuple[str, str] | None

    @property
    def run(self) -> EdgeRun: ...

    @property
    def failure(self) -> Exception | None: ...

    def drop(self, returned: object) -> None: ...

    def crash(self, error: Exception) -> None: ...

    def done(self, result: Any = None) -> None: ...

    def cancel(self) -> None: ...


class EdgeObserver(Protocol):
    """Observer of the events at one end of an edge."""

    def request(self, call: PendingRequest) -> None: ...

    def answer(self, call: PendingRequest, end: End | None, value: Any) -> None: ...

    def remove_last_answer(self, call: PendingRequest) -> None:
        """Called when the module answers a request that the edge already answered for it."""

    def broken(self, rule: str, call: PendingRequest) -> Exception | None:
        """Called when the module upstream breaks a rule; a returned exception fails that module."""


class PullEdge:
    """Connection from a module to its downstream neighbour. Called as `read(abort, answer)`.

    upper, lower: the modules it connects.
    in_batches: whether the module upstream answers with lists.
    depth:  number of requests that keep every module upstream busy.
    window: requests to make at once: the depth unless the run sets it, at least 1.
    seen_above, seen_below: observers of its upper and lower end.

    A subclass passes requests to the module upstream (`_tell`), and the module's answers to `_answered`.
    """

    __slots__ = (
        "_count",
        "_runtime",
        "_state",
        "depth",
        "in_batches",
        "lower",
        "seen_above",
        "seen_below",
        "upper",
        "window",
    )

    def __init__(
        self, upper: EdgeModule, *, batches: bool = False, linear: bool = False, depth: int = 0
    ) -> None:
        self.upper = upper
        self.in_batches = batches
        self.lower: EdgeModule | None = None
        self.depth = depth
        self.window = max(upper.run.window or depth, 1)
        self.seen_above: EdgeObserver | None = None
        self.seen_below: EdgeObserver | None = None
        self._runtime = upper.run.runtime
        self._state = EdgeState(linear=linear)
        self._count = 0
        upper.outputs.append(self)
        upper.run.opened(self)

    @property
    def ended(self) -> End | None:
        """End of the stream as answered by the module upstream, or None."""
        return self._state.end

    @property
    def end_delivered(self) -> bool:
        """Whether downstream has received the end, possibly some time after the stream ended."""
        return self._state.end_delivered

    @property
    def undelivered_failure(self) -> bool:
        """Whether the module upstream failed while no request was pending to carry the failure."""
        return self._state.undelivered_failure

    @property
    def stopped(self) -> bool:
        """Whether downstream stopped the stream, so that an end does not imply completeness."""
        return self._state.stopped_below

    @property
    def asked(self) -> bool:
        """Whether requests are waiting for answers."""
        return self._state.has_pending

    @property
    def stopping(self) -> bool:
        """Whether the module upstream was stopped but has not confirmed."""
        return self._state.stopping

    @property
    def was_stopped(self) -> bool:
        """Whether the module upstream was stopped before it ended or failed by itself."""
        return self._state.was_stopped

    def __call__(self, abort: End | None, answer: AnswerTo | None = None, most: int | None = None) -> None:
        """Ask (None), abort (True) or fail (an exception). Without an answer function, it is an indication.

        most: ask for 1 to `most` values, answered as one list.
        """
        self._count += 1
        request = PendingRequest(abort, answer, most, self._count)
        if abort is not None:
            self._note_stop(request)
        if self.seen_below is not None:
            self.seen_below.request(request)
        self._runtime.descend(self, self._arrive, request)

    def _note_stop(self, request: PendingRequest) -> None:
        if request.abort is False:  # pyright: ignore[reportUnnecessaryComparison]  # as the original writes it
            request.abort = None
        elif request.abort is not True and not isinstance(request.abort, Exception):
            raise not_a_request(
                self.lower, request.abort, "read(None, answer), read(True, answer) or read(error, answer)"
            )
        else:
            self._state.note_stop()

    def _arrive(self, request: PendingRequest) -> None:
        if request.abort is None:
            effects = self._state.ask(request)
        else:
            effects = self._state.stop(request, self.upper.failure)
        if effects is PASS_ON:
            if self.seen_above is not None:
                self.seen_above.request(request)
            self._tell(request)
        elif effects is not KEEP:
            self._perform(effects)
        elif self.seen_above is not None:
            self.seen_above.request(request)

    def _tell(self, request: PendingRequest) -> None:
        """Pass a request to the module upstream."""
        raise NotImplementedError

    def _tell_next(self) -> None:
        request = self._state.next_ask()
        if request is not None:
            self._tell(request)

    def _answered(self, request: PendingRequest, end: Any, value: Any = None, /) -> None:
        """Handle an answer of the module upstream, which may be anything."""
        upper = self.upper
        if upper.failure is not None:
            return  # its outputs end with its failure, once its inputs have confirmed
        if end is False:
            end = None
        if end is not None or self.in_batches:
            defect = self._defect(request, end, value)
            if defect:
                upper.crash(not_an_answer(upper, defect))
                return
        effects = self._state.answer(request, end, value)
        if effects is PASS_ON:
            if self.seen_above is not None:
                self.seen_above.answer(request, None, value)
            self._reply(request, value)
        elif effects is PASS_ON_AND_TELL_NEXT:
            if self.seen_above is not None:
                self.seen_above.answer(request, None, value)
            self._reply(request, value)
            self._runtime.post(self, self._tell_next)
        elif effects is not KEEP:
            self._perform(effects)
        elif self.seen_above is not None:
            self.seen_above.answer(request, end, value)

    def _defect(self, request: PendingRequest, end: Any, value: Any) -> str:
        """Describe the defect of an invalid answer; empty for a valid one."""
        if end is not None:
            fits = end is True or isinstance(end, Exception)
            return "" if fits else f"{end!r} for an end, which is None, True or an exception"
        most = request.most or 1
        if isinstance(value, list) and 1 <= len(value) <= most:  # pyright: ignore[reportUnknownArgumentType]
            return ""
        if self._state.end is not None or self._state.stopping:
            return ""  # nobody receives the value
        return f"{value!r:.60} for a batch, which is a list of 1 to {most} values (rule B1)"

    def finish(self, end: End) -> None:
        """Answer all open requests with the end. Called by the module upstream, also when it fails."""
        self._perform(self._state.finish(end))

    def _reply(self, request: PendingRequest, value: Any) -> None:
        if self.in_batches:
            if request.most is None:
                value = value[0]
        elif request.most is not None:
            value = [value]
        self._runtime.post(self, self._deliver, request, None, value)

    def _deliver(self, request: PendingRequest, end: End | None, value: Any = None) -> None:
        """Answer a downstream request, unless a stop has overtaken the value."""
        if end is None and self._state.stopped_below:
            self._state.drop_value(request)
            return
        if request.answer is None:
            return
        if self.seen_below is not None:
            self.seen_below.answer(request, end, value)
        try:
            returned = request.answer(end, value)
            if returned is not None and self.lower is not None:
                self.lower.drop(returned)
        except Exception as error:
            if self.lower is None:
                raise
            self.lower.crash(error)

    def _deliver_end(self, request: PendingRequest, end: End) -> None:
        for due in self._state.due_with_end(request):
            self._deliver(due, end)

    def _perform(self, effects: Effects) -> None:
        seen = self.seen_above
        while effects:
            following: Effects = ()
            for effect in effects:
                if isinstance(effect, DeliverEnd):
                    self._runtime.post(self, self._deliver_end, effect.request, effect.end)
                elif isinstance(effect, DeliverValue):
                    self._reply(effect.request, effect.value)
                elif isinstance(effect, Finish):
                    following = self._state.finish(effect.end)
                elif isinstance(effect, Next):
                    if effect is Next.RELEASE:
                        following = self._state.release()
                    elif effect is Next.TELL_NEXT:
                        self._runtime.post(self, self._tell_next)
                    else:
                        run = self.upper.run
                        received = effect is Next.END_RECEIVED
                        self._runtime.post(self, run.heard if received else run.closed, self)
                elif seen is not None:
                    self._show(seen, effect)
            effects = following

    def _show(
        self, seen: EdgeObserver, effect: RecordRequest | RecordAnswer | RetractAnswer | Breach
    ) -> None:
        match effect:
            case RecordRequest(request):
                seen.request(request)
            case RecordAnswer(request, end, value):
                seen.answer(request, end, value)
            case RetractAnswer(request):
                seen.remove_last_answer(request)
            case Breach(rule, request):
                error = seen.broken(rule, request)
                if error is not None:
                    self.upper.crash(error)


class CallbackEdge(PullEdge):
    """Edge below a module in callback form. The edge passes one of its answer functions to `read`.

    batches: it answers with lists. linear: it is asked again only after it has answered.
    layer: requests that it understands. For one of layer 1, the edge stops the inputs instead.
    """

    __slots__ = ("_layer", "_read")

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
        self._read: Any = read
        self._layer = layer
        super().__init__(upper, batches=batches, linear=linear, depth=depth)

    def _tell(self, request: PendingRequest) -> None:
        upper, abort = self.upper, request.abort
        if abort is not None:
            upper.run.stopping(upper, self)
            if self._layer == 1:
                stop_all([*upper.inputs], abort, partial(self._answered, request))
                return
            if self._layer == 2:
                abort = True
        if upper.failure is not None:
            return  # answered with its failure, once its inputs have confirmed
        try:
            if self.in_batches:
                returned = self._read(abort, partial(self._answered, request), request.most or 1)
            else:
                returned = self._read(abort, partial(self._answered, request))
            if returned is not None:
                upper.drop(returned)
        except Exception as error:
            upper.crash(error)


def not_an_answer(
    module: NamedModule, what: str, fix: str = "answer(None, value), answer(True) or answer(error)"
) -> ProtocolBroken:
    """Build the error for an invalid answer of a module."""
    return ProtocolBroken(
        f"{module.name!r} answered {what}",
        where=[module.location],
        why="A request is answered by a value, by done or by an error.",
        fix=fix,
        module=module.name,
        rule="B1",
    )


def not_a_request(module: NamedModule | None, what: object, fix: str) -> WrongValue:
    """Build the error for an invalid request of a module."""
    return WrongValue(
        f"{'a module' if module is None else repr(module.name)} made the request {what!r}",
        where=[SourceLocation.of_caller() if module is None else module.location],
        why="A request asks for a value, aborts the stream, or fails it with an exception.",
        fix=fix,
    )


def stop_all(edges: list[PullEdge], cause: End, then: Callable[[End], object]) -> None:
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
