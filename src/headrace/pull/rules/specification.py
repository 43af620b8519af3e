"""Rules of the specification: for a single edge, and for a transformer, relating its two edges.

Of the rules of an edge, P1 to P3, P8 and P9 say which answers there are and in which order; P4 to P7 and P10
what they say once the stream has ended. Each wrong answer breaks one of the latter: the answer to an abort or
an error is judged by P5 and P7, a value after an answered end by P4, before it by P10.

The rules of a transformer hold while upstream has not ended. After that it may answer by itself, or ask
again: there is nothing left to wait for. The rules of an edge hold for both of its edges besides. T3, T6 and
the half of T2 that is about values hold for transformers that make one value of one value; the rest holds for
all, also for those that drop values or make several of one.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

from headrace.pull.rules.matched_trace import (
    Fault,
    Faults,
    MatchedAnswer,
    Placed,
    TracedEdge,
    TracedRequest,
    UnaskedReason,
    out_of_order,
)

_LAYERS = {"ask": 1, "abort": 2, "done": 2, "error": 3, "errorInd": 3}


def p1_answer_after_its_request(edge: TracedEdge) -> Faults:
    """P1. An answer happens after its request."""
    numbered = {asked.event.index: asked for asked in reversed(edge.requests)}
    for answer in edge.answers:
        if answer.unasked is UnaskedReason.NO_REQUEST:
            later = numbered.get(answer.event.index)
            when = "only later" if later is not None else "never"
            yield Fault(answer, f"request {answer.event.index} is answered and was {when} made", later)


def p2_one_answer(edge: TracedEdge) -> Faults:
    """P2. A request is answered at most once."""
    for answer in edge.answers:
        if answer.unasked is UnaskedReason.AGAIN and answer.request is not None:
            yield Fault(answer, f"request {answer.event.index} was answered before", answer.request.answer)


def p3_answers_in_order(edge: TracedEdge) -> Faults:
    """P3. Answers come in the order of their requests; asks, aborts and errors share one order."""
    yield from out_of_order(edge)


def p4_end_is_final(edge: TracedEdge) -> Faults:
    """P4. After an end no ask is answered by a value, and after done nothing by an error."""
    end, failed_below = edge.first_end, edge.failed_below
    if end is None:
        return
    for reply in edge.replies:
        if reply.at <= end.at:
            continue
        if reply.event.kind == "value" and reply.request.event.kind == "ask":
            yield Fault(reply, f"a value after {end.event.kind}", end)
        # An error of downstream may be confirmed by done: the stream has failed all the same.
        elif reply.event.kind == "error" and end.event.kind == "done" and failed_below is None:
            yield Fault(reply, "an error after done", end)


def p5_abort_is_confirmed(edge: TracedEdge) -> Faults:
    """P5. An abort is answered by done, or by an error, and never by a value."""
    yield from _value_for(edge, "abort")


def p6_failure_is_final(edge: TracedEdge) -> Faults:
    """P6. Once the stream has failed, the answer to a request is the error that failed it.

    A stream fails with an error that is answered, or with an error or its indication from
    downstream. In the second case asks that were made before may still get what they get, and
    an error may be confirmed by done.
    """
    cause = edge.failed_below
    failed: MatchedAnswer | None = None
    completed: MatchedAnswer | None = None
    for reply in edge.replies:
        kind = reply.event.kind
        if kind == "value" or (completed is not None and cause is None):
            continue  # P4, P5, P7 and P10
        if failed is not None:
            if kind != "error" or reply.event.message != failed.event.message:
                yield Fault(reply, f"{reply.event.kind} instead of the error that failed the stream", failed)
        elif kind == "error":
            failed = reply
            if _other_error(reply, cause, completed):
                yield Fault(reply, "another error than the one that failed the stream", cause)
        else:
            if cause is not None and completed is None and _must_fail(reply, cause):
                yield Fault(reply, "done instead of the error that failed the stream", cause)
            # A done for what was asked before the failure: the stream may have been completed by then.
            if cause is None or reply.request.at < cause.at:
                completed = reply


def _other_error(reply: MatchedAnswer, cause: TracedRequest | None, completed: MatchedAnswer | None) -> bool:
    """Whether an error differs from downstream's where it should be equal. P7 checks the cause itself."""
    if cause is None or reply.request is cause or reply.event.message == cause.event.message:
        return False
    return reply.request.at > cause.at or completed is not None


