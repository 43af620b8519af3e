"""The described cases about reference modules."""

from __future__ import annotations

from typing import Any

from headrace.pull import Recorder, probe, probe_around, pull
from headrace.pull.modules import PullSource, PullTransformer
from headrace.testing import SinkCase, VirtualRuntime, reference_sink, reference_source, reference_transformer
from tests.pull.described import case

SOURCE, SINK = ValueError("Source Error"), ValueError("Sink Error")


def trace(source: PullSource, sink: SinkCase | None = None, *, through: PullTransformer | None = None) -> str:
    """What happens at the edge of the source, or at both edges of the transformer."""
    recorder = Recorder()
    middle: Any = probe(recorder) if through is None else probe_around(through, recorder)
    pull(source, middle, reference_sink(sink)).start(VirtualRuntime()).result()
    return str(recorder.trace())


@case("reference source(0,true,true) + drain")
def test_an_empty_source_is_done() -> None:
    assert trace(reference_source(0)) == "D:ask1 U:ans1=done"


@case("reference source(0,Error,true) + drain")
def test_a_source_fails() -> None:
    assert trace(reference_source(0, SOURCE)) == "D:ask1 U:ans1=error(Source Error)"


@case("reference source(1,true,true) + drain")
def test_a_source_of_one_value() -> None:
    assert trace(reference_source(1)) == "D:ask1 U:ans1=value(1) D:ask2 U:ans2=done"


@case("reference source(2,true,true) + drain")
def test_a_source_of_two_values() -> None:
    assert trace(reference_source(2)) == "D:ask1 U:ans1=value(1) D:ask2 U:ans2=value(2) D:ask3 U:ans3=done"


@case("reference source(0,true,true) sink(2,2,true,true,true,true)")
def test_a_sink_goes_on_after_the_end() -> None:
    sink = SinkCase(stops_after=1, afterwards=(True,))
    assert trace(reference_source(0), sink) == "D:ask1 U:ans1=done D:abort2 U:ans2=done"


@case("reference source(0,true,true) sink(2,2,true,true,true,false)")
def test_a_sink_stops_at_the_end() -> None:
    assert trace(reference_source(0), SinkCase(stops_after=1)) == "D:ask1 U:ans1=done"


@case("reference source(0,true,false) sink(2,2,true,false,false,true)")
def test_a_sink_indicates_while_an_ask_pends() -> None:
    sink = SinkCase(stops_after=0, waits=False, indicates=True)
    assert trace(reference_source(0, sync=False), sink) == "D:ask1 D:done2 U:ans1=done"


@case("reference source(0,true,false) sink(2,2,Error,true,false,true)")
def test_a_sink_fails_the_stream_while_an_ask_pends() -> None:
    """The original's own tests expect done twice, its source answers the error: so does this one."""
    sink = SinkCase(stops_after=0, by=SINK, waits=False)
    assert trace(reference_source(0, sync=False), sink) == (
        "D:ask1 D:error2(Sink Error) U:ans1=error(Sink Error) U:ans2=error(Sink Error)"
    )


@case("reference source(1) through(1,true) sink()")
def test_a_transformer_aborts_in_the_place_of_an_ask() -> None:
    through = reference_transformer(stops_at=1)
    assert trace(reference_source(1), through=through) == "D:ask1 TI:abort1 U:ansT1=done TO:ans1=done"


@case("reference source(1) through(1,Error) sink()")
def test_a_transformer_fails_in_the_place_of_an_ask() -> None:
    """The original confirms an error by done; our edges answer a failed stream by its error."""
    through = reference_transformer(stops_at=1, by=SINK)
    assert trace(reference_source(1, confirms_done=True), through=through) == (
        "D:ask1 TI:error1(Sink Error) U:ansT1=error(Sink Error) TO:ans1=error(Sink Error)"
    )


@case("reference source(1) through(1,true,false) sink()")
def test_a_transformer_indicates_in_the_place_of_an_ask() -> None:
    through = reference_transformer(stops_at=1, indicates=True)
    assert trace(reference_source(1), through=through) == "D:ask1 TI:done1 TO:ans1=done"


def test_a_source_treats_asks_that_pend_as_it_is_told_to() -> None:
    sink = SinkCase(stops_after=0, waits=False)
    for pending, answered in ("ends", "done"), ("values", "value(1)"), ("left", "done"):
        source = reference_source(1, sync=False, pending=pending)  # type: ignore[arg-type]
        assert trace(source, sink) == f"D:ask1 D:abort2 U:ans1={answered} U:ans2=done"


def test_a_transformer_passes_on_late() -> None:
    through = reference_transformer(sync=False)
    assert trace(reference_source(1), SinkCase(concurrency=2), through=through) == (
        "D:ask1 TI:ask1 U:ansT1=value(1) D:ask2 TI:ask2 U:ansT2=done "
        "TO:ans1=value(1) TO:ans2=done D:ask3 TO:ans3=done"
    )
