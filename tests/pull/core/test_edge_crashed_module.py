"""A module that has failed has no say any more in how its streams end."""

from __future__ import annotations

from penstock.pull import Recorder, Transformer, probe, pull
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.protocol import AnswerTo, End, Read
from tests.pull.core.modules import Hand, Manual


def refuse_values(own: Exception) -> Transformer:
    """Passes ends; raises at a value."""

    def open(_module: Module, edge: Edge) -> Read:
        def read(abort: End | None, answer: AnswerTo) -> None:
            def got(end: End | None, _value: object = None, /) -> None:
                if end is None:
                    raise own
                answer(end)

            edge(abort, got)

        return read

    return Transformer.of("refuse_values", open)


def test_the_error_of_a_module_goes_before_those_that_upstream_ends_with_afterwards() -> None:
    manual, hand, recorder = Manual(), Hand(), Recorder()
    own, later = ValueError("of the transformer"), ValueError("of the source")
    pull(manual.source, refuse_values(own), probe(recorder), hand.sink).start()
    hand.request("first")
    hand.request("second")
    manual.answer(0, None, "a value")
    assert manual.requests == [None, None, own]
    manual.answer(1, later)
    assert hand.heard == []
    manual.answer(2, own)
    assert hand.heard == [("first", own), ("second", own)]
    assert str(recorder.trace()) == (
        "D:ask1 D:ask2 U:ans1=error(of the transformer) U:ans2=error(of the transformer)"
    )


def test_a_module_that_has_failed_is_told_nothing_more() -> None:
    manual, hand, recorder = Manual(), Hand(), Recorder()
    own = ValueError("of the transformer")
    pull(manual.source, probe(recorder), refuse_values(own), hand.sink).start()
    hand.request("first")
    manual.answer(0, None, "a value")
    hand.request("second")
    hand.request("stop", True)
    manual.answer(1, own)
    assert hand.heard == [("first", own), ("second", own), ("stop", own)]
    assert str(recorder.trace()) == (
        "D:ask1 U:ans1=value('a value') D:error2(of the transformer) U:ans2=error(of the transformer)"
    )


def test_a_stop_that_comes_after_a_module_has_failed_has_not_arrived() -> None:
    manual, hand = Manual(), Hand()
    own = ValueError("of the transformer")
    pull(manual.source, refuse_values(own), hand.sink).start()
    hand.request("ask")
    manual.answer(0, None, "a value")
    hand.request("stop", ValueError("of the sink"))
    manual.answer(1, own)
    assert hand.heard == [("ask", own), ("stop", own)]
    assert hand.edge is not None
    assert not hand.edge.stop_arrived