def _must_fail(reply: MatchedAnswer, cause: TracedRequest) -> bool:
    return reply.request.at > cause.at and reply.request.event.kind != "error"


def p7_error_is_confirmed(edge: TracedEdge) -> Faults:
    """P7. An error is answered by done or by the same error, and never by a value.

    The first error that is answered is the one that P6 holds all others to, and so is the one of
    a stream that something else has stopped before.
    """
    yield from _value_for(edge, "error")
    cause = edge.failed_below
    failed = next((reply for reply in edge.replies if reply.event.kind == "error"), None)
    if cause is None or failed is None or failed.request is not cause:
        return
    if failed.event.message != cause.event.message:
        yield Fault(failed, "confirmed by another error", cause)


def _value_for(edge: TracedEdge, kind: str) -> Faults:
    for reply in edge.replies:
        if reply.request.event.kind == kind and reply.event.kind == "value":
            yield Fault(reply, f"{kind} {reply.event.index} is answered by a value", reply.request)


def p8_indication_has_no_answer(edge: TracedEdge) -> Faults:
    """P8. An indication is not answered."""
    for answer in edge.answers:
        if answer.unasked is UnaskedReason.INDICATION and answer.request is not None:
            yield Fault(answer, f"{answer.request.event} expects no answer", answer.request)


def p9_every_request_is_answered(edge: TracedEdge) -> Faults:
    """P9. Every request is answered in the end."""
    if edge.complete:
        for asked in edge.requests:
            if asked.missing:
                yield Fault(asked, f"request {asked.event.index} has no answer")


def p10_no_value_after_a_stop(edge: TracedEdge) -> Faults:
    """P10. An ask that is made after an abort, an error or an indication gets no value."""
    stop, end = edge.first_stop, edge.first_end
    for reply in edge.replies:
        ask = reply.request
        if stop is None or ask.event.kind != "ask" or reply.event.kind != "value" or ask.at < stop.at:
            continue
        if end is None or end.at > reply.at:
            yield Fault(reply, f"a value for ask {ask.event.index}, which came after {stop.event}", stop)


def l_events_of_the_layer(edge: TracedEdge) -> Faults:
    """L. Only events of the layer happen: 1 asks, values and done; 2 aborts too; 3 errors too."""
    placed: list[tuple[Placed, str]] = [(asked, asked.event.kind) for asked in edge.requests]
    placed += [(answer, answer.event.kind) for answer in edge.answers]
    for place, kind in sorted(placed, key=lambda pair: pair[0].at):
        is_answer = not isinstance(place, TracedRequest)
        needs = (3 if kind == "error" else 1) if is_answer else _LAYERS[kind]
        if needs > edge.layer:
            yield Fault(place, f"belongs to layer {needs}, and this is layer {edge.layer}")


def w1_numbers_are_unique(edge: TracedEdge) -> Faults:
    """W1. No two requests of a port have the same number."""
    first: dict[int, TracedRequest] = {}
    for asked in edge.requests:
        if asked.event.index in first:
            yield Fault(asked, f"number {asked.event.index} is taken", first[asked.event.index])
        first.setdefault(asked.event.index, asked)


def b1_as_many_as_asked_for(edge: TracedEdge) -> Faults:
    """B1. An ask is answered by one value; a batch ask, by at least one and at most the number asked for.

    Batches are ours; the specification has one value per ask.
    """
    for reply in edge.replies:
        ask, answer = reply.request.event, reply.event
        if ask.kind != "ask" or answer.kind != "value":
            continue
        if answer.values is not None and ask.most is None:
            yield Fault(reply, "a batch for a single ask", reply.request)
        elif not 1 <= answer.carried <= (ask.most or 1):
            yield Fault(reply, f"{answer.carried} values for at most {ask.most or 1}", reply.request)


PAIR = (
    p1_answer_after_its_request,
    p2_one_answer,
    p3_answers_in_order,
    p4_end_is_final,
    p5_abort_is_confirmed,
    p6_failure_is_final,
    p7_error_is_confirmed,
    p8_indication_has_no_answer,
    p9_every_request_is_answered,
    p10_no_value_after_a_stop,
    l_events_of_the_layer,
    w1_numbers_are_unique,
    b1_as_many_as_asked_for,
)


