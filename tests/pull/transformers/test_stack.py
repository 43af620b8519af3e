"""A million values through ten transformers need no stack."""

from __future__ import annotations

import sys

import pytest

from headrace.pull import (
    PullSink,
    abortable,
    batch,
    catch,
    eager,
    filter,
    high_watermark,
    map,
    pull,
    skip,
    sliding,
    take,
    take_while,
    tap,
    through,
    unbatch,
    values,
)
from headrace.pull.edge import PullEdge
from headrace.pull.module_context import Module
from headrace.pull.protocol import End
from headrace.pull.sinks import ReadLoop


def deepest(batch: int) -> PullSink:
    """Its result: how many values have come, and the deepest stack that one came on."""

    def open(module: Module, edge: PullEdge) -> None:
        count, depth = 0, 0

        def see(items: list[int]) -> None:
            nonlocal count, depth
            count += len(items)
            frame, here = sys._getframe(), 0
            while frame is not None:
                frame, here = frame.f_back, here + 1
            depth = max(depth, here)

        def over(end: End) -> None:
            assert end is True
            module.done((count, depth))

        ReadLoop(edge, see, over, batch=batch).start()

    return PullSink.of("deepest", open)


SYNCHRONOUS = (
    map(lambda x: x + 1),
    filter(lambda x: x >= 0),
    tap(lambda _x: None),
    skip(0),
    take(10**9),
    batch(10),
    unbatch(),
    sliding(1, lambda xs: xs[0]),
    through(on_end=lambda _error: None),
    catch(),
)


def here() -> int:
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


@pytest.mark.parametrize(("count", "batch"), [(1_000_000, 1000), (20_000, 1)])
def test_a_million_values_through_ten_transformers_need_no_stack(count: int, batch: int) -> None:
    found, depth = pull(values(range(count)), *SYNCHRONOUS, deepest(batch)).run()
    assert found == count
    assert depth - here() < 100


def test_buffers_and_handles_need_no_stack() -> None:
    pieces = eager(5), high_watermark(7), take_while(lambda _x: True), abortable(), eager(1)
    found, depth = pull(values(range(50_000)), *pieces, deepest(1)).run()
    assert found == 50_000
    assert depth - here() < 100
