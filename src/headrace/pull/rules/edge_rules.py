"""Rules of the specification for the two modules at an edge.

P1 to P3 and P8, P9 say which answers there are and in which order; P4 to P7 and P10 what they say
once the stream has ended. Each answer that is wrong breaks one of the latter: what answers an
abort or an error is judged by P5 and P7, a value after an answered end by P4, before it by P10.
"""

from __future__ import annotations

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
    """B1. An ask is answered by one value, an ask for a batch by one to as many as it takes.

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
