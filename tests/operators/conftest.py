"""Every example runs on every engine; the oracle, which judges random flows, is held to them too."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.errors import NotOnSpark
from penstock.spark.refusals import check_runs_on_spark
from penstock.testing import Backend, InProcess, answers
from penstock.testing.strategies import Accumulated, Case
from penstock.testing.ticks import TickInput
from tests.spark.tasks_in_process import InProcessTasks


class FromScratch:
    """The oracle as an engine: each tick it answers all over again, and tells the difference."""

    def changes(
        self, flow: ps.Flow, ticks: Sequence[TickInput]
    ) -> list[dict[str, list[tuple[tuple[Any, ...], int]]]]:
        case = Case(flow, {name: [] for name in flow.graph().sources})
        if case.is_deferred:
            pytest.skip("the oracle knows what is there in the end, not in which tick it comes")
        so_far = Accumulated(case)
        before: dict[str, Counter[Any]] = {name: Counter() for name in case.graph.sinks}
        out: list[dict[str, list[tuple[tuple[Any, ...], int]]]] = []
        for tick in ticks:
            so_far.add({name: list(rows) for name, rows in tick.items()})
            after = answers(case.graph, so_far.inputs)
            for name, bag in after.items():
                before[name].subtract(bag)
            out.append({name: [(row, -n) for row, n in bag.items() if n] for name, bag in before.items()})
            before = after
        return out


class InShards:
    """What Spark runs in its tasks, on three shards with shuffles between the stages, without Spark."""

    def changes(
        self, flow: ps.Flow, ticks: Sequence[TickInput]
    ) -> list[dict[str, list[tuple[tuple[Any, ...], int]]]]:
        try:
            check_runs_on_spark(flow.graph())
        except NotOnSpark as refused:
            pytest.skip(f"refused, as it should be: {refused.why}")
        with tempfile.TemporaryDirectory() as folder:
            tasks = InProcessTasks(flow, shards=3, folder=Path(folder), way="stages")
            out: list[dict[str, list[tuple[tuple[Any, ...], int]]]] = []
            for tick in ticks:
                changes = tasks.tick(tick)
                out.append({n: [(tuple(row[:-1]), row[-1]) for row in rows] for n, rows in changes.items()})
            return out


ENGINES: dict[str, Callable[[], Backend]] = {
    "in process": InProcess,
    "in shards": InShards,
    "from scratch": FromScratch,
}


@pytest.fixture(params=ENGINES)
def backend(request: pytest.FixtureRequest) -> Backend:
    return ENGINES[request.param]()
