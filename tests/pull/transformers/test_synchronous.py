"""filter, skip, unique, batch, sliding and the like: what they ask for, and what ends them early."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.pull import (
    PullTransformer,
    abortable,
    batch,
    catch,
    collect,
    eager,
    filter,
    high_watermark,
    limit,
    map,
    non_unique,
    pull,
    recent,
    skip,
    skip_while,
    sliding,
    take,
    take_while,
    tap,
    throttle,
    through,
    timeout,
    transformer,
    unbatch,
    unique,
    values,
)
from headrace.pull.errors import NotHashable
from tests.pull.core.modules import Hand


def result(*pieces: Any) -> Any:
    return pull(*pieces, collect()).run()


def taken_for(asks: int, piece: PullTransformer) -> list[int]:
    """Which of the values 0, 1, 2, ... go into a transformer that is asked so often."""
    entered: list[int] = []
    hand = Hand()
    # A probe's place: `take` keeps the tap out of the transformer's own module.
    pull(values(range(100)), tap(entered.append), take(100), piece, hand.sink).start()
    for _ in range(asks):
        hand.request("ask")
    assert len(hand.heard) == asks
    return entered


@pytest.mark.parametrize(
    ("piece", "asks", "taken"),
    [
        (map(str), 2, 2),
        (filter(lambda x: x % 2), 2, 4),
        (skip(3), 1, 4),
        (skip(3), 2, 5),
        (skip_while(lambda x: x < 4), 1, 5),
        (take(2), 3, 2),
        (take_while(lambda x: x < 2), 3, 3),
        (take_while(lambda x: x < 2, last=True), 4, 3),
        (unique(lambda x: x // 3), 2, 4),
        (batch(3), 2, 6),
        (recent(3), 2, 6),
        (sliding(3), 1, 3),
        (sliding(3), 2, 4),
        (pull(batch(3), unbatch()), 3, 3),
        (pull(batch(3), unbatch()), 4, 6),
        (through(str, str), 2, 2),
    ],
)
def test_no_more_is_taken_from_upstream_than_the_asks_need(
    piece: PullTransformer, asks: int, taken: int
) -> None:
    assert taken_for(asks, piece) == [*range(taken)]


@pytest.mark.parametrize("fuse", [True, False])
def test_each_run_begins_anew(fuse: bool) -> None:
    pieces = skip(1), skip_while(lambda x: x < 3), unique(), sliding(2), batch(2)
    pipeline = pull(values([1, 2, 3, 3, 1, 4, 5]), *pieces, collect())
    once = pipeline.run(fuse=fuse)
    assert once == [[[3, 1], [1, 4]], [[4, 5]]]
    assert pipeline.run(fuse=fuse) == once


def test_skip_of_nothing_or_less_passes_everything() -> None:
    assert result(values([1, 2]), skip(0)) == result(values([1, 2]), skip(-3)) == [1, 2]


def test_skip_of_more_than_there_is_gives_nothing() -> None:
    assert result(values([1, 2]), skip(3)) == []


def test_skip_while_tests_no_value_after_the_first_that_fails() -> None:
    tested: list[int] = []
    assert result(values([1, 5, 2]), skip_while(lambda x: tested.append(x) or x < 3)) == [5, 2]
    assert tested == [1, 5]


def test_take_while_tests_no_value_after_the_first_that_fails() -> None:
    tested: list[int] = []
    assert result(values([1, 5, 2]), take_while(lambda x: tested.append(x) or x < 3)) == [1]
    assert tested == [1, 5]


@pytest.mark.parametrize("window", [1, 2, 9])
def test_how_many_asks_are_under_way_does_not_change_what_take_while_gives(window: int) -> None:
    def fail_at_three(x: int) -> int:
        if x == 3:
            raise ValueError(x)
        return x

    pipeline = pull(values(range(9)), map(fail_at_three), take_while(lambda x: x < 2), collect())
    assert pipeline.run(window=window) == [0, 1]


@pytest.mark.parametrize("piece", [unique(), non_unique()])
def test_a_key_that_cannot_be_hashed_fails_the_stream_by_name(piece: PullTransformer) -> None:
    run = pull(values([[1], [1]]), piece, collect()).start()
    assert isinstance(run.error, NotHashable)
    assert piece.then[0].name in str(run.error)


def test_an_error_of_a_keys_own_comparison_is_passed_as_it_is() -> None:
    class Odd:
        def __hash__(self) -> int:
            return 0

        def __eq__(self, other: object) -> bool:
            raise TypeError("of its own")

    run = pull(values([Odd(), Odd()]), unique(), collect()).start()
    assert str(run.error) == "of its own"
    assert run.error.__cause__ is None


def test_keys_that_are_equal_in_python_are_one_key() -> None:
    assert result(values([1, True, 1.0, 0, False]), unique()) == [1, 0]


def test_before_an_error_comes_the_list_that_is_not_full() -> None:
    run = pull(values("12x"), map(int), batch(2), collect()).start()
    assert run.partial == [[1, 2]]
    run = pull(values("123x"), map(int), batch(2), collect()).start()
    assert run.partial == [[1, 2], [3]]


def test_an_empty_stream_makes_no_list() -> None:
    assert result(values(), batch(2)) == result(values(), sliding(2)) == []


def test_what_is_no_list_fails_unbatch() -> None:
    run = pull(values([[1], 2]), unbatch(), collect()).start()
    assert isinstance(run.error, TypeError)
    assert run.partial == [1]


def test_lists_of_a_window_are_not_shared() -> None:
    windows = result(values([1, 2, 3]), sliding(2))
    windows[0].append("mine")
    assert windows[1] == [2, 3]


def test_lists_are_filled_by_as_many_asks_at_once_as_upstream_can_use() -> None:
    asked: list[int] = []

    def open(_module: Any, edge: Any) -> Any:
        def read(abort: Any, answer: Any) -> None:
            asked.append(1)
            edge(abort, answer)

        return read

    hand = Hand()
    wide = PullTransformer.of("wide", open, width=4)
    pull(values(range(100)), wide, batch(6), hand.sink).start()
    hand.request("ask")
    assert hand.heard == [("ask", [0, 1, 2, 3, 4, 5])]
    assert len(asked) == 6


ANY_SIZE = [
    map(str),
    filter(lambda x: x % 3),
    skip(4),
    skip_while(lambda x: x < 4),
    take(11),
    take_while(lambda x: x != 11),
    take_while(lambda x: x != 11, last=True),
    pull(take(11), take_while(lambda x: x < 9)),
    unique(lambda x: x // 4),
    non_unique(lambda x: x // 4),
    through(str, str),
    batch(3),
    recent(4),
    pull(batch(3), unbatch()),
    sliding(3),
    catch(),
    abortable(),
    eager(5),
    high_watermark(5),
    limit(eager(5), 3),
    timeout(60),
    throttle(every=0.0001),
]


@pytest.mark.parametrize("piece", ANY_SIZE)
@pytest.mark.parametrize("fails", [False, True])
def test_how_many_values_are_asked_for_at_a_time_does_not_change_what_comes(
    piece: PullTransformer, fails: bool
) -> None:
    own = ValueError("own")

    def pass_some(x: int) -> int:
        if fails and x == 17:
            raise own
        return x

    def outcome(size: int, window: int) -> tuple[Any, Any]:
        pieces = values(range(20)), map(pass_some), piece, collect(batch=size)
        run = pull(*pieces).start(window=window)
        try:
            return run.wait(), None
        except ValueError as error:
            return run.partial, error

    once = outcome(1, 1)
    for size, window in [(2, 1), (7, 1), (100, 1), (1, 3), (5, 4)]:
        assert outcome(size, window) == once


@pytest.mark.parametrize("size", [1, 2, 10])
def test_values_before_an_exception_of_the_test_are_given_before_it(size: int) -> None:
    run = pull(values(range(9)), take_while(lambda x: 1 / (x - 3)), collect(batch=size)).start()
    assert isinstance(run.error, ZeroDivisionError)
    assert run.partial == [0, 1, 2]


def test_take_asks_again_where_upstream_answers_fewer_values_than_it_was_asked_for() -> None:
    one_at_a_time = transformer(lambda upstream: upstream)
    assert pull(values(range(9)), one_at_a_time, take(5), collect(batch=5)).run() == [0, 1, 2, 3, 4]
