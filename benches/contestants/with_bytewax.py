"""bytewax: dataflows on timely; batches of a thousand."""

from __future__ import annotations

from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import TestingSource, run_main

_BATCH = 1000


class _Sink(DynamicSink):
    def __init__(self, take: Any) -> None:
        self._take = take

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition:
        take = self._take

        class Partition(StatelessSinkPartition):
            def write_batch(self, items: list[Any]) -> None:
                take(items)

        return Partition()


def chain(numbers: list[int]) -> int:
    total = 0

    def take(items: list[int]) -> None:
        nonlocal total
        total += sum(items)

    flow = Dataflow("chain")
    stream = op.input("in", flow, TestingSource(numbers, batch_size=_BATCH))
    stream = op.map("inc", stream, lambda x: x + 1)
    stream = op.filter("even", stream, lambda x: x % 2 == 0)
    stream = op.map("triple", stream, lambda x: x * 3)
    op.output("out", stream, _Sink(take))
    run_main(flow)
    return total


def running_word_count(words: list[str]) -> tuple[int, int]:
    count = total = 0

    def take(items: list[tuple[str, int]]) -> None:
        nonlocal count, total
        count += len(items)
        total += sum(n for _, n in items)

    flow = Dataflow("words")
    stream = op.input("in", flow, TestingSource(words, batch_size=_BATCH))
    keyed = op.key_on("word", stream, lambda word: word)
    counts = op.stateful_map("count", keyed, lambda state, _: ((state or 0) + 1, (state or 0) + 1))
    op.output("out", counts, _Sink(take))
    run_main(flow)
    return count, total
