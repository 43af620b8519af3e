"""Rules of the specification for a transformer, which relate its two edges.

They hold while upstream has not ended. After that a transformer may answer by itself, or ask
again; there is nothing left to wait for. The rules of an edge hold for both edges besides.

T3, T6 and the half of T2 that is about values hold for transformers that make one value of one
value. The rest holds for all, also for those that drop values or make several of one.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

from headrace.pull.rules.matched_trace import Fault, Faults, MatchedAnswer, Placed, TracedEdge, TracedRequest


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
        """Return the number of values that came in before an index and have not gone out."""
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
    """Whether upstream has ended before an index, or was stopped in a way that it does not confirm."""
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
    """T6. Each value from upstream goes downstream, in its turn.

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
    """T8. An end is passed on as it is: done as done, an error as the same error, in both directions.

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
    """Whether an end differs downstream from upstream without a reason."""
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
