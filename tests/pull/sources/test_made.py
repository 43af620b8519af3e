"""count, infinite, once, empty, error: sources of next to nothing."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from headrace.pull import PullSource, collect, count, drain, empty, error, infinite, once, pull, take, values
from tests.pull.core.modules import Hand


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (count(3), [0, 1, 2, 3]),
        (count(0), [0]),
        (count(-1), []),
        (count(5, 3), [3, 4, 5]),
        (count(2, start=3), []),
        (pull(count(), take(3)), [0, 1, 2]),
        (pull(count(start=-1), take(3)), [-1, 0, 1]),
        (once("a"), ["a"]),
        (once(None), [None]),
        (once(False), [False]),
        (empty(), []),
    ],
)
def test_what_comes(source: PullSource, expected: list[object]) -> None:
    assert pull(source, collect()).run() == expected
    assert pull(source, collect(batch=7)).run() == expected


def test_infinite_calls_once_for_each_value_asked_for() -> None:
    made: list[int] = []

    def make() -> int:
        made.append(len(made))
        return made[-1]

    assert pull(infinite(make), take(3), collect()).run() == [0, 1, 2]
    assert made == [0, 1, 2]


def test_infinite_gives_random_numbers_if_told_so() -> None:
    numbers = random.Random(1)
    found = pull(infinite(numbers.random), take(100), collect(batch=10)).run()
    again = random.Random(1)
    assert found == [again.random() for _ in range(100)]


@pytest.mark.parametrize("batch", [1, 2, 3, 10])
def test_what_the_function_raises_comes_after_the_values_before_it(batch: int) -> None:
    answers = iter([1, 2])

    def make() -> int:
        for answer in answers:
            return answer
        raise OSError("no more")

    run = pull(infinite(make), collect(batch=batch)).start()
    assert run.partial == [1, 2]
    with pytest.raises(OSError, match="no more"):
        run.result()


def test_a_stop_iteration_of_the_function_is_no_end() -> None:
    with pytest.raises(RuntimeError) as raised:
        pull(infinite(iter([1, 2]).__next__), collect()).run()
    assert isinstance(raised.value.__cause__, StopIteration)


def test_a_failure_that_nobody_asked_for_does_not_happen() -> None:
    """A batch may draw it beside the last value that is wanted; with and without batches is the same."""
    answers = iter([1])

    def make() -> int:
        for answer in answers:
            return answer
        raise OSError("no more")

    hand = Hand()
    pull(infinite(make), hand.sink).start()
    assert hand.edge is not None
    heard: list[object] = []
    hand.edge(None, lambda end, found=None: heard.append(end or found), 2)
    hand.request("stop", True)
    assert heard == [[1]]
    assert hand.heard == [("stop", True)]


@pytest.mark.parametrize("stop", [None, True])
def test_error_is_the_answer_to_asks_and_aborts(stop: bool | None) -> None:
    cause = OSError("x")
    hand = Hand()
    pull(error(cause), hand.sink).start()
    hand.request("one", stop)
    hand.request("two")
    hand.request("three", True)
    assert hand.heard == [("one", cause), ("two", cause), ("three", cause)]


def test_who_fails_a_failed_stream_hears_its_own_error_first() -> None:
    cause, mine = OSError("dead from the start"), ValueError("mine")
    hand = Hand()
    pull(error(cause), hand.sink).start()
    hand.request("fail", mine)
    assert hand.heard == [("fail", mine)]
    assert mine.__notes__ == ["then, while closing: OSError: dead from the start"]


@pytest.mark.parametrize(
    "make", [empty, lambda: once(1), lambda: count(3), count, lambda: infinite(int), lambda: values([1])]
)
def test_stops_before_the_first_ask_are_confirmed_as_they_are(make: Callable[[], PullSource]) -> None:
    for stop in (True, OSError("x")):
        hand = Hand()
        pull(make(), hand.sink).start()
        hand.request("stop", stop)
        hand.request("after")
        assert hand.heard == [("stop", stop), ("after", stop)]


def test_a_million_numbers_are_counted() -> None:
    assert pull(count(1_000_000), drain()).run() is None
