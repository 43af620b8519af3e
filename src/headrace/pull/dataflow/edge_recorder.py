"""Probe: records the events of an edge of this form, in the notation of all traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import SourceLocation
from headrace.pull.dataflow.edge import Edge
from headrace.pull.dataflow.messages import (
    Abort,
    Answer,
    Ask,
    Done,
    Fail,
    Failed,
    FailIndication,
    Request,
    Value,
)
from headrace.pull.dataflow.modules import Transformer
from headrace.pull.edge_recorder import Recorder, rule_breach_error
from headrace.pull.rules import trace

if TYPE_CHECKING:
    from headrace.pull.pipeline_run import Run


def probe(recorder: Recorder, *, below: bool = False) -> Transformer:
    """Record an edge: `pull(source, probe(recorder), sink)`. A probe is not a module.

    A request is recorded when upstream can read it, an answer when upstream binds it.
    below: record a request when downstream makes it, and an answer when it is bound for downstream.
    With `stop_at_once`, a module upstream that binds a value out of order, after an end or to an abort fails
    with `ProtocolBroken`; a second answer raises `AlreadyBound` even without a probe.

    >>> from headrace.pull.dataflow import collect, pull, values
    >>> recorder = Recorder()
    >>> pull(values([7]), probe(recorder), collect()).run()
    [7]
    >>> print(recorder.trace())
    D:ask1 U:ans1=value(7) D:ask2 U:ans2=done
    """

    def mark(_run: Run, edge: Edge) -> Edge:
        watcher = _Watcher(recorder, edge, "D", "U")
        if below:
            edge.seen_below = watcher
        else:
            edge.seen_above = watcher
        return edge

    return Transformer("probe", SourceLocation.of_caller(), (mark,))


def probe_around(transformer: Transformer, recorder: Recorder) -> Transformer:
    """Record both edges of a transformer as one trace, in the order in which it met the events."""

    def below(_run: Run, edge: Edge) -> Edge:
        edge.seen_below = _Watcher(recorder, edge, "TI", "U")
        return edge

    def above(_run: Run, edge: Edge) -> Edge:
        edge.seen_above = _Watcher(recorder, edge, "D", "TO")
        return edge

    return Transformer(transformer.name, SourceLocation.of_caller(), (below, *transformer.then, above))


class _Watcher:
    """Observer that records one edge under the ports of one interface."""

    def __init__(self, recorder: Recorder, edge: Edge, down: trace.RequestPort, up: trace.AnswerPort) -> None:
        self._recorder = recorder
        self._edge = edge
        self._down: trace.RequestPort = down
        self._up: trace.AnswerPort = up

    def request(self, index: int, request: Request) -> None:
        message = str(request.error) if isinstance(request, Fail | FailIndication) else None
        self._recorder.events.append(trace.Request(self._down, _KINDS[type(request)], index, message))

    def answer(self, index: int, answer: Answer) -> None:
        self._recorder.events.append(_event(self._up, index, answer))

    def remove_last_answer(self, index: int) -> None:
        self._recorder.remove_last_answer(self._up, index)

    def broken(self, rule: str, index: int) -> Exception | None:
        return rule_breach_error(self._recorder, self._edge.upper, rule, index)


_KINDS: dict[type, trace.RequestKind] = {
    Ask: "ask",
    Abort: "abort",
    Fail: "error",
    Done: "done",
    FailIndication: "errorInd",
}


def _event(port: trace.AnswerPort, index: int, answer: Answer) -> trace.Answer:
    if isinstance(answer, Value):
        return trace.Answer(port, index, "value", answer.value)
    if isinstance(answer, Failed):
        return trace.Answer(port, index, "error", message=str(answer.error))
    return trace.Answer(port, index, "done")
