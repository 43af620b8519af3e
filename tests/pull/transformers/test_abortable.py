"""abortable: the handle before, during and after a run; ends from both sides."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.pull import abortable, collect, pull, tap, values
from headrace.testing.pull import RandomRuntime
from tests.pull.core.modules import Hand, Manual

OWN = ValueError("own")


def opened(**options: Any) -> tuple[Any, Manual, Hand]:
    manual, hand = Manual(), Hand()
    stop = abortable(**options)
    pull(manual.source, stop, hand.sink).start()
    return stop, manual, hand


def test_an_abort_of_downstream_goes_up_and_is_confirmed() -> None:
    _, manual, hand = opened()
    hand.request("abort", True)
    assert (manual.requests, hand.heard) == ([True], [])
    manual.answer(0, True)
    assert hand.heard == [("abort", True)]


@pytest.mark.parametrize("cause", [None, OWN])
def test_asks_that_pend_are_answered_when_upstream_has_confirmed(cause: Exception | None) -> None:
    stop, manual, hand = opened()
    hand.request("a")
    hand.request("b")
    stop.abort(cause)
    assert (manual.requests, hand.heard) == ([None, None, cause or True], [])
    manual.answer(2, cause or True)
    assert hand.heard == [("a", cause or True), ("b", cause or True)]
    hand.request("later")
    assert hand.heard[2:] == [("later", cause or True)]
    assert len(manual.requests) == 3


def test_an_ask_after_the_abort_waits_for_the_confirmation_too() -> None:
    stop, manual, hand = opened()
    stop.abort()
    hand.request("ask")
    assert (manual.requests, hand.heard) == ([True], [])
    manual.answer(0, True)
    assert hand.heard == [("ask", True)]


def test_what_closing_fails_with_is_the_answer() -> None:
    stop, manual, hand = opened()
    hand.request("ask")
    stop.abort()
    manual.answer(1, OWN)
    assert hand.heard == [("ask", OWN)]


def test_upstream_is_stopped_once_by_the_handle_and_downstream_together() -> None:
    stop, manual, hand = opened()
    stop.abort()
    stop.abort(OWN)
    hand.request("abort", True)
    assert manual.requests == [True]
    manual.answer(0, True)
    assert hand.heard == [("abort", True)]
    stop.abort()
    assert manual.requests == [True]


def test_downstream_first_and_then_the_handle() -> None:
    stop, manual, hand = opened()
    hand.request("abort", True)
    stop.abort(OWN)
    manual.answer(0, True)
    assert (manual.requests, hand.heard) == ([True], [("abort", True)])


@pytest.mark.parametrize("cause", [None, OWN])
def test_a_pipeline_whose_handle_was_aborted_before_ends_at_once_and_asks_nothing(cause: Any) -> None:
    stop, told, manual = abortable(on_end=lambda error: told.append(error)), [], Manual()
    stop.abort(cause)
    run = pull(manual.source, stop, collect()).start()
    assert manual.requests == [cause or True]
    manual.answer(0, cause or True)
    assert (run.finished, run.error, told) == (True, cause, [cause])


def test_all_runs_of_the_transformer_are_stopped_and_those_that_start_later() -> None:
    first, second, later = Manual(), Manual(), Manual()
    stop = abortable()
    for manual in first, second:
        pull(manual.source, stop, collect()).start()
    stop.abort()
    stop.abort(OWN)
    pull(later.source, stop, collect()).start()
    assert (first.requests, second.requests, later.requests) == ([None, True], [None, True], [True])


def test_an_abort_after_the_end_changes_nothing() -> None:
    told: list[Any] = []
    stop = abortable(on_end=told.append)
    assert pull(values([1]), stop, collect()).run() == [1]
    stop.abort(OWN)
    assert told == [None]
    assert not stop.handle.at_work


@pytest.mark.seeds(30)
def test_an_abort_at_any_time_ends_everything(seed: int) -> None:
    stop, told, stopped = abortable(on_end=lambda error: told.append(error)), [], []
    with RandomRuntime(seed) as runtime:
        seen: list[int] = []

        def look(x: int) -> None:
            seen.append(x)
            if len(seen) == seed % 5 + 1:
                stop.abort()

        source = values(range(1000), on_stop=stopped.append)
        run = pull(source, tap(look), stop, collect()).start(runtime, window=3)
    assert run.finished
    assert run.result() == [*range(len(run.result()))]
    assert len(run.result()) < 20
    assert (told, stopped) == ([None], [None])
