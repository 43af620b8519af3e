"""What a module upstream of an edge does about a stop, and how the edge tells and shows it."""

from __future__ import annotations

from headrace.pull import Recorder, probe, pull
from tests.pull.core.modules import Hand, Manual


def test_an_ask_answered_by_an_error_while_a_stop_waits_is_how_the_stream_ended() -> None:
    manual, hand, recorder = Manual(), Hand(), Recorder(stop_at_once=False)
    pull(manual.source, probe(recorder), hand.sink).start()
    own, later = ValueError("of the source"), ValueError("of the sink")
    hand.request("ask")
    hand.request("stop", later)
    manual.answer(0, own)
    manual.answer(1, later)
    assert hand.heard == [("ask", own), ("stop", own)]
    assert str(recorder.trace()) == (
        "D:ask1 D:error2(of the sink) U:ans1=error(of the source) U:ans2=error(of the source)"
    )


def test_an_abort_is_confirmed_by_the_error_that_an_ask_was_answered_by_meanwhile() -> None:
    manual, hand = Manual(), Hand()
    pull(manual.source, hand.sink).start()
    own = ValueError("of the source")
    hand.request("ask")
    hand.request("stop", True)
    manual.answer(0, own)
    manual.answer(1, True)
    assert hand.heard == [("ask", own), ("stop", own)]


def test_a_second_confirmation_is_seen_by_a_probe() -> None:
    manual, hand, recorder = Manual(), Hand(), Recorder(stop_at_once=False)
    pull(manual.source, probe(recorder), hand.sink).start()
    hand.request("stop", True)
    manual.answer(0, True)
    manual.answer(0, True)
    assert hand.heard == [("stop", True)]
    assert str(recorder.trace()) == "D:abort1 U:ans1=done U:ans1=done"