@dataclass(frozen=True)
class TransformerTrace:
    """Both edges of a transformer. input: towards upstream. output: towards downstream."""

    input: TracedEdge
    output: TracedEdge
    one_to_one: bool = True

    @cached_property
    def events_in_order(self) -> tuple[Placed, ...]:
        """List requests and replies of both edges, in chronological order."""
        edges = (self.input, self.output)
        placed: list[Placed] = [asked for edge in edges for asked in edge.requests]
        placed += [reply for edge in edges for reply in edge.replies]
        return tuple(sorted(placed, key=lambda place: place.at))

    def held(self, at: int) -> int:
        """Return the number of values received before an index and not passed on by then."""
        received = sum(reply.event.carried for reply in self.input.replies if reply.at < at)
        return received - sum(reply.event.carried for reply in self.output.replies if reply.at < at)


def t2_answer_waits_for_upstream(both: TransformerTrace) -> Faults:
    """T2. An ask is answered only after upstream has answered: a value with a value, an end with an end."""
    held = 0
    for reply in both.events_in_order:
        if not isinstance(reply, MatchedAnswer):
            continue
        if reply.event.port == "U":
            held += reply.event.carried
        elif reply.event.kind == "value":
            held -= reply.event.carried
            if held < 0 and both.one_to_one:
                yield Fault(reply, "a value that did not come from upstream", _latest_ask(both, reply))
            held = max(held, 0)
        elif reply.request.event.kind == "ask" and not _told_to_end(both, reply.at):
            yield Fault(reply, f"{reply.event.kind} before upstream has ended", _latest_ask(both, reply))


def _told_to_end(both: TransformerTrace, at: int) -> bool:
    """Whether upstream has ended before an index, or was stopped by an indication, which is not confirmed."""
    end, stop = both.input.first_end, both.input.first_stop
    indicated = stop is not None and stop.at < at and not stop.event.expects_answer
    return indicated or (end is not None and end.at < at)


def _latest_ask(both: TransformerTrace, reply: MatchedAnswer) -> TracedRequest | None:
    """Return the last ask made of upstream before an answer."""
    requests = both.input.requests
    before = bisect_left(requests, reply.at, key=lambda asked: asked.at)
    return requests[before - 1] if before else None


def t3_asks_when_asked(both: TransformerTrace) -> Faults:
    """T3. Upstream is asked for no more than downstream has asked for."""
    if not both.one_to_one:
        return
    above = below = 0
    latest: TracedRequest | None = None
    for place in both.events_in_order:
        change = _demand(place)
        if place.event.port in ("D", "TO"):
            below += change
            continue
        above += change
        if isinstance(place, TracedRequest) and change and above > below:
            yield Fault(place, f"upstream is asked for {above} values, downstream asked for {below}", latest)
            below = above
        if isinstance(place, TracedRequest):
            latest = place


def _demand(place: Placed) -> int:
    """Return how much an event changes the number of requested values; a batch answer settles its size."""
    if isinstance(place, TracedRequest):
        return (place.event.most or 1) if place.event.kind == "ask" else 0
    if isinstance(place, MatchedAnswer) and place.event.kind == "value" and place.request.event.kind == "ask":
        return place.event.carried - (place.request.event.most or 1)
    return 0


def t4_confirms_after_upstream(both: TransformerTrace) -> Faults:
    """T4. An abort or an error is confirmed only after upstream has confirmed."""
    end, stops = both.input.first_end, both.input.requests
    closing = next((asked for asked in stops if asked.event.kind in ("abort", "error")), None)
    for reply in both.output.replies:
        if reply.request.event.kind == "ask" or not reply.event.terminates:
            continue
        sent = closing is not None and closing.at < reply.at
        if closing is not None and sent and (end is None or end.at > closing.at):
            if closing.answer is None or closing.answer.at > reply.at:
                yield Fault(reply, f"{closing.event} is not confirmed yet", closing)
        elif end is None or end.at > reply.at:
            yield Fault(reply, "upstream was not asked to confirm", reply.request)


def t5_stop_is_forwarded(both: TransformerTrace) -> Faults:
    """T5. When downstream stops the stream, upstream is told, unless it has ended by itself."""
    stop, upstream = both.output.first_stop, both.input
    if upstream.complete and stop is not None and upstream.first_stop is None and upstream.first_end is None:
        yield Fault(stop, "upstream never hears of it")


