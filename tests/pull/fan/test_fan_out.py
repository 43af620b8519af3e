"""tee and fork: who is asked when, who waits for whom, and how they end."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from headrace.errors import BadOption, UnknownPort
from headrace.pull import (
    PullSource,
    cat,
    collect,
    fork,
    map,
    merge,
    pull,
    sorted_merge,
    take,
    tee,
    together,
    values,
)
from headrace.pull.errors import AlreadyUsed, NeverAnswered
from headrace.testing import VirtualRuntime, reference_source
from tests.pull.core.modules import Hand, Manual, delay


class Failure(Exception):
    pass


def hands(*branches: PullSource) -> list[Hand]:
    """One hand for each branch, all of one run."""
    found = [Hand() for _ in branches]
    together(*(pull(branch, hand.sink) for branch, hand in zip(branches, found, strict=True))).start()
    return found


def evens(source: PullSource, **options: Any) -> tuple[PullSource, ...]:
    return fork(source, lambda number: number % 2, keys=(0, 1), **options)


# --- the pace ----------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [tee, evens])
def test_a_value_is_asked_for_when_every_branch_has_asked(split: Any) -> None:
    upstream = Manual()
    first, second = hands(*split(upstream.source))
    first.request("1")
    first.request("2")
    assert upstream.requests == []
    second.request("1")
    assert upstream.requests == [None]
    second.request("2")
    assert upstream.requests == [None, None]


def test_each_value_goes_to_every_branch() -> None:
    upstream = Manual()
    first, second, third = hands(*tee(upstream.source, 3))
    for hand in (first, second, third):
        hand.request("ask")
    upstream.answer(0, None, "a")
    assert first.heard == second.heard == third.heard == [("ask", "a")]


def test_with_ahead_a_branch_may_be_so_many_values_behind() -> None:
    upstream = Manual()
    first, second = hands(*tee(upstream.source, ahead=2))
    for name in "abc":
        first.request(name)
    assert upstream.requests == [None, None]
    upstream.answer(0, None, 1)
    upstream.answer(1, None, 2)
    assert upstream.requests == [None, None]
    second.request("a")
    assert second.heard == [("a", 1)]
    assert upstream.requests == [None, None, None]


def test_a_branch_is_ahead_of_what_the_slowest_has_asked_for() -> None:
    upstream = Manual()
    first, second = hands(*tee(upstream.source, ahead=1))
    second.request("a")
    for name in "abc":
        first.request(name)
    assert upstream.requests == [None, None]


@pytest.mark.parametrize("split", [tee, evens])
@pytest.mark.parametrize("when", ["before", "after"])
def test_nothing_is_kept_for_a_branch_that_has_left(split: Any, when: str) -> None:
    class Number(float):  # which can be weakly referenced
        pass

    seen: list[weakref.ref[Number]] = []

    def numbered(value: int) -> Number:
        found = Number(value)
        seen.append(weakref.ref(found))
        return found

    upstream = pull(values([2, 1, 4, 3, 6, 5]) if split is evens else values([1, 3, 5]), map(numbered))
    first, second = hands(*split(upstream, ahead=None))
    if when == "before":
        first.request("leave", True)
    for name in "abc":
        second.request(name)
    assert [value for _name, value in second.heard] == [1, 3, 5]
    second.heard.clear()
    if when == "after":
        gc.collect()
        assert sum(ref() is not None for ref in seen) == 3
        first.request("leave", True)
    gc.collect()
    assert not any(ref() for ref in seen)


def test_without_a_bound_one_branch_may_be_read_after_the_other() -> None:
    pipeline = pull(cat(tee(values(range(100)), ahead=None)), collect())
    assert pipeline.run() == [*range(100), *range(100)]
    with pytest.raises(NeverAnswered, match="branch 2 of 'tee'"):
        pull(cat(tee(values(range(100)), ahead=3)), collect()).run()


def test_one_value_of_fork_goes_to_one_branch_and_the_other_goes_on_waiting() -> None:
    upstream = Manual()
    even, odd = hands(*evens(upstream.source))
    even.request("1")
    odd.request("1")
    upstream.answer(0, None, 3)
    assert (even.heard, odd.heard) == ([], [("1", 3)])
    assert upstream.requests == [None]
    odd.request("2")
    assert upstream.requests == [None, None]


def test_a_branch_of_fork_that_does_not_ask_holds_up_the_others_only_when_ahead_is_full() -> None:
    even, odd = evens(values([1, 3, 2, 5, 7]), ahead=2)
    first, _second = hands(odd, even)
    for name in "abcd":
        first.request(name)
    assert first.heard == [("a", 1), ("b", 3), ("c", 5), ("d", 7)]


def test_modules_upstream_of_a_tee_work_at_once() -> None:
    runtime = VirtualRuntime()
    upstream = pull(values(range(10)), delay(1), delay(1), delay(1))
    first, second = tee(upstream)
    run = together(pull(first, collect()), pull(second, delay(1), collect())).start(runtime)
    assert run.wait() == ([*range(10)], [*range(10)])
    assert runtime.now() == 10 + 3


def test_branches_are_brought_together_again() -> None:
    plain, squares = tee(values([1, 2, 3]), ahead=None)
    both = sorted_merge(plain, pull(squares, map(lambda n: n * n)))
    assert pull(both, collect()).run() == [1, 1, 2, 3, 4, 9]


def test_a_branch_can_be_split_again() -> None:
    first, rest = tee(values([1, 2, 3]))
    low, high = fork(rest, lambda n: n > 1)
    pipelines = [pull(branch, collect()) for branch in (first, low, high)]
    assert together(*pipelines).run() == ([1, 2, 3], [1], [2, 3])


def test_branches_can_be_used_in_several_runs() -> None:
    first, second = tee(values([1, 2]))
    pipeline = together(pull(first, collect()), pull(second, collect()))
    assert pipeline.run() == pipeline.run() == ([1, 2], [1, 2])


# --- the end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [tee, evens])
def test_a_branch_that_leaves_is_confirmed_at_once_and_no_longer_waited_for(split: Any) -> None:
    upstream = Manual()
    first, second = hands(*split(upstream.source))
    first.request("ask")
    second.request("leave", True)
    assert second.heard == [("leave", True)]
    assert upstream.requests == [None]
    upstream.answer(0, None, 2)
    assert first.heard == [("ask", 2)]


@pytest.mark.parametrize("split", [tee, evens])
@pytest.mark.parametrize("stop", [True, Failure("stop")])
def test_the_last_branch_to_leave_stops_upstream_and_waits_for_it(split: Any, stop: Any) -> None:
    upstream = Manual()
    first, second = hands(*split(upstream.source))
    first.request("leave", True)
    second.request("leave", stop)
    assert upstream.requests == [stop]
    assert second.heard == []
    upstream.answer(0, stop)
    assert second.heard == [("leave", stop)]


@pytest.mark.parametrize("end", [True, Failure("end")])
def test_the_end_reaches_each_branch_after_the_values_before(end: Any) -> None:
    upstream = Manual()
    first, second = hands(*tee(upstream.source, ahead=1))
    first.request("1")
    upstream.answer(0, None, "a")
    second.request("1")
    second.request("2")
    upstream.answer(1, None, "b")
    first.request("2")
    second.request("3")
    upstream.answer(2, end)
    assert second.heard == [("1", "a"), ("2", "b"), ("3", end)]
    assert first.heard == [("1", "a"), ("2", "b")]
    first.request("3")
    assert first.heard[2:] == [("3", end)]


@pytest.mark.parametrize("end", [True, Failure("end")])
def test_a_branch_that_leaves_after_the_end_upstream_is_confirmed_without_it(end: Any) -> None:
    upstream = Manual()
    first, second = hands(*tee(upstream.source, ahead=None))
    second.request("1")
    upstream.answer(0, end)
    assert second.heard == [("1", end)]
    first.request("leave", True)
    second.request("leave", True)
    assert first.heard == [("leave", True)]
    assert upstream.requests == [None]


def test_the_last_branch_that_leaves_does_not_stop_what_has_ended() -> None:
    upstream = Manual()
    first, second = hands(*tee(upstream.source, ahead=None))
    second.request("1")
    second.request("leave", True)
    upstream.answer(0, Failure("nobody asks any more"))
    first.request("leave", True)
    assert (first.heard, upstream.requests) == ([("leave", True)], [None])


def test_an_error_upstream_reaches_all_and_is_raised_once() -> None:
    cause = Failure("upstream")
    first, second = tee(reference_source(2, cause))
    run = together(pull(first, collect()), pull(second, take(5), collect())).start()
    with pytest.raises(Failure) as raised:
        run.result()
    assert raised.value is cause
    assert not getattr(cause, "__notes__", [])


def test_a_branch_that_fails_leaves_and_the_others_go_on() -> None:
    def failing(number: int) -> int:
        raise Failure(str(number))

    first, second = tee(values([1, 2, 3]))
    kept = pull(first, collect())
    run = together(kept, pull(second, map(failing), collect())).start()
    with pytest.raises(Failure, match="1"):
        run.result()
    assert list(run.results.values()) == [[1, 2, 3]]


def test_values_for_a_branch_that_has_left_are_dropped() -> None:
    even, odd = evens(values(range(8)))
    pipeline = together(pull(even, take(1), collect()), pull(odd, collect()))
    assert pipeline.run() == ([0], [1, 3, 5, 7])


@pytest.mark.parametrize("batch", [1, 50])
def test_what_classify_raises_fails_upstream_and_then_all_branches(batch: int) -> None:
    told: list[Exception | None] = []

    def classify(number: int) -> bool:
        if number == 3:
            raise Failure("three")
        return number > 1

    low, high = fork(values([1, 2, 3, 4], on_stop=told.append), classify)
    run = pull(merge(low, high), collect(batch=batch)).start()
    with pytest.raises(Failure, match="three") as raised:
        run.result()
    assert sorted(run.partial) == [1, 2]
    assert told == [raised.value]


def test_a_value_that_belongs_nowhere_is_an_error() -> None:
    branches = fork(values("abc"), lambda letter: letter, keys=("a", "b"))
    with pytest.raises(UnknownPort) as raised:
        pull(merge(*branches), collect()).run()
    assert raised.value.key == "c"


# --- what is wrong -----------------------------------------------------------------------------


def test_a_branch_that_nobody_reads_is_named() -> None:
    first, _second, third = tee(values([1]), 3)
    with pytest.raises(NeverAnswered, match="branch 2 of 'tee'") as raised:
        together(pull(first, collect()), pull(third, collect())).run()
    assert raised.value.modules == ("tee",)


def test_a_branch_that_nobody_asks_is_waited_for_by_the_tee_that_is_named() -> None:
    first, second = tee(values([1]))
    idle = Hand()
    with pytest.raises(NeverAnswered) as raised:
        together(pull(second, idle.sink), pull(first, collect())).run()
    assert raised.value.modules == ("tee",)


def test_a_branch_is_read_once_in_a_run() -> None:
    first, second = tee(values([1]))
    pipelines = [pull(branch, collect()) for branch in (first, second, first)]
    with pytest.raises(AlreadyUsed):
        together(*pipelines).run()


@pytest.mark.parametrize(
    "build",
    [
        lambda: tee(values(), 0),
        lambda: tee(values(), ahead=-1),
        lambda: tee(values(), 1.5),  # type: ignore[arg-type]
        lambda: fork(values(), bool, keys=()),
        lambda: fork(values(), bool, keys=(1, True)),
        lambda: fork(values(), bool, ahead=-1),
    ],
)
def test_options_that_make_no_sense_are_named_where_they_are_written(build: Any) -> None:
    with pytest.raises(BadOption):
        build()
