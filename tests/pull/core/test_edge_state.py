"""The state of an edge by itself: a request or an answer in, effects out, and nothing is called."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.pull.edge_state import (
    KEEP,
    PASS_ON,
    PASS_ON_AND_TELL_NEXT,
    Breach,
    DeliverEnd,
    DeliverValue,
    EdgeState,
    Finish,
    Next,
    PendingRequest,
    RecordAnswer,
    RecordRequest,
    RetractAnswer,
)
from headrace.pull.protocol import End


def request(index: int, abort: End | None = None) -> PendingRequest:
    return PendingRequest(abort, lambda _end, _value=None, /: None, None, index)


def test_an_ask_goes_up_and_its_value_comes_down() -> None:
    state, ask = EdgeState(), request(1)
    assert state.ask(ask) is PASS_ON
    assert state.answer(ask, None, "a") is PASS_ON


def test_an_early_value_is_held_until_the_one_before_it() -> None:
    state, first, second = EdgeState(), request(1), request(2)
    assert (state.ask(first), state.ask(second)) == (PASS_ON, PASS_ON)
    assert state.answer(second, None, "b") == (RecordAnswer(second, None, "b"), Breach("P3", second))
    assert state.answer(first, None, "a") == (
        RecordAnswer(first, None, "a"),
        DeliverValue(first, "a"),
        Next.RELEASE,
    )
    assert state.release() == (DeliverValue(second, "b"), Next.RELEASE)
    assert state.release() == ()


def test_a_linear_module_has_one_ask_at_a_time() -> None:
    state, first, second = EdgeState(linear=True), request(1), request(2)
    assert (state.ask(first), state.ask(second)) == (PASS_ON, KEEP)
    assert state.answer(first, None, "a") is PASS_ON_AND_TELL_NEXT
    assert state.next_ask() is second
    assert state.stop(request(3, True), None) is PASS_ON
    assert state.next_ask() is None


def test_a_confirmed_stop_answers_the_asks_before_it() -> None:
    state, ask, stop = EdgeState(), request(1), request(2, True)
    assert (state.ask(ask), state.stop(stop, None)) == (PASS_ON, PASS_ON)
    assert state.answer(stop, True, None) == (Finish(True),)
    assert state.finish(True) == (
        RecordAnswer(ask, True),
        DeliverEnd(ask, True),
        RecordAnswer(stop, True),
        DeliverEnd(stop, True),
        Next.CLOSED,
    )
    assert state.answer(ask, None, "late") == (
        RetractAnswer(ask),
        RecordAnswer(ask, None, "late"),
        Breach("P4", ask),
    )


def test_a_stop_that_crosses_the_end_does_not_go_up() -> None:
    state, ask, stop = EdgeState(), request(1), request(2, ValueError("unwanted"))
    state.ask(ask)
    state.finish(True)
    assert state.stop(stop, None) == (DeliverEnd(stop, True),)


def test_a_failure_that_nobody_asked_for_waits_for_the_next_request() -> None:
    state, ask, lost = EdgeState(), request(1), ValueError("lost")
    assert state.finish(lost) == (Next.CLOSED,)
    assert state.undelivered_failure
    assert state.ask(ask) == (
        RecordRequest(ask),
        RecordAnswer(ask, lost),
        DeliverEnd(ask, lost),
        Next.END_RECEIVED,
    )
    assert not state.undelivered_failure


# -- whatever a module does ---------------------------------------------------------------------

moves = st.lists(
    st.one_of(
        st.just(("ask", 0, None)),
        st.just(("stop", 0, True)),
        st.tuples(st.just("answer"), st.integers(0, 9), st.sampled_from([None, True])),
    ),
    max_size=30,
)


@given(moves, st.booleans())
def test_answers_keep_the_promises_whatever_a_module_does(
    moves: list[tuple[str, int, Any]], linear: bool
) -> None:
    state = EdgeState(linear=linear)
    told: list[PendingRequest] = []
    given: list[tuple[int, End | None]] = []

    def perform(effects: Any, message: PendingRequest) -> None:
        if effects in (PASS_ON, PASS_ON_AND_TELL_NEXT):
            if message in told:
                given.append((message.index, None))
            else:
                told.append(message)
            effects = (Next.TELL_NEXT,) if effects is PASS_ON_AND_TELL_NEXT else ()
        for effect in () if effects is KEEP else effects:
            match effect:
                case DeliverValue(delivered, _):
                    given.append((delivered.index, None))
                case DeliverEnd(delivered, end):
                    given.append((delivered.index, end))
                case Finish(end):
                    perform(state.finish(end), message)
                case Next.RELEASE:
                    perform(state.release(), message)
                case Next.TELL_NEXT:
                    ask = state.next_ask()
                    assert ask is not None
                    told.append(ask)
                case _:
                    pass

    made = 0
    for kind, which, end in moves:
        if kind == "answer":
            if which < len(told):
                perform(state.answer(told[which], end, "value"), told[which])
            continue
        made += 1
        message = request(made, end)
        perform(state.ask(message) if end is None else state.stop(message, None), message)

    assert [index for index, _ in given] == list(range(1, len(given) + 1))  # in order, one each
    ends = [end for _, end in given]
    assert all(end is not None for end in ends[ends.index(True) :]) if True in ends else True
    stops = [message for message in told if message.abort is not None]
    assert len(stops) <= 1
    assert not stops or told[-1] is stops[0]  # nothing is asked after it
    assert (state.end is None) == (not ends or ends[-1] is None)
    assert state.end is None or len(given) == made
