"""flatten and flat_map: what is opened when, what closes in which order, and no growth."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.pull import PullSource, PullTransformer, collect, flat_map, flatten, map, pull, take, values
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End, Read
from headrace.testing import VirtualRuntime, reference_source
from tests.pull.core.modules import Hand, Manual, delay
from tests.pull.core.test_stack import little_stack


class Failure(Exception):
    pass


def test_text_and_bytes_and_numbers_go_on_as_they_are() -> None:
    items = ["two words", b"xy", 7, None, (), {"a"}, range(2), {"x": [1]}]
    assert pull(values(items), flatten(), collect()).run() == ["two words", b"xy", 7, "a", 0, 1, [1]]


def test_it_flattens_one_level() -> None:
    assert pull(values([[[1], 2]]), flatten(), collect()).run() == [[1], 2]
    assert pull(values([[[1], 2]]), flatten(), flatten(), collect()).run() == [1, 2]


# --- laziness ----------------------------------------------------------------------------------


def noted(opened: list[int], number: int) -> PullSource:
    def open(_module: Module) -> Read:
        opened.append(number)
        given = iter([number, number])

        def read(abort: End | None, answer: AnswerTo) -> None:
            value = next(given, None)
            answer(abort or (True if value is None else None), value)

        return read

    return PullSource.of("noted", open)


def test_an_inner_stream_is_opened_when_all_before_it_has_been_given() -> None:
    opened: list[int] = []
    hand = Hand()
    pull(values([noted(opened, 1), noted(opened, 2)]), flatten(), hand.sink).start()
    assert opened == []
    seen: list[list[int]] = []
    for request in ("a", "b", "c"):
        hand.request(request)
        seen.append(list(opened))
    assert seen == [[1], [1], [1, 2]]
    hand.request("abort", True)


def test_upstream_is_asked_only_for_requests_that_find_nothing() -> None:
    outer, hand = Manual(), Hand()
    pull(outer.source, flatten(), hand.sink).start()
    hand.request("1")
    outer.answer(0, None, [10, 20])
    hand.request("2")
    assert outer.requests == [None]
    hand.request("3")
    hand.request("4")
    assert outer.requests == [None, None, None]
    outer.answer(1, None, [30, 40, 50])
    assert hand.heard == [("1", 10), ("2", 20), ("3", 30), ("4", 40)]
    hand.request("5")
    assert hand.heard[-1] == ("5", 50)
    hand.request("abort", True)
    outer.answer(3, True)
    assert [end for _name, end in hand.heard[5:]] == [True]


def test_a_generator_is_drawn_from_as_far_as_values_are_asked_for() -> None:
    drawn: list[int] = []

    def endless() -> Iterator[int]:
        at = 0
        while True:
            drawn.append(at)
            yield at
            at += 1

    assert pull(values([1]), flat_map(lambda _: endless()), take(3), collect()).run() == [0, 1, 2]
    assert drawn == [0, 1, 2]


def test_the_function_of_flat_map_is_called_when_what_is_before_is_used_up() -> None:
    called: list[int] = []

    def three(number: int) -> list[int]:
        called.append(number)
        return [number] * 3

    assert pull(values([1, 2, 3]), flat_map(three), take(4), collect()).run() == [1, 1, 1, 2]
    assert called == [1, 2]


# --- the end -----------------------------------------------------------------------------------


def test_an_abort_closes_a_generator_before_upstream() -> None:
    closed: list[str] = []

    def numbers() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.append("generator")

    outer = values([numbers()], on_stop=lambda _error: closed.append("outer"))
    assert pull(outer, flatten(), take(1), collect()).run() == [1]
    assert closed == ["generator", "outer"]


def test_what_a_generator_fails_with_when_it_is_closed_is_answered() -> None:
    cause = Failure("closing")

    def numbers() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            raise cause

    told: list[Exception | None] = []
    pipeline = pull(values([numbers()], on_stop=told.append), flatten(), take(1), collect())
    with pytest.raises(Failure) as raised:
        pipeline.run()
    assert raised.value is cause
    assert told == [cause]


def test_values_before_an_exception_are_given_before_it() -> None:
    def two() -> Iterator[int]:
        yield 1
        yield 2
        raise Failure("third")

    told: list[Exception | None] = []
    run = pull(values([two(), [9]], on_stop=told.append), flatten(), collect(batch=50)).start()
    with pytest.raises(Failure, match="third"):
        run.result()
    assert run.partial == [1, 2]
    assert told == [None]  # upstream did nothing wrong


def test_what_the_function_raises_fails_upstream_with_it() -> None:
    cause = Failure("function")

    def failing(number: int) -> list[int]:
        if number == 2:
            raise cause
        return [number]

    told: list[Exception | None] = []
    run = pull(values([1, 2, 3], on_stop=told.append), flat_map(failing), collect(batch=50)).start()
    with pytest.raises(Failure):
        run.result()
    assert run.partial == [1]
    assert told == [cause]


def test_an_inner_error_is_answered_when_upstream_has_confirmed_and_its_error_is_attached() -> None:
    outer, inner, hand = Manual(), Manual(), Hand()
    pull(outer.source, flatten(), hand.sink).start()
    hand.request("ask")
    outer.answer(0, None, inner.source)
    cause = Failure("inner")
    inner.answer(0, cause)
    assert outer.requests == [None, True]
    assert hand.heard == []
    outer.answer(1, Failure("outer"))
    assert hand.heard == [("ask", cause)]
    assert cause.__notes__ == ["then, while closing: Failure: outer"]
    hand.request("again")
    assert hand.heard[-1] == ("again", cause)


def test_an_inner_error_is_the_end_also_where_upstream_is_asked_for_more() -> None:
    outer, inner, hand = Manual(), Manual(), Hand()
    pull(outer.source, flatten(), hand.sink).start()
    hand.request("1")
    hand.request("2")
    outer.answer(0, None, inner.source)
    cause = Failure("inner")
    inner.answer(0, cause)
    assert outer.requests == [None, None, True]
    outer.answer(2, True)
    assert hand.heard == [("1", cause), ("2", cause)]


def test_an_inner_error_is_the_end_also_where_upstream_has_ended_and_more_is_asked() -> None:
    outer, inner, hand = Manual(), Manual(), Hand()
    pull(outer.source, flatten(), hand.sink).start()
    hand.request("1")
    hand.request("2")
    outer.answer(0, None, inner.source)
    outer.answer(1, True)
    cause = Failure("inner")

    def fail_and_be_asked() -> None:
        inner.answers[0](cause)
        hand.request("3")

    assert inner.module is not None
    inner.module.enter(fail_and_be_asked)
    assert hand.heard == [("1", cause), ("2", cause), ("3", cause)]


def test_an_abort_that_meets_an_inner_error_is_confirmed_with_that_error() -> None:
    outer, inner, hand = Manual(), Manual(), Hand()
    pull(outer.source, flatten(), hand.sink).start()
    hand.request("ask")
    outer.answer(0, None, inner.source)
    cause = Failure("inner")
    inner.answer(0, cause)
    hand.request("abort", True)
    assert outer.requests == [None, True]
    outer.answer(1, True)
    assert hand.heard == [("ask", cause), ("abort", cause)]


@pytest.mark.parametrize("stop", [True, Failure("stop")])
def test_a_stop_goes_to_the_inner_stream_then_upstream_and_is_confirmed_after_both(stop: End) -> None:
    outer, inner, hand = Manual(), Manual(), Hand()
    pull(outer.source, flatten(), hand.sink).start()
    hand.request("ask")
    outer.answer(0, None, inner.source)
    hand.request("stop", stop)
    assert (inner.requests, outer.requests) == ([None, stop], [None])
    inner.answer(1, stop)
    assert (inner.requests, outer.requests) == ([None, stop], [None, stop])
    assert hand.heard == []
    outer.answer(1, stop)
    assert hand.heard == [("ask", stop), ("stop", stop)]


def test_errors_of_both_while_closing_are_kept() -> None:
    outer, inner, hand = Manual(), Manual(), Hand()
    pull(outer.source, flatten(), hand.sink).start()
    hand.request("ask")
    outer.answer(0, None, inner.source)
    hand.request("stop", True)
    cause = Failure("inner")
    inner.answer(1, cause)
    outer.answer(1, Failure("outer"))
    assert hand.heard == [("ask", cause), ("stop", cause)]
    assert cause.__notes__ == ["then, while closing: Failure: outer"]


def test_an_error_upstream_comes_after_what_was_asked_for_before_it() -> None:
    outer = reference_source(1, Failure("outer"))
    run = pull(outer, map(lambda _: values([1, 2, 3])), flatten(), collect()).start(window=4)
    with pytest.raises(Failure, match="outer"):
        run.result()
    assert run.partial == [1, 2, 3]


# --- no growth ---------------------------------------------------------------------------------


def test_a_hundred_thousand_empty_streams_take_no_stack() -> None:
    with little_stack():
        assert pull(values(range(100_000)), flat_map(lambda _: values()), collect()).run() == []


def test_streams_nested_in_streams_take_no_stack() -> None:
    nested = values([1])
    for _ in range(2_000):
        nested = pull(values([nested, values()]), flatten())
    with little_stack():
        assert pull(nested, collect()).run() == [1]
        assert pull(nested, take(1), collect()).run() == [1]


@pytest.mark.parametrize("inner", [values, list])
def test_streams_that_have_ended_take_no_memory(inner: Any) -> None:
    def peak(count: int) -> int:
        pipeline = pull(values(range(count)), flat_map(lambda _: inner()), collect())
        gc.collect()
        tracemalloc.start()
        pipeline.run()
        _now, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(100)
    assert peak(4_000) < peak(400) + 50_000


def test_modules_that_were_opened_later_and_have_ended_are_let_go() -> None:
    run = pull(values(range(50)), flat_map(lambda n: values([n])), collect()).start()
    assert len(run.result()) == 50
    assert [module.name for module in run.modules] == ["values", "flat_map", "collect"]


# --- time --------------------------------------------------------------------------------------


def seconds(*stages: PullTransformer, count: int = 8) -> float:
    runtime = VirtualRuntime()
    run = pull(values(range(count)), *stages, collect()).start(runtime)
    assert len(run.wait()) == 2 * count
    return runtime.now()


def test_what_is_upstream_works_at_once_as_without_it() -> None:
    assert seconds(delay(1), delay(1), map(lambda n: [n, n]), flatten()) == 8 + 1


def test_with_a_width_modules_within_inner_streams_work_at_once() -> None:
    def inner(n: int) -> PullSource:
        return pull(values([n, n]), delay(1), delay(1))

    assert seconds(flat_map(inner)) == 8 * 4
    assert seconds(flat_map(inner, width=2)) == 8 * 3
