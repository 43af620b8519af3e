"""A module that has failed has no say any more in how its streams end."""

from __future__ import annotations

import pytest

from headrace.pull import PullTransformer, Recorder, probe, pull
from headrace.pull.edge import PullEdge
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End, Read
from tests.pull.core.modules import Hand, Manual


def refuse_values(own: Exception) -> PullTransformer:
    """Passes ends; raises at a value."""

    def open(_module: Module, edge: PullEdge) -> Read:
        def read(abort: End | None, answer: AnswerTo) -> None:
            def got(end: End | None, _value: object = None, /) -> None:
                if end is None:
                    raise own
                answer(end)

            edge(abort, got)

        return read

    return PullTransformer.of("refuse_values", open)


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
    assert not hand.edge.was_stopped


# --- a failure while nobody asks -----------------------------------------------------------------


def failed_unheard() -> tuple[Manual, Hand, Recorder, ValueError]:
    """A source that fails with `own` when its only ask was answered."""
    manual, hand, recorder = Manual(), Hand(), Recorder()
    own = ValueError("of the source")
    pull(manual.source, probe(recorder), hand.sink).start()
    hand.request("ask")
    manual.answer(0, None, 7)
    assert manual.module is not None
    manual.module.enter(manual.module.crash, own)
    return manual, hand, recorder, own


def test_an_error_of_downstream_goes_before_a_failure_that_nobody_has_heard_of() -> None:
    _, hand, recorder, _own = failed_unheard()
    later = ValueError("of the sink")
    hand.request("stop", later)
    hand.request("again")
    assert hand.heard == [("ask", 7), ("stop", later), ("again", later)]
    assert later.__notes__ == ["then, while closing: ValueError: of the source"]
    assert str(recorder.trace()) == (
        "D:ask1 U:ans1=value(7) D:error2(of the sink) U:ans2=error(of the sink) "
        "D:ask3 U:ans3=error(of the sink)"
    )


def test_a_failure_that_nobody_has_heard_of_answers_an_ask_an_abort_and_all_that_follows() -> None:
    for abort in (None, True):
        _, hand, _, own = failed_unheard()
        hand.request("first", abort)
        hand.request("stop", ValueError("of the sink"))
        assert hand.heard == [("ask", 7), ("first", own), ("stop", own)]


def test_an_error_of_downstream_is_confirmed_by_itself_while_a_failed_module_closes() -> None:
    manual, hand, recorder = Manual(), Hand(), Recorder()
    own, later = ValueError("of the transformer"), ValueError("of the sink")
    transformer = refuse_values(own)
    run = pull(manual.source, transformer, probe(recorder), hand.sink).start()
    (module,) = [module for module in run.modules if module.name == "refuse_values"]
    module.enter(module.crash, own)
    hand.request("stop", later)
    assert (manual.requests, hand.heard) == ([own], [])
    manual.answer(0, own)
    assert hand.heard == [("stop", later)]
    assert str(recorder.trace()) == "D:error1(of the sink) U:ans1=error(of the sink)"


def test_a_failure_that_nobody_has_heard_of_is_not_lost_when_the_sink_is_done() -> None:
    manual, hand = Manual(), Hand()
    run = pull(manual.source, hand.sink).start()
    assert manual.module is not None
    assert hand.module is not None
    manual.module.enter(manual.module.crash, ValueError("of the source"))
    hand.module.enter(hand.module.done, "the result")
    with pytest.raises(ValueError, match="of the source"):
        run.result()
