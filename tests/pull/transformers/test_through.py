"""through: the end is told once, whoever causes it; what the functions raise."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.pull import Pipeline, collect, map, pull, take, tap, through, values
from tests.pull.core.modules import Hand, Manual


def fail(error: Exception) -> Any:
    def call(_x: object) -> None:
        raise error

    return call


def error_of(pipeline: Pipeline) -> Exception | None:
    return pipeline.start().error


def test_an_error_of_downstream_is_told() -> None:
    own, told = ValueError("own"), []
    assert error_of(pull(values([1]), through(on_end=told.append), map(fail(own)), collect())) is own
    assert told == [own]


def test_an_error_of_its_own_function_is_told() -> None:
    own, told = ValueError("own"), []
    assert error_of(pull(values([1]), through(fail(own), told.append), collect())) is own
    assert told == [own]


def test_the_end_is_told_before_downstream_learns_of_it() -> None:
    told: list[Any] = []
    manual, hand = Manual(), Hand()
    pull(manual.source, through(on_end=lambda _error: told.append(list(hand.heard))), hand.sink).start()
    hand.request("first")
    hand.request("second")
    hand.request("stop", True)
    assert told == []
    manual.answer(2, True)
    assert told == [[]]
    assert hand.heard == [("first", True), ("second", True), ("stop", True)]


def test_what_on_end_raises_fails_the_stream() -> None:
    own = ValueError("own")
    assert error_of(pull(values([1]), through(on_end=fail(own)), collect())) is own
    assert error_of(pull(values([1]), through(on_end=fail(own)), take(1), collect())) is own


def test_what_on_end_raises_about_an_error_is_attached_to_it() -> None:
    own, later = ValueError("own"), ValueError("later")
    assert error_of(pull(values([1]), map(fail(own)), through(on_end=fail(later)), collect())) is own
    assert own.__notes__ == ["then, while closing: ValueError: later"]


@pytest.mark.parametrize("fuse", [True, False])
def test_tap_sees_each_value_before_it_goes_on(fuse: bool) -> None:
    order: list[str] = []
    first, second = tap(lambda x: order.append(f"a{x}")), tap(lambda x: order.append(f"b{x}"))
    assert pull(values([1, 2]), first, second, collect()).run(fuse=fuse) == [1, 2]
    assert order == ["a1", "b1", "a2", "b2"]


def test_through_of_nothing_changes_nothing() -> None:
    assert pull(values([1, 2]), through(), collect()).run() == [1, 2]
