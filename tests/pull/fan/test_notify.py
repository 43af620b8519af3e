"""notify: each listener hears what is pushed while it listens, and none holds up another."""

from __future__ import annotations

import pytest

from headrace.errors import BadOption, QueueFull
from headrace.pull import collect, map, notify, pull, take, together, values
from headrace.pull.errors import NeverAnswered
from tests.pull.core.modules import Hand


class Failure(Exception):
    pass


def test_what_is_pushed_before_anybody_listens_is_gone() -> None:
    news = notify()
    news.push(1)
    run = pull(news.listen(), collect()).start()
    assert news.listeners == 1
    news.push(2)
    news.end()
    assert run.result() == [2]
    assert news.listeners == 0


def test_a_source_listens_anew_in_each_run() -> None:
    news = notify()
    pipeline = pull(news.listen(), map(str), collect())
    first = pipeline.start()
    news.push(1)
    second = pipeline.start()
    news.push(2)
    news.end()
    news.push(3)
    assert (first.result(), second.result()) == (["1", "2"], ["2"])


def test_an_end_comes_after_what_waits_and_later_ones_do_nothing() -> None:
    news, hand = notify(), Hand()
    pull(news.listen(), hand.sink).start()
    cause = Failure("end")
    news.push(1)
    news.end(cause)
    news.end()
    for name in "ab":
        hand.request(name)
    assert hand.heard == [("a", 1), ("b", cause)]
    late = pull(news.listen(), collect()).start()
    with pytest.raises(Failure):
        late.result()


def test_a_listener_that_leaves_is_confirmed_at_once_and_hears_nothing_more() -> None:
    news = notify()
    run = pull(news.listen(), take(1), collect()).start()
    other = pull(news.listen(), collect()).start()
    news.push(1)
    assert run.result() == [1]
    assert news.listeners == 1
    news.push(2)
    news.end()
    assert other.result() == [1, 2]


def test_a_listener_that_is_too_slow_fails_after_what_waits_for_it_and_no_other_does() -> None:
    news, slow = notify(bound=2), Hand()
    pull(news.listen(), slow.sink).start()
    quick = pull(news.listen(), collect()).start()
    for value in range(5):
        news.push(value)
    assert news.listeners == 1
    news.end()
    assert quick.result() == [0, 1, 2, 3, 4]
    for name in "abc":
        slow.request(name)
    assert slow.heard[:2] == [("a", 0), ("b", 1)]
    assert isinstance(slow.heard[2][1], QueueFull)
    assert slow.heard[2][1].bound == 2


def test_a_listener_that_was_too_slow_hears_nothing_of_what_was_pushed_at_the_same_time() -> None:
    news, slow = notify(bound=1), Hand()

    def push(number: int) -> int:
        for value in (2, 3, 4):
            news.push(value)
        news.end()
        return number

    together(pull(news.listen(), slow.sink), pull(values([1]), map(push), collect())).start()
    for name in "abc":
        slow.request(name)
    assert slow.heard[0] == ("a", 2)
    assert [type(end) for _name, end in slow.heard[1:]] == [QueueFull, QueueFull]


def test_what_is_pushed_after_the_end_at_the_same_time_is_not_heard() -> None:
    news, slow = notify(), Hand()

    def push(number: int) -> int:
        news.push(2)
        news.end()
        news.push(3)
        return number

    together(pull(news.listen(), slow.sink), pull(values([1]), map(push), collect())).start()
    for name in "abc":
        slow.request(name)
    assert slow.heard == [("a", 2), ("b", True), ("c", True)]


def test_without_a_bound_any_number_waits() -> None:
    news, hand = notify(bound=None), Hand()
    pull(news.listen(), hand.sink).start()
    for value in range(5_000):
        news.push(value)
    hand.request("first")
    assert hand.heard == [("first", 0)]


def test_a_run_that_is_given_up_listens_no_more() -> None:
    news = notify()
    with pytest.raises(NeverAnswered, match="'notify'"):
        pull(news.listen(), collect()).run()
    assert news.listeners == 0


def test_a_listener_may_push() -> None:
    news = notify()

    def answer(number: int) -> int:
        if number < 4:
            news.push(number + 1)
        else:
            news.end()
        return number

    run = pull(news.listen(), map(answer), collect()).start()
    news.push(1)
    assert run.result() == [1, 2, 3, 4]


def test_a_bound_of_nothing_is_an_error() -> None:
    with pytest.raises(BadOption):
        notify(bound=0)
