"""A pipeline knows its depth, and keeps as many requests in flight as have something to work on."""

from __future__ import annotations

import pytest

from headrace.pull import PullTransformer, collect, map, pull, take, transformer, values
from headrace.pull.protocol import Read
from headrace.testing.pull.virtual_runtime import VirtualRuntime
from tests.pull.core.modules import Hand, delay


def seconds(modules: int, window: int | None, count: int = 50) -> float:
    """Virtual time for `count` values through so many modules that hold each value for a second."""
    runtime = VirtualRuntime()
    pipeline = pull(values(range(count)), *[delay(1) for _ in range(modules)], collect())
    run = pipeline.start(runtime, window=window)
    assert run.wait() == [*range(count)]
    return runtime.now()


@pytest.mark.parametrize("modules", [1, 2, 5, 9])
def test_all_modules_work_at_once(modules: int) -> None:
    assert seconds(modules, None) == 50 + modules - 1
    assert seconds(modules, 1) == 50 * modules


@pytest.mark.parametrize(("window", "each"), [(1, 6), (2, 3), (3, 2), (6, 1), (60, 1)])
def test_throughput_grows_with_the_window_as_far_as_the_depth(window: int, each: int) -> None:
    assert seconds(6, window, count=600) == pytest.approx(600 * each, rel=0.02)


def windows(*stages: PullTransformer) -> int:
    hand = Hand()
    pull(values([1]), *stages, hand.sink).start(VirtualRuntime())
    assert hand.edge is not None
    return hand.edge.window


def passing(upstream: Read) -> Read:
    return lambda abort, answer: upstream(abort, answer)


def test_the_window_counts_what_waits_and_nothing_else() -> None:
    assert windows() == 1
    assert windows(map(str), map(str), take(3)) == 1
    assert windows(delay(1), map(str), delay(1), take(3)) == 2
    assert windows(delay(1), delay(1), transformer(passing), delay(1)) == 2


def test_a_take_in_the_middle_asks_for_no_more_than_it_passes_on() -> None:
    pipeline = pull(values(range(100)), delay(1), delay(1), take(5), delay(1), collect())
    runtime = VirtualRuntime()
    assert pipeline.start(runtime).wait() == [0, 1, 2, 3, 4]
    assert runtime.now() == 7
