"""catch: errors that upstream ends with, that closing meets, and that downstream sends."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.pull import Recorder, catch, collect, map, probe_around, pull, take, values
from tests.pull.core.modules import Hand, Manual


def test_falsy_values_can_be_given_instead_of_an_error() -> None:
    for value in (0, "", []):
        assert pull(values(["x"]), map(int), catch(lambda _error, value=value: value), collect()).run() == [
            value
        ]


def test_the_handler_is_called_once_however_many_asks_wait() -> None:
    own, handled = ValueError("own"), []
    manual, hand, recorder = Manual(), Hand(), Recorder()
    catching = catch(lambda error: handled.append(error) or "instead")
    pull(manual.source, probe_around(catching, recorder), hand.sink).start()
    for ask in "abc":
        hand.request(ask)
    manual.answer(0, own)
    hand.request("d")
    assert handled == [own]
    assert hand.heard == [("a", "instead"), ("b", True), ("c", True), ("d", True)]


def test_an_abort_behind_the_value_that_was_given_is_confirmed() -> None:
    own = ValueError("own")
    manual, hand = Manual(), Hand()
    pull(manual.source, catch(lambda _error: "instead"), hand.sink).start()
    hand.request("ask")
    manual.answer(0, own)
    hand.request("abort", True)
    assert hand.heard == [("ask", "instead"), ("abort", True)]
    assert manual.requests == [None]


@pytest.mark.parametrize(("outcome", "answered"), [(False, "own"), (None, "True"), ("a value", "True")])
def test_an_error_that_closing_meets_is_handled_too(outcome: Any, answered: str) -> None:
    own = ValueError("own")
    manual, hand = Manual(), Hand()
    pull(manual.source, catch(lambda _error: outcome), hand.sink).start()
    hand.request("ask")
    hand.request("abort", True)
    manual.answer(1, own)
    assert [(name, str(end)) for name, end in hand.heard] == [("ask", answered), ("abort", answered)]


def test_an_error_of_downstream_passes_unhandled() -> None:
    own, handled = ValueError("own"), []
    manual, hand = Manual(), Hand()
    pull(manual.source, catch(handled.append), hand.sink).start()
    hand.request("ask")
    hand.request("error", own)
    assert manual.requests == [None, own]
    manual.answer(1, own)
    assert hand.heard == [("ask", own), ("error", own)]
    assert handled == []


def test_what_the_handler_raises_is_the_error_then_and_names_the_other_as_its_cause() -> None:
    def handler(error: Exception) -> None:
        raise KeyError("later")

    run = pull(values(["x"]), map(int), catch(handler), collect()).start()
    assert isinstance(run.error, KeyError)
    assert isinstance(run.error.__cause__, ValueError)


def test_a_stream_that_does_not_fail_is_left_alone() -> None:
    assert pull(values([1, 2, 3]), catch(lambda _error: 1 / 0), take(2), collect()).run() == [1, 2]


def test_an_error_that_the_handler_raises_again_is_not_its_own_cause() -> None:
    def again(error: Exception) -> None:
        raise error

    with pytest.raises(ValueError, match="invalid literal") as caught:
        pull(values("x"), map(int), catch(again), collect()).run()
    assert caught.value.__cause__ is None
