"""Probe: records the events of an edge, and names the module that breaks a rule there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from headrace.errors import SourceLocation
from headrace.pull.edge import NamedModule, PullEdge
from headrace.pull.edge_state import PendingRequest
from headrace.pull.errors import ProtocolBroken
from headrace.pull.modules import MarkPart, PullTransformer
from headrace.pull.protocol import End
from headrace.pull.rules.trace import Answer, AnswerPort, Event, Request, RequestKind, Trace


@dataclass(eq=False)
class Recorder:
    """Events of one edge, or of both edges of a transformer, in the order in which its module observed them.

    stop_at_once: fail a module that breaks a rule with `ProtocolBroken`, instead of only recording it.
    """

    stop_at_once: bool = True
    events: list[Event] = field(default_factory=list[Event])

    def trace(self, *, complete: bool = True) -> Trace:
        """Return the trace so far. complete: whether every request must be answered by now."""
        return Trace(tuple(self.events), complete=complete)

    def remove_last_answer(self, port: AnswerPort, index: int) -> None:
        """Remove the last answer to a request, because its module is answering again, too late."""
        events = self.events
        at = [
            at for at, e in enumerate(events) if isinstance(e, Answer) and (e.port, e.index) == (port, index)
        ]
        for last in at[-1:]:
            del events[last]


def rule_breach_error(
    recorder: Recorder, module: NamedModule, rule: str, index: int
) -> ProtocolBroken | None:
    """Build the failure of a module that broke a rule, or None if the violation is only recorded."""
    if not recorder.stop_at_once:
        return None
    from headrace.pull.rules.checker import check

    found = check(recorder.trace(complete=False))
    violation = next((v for v in found if v.rule.endswith(rule)), found[0] if found else None)
    return ProtocolBroken(
        f"{module.name!r} broke rule {violation.rule if violation else rule}",
        where=[module.location],
        why=str(violation) if violation else f"at request {index}",
        fix="answer each request once, in order, and nothing but the end after an end",
        module=module.name,
        rule=rule,
    )


class LowerObserver:
    """Observer at an edge's lower end, which records it under the ports of one interface."""

    def __init__(
        self, recorder: Recorder, edge: PullEdge, down: Literal["D", "TI"], up: Literal["U", "TO"]
    ) -> None:
        self._recorder = recorder
        self._edge = edge
        self._down: Literal["D", "TI"] = down
        self._up: Literal["U", "TO"] = up

    def request(self, call: PendingRequest) -> None:
        kind, message = _kind(call)
        most = None if call.most == 1 else call.most
        self._recorder.events.append(Request(self._down, kind, call.index, message, most))

    def answer(self, call: PendingRequest, end: End | None, value: Any) -> None:
        if call.answer is None:
            return  # answer to an indication, exchanged between edge and module only
        up, index = self._up, call.index
        if isinstance(end, Exception):
            event = Answer(up, index, "error", message=str(end))
        elif end is not None:
            event = Answer(up, index, "done")
        elif not self._is_list(call):
            event = Answer(up, index, "value", value)
        elif len(value) == 1 and call.most in (None, 1):
            event = Answer(up, index, "value", value[0])
        else:
            event = Answer(up, index, "value", values=tuple(value))
        self._recorder.events.append(event)

    def remove_last_answer(self, call: PendingRequest) -> None:
        self._recorder.remove_last_answer(self._up, call.index)

    def _is_list(self, call: PendingRequest) -> bool:
        return call.most is not None

    def broken(self, rule: str, call: PendingRequest) -> Exception | None:
        return rule_breach_error(self._recorder, self._edge.upper, rule, call.index)


def _kind(call: PendingRequest) -> tuple[RequestKind, str | None]:
    if call.abort is None:
        return "ask", None
    if isinstance(call.abort, Exception):
        return ("errorInd" if call.answer is None else "error"), str(call.abort)
    return ("done" if call.answer is None else "abort"), None


class UpperObserver(LowerObserver):
    """Observer at an edge's upper end, which sees the upstream module's events."""

    def _is_list(self, call: PendingRequest) -> bool:
        return self._edge.in_batches


def probe(recorder: Recorder, *, below: bool = False) -> PullTransformer:
    """Record an edge: `pull(source, probe(recorder), sink)`.

    A probe is not a module and only affects speed: transformers on its two sides are not fused.

    below: record as the module downstream meets the events, instead of the module upstream.

    With `stop_at_once`, a module upstream of it fails with `ProtocolBroken`, naming the rule, if it answers
    twice, out of order, or with a value after an end or to an abort.

    >>> from headrace.pull import collect, pull, values
    >>> recorder = Recorder()
    >>> pull(values([7]), probe(recorder), collect()).run()
    [7]
    >>> print(*recorder.trace().texts())
    D:ask1 U:ans1=value(7) D:ask2 U:ans2=done
    """

    def mark(edge: PullEdge) -> None:
        if below:
            edge.seen_below = LowerObserver(recorder, edge, "D", "U")
        else:
            edge.seen_above = UpperObserver(recorder, edge, "D", "U")

    return PullTransformer((MarkPart("probe", SourceLocation.of_caller(), mark),))


def probe_around(transformer: PullTransformer, recorder: Recorder) -> PullTransformer:
    """Record both edges of a transformer as one trace, in the order in which it observed the events."""

    def below(edge: PullEdge) -> None:
        edge.seen_below = LowerObserver(recorder, edge, "TI", "U")

    def above(edge: PullEdge) -> None:
        edge.seen_above = UpperObserver(recorder, edge, "D", "TO")

    location = SourceLocation.of_caller()
    marks = MarkPart("probe", location, below), MarkPart("probe", location, above)
    return PullTransformer((marks[0], *transformer.then, marks[1]), transformer.beside)
