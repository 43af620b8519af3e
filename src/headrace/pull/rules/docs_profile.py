"""Rules of profile `docs`, in use among modules of the original: linear, one stop, no events after an end.

S0, S6 and S7 are what its users say, S1 to S5 its documentation. W1 is about the notation of traces.
"""

from __future__ import annotations

from headrace.pull.rules.edge_rules import w1_numbers_are_unique
from headrace.pull.rules.matched_trace import (
    Fault,
    Faults,
    MatchedAnswer,
    TracedEdge,
    TracedRequest,
    out_of_order,
)


def s0_one_answer_each(edge: TracedEdge) -> Faults:
    """S0. Every request is answered once; nothing else is answered."""
    for answer in edge.answers:
        if answer.unasked is not None:
            yield Fault(answer, f"nothing waits for answer {answer.event.index}", answer.request)
    if edge.complete:
        for asked in edge.requests:
            if asked.missing:
                yield Fault(asked, f"request {asked.event.index} has no answer")


def s1_one_ask_at_a_time(edge: TracedEdge) -> Faults:
    """S1. No ask is made before the last one is answered."""
    previous: TracedRequest | None = None
    for asked in edge.requests:
        if asked.event.kind == "ask":
            if previous is not None and (previous.answer is None or previous.answer.at > asked.at):
                yield Fault(asked, f"ask {previous.event.index} is not answered yet", previous)
            previous = asked


def s2_nothing_after_the_end(edge: TracedEdge) -> Faults:
    """S2. Nothing is requested after an end, and no ask is made after a stop.

    A second stop is S7's, an indication S6's.
    """
    for asked in edge.requests:
        if not asked.event.expects_answer:
            continue
        stopped, ended = _stopped_before(edge, asked.at), _ended_before(edge, asked.at)
        if asked.event.kind == "ask" and stopped is not None:
            yield Fault(asked, f"an ask after {stopped.event}", stopped)
        elif stopped is None and ended is not None:
            yield Fault(asked, f"a request after {ended.event.kind}", ended)


def s3_pending_ask_ends_first(edge: TracedEdge) -> Faults:
    """S3. An abort during an ask: the ask is answered first, by an end, and then the abort."""
    reported: set[int] = set()
    for fault in out_of_order(edge):
        assert fault.at is not None, "an answer is at fault"
        reported.add(fault.at.at)
        yield fault
    for reply in edge.replies:
        stopped = _stopped_before(edge, reply.at)
        is_value = reply.event.kind == "value" and reply.request.event.kind == "ask"
        if stopped is not None and is_value and reply.at not in reported:
            yield Fault(reply, f"a value after {stopped.event}", stopped)


def s4_stop_gets_no_value(edge: TracedEdge) -> Faults:
    """S4. An abort or an error is not answered by a value."""
    for reply in edge.replies:
        if reply.request.event.kind != "ask" and reply.event.kind == "value":
            yield Fault(reply, f"{reply.request.event} is answered by a value", reply.request)


def s5_no_value_after_the_end(edge: TracedEdge) -> Faults:
    """S5. After an end there is no value."""
    for reply in edge.replies:
        ended = _ended_before(edge, reply.at)
        if reply.event.kind == "value" and ended is not None:
            yield Fault(reply, f"a value after {ended.event.kind}", ended)


def s6_no_indication(edge: TracedEdge) -> Faults:
    """S6. Nothing is indicated: every request has somebody to answer."""
    for asked in edge.requests:
        if not asked.event.expects_answer:
            yield Fault(asked, "expects no answer")


def s7_stopped_once(edge: TracedEdge) -> Faults:
    """S7. A stream is stopped once: no second abort or error."""
    for asked in edge.requests:
        stopped = _stopped_before(edge, asked.at)
        if asked.event.kind in ("abort", "error") and stopped is not None:
            yield Fault(asked, f"the stream was stopped by {stopped.event}", stopped)


def _stopped_before(edge: TracedEdge, at: int) -> TracedRequest | None:
    stop = edge.first_stop
    return stop if stop is not None and stop.at < at else None


def _ended_before(edge: TracedEdge, at: int) -> MatchedAnswer | None:
    end = edge.first_end
    return end if end is not None and end.at < at else None


DOCS = (
    s0_one_answer_each,
    s1_one_ask_at_a_time,
    s2_nothing_after_the_end,
    s3_pending_ask_ends_first,
    s4_stop_gets_no_value,
    s5_no_value_after_the_end,
    s6_no_indication,
    s7_stopped_once,
    w1_numbers_are_unique,
)
