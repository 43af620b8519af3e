"""Promises 1, 2 and 4 on Spark Structured Streaming: a few random flows, tick by tick.

Many more run through Spark's task code without Spark, in tests/spark/test_stream_stages.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headrace import io
from headrace.spark import run
from headrace.testing import answers
from headrace.testing.tick_tables import check_consolidated
from tests.random_flows.cases import Accumulated, Case, Tick, cases, cuts

pytestmark = pytest.mark.spark


# A tick on Spark takes a good part of a second, so a failure is shown as it was drawn.
@settings(max_examples=6, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(cases(deferred=True).flatmap(lambda case: st.tuples(st.just(case), cuts(case, most=3))))
def test_streaming_answers_what_the_flow_means(spark: Any, drawn: tuple[Case, list[Tick]]) -> None:
    case, ticks = drawn
    held: dict[str, Counter[Any]] = {name: Counter() for name in case.graph.sinks}

    def into(sink: str) -> io.Call:
        def add(tick: int, changes: Any) -> None:
            told = [(tuple(row), weight) for *row, weight in changes.raw]
            check_consolidated(f"tick {tick}, sink {sink!r}", told)
            for row, weight in told:
                held[sink][row] += weight

        return io.Call(add)

    run(case.flow, spark, sources=batches(case, ticks), sinks={name: into(name) for name in held})
    so_far = Accumulated(case)
    for tick in ticks:
        so_far.add(tick)
    found = {name: Counter({row: n for row, n in bag.items() if n}) for name, bag in held.items()}
    assert found == answers(case.graph, so_far.inputs)


def batches(case: Case, ticks: Sequence[Tick]) -> dict[str, io.Rows]:
    return {name: io.Rows([tick.get(name, []) for tick in ticks]) for name in case.inputs}
