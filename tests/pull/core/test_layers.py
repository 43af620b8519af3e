"""Modules of the first two layers of the protocol, which know no errors or not even aborts."""

from __future__ import annotations

import pytest

from headrace.pull import PullSink, collect, map, pull, source, take, transformer, values
from headrace.pull.protocol import AnswerTo, End, Read
from tests.pull.core.modules import Hand

CAUSE = ValueError("E")


def ones(abort: End | None, answer: AnswerTo) -> None:
    assert abort is None, "of the base layer: it is only asked"
    answer(None, 1)


def passing(upstream: Read) -> Read:
    def read(abort: End | None, answer: AnswerTo) -> None:
        assert abort is None, "of the base layer: it is only asked"
        upstream(None, answer)

    return read


def test_a_source_of_the_base_layer_need_not_know_of_aborts() -> None:
    assert pull(source(ones, layer=1), take(3), collect()).run() == [1, 1, 1]


def test_an_abort_passes_by_a_transformer_of_the_base_layer_and_is_confirmed_behind_it() -> None:
    stopped: list[Exception | None] = []
    upstream = values([1, 2, 3], on_stop=stopped.append)
    assert pull(upstream, transformer(passing, layer=1), take(2), collect()).run() == [1, 2]
    assert stopped == [None]


def test_an_error_passes_by_a_transformer_of_the_base_layer() -> None:
    stopped: list[Exception | None] = []
    upstream = values([1, 0], on_stop=stopped.append)
    with pytest.raises(ZeroDivisionError) as raised:
        pull(upstream, transformer(passing, layer=1), map(lambda x: 1 // x), collect()).run()
    assert stopped == [raised.value]


def test_a_failure_reaches_a_module_of_the_second_layer_as_an_abort() -> None:
    told: list[End | None] = []

    def read(abort: End | None, answer: AnswerTo) -> None:
        told.append(abort)
        answer(abort, 1)

    hand = Hand()
    pull(source(read, layer=2), hand.sink).start()
    hand.request("1")
    hand.request("2", CAUSE)
    hand.request("3")
    assert told == [None, True]
    assert hand.heard == [("1", 1), ("2", CAUSE), ("3", CAUSE)]


def test_a_base_layer_source_at_work_is_left_to_itself() -> None:
    kept: list[AnswerTo] = []

    def read(abort: End | None, answer: AnswerTo) -> None:
        kept.append(answer)

    hand = Hand()
    run = pull(source(read, layer=1), hand.sink).start()
    hand.request("1")
    hand.request("2", True)
    assert hand.heard == [("1", True), ("2", True)]
    run.runtime.enter(kept[0], None, "late")
    assert len(hand.heard) == 2
    assert isinstance(hand.sink, PullSink)
