"""Chains of transformers give the same in random orders of events as in the usual one, asked one at a time.

It catches values that are lost, doubled or out of order between modules that each keep the rules alone.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from headrace.pull import (
    Pipeline,
    PullTransformer,
    abortable,
    async_map,
    batch,
    collect,
    eager,
    filter,
    high_watermark,
    limit,
    map,
    pull,
    recent,
    skip,
    sliding,
    take,
    take_while,
    throttle,
    through,
    unbatch,
    unique,
    values,
)
from headrace.pull.pipeline_runtime import Runtime
from headrace.testing.pull import RandomRuntime, VirtualRuntime


async def wait(x: int) -> int:
    await asyncio.sleep(x % 4)
    return x


LINKS: list[Callable[[], PullTransformer]] = [
    lambda: map(lambda x: x + 1),
    lambda: filter(lambda x: x % 5),
    lambda: skip(2),
    lambda: take(20),
    lambda: take_while(lambda x: x < 25),
    lambda: take_while(lambda x: x < 25, last=True),
    lambda: unique(lambda x: x // 2),
    lambda: through(str, str),
    lambda: pull(batch(3), unbatch()),
    lambda: pull(recent(3, 2.5), unbatch()),
    lambda: sliding(2, max),
    lambda: async_map(wait),
    lambda: async_map(wait, 3),
    lambda: async_map(wait, 3, cancel=True),
    lambda: abortable(),
    lambda: eager(3),
    lambda: high_watermark(4),
    lambda: limit(eager(5), 2),
    lambda: throttle(every=1),
]


def chain(seed: int) -> Pipeline:
    chosen = random.Random(seed)
    links = [chosen.choice(LINKS)() for _ in range(chosen.randrange(2, 6))]
    return pull(values(range(chosen.randrange(40))), *links, collect(batch=chosen.choice([1, 1, 4])))


def outcome(pipeline: Pipeline, runtime: Runtime, window: int | None) -> Any:
    run = pipeline.start(runtime, window=window, confirm_within=None)
    assert run.finished
    return run.result()


@pytest.mark.seeds(150)
def test_a_chain_gives_the_same_in_every_order(seed: int) -> None:
    with VirtualRuntime() as usual:
        expected = outcome(chain(seed), usual, window=1)
    with VirtualRuntime() as at_once:
        assert outcome(chain(seed), at_once, window=None) == expected
    with RandomRuntime(seed) as shuffled:
        assert outcome(chain(seed), shuffled, window=random.Random(seed).choice([None, 2, 7])) == expected
