"""`pull`: what may stand where, what comes of it, and that composing does nothing."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.pull import (
    Pipeline,
    PullDuplex,
    PullSink,
    PullSource,
    PullTransformer,
    collect,
    map,
    pull,
    sink,
    source,
    take,
    transformer,
    values,
)
from headrace.pull.errors import NotComposable
from headrace.pull.protocol import AnswerTo, End, Read


def plus(n: int) -> PullTransformer:
    return map(lambda value: value + n)


def test_composition_gives_a_piece_of_the_right_kind() -> None:
    assert isinstance(pull(values([1])), PullSource)
    assert isinstance(pull(values([1]), plus(1)), PullSource)
    assert isinstance(pull(plus(1), plus(2)), PullTransformer)
    assert isinstance(pull(plus(1), collect()), PullSink)
    assert isinstance(pull(values([1]), plus(1), collect()), Pipeline)


def test_partial_pipelines_mean_what_the_whole_means() -> None:
    both = pull(plus(1), plus(10))
    assert pull(pull(values([1, 2]), both), pull(plus(100), collect())).run() == [112, 113]
    assert pull(values([1, 2]), both, plus(100), collect()).run() == [112, 113]


def test_pieces_and_pipelines_can_be_used_again() -> None:
    piece = pull(values([1, 2, 3]), take(2))
    pipeline = pull(piece, collect())
    assert pipeline.run() == pipeline.run() == pull(piece, plus(0), collect()).run() == [1, 2]


def test_composing_does_nothing() -> None:
    told: list[End | None] = []

    def read(abort: End | None, answer: AnswerTo) -> None:
        told.append(abort)
        answer(True)

    def connect(upstream: Read) -> Read:
        told.append("connected")  # type: ignore[arg-type]
        return upstream

    pipeline = pull(source(read), transformer(connect), collect())
    assert told == []
    pipeline.run()
    assert told == ["connected", None]


PLAIN = (lambda: 1, "function")


@pytest.mark.parametrize(
    ("pieces", "position"),
    [
        ([collect(), values([1])], 1),
        ([values([1]), collect(), plus(1)], 2),
        ([values([1]), values([2])], 2),
        ([plus(1), values([2])], 2),
        ([values([1]), [1, 2]], 2),
        ([lambda: 1], 1),
        ([pull(values([1]), collect()), plus(1)], 1),
    ],
)
def test_a_wrong_order_says_which_piece_stands_where(pieces: list[Any], position: int) -> None:
    with pytest.raises(NotComposable) as raised:
        pull(*pieces)
    assert raised.value.position == position
    assert raised.value.fix


def test_nothing_makes_no_pipeline() -> None:
    with pytest.raises(NotComposable):
        pull()


# --- plain functions ---------------------------------------------------------------------------


def counting(last: int) -> PullSource:
    def read(abort: End | None, answer: AnswerTo) -> None:
        nonlocal at
        at += 1
        answer(abort or (True if at > last else None), at)

    at = 0
    return source(read, name="counting")


def doubling(upstream: Read) -> Read:
    def read(abort: End | None, answer: AnswerTo) -> None:
        upstream(abort, lambda end, value=None: answer(end, None if end else value * 2))

    return read


def draining(found: list[Any]) -> PullSink:
    def connect(read: Read) -> list[Any]:
        def got(end: End | None, value: Any = None, /) -> None:
            if end is None:
                found.append(value)
                read(None, got)

        read(None, got)
        return found

    return sink(connect)


def test_plain_functions_are_pieces_of_the_kind_that_they_are_called() -> None:
    assert pull(counting(3), transformer(doubling), draining([])).run() == [2, 4, 6]


def test_a_plain_sink_without_a_loop_of_its_own_is_stack_safe() -> None:
    assert len(pull(counting(50_000), transformer(doubling), draining([])).run()) == 50_000


def test_a_plain_sink_fails_as_its_stream_does() -> None:
    def boom(value: int) -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        pull(counting(3), map(boom), draining([])).run()


# --- duplexes ----------------------------------------------------------------------------------


def echo_of(items: list[Any], into: list[Any]) -> PullDuplex:
    """Sends the items, and keeps what it is sent; the two have nothing to do with each other."""
    return PullDuplex(values(items), draining(into))


def test_a_duplex_in_the_middle_takes_from_before_and_gives_to_after() -> None:
    into: list[int] = []
    assert pull(values([1, 2]), echo_of([7, 8], into), collect()).run() == [7, 8]
    assert into == [1, 2]


def test_two_duplexes_are_joined_both_ways() -> None:
    first: list[int] = []
    second: list[int] = []
    a, b = echo_of([1, 2], first), echo_of([3, 4], second)
    pull(a, plus(10), b, plus(100), a).run()
    assert (first, second) == ([103, 104], [11, 12])


def test_a_duplex_at_one_end_leaves_its_other_half_open() -> None:
    into: list[int] = []
    assert isinstance(pull(values([1]), echo_of([2], into)), PullSource)
    assert isinstance(pull(echo_of([2], into), collect()), PullSink)
    assert isinstance(pull(echo_of([1], []), echo_of([2], [])), PullDuplex)
    assert isinstance(pull(plus(1), echo_of([2], into), plus(1)), PullDuplex)
    assert pull(pull(values([1]), plus(1), echo_of([2], into)), plus(10), collect()).run() == [12]
    assert into == [2]