def t6_no_value_is_lost(both: TransformerTrace) -> Faults:
    """T6. Every value from upstream is passed downstream, in order.

    Values may be lost with the stream: those of asks that were pending when downstream or the
    transformer ended it, and that are answered by that end.
    """
    if not (both.one_to_one and both.output.complete):
        return
    kept = sum(reply.event.carried for reply in both.output.replies) + _lost_with_the_end(both)
    for reply in both.input.replies:
        kept -= reply.event.carried
        if kept < 0 and reply.event.carried:
            yield Fault(reply, "a value that does not go downstream", both.output.first_end)
            kept = 0


def _lost_with_the_end(both: TransformerTrace) -> int:
    """Return how many values of pending asks may be lost. Unanswered asks are covered by P9."""
    stops = [stop.at for stop in (both.input.first_stop, both.output.first_stop) if stop is not None]
    end = both.output.first_end
    if end is not None and _failed_by_itself(both, end):
        stops.append(end.at)
    lost = sum(asked.event.most or 1 for asked in both.output.requests if _is_ask(asked) and asked.missing)
    ahead = -1
    for reply in both.output.replies:
        ask = reply.request
        in_turn, ahead = ask.at > ahead, max(ask.at, ahead)
        pending = any(ask.at < stop <= reply.at for stop in stops)
        if _is_ask(ask) and reply.event.terminates and in_turn and pending:
            lost += ask.event.most or 1
    return lost


def _is_ask(asked: TracedRequest) -> bool:
    return asked.event.kind == "ask"


def t8_end_is_passed_on(both: TransformerTrace) -> Faults:
    """T8. An end is passed on unchanged in both directions: done as done, an error as the same error.

    A transformer that fails by itself, on a value that it holds, passes on its own error.
    """
    above, below = both.input.first_end, both.output.first_end
    if above is not None and below is not None and above.at < below.at and _changed(both, above, below):
        yield Fault(below, f"upstream has ended by {_end(above)}", above)
    stop, failure = both.input.first_stop, both.output.failed_below
    over = above is not None and stop is not None and above.at < stop.at
    if stop is not None and failure is not None and stop.at > failure.at and not over:
        same = stop.event.message == failure.event.message and stop.event.kind in ("error", "errorInd")
        if not same and not _stop_of_its_own(both, stop, failure):
            yield Fault(stop, f"downstream has failed the stream by {failure.event}", failure)


def _changed(both: TransformerTrace, above: MatchedAnswer, below: MatchedAnswer) -> bool:
    """Whether the end sent downstream differs from upstream's end without a reason."""
    failure = both.output.failed_below
    if below.event.kind == "done":
        # What downstream failed by itself is confirmed to it by done, or may be: P7.
        announced = failure is not None and (
            failure is below.request or failure.event.message == above.event.message
        )
        return above.event.kind == "error" and not announced
    return not (
        (above.event.kind, above.event.message) == (below.event.kind, below.event.message)
        or (failure is not None and failure.event.message == below.event.message)
        or _failed_by_itself(both, below)
        or (above.event.kind == "done" and not both.one_to_one)
    )


def _failed_by_itself(both: TransformerTrace, reply: MatchedAnswer) -> bool:
    """Whether an error downstream is the transformer's own: it failed upstream, or it held a value."""
    end, stop = both.input.first_end, both.input.first_stop
    if reply.event.kind != "error" or (end is not None and end.event.message == reply.event.message):
        return False
    announced = stop is not None and stop.at < reply.at and stop.event.kind in ("error", "errorInd")
    if announced or both.held(reply.at) > 0:
        return True
    return not both.one_to_one and any(answer.event.carried for answer in both.input.replies)


def _stop_of_its_own(both: TransformerTrace, stop: TracedRequest, failure: TracedRequest) -> bool:
    """Whether a stop may have another cause: an ask that was not forwarded, or a value that failed."""
    asks = [asked for asked in both.output.requests if _is_ask(asked) and asked.at < failure.at]
    pending = any(asked.answer is None or asked.answer.at > failure.at for asked in asks)
    forwarded = sum(_is_ask(asked) and asked.at < stop.at for asked in both.input.requests)
    replaced = pending and (not both.one_to_one or forwarded < len(asks))
    return replaced or (stop.event.kind == "error" and both.held(stop.at) > 0)


def _end(reply: MatchedAnswer) -> str:
    return reply.event.kind if reply.event.message is None else f"{reply.event.kind}({reply.event.message})"


TRANSFORMER = (
    t2_answer_waits_for_upstream,
    t3_asks_when_asked,
    t4_confirms_after_upstream,
    t5_stop_is_forwarded,
    t6_no_value_is_lost,
    t8_end_is_passed_on,
)
