"""Rules of profile `strict`: the invariants of the checker published with the article on pull-streams.

They follow the intent of that checker and close three of its holes: an indication does not disturb the order
of answers, one answer out of order does not make others missing, and every notation of an ask is an ask. I0
and W1 are our additions: an answer without a request, and one number twice, cannot occur there.
"""

from __future__ import annotations

from headrace.pull.rules.edge_rules import p2_one_answer, p9_every_request_is_answered, w1_numbers_are_unique
from headrace.pull.rules.matched_trace import (
    Fault,
    Faults,
    MatchedAnswer,
    TracedEdge,
    TracedRequest,
    UnaskedReason,
    out_of_order,
)


def i0_answer_has_a_request(edge: TracedEdge) -> Faults:
    """I0. What is answered has been requested, and expects an answer."""
    for answer in edge.answers:
        if answer.unasked in (UnaskedReason.NO_REQUEST, UnaskedReason.INDICATION):
            yield Fault(answer, f"nothing waits for answer {answer.event.index}", answer.request)


def i1_no_ask_after_termination(edge: TracedEdge) -> Faults:
    """I1. No value is requested after the stream was stopped or has ended."""
    for asked in edge.requests:
        terminated = _terminated_before(edge, asked.at)
        if asked.event.kind == "ask" and terminated is not None:
            yield Fault(asked, f"an ask after {terminated.event}", terminated)


def i2_every_request_is_answered(edge: TracedEdge) -> Faults:
    """I2. Every request is answered in the end."""
    yield from p9_every_request_is_answered(edge)


def i3_one_answer(edge: TracedEdge) -> Faults:
    """I3. A request is answered at most once."""
    yield from p2_one_answer(edge)


def i4_answers_in_order(edge: TracedEdge) -> Faults:
    """I4. Answers come in the order of their requests."""
    yield from out_of_order(edge)


def i5_no_value_after_termination(edge: TracedEdge) -> Faults:
    """I5. No value is answered after the stream was stopped or has ended."""
    for reply in edge.replies:
        terminated = _terminated_before(edge, reply.at)
        if reply.event.kind == "value" and terminated is not None:
            yield Fault(reply, f"a value after {terminated.event}", terminated)


def i6_no_request_after_termination(edge: TracedEdge) -> Faults:
    """I6. Nothing is requested or indicated after the stream was stopped or has ended."""
    for asked in edge.requests:
        terminated = _terminated_before(edge, asked.at)
        if terminated is not None:
            yield Fault(asked, f"it comes after {terminated.event}", terminated)


def i7_terminates(edge: TracedEdge) -> Faults:
    """I7. The stream is stopped or ends."""
    if edge.complete and edge.first_stop is None and edge.first_end is None:
        yield Fault(edge.last, "nothing stops or ends the stream")


def _terminated_before(edge: TracedEdge, at: int) -> TracedRequest | MatchedAnswer | None:
    """Return the earlier of the first stop and the first end, if it precedes an index."""
    found = [place for place in (edge.first_stop, edge.first_end) if place is not None and place.at < at]
    return min(found, key=lambda place: place.at, default=None)


STRICT = (
    i0_answer_has_a_request,
    i1_no_ask_after_termination,
    i2_every_request_is_answered,
    i3_one_answer,
    i4_answers_in_order,
    i5_no_value_after_termination,
    i6_no_request_after_termination,
    i7_terminates,
    w1_numbers_are_unique,
)
