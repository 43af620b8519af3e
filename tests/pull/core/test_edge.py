"""What an edge gives the modules on its two sides, whatever the other one does."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.pull import Recorder, Run, collect, map, probe, pull, source, take, values
from headrace.pull.errors import ProtocolBroken
from headrace.pull.protocol import AnswerTo, End
from tests.pull.core.modules import Hand, Manual

ERROR = ValueError("E")
OTHER = ValueError("F")


def joined(**options: Any) -> tuple[Manual, Hand, Run]:
    manual, hand = Manual(**options), Hand()
    return manual, hand, pull(manual.source, hand.sink).start()


# --- answers ---------------------------------------------------------------------------------


def test_an_answer_never_comes_within_the_request() -> None:
    order: list[str] = []

    def read(abort: End | None, answer: AnswerTo) -> None:
        answer(None, 1)
        order.append("the source is done with the request")

    hand = Hand()
    run = pull(source(read), hand.sink).start()

    def ask() -> None:
        assert hand.edge is not None
        hand.edge(None, lambda _end, _value=None: order.append("answered"))
        order.append("the sink is done with asking")

    run.runtime.enter(ask)
    assert order == ["the source is done with the request", "the sink is done with asking", "answered"]


def test_answers_come_in_the_order_of_the_requests() -> None:
    manual, hand, _ = joined()
    hand.request("1")
    hand.request("2")
    manual.answer(1, None, "b")
    assert hand.heard == []
    manual.answer(0, None, "a")
    assert hand.heard == [("1", "a"), ("2", "b")]


def test_a_second_answer_is_not_heard() -> None:
    manual, hand, _ = joined()
    hand.request("1")
    manual.answer(0, None, "a")
    manual.answer(0, None, "b")
    manual.answer(0, True)
    hand.request("2")
    manual.answer(1, None, "c")
    assert hand.heard == [("1", "a"), ("2", "c")]


def test_an_end_answers_all_requests_that_pend_and_all_later_ones() -> None:
    manual, hand, _ = joined()
    for name in "123":
        hand.request(name)
    manual.answer(0, True)
    hand.request("4")
    hand.request("5", True)
    assert hand.heard == [(name, True) for name in "12345"]
    assert manual.requests == [None, None, None]


def test_a_value_after_the_end_is_not_heard() -> None:
    manual, hand, _ = joined()
    hand.request("1")
    hand.request("2")
    manual.answer(0, ERROR)
    manual.answer(1, None, "late")
    assert hand.heard == [("1", ERROR), ("2", ERROR)]


# --- stopping --------------------------------------------------------------------------------


def test_a_module_is_told_to_stop_once_and_every_abort_is_confirmed() -> None:
    manual, hand, _ = joined()
    hand.request("1", True)
    hand.request("2", True)
    hand.request("3", ERROR)
    assert manual.requests == [True]
    assert hand.heard == []
    manual.answer(0, True)
    hand.request("4", True)
    assert hand.heard == [(name, True) for name in "1234"]


def test_asks_that_pend_at_an_abort_are_answered_first_with_its_end() -> None:
    manual, hand, _ = joined()
    hand.request("1")
    hand.request("2", True)
    hand.request("3")
    manual.answer(1, True)
    assert hand.heard == [("1", True), ("2", True), ("3", True)]


def test_who_has_aborted_gets_no_value() -> None:
    manual, hand, _ = joined()
    hand.request("1")
    hand.request("2", True)
    manual.answer(0, None, "late")
    assert hand.heard == []
    manual.answer(1, True)
    assert hand.heard == [("1", True), ("2", True)]


def test_a_value_under_way_at_an_abort_is_dropped() -> None:
    hand = Hand()
    run = pull(values([1, 2]), hand.sink).start()

    def ask_and_abort() -> None:
        hand.request("1")
        hand.request("2", True)

    run.runtime.enter(ask_and_abort)
    assert hand.heard == [("1", True), ("2", True)]


def test_what_closing_fails_with_answers_the_abort_and_the_asks_before_it() -> None:
    manual, hand, _ = joined()
    hand.request("1")
    hand.request("2", True)
    manual.answer(0, True)
    manual.answer(1, ERROR)
    assert hand.heard == [("1", ERROR), ("2", ERROR)]


def test_an_error_request_is_confirmed_with_that_error() -> None:
    manual, hand, _ = joined()
    hand.request("1")
    hand.request("2", ERROR)
    manual.answer(1, True)
    hand.request("3")
    assert hand.heard == [("1", ERROR), ("2", ERROR), ("3", ERROR)]


def test_the_first_cause_of_a_failure_is_kept_and_the_later_one_attached() -> None:
    cause = ValueError("first")
    manual, hand, _ = joined()
    hand.request("1", cause)
    manual.answer(0, OTHER)
    assert hand.heard == [("1", cause)]
    assert cause.__notes__ == ["then, while closing: ValueError: F"]


@pytest.mark.parametrize("indication", [True, ERROR])
def test_an_indication_reaches_the_module_as_a_request_and_nobody_is_answered(indication: End) -> None:
    manual, hand, _ = joined()
    hand.request("1")
    hand.indicate(indication)
    assert manual.requests == [None, indication]
    manual.answer(1, True)
    assert hand.heard == [("1", indication)]


def test_an_abort_answered_by_a_value_is_taken_as_confirmed() -> None:
    manual, hand, _ = joined()
    hand.request("1", True)
    manual.answer(0, None, "no")
    assert hand.heard == [("1", True)]


# --- linear modules --------------------------------------------------------------------------


def test_a_linear_module_is_asked_one_at_a_time() -> None:
    manual, hand, _ = joined(linear=True)
    for name in "123":
        hand.request(name)
    assert manual.requests == [None]
    manual.answer(0, None, "a")
    assert manual.requests == [None, None]
    manual.answer(1, None, "b")
    manual.answer(2, True)
    assert hand.heard == [("1", "a"), ("2", "b"), ("3", True)]


def test_a_linear_module_is_told_to_stop_while_it_works() -> None:
    manual, hand, _ = joined(linear=True)
    for name in "12":
        hand.request(name)
    hand.request("3", True)
    assert manual.requests == [None, True]
    manual.answer(1, True)
    assert hand.heard == [("1", True), ("2", True), ("3", True)]


# --- failures --------------------------------------------------------------------------------


def test_what_a_module_raises_fails_its_upstream_first_and_then_reaches_downstream() -> None:
    order: list[object] = []

    def boom(value: int) -> int:
        raise ERROR

    run = pull(values([1], on_stop=order.append), map(boom), collect()).start()
    run.when_finished(lambda run: order.append("finished"))
    with pytest.raises(ValueError, match="E") as raised:
        run.result()
    assert raised.value is ERROR
    assert order == [ERROR, "finished"]


def test_a_source_that_raises_ends_its_stream_with_what_it_raised() -> None:
    def read(abort: End | None, answer: AnswerTo) -> None:
        raise ERROR

    hand = Hand()
    pull(source(read), hand.sink).start()
    hand.request("1")
    hand.request("2")
    assert hand.heard == [("1", ERROR), ("2", ERROR)]


def test_a_source_that_raises_when_it_is_aborted_has_confirmed_with_that() -> None:
    def read(abort: End | None, answer: AnswerTo) -> None:
        raise ERROR

    hand = Hand()
    run = pull(source(read), hand.sink).start()
    hand.request("1", True)
    assert hand.heard == [("1", ERROR)]
    assert run.unfinished_error()  # the hand never says that it is done


# --- watched ---------------------------------------------------------------------------------


def twice(abort: End | None, answer: AnswerTo) -> None:
    answer(None, 1)
    answer(None, 2)


def test_a_module_that_answers_twice_does_not_disturb_its_neighbours() -> None:
    assert pull(source(twice), take(3), collect()).run() == [1, 1, 1]


def value_for_an_abort(abort: End | None, answer: AnswerTo) -> None:
    answer(None, 1)


def value_after_the_end() -> Any:
    kept: list[AnswerTo] = []

    def read(abort: End | None, answer: AnswerTo) -> None:
        kept.append(answer)
        if len(kept) == 2:
            kept[0](True)
            kept[1](None, 5)

    return read


def out_of_order() -> Any:
    kept: list[AnswerTo] = []

    def read(abort: End | None, answer: AnswerTo) -> None:
        if abort is not None:
            answer(True)
            return
        kept.append(answer)
        if len(kept) == 2:
            kept[1](None, "b")
            kept[0](None, "a")

    return read


@pytest.mark.parametrize(
    ("read", "rule", "window"),
    [
        (twice, "P2", 1),
        (value_for_an_abort, "P5", 1),
        (value_after_the_end(), "P4", 2),
        (out_of_order(), "P3", 2),
    ],
    ids=["two answers", "a value for an abort", "a value after the end", "out of order"],
)
def test_a_watched_module_that_breaks_a_rule_fails_with_its_name(read: Any, rule: str, window: int) -> None:
    piece = source(read, name="naughty", linear=False)
    with pytest.raises(ProtocolBroken) as raised:
        pull(piece, probe(Recorder()), take(1 if rule == "P5" else 9), collect()).run(window=window)
    assert (raised.value.module, raised.value.rule) == ("naughty", rule)
    assert rule in str(raised.value)


def test_a_recorder_can_let_the_pipeline_go_on() -> None:
    recorder = Recorder(stop_at_once=False)
    assert pull(source(twice), probe(recorder), take(1), collect()).run() == [1]
    assert recorder.trace().texts()[:3] == ("D:ask1", "U:ans1=value(1)", "U:ans1=value(2)")


def test_a_second_confirmation_is_named() -> None:
    def read(abort: End | None, answer: AnswerTo) -> None:
        answer(abort, 1)
        if abort is not None:
            answer(abort)

    with pytest.raises(ProtocolBroken, match="P2"):
        pull(source(read), probe(Recorder()), take(1), collect()).run()
