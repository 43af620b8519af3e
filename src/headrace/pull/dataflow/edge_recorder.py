"""Probe: records the events of an edge of this form, in the notation of all traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import SourceLocation
from headrace.pull.dataflow.edge import Edge
from headrace.pull.dataflow.modules import Transformer
from headrace.pull.edge_recorder import LowerObserver, Recorder, UpperObserver

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
        if below:
            edge.seen_below = LowerObserver(recorder, edge, "D", "U")
        else:
            edge.seen_above = UpperObserver(recorder, edge, "D", "U")
        return edge

    return Transformer("probe", SourceLocation.of_caller(), (mark,))


def probe_around(transformer: Transformer, recorder: Recorder) -> Transformer:
    """Record both edges of a transformer as one trace, in the order in which it met the events."""

    def below(_run: Run, edge: Edge) -> Edge:
        edge.seen_below = LowerObserver(recorder, edge, "TI", "U")
        return edge

    def above(_run: Run, edge: Edge) -> Edge:
        edge.seen_above = UpperObserver(recorder, edge, "D", "TO")
        return edge

    return Transformer(transformer.name, SourceLocation.of_caller(), (below, *transformer.then, above))
