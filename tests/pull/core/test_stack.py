"""No stack grows with the number of values, of modules, or of empty rounds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.pull import PullSource, PullTransformer, collect, map, pull, source, take, transformer, values
from headrace.pull.protocol import AnswerTo, End, Read

ROOM = 250
"""Frames that a run may take on top of those of the test."""


@contextmanager
def little_stack() -> Iterator[None]:
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + ROOM)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def plus_one() -> PullTransformer:
    return map(lambda value: value + 1)


def passing(upstream: Read) -> Read:
    return lambda abort, answer: upstream(abort, answer)


def odd_only(upstream: Read) -> Read:
    """Asks again for every even value, from within the answer."""

    def read(abort: End | None, answer: AnswerTo) -> None:
        def got(end: End | None, value: int = 0, /) -> None:
            if end is None and value % 2 == 0:
                upstream(None, got)
            else:
                answer(end, value)

        upstream(abort, got)

    return read


def test_a_million_values_through_ten_modules() -> None:
    with little_stack():
        found = pull(values(range(1_000_000)), *[plus_one()] * 10, collect(batch=512)).run(fuse=False)
    assert found == [*range(10, 1_000_010)]


def test_many_values_one_at_a_time_through_ten_modules_that_are_not_fused() -> None:
    with little_stack():
        assert len(pull(values(range(20_000)), *[plus_one()] * 10, collect()).run(fuse=False)) == 20_000


def test_a_module_that_asks_again_within_an_answer() -> None:
    with little_stack():
        assert pull(values([0] * 100_000 + [1]), transformer(odd_only), collect()).run() == [1]


def test_hundreds_of_modules_one_behind_the_other() -> None:
    stages = [transformer(passing)] * 500
    with little_stack():
        assert pull(values([1, 2]), *stages, collect()).run() == [1, 2]
        assert pull(values([1, 2]), *stages, take(1), collect()).run() == [1]


def test_an_endless_source_is_stopped() -> None:
    def read(abort: End | None, answer: AnswerTo) -> None:
        answer(abort, 7)

    endless: PullSource = source(read)
    with little_stack():
        assert pull(endless, take(100_000), collect()).run() == [7] * 100_000
