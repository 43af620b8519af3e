"""Checker: finds the rules of pull-streams that a trace breaks, and the events at fault.

It has three profiles. `spec` is the specification (`headrace.pull.rules.specification`).

`docs` has the rules in use among modules of the original: linear, one stop, no events after an end. S0, S6
and S7 are what its users say, S1 to S5 its documentation.

`strict` has the invariants of the checker published with the article on pull-streams. They follow its intent
and close three of its holes: an indication does not disturb the order of answers, one answer out of order
does not make others missing, and every notation of an ask is an ask. I0 is our addition: there, an answer
without a request cannot occur. W1, about the notation of traces, belongs to every profile.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from headrace.pull.errors import BadTrace
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
from headrace.pull.rules.specification import (
    PAIR,
    TRANSFORMER,
    TransformerTrace,
    p2_one_answer,
    p9_every_request_is_answered,
    w1_numbers_are_unique,
)
from headrace.pull.rules.trace import Event, Trace


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


def i0_answer_has_a_request(edge: TracedEdge) -> Faults:
    """I0. Every answer belongs to a request that expects one."""
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

Profile = Literal["spec", "docs", "strict"]
"""Set of rules. spec: the specification. docs: rules in use. strict: invariants of an existing checker."""

EdgeRule = Callable[[TracedEdge], Faults]

EDGE_RULES: dict[Profile, tuple[EdgeRule, ...]] = {"spec": PAIR, "docs": DOCS, "strict": STRICT}
"""Rules of each profile for an edge. `spec` also has those of `TRANSFORMER`."""

PROFILES: tuple[Profile, ...] = tuple(EDGE_RULES)


@dataclass(frozen=True, slots=True)
class Violation:
    """Broken rule, with its location in a trace.

    rule: its number, after `TI.` or `TO.` if it is broken at that edge of a transformer.
    sentence: the rule itself. text: how it is broken.
    at, event: the event at fault and its index in the trace, from 0; None in an empty trace.
    other_at, other: the conflicting event; None if something is missing instead.
    """

    rule: str
    sentence: str
    at: int | None
    event: Event | None
    other_at: int | None
    other: Event | None
    text: str

    def __str__(self) -> str:
        at = "" if self.event is None else f" at {_place(self.at, self.event)}"
        other = "" if self.other is None else f" (see {_place(self.other_at, self.other)})"
        return f"{self.rule}{at}: {self.text}{other}"


def check(
    trace: Trace,
    profile: Profile = "spec",
    *,
    one_to_one: bool = True,
    except_for: Collection[str] = (),
) -> tuple[Violation, ...]:
    """Find every rule of a profile that a trace breaks, in the order of the events at fault.

    At a transformer the rules of an edge hold for both of its edges.

    one_to_one: whether a transformer emits one value per value. If not, rules T3 and T6 and the part of T2
    about values do not apply.
    except_for: numbers of rules that do not hold, such as T8 for a transformer that handles errors;
    those of other profiles may be among them.

    Raises `BadTrace` for an unknown profile or rule.

    >>> from headrace.pull.rules.trace import parse
    >>> for violation in check(parse("D:ask1 U:ans1=done D:ask2 U:ans2=value(7)")):
    ...     print(violation)
    P4 at 4 U:ans2=value(7): a value after done (see 2 U:ans1=done)
    """
    _refuse_unknown(profile, except_for)
    found = [
        violation
        for violation in _violations(trace, profile, one_to_one)
        if violation.rule.rpartition(".")[2] not in except_for
    ]
    return tuple(sorted(found, key=lambda violation: -1 if violation.at is None else violation.at))


def rules(profile: Profile) -> dict[str, str]:
    """Map the number of each rule in a profile to its sentence."""
    functions: list[Callable[..., Faults]] = [*EDGE_RULES[profile]]
    if profile == "spec":
        functions += TRANSFORMER
    return {number(rule): sentence(rule) for rule in functions}


def number(rule: Callable[..., Faults]) -> str:
    """Return the number of a rule, taken from its name."""
    return rule.__name__.partition("_")[0].upper()


def sentence(rule: Callable[..., Faults]) -> str:
    """Return the sentence of a rule: the first paragraph of its docstring, without the number."""
    first = inspect.cleandoc(rule.__doc__ or "").partition("\n\n")[0]
    return " ".join(first.split()).removeprefix(f"{number(rule)}. ")


def _refuse_unknown(profile: Profile, except_for: Collection[str]) -> None:
    if profile not in PROFILES:
        raise BadTrace(f"there is no profile {profile!r}", fix=f"one of {', '.join(PROFILES)}")
    known = {rule for one in PROFILES for rule in rules(one)} if except_for else set[str]()
    for rule in except_for:
        if rule not in known:
            raise BadTrace(f"there is no rule {rule!r}", fix="name rules by their numbers, such as T8")


def _violations(trace: Trace, profile: Profile, one_to_one: bool) -> Iterator[Violation]:
    events, layer, complete = trace.events, trace.layer, trace.complete
    if not trace.of_transformer:
        edge = TracedEdge.of(events, "D", "U", layer, complete)
        yield from _broken(EDGE_RULES[profile], edge)
        return
    above = TracedEdge.of(events, "TI", "U", layer, complete)
    below = TracedEdge.of(events, "D", "TO", layer, complete)
    yield from _broken(EDGE_RULES[profile], above, "TI.")
    yield from _broken(EDGE_RULES[profile], below, "TO.")
    if profile == "spec":
        yield from _broken(TRANSFORMER, TransformerTrace(above, below, one_to_one))


def _broken(
    functions: tuple[Callable[[Any], Faults], ...], seen: object, prefix: str = ""
) -> Iterator[Violation]:
    for rule in functions:
        for fault in rule(seen):
            yield _violation(f"{prefix}{number(rule)}", sentence(rule), fault)


def _violation(rule: str, demanded: str, fault: Fault) -> Violation:
    at, event = _seen(fault.at)
    other_at, other = _seen(fault.other)
    return Violation(rule, demanded, at, event, other_at, other, fault.text)


def _seen(place: Placed | None) -> tuple[int | None, Event | None]:
    return (None, None) if place is None else (place.at, place.event)


def _place(at: int | None, event: Event) -> str:
    return str(event) if at is None else f"{at + 1} {event}"
